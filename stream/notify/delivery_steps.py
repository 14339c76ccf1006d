"""The steps of one letter, from its draft to its record.

The order: the brokers acknowledge the notice `sending`; ownership of the partition is confirmed; the transport takes the
letter; the brokers acknowledge the notice `sent` or `printed`; the offset may be committed. A crash can cause a second
letter only between the third step and the fourth, and the notice of that second letter says so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stream.errors import ConfigurationError, LetterRefused, PoisonError
from stream.events import Recommendation
from stream.notify.letters.letter_writer import Draft, LetterWriter
from stream.notify.notices.notice import Notice, notice
from stream.notify.notices.notice_index import NoticeIndex
from stream.notify.settings import CHANNELS, Channel
from stream.notify.transports.transport import AddressRefused, TemporaryRefusal, Transport
from stream.runtime.kafka.dead_letters import dead_letter
from stream.runtime.kafka.delivery import Delivers, Output
from stream.runtime.kafka.inbound import Inbound
from stream.runtime.retry import Retry
from stream.runtime.settings import Settings
from stream.wire.framing import Framing

log = logging.getLogger(__name__)

RECORD_ROOM_BYTES = 4_096  # of a notice, for the fields that are known only after sending


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One letter in progress. Seconds are of the monotonic clock."""

    record: Inbound
    recommendation: Recommendation
    notice_id: str
    first_tried_s: float
    due_s: float = 0.0
    attempts: int = 0
    written_ms: int = 0  # the letter's date, Unix ms; 0 before the first attempt
    begun: bool = False  # the notice `sending` is on the topic
    duplicate_possible: bool = False
    channel: Channel | None = None
    outcome: Notice | None = None  # sent; this notice is still to be recorded
    wanted: str = ""  # the locale that the contact asked for
    needs_address: bool = False  # printed without an address
    followers: list[Inbound] = field(default_factory=list)  # later records of the same decision, taken after it


class DeliverySteps:
    """Takes jobs through the steps, on one thread.

    `prove` raises when the partition is not owned; `now_ms` is the clock, in Unix milliseconds.
    """

    def __init__(
        self,
        service: Settings,
        *,
        letter_writer: LetterWriter,
        transports: Mapping[Channel, Transport],
        index: NoticeIndex,
        delivery: Delivers,
        framing: Framing,
        prove: Callable[[int], None],
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._service = service
        self._letter_writer = letter_writer
        self._transports = transports
        self._index = index
        self._delivery = delivery
        self._framing = framing
        self._prove = prove
        self._now_ms = now_ms

    def deliver(self, job: Job, retry: Retry) -> Notice:
        """Send a letter, record it, and return its notice. The job keeps its progress for the next attempt.

        Raises: PoisonError, TemporaryRefusal, DependencyError, PartitionLost, Abandoned.
        """
        if job.outcome is None:
            self._resume(job)
            draft = self._letter_writer.draft(job.recommendation, job.written_ms)
            job.channel = draft.kept.channel
            self._check_size(job, draft)
            self._prove(job.record.partition)
            self._begin(job, draft, retry)
            self._prove(job.record.partition)
            job.outcome = self._send(job, draft)
        self.record(job.outcome, retry)
        return job.outcome

    def record(self, one: Notice, retry: Retry) -> None:
        """Write a notice, wait for the brokers' acknowledgement, and add it to the index.

        Raises: DependencyError, Abandoned; ConfigurationError where the topic refuses it.
        """
        refused = self._delivery.deliver([self._output(one)], retry)
        if refused:
            message = (
                f"the topic {self._service.topic_notices} refuses the notice of a letter that was sent: {refused[0].reason}; "
                "raise its max.message.bytes (coach topics apply), and start again"
            )
            raise ConfigurationError(message)
        self._index.add([one])

    def bury(self, record: Inbound, error: PoisonError, *, attempts: int, failed: Notice | None, retry: Retry) -> None:
        """Write a dead letter, then the notice `failed` if given. Raises: as `record`."""
        topic, now_ms, framing = self._service.topic_dlq, self._now_ms(), self._framing
        letter = dead_letter(record, error, topic=topic, attempts=attempts, now_ms=now_ms, framing=framing)
        refused = self._delivery.deliver([letter], retry)
        if refused:
            letter = dead_letter(
                record, error, topic=topic, attempts=attempts, now_ms=now_ms, framing=framing, without_value=True
            )
            refused = self._delivery.deliver([letter], retry)
        if refused:
            message = f"the topic {self._service.topic_dlq} refuses a dead letter: {refused[0].reason}"
            raise ConfigurationError(message)
        if failed is not None:
            self.record(failed, retry)

    def _resume(self, job: Job) -> None:
        """Date the letter, by an earlier attempt of which no outcome is known, so that two letters would be equal."""
        if job.written_ms:
            return
        known = self._index.known(job.notice_id)
        if known is not None and known.begun_ms is not None:
            job.duplicate_possible = True
            job.written_ms = known.begun_ms
        else:
            job.written_ms = self._now_ms()

    def _begin(self, job: Job, draft: Draft, retry: Retry) -> None:
        if job.begun:
            return
        begun = notice(
            job.recommendation,
            status="sending",
            now_ms=job.written_ms,
            kept=draft.kept,
            duplicate_possible=job.duplicate_possible,
        )
        self.record(begun, retry)
        job.begun = True

    def _send(self, job: Job, draft: Draft) -> Notice:
        """Send a letter, or print it where its address is refused; return its notice."""
        error = None
        try:
            reply = self._attempt(job, draft)
        except AddressRefused as refused:
            why = CHANNELS[draft.kept.channel].refused_why
            draft = self._letter_writer.printed(job.recommendation, draft, job.written_ms, why)
            error = f"Bounced: {refused}"
            reply = self._attempt(job, draft)
        job.wanted, job.needs_address = draft.wanted, draft.package.needs_address
        return notice(
            job.recommendation,
            status="printed" if draft.kept.channel == "print" else "sent",
            now_ms=self._now_ms(),
            kept=draft.kept,
            attempts=job.attempts,
            reply=reply,
            duplicate_possible=job.duplicate_possible,
            error=error,
        )

    def _attempt(self, job: Job, draft: Draft) -> str:
        job.attempts += 1
        try:
            return self._transports[draft.kept.channel].send(draft.package)
        except TemporaryRefusal as later:
            job.duplicate_possible = job.duplicate_possible or later.uncertain
            raise

    def _check_size(self, job: Job, draft: Draft) -> None:
        """Refuse, before it is sent, a letter whose record would not fit the topic."""
        whole = notice(job.recommendation, status="sent", now_ms=0, kept=draft.kept)
        size = len(self._output(whole).value) + RECORD_ROOM_BYTES
        if size > self._service.recommendation_bytes_max:
            message = f"the letter's record would take {size} bytes, more than COACH_RECOMMENDATION_BYTES_MAX allows"
            raise LetterRefused(message)

    def _output(self, one: Notice) -> Output:
        topic = self._service.topic_notices
        return Output(
            topic=topic, key=one["decision_id"].encode(), value=self._framing.encode("Notice", one, topic=topic)
        )
