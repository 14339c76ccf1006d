"""One letter from its draft to its record: begun on the topic, handed over, recorded; each step after the one before.

The order, for each letter: the notice `sending` is acknowledged by the brokers; the partition is proven to be ours; the
transport takes the letter; the notice `sent` or `printed` is acknowledged. Only then its offset may be committed. So a
crash can make a second letter only between the last two steps, and the notice of that second one says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stream.errors import ConfigurationError, LetterRefused, PoisonError
from stream.events import Recommendation
from stream.notify.letters.letter_writer import Draft, LetterWriter
from stream.notify.notices.notice import notice
from stream.notify.notices.notice_index import NoticeIndex
from stream.notify.notices.record import Notice
from stream.notify.settings import CHANNELS, Channel
from stream.notify.transports.transport import AddressRefused, TemporaryRefusal, Transport
from stream.runtime.kafka.dead_letters import dead_letter, dead_letter_without_value
from stream.runtime.kafka.delivery import Delivers, Output
from stream.runtime.kafka.inbound import Inbound
from stream.runtime.retry import Retry
from stream.runtime.settings import Settings
from stream.wire.framing import Framing

log = logging.getLogger(__name__)

RECORD_ROOM_BYTES = 4_096  # of a notice, for what is not known before the letter was handed over


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One letter that is under way. Times are of the monotonic clock."""

    record: Inbound
    recommendation: Recommendation
    notice_id: str
    first_tried_s: float
    due_s: float = 0.0
    attempts: int = 0
    written_ms: int = 0  # the letter's date, Unix ms; 0 before the first try
    begun: bool = False  # `sending` is on the topic
    duplicate_possible: bool = False
    channel: Channel | None = None
    outcome: Notice | None = None  # it went out; this is still to be recorded
    wanted: str = ""  # the locale that it went out for
    needs_address: bool = False  # it went out without an address
    followers: list[Inbound] = field(default_factory=list)  # of the same decision, to be looked at after it


class DeliverySteps:
    """Takes jobs through the steps, for one thread."""

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
        now_ms: Callable[[], int],
    ) -> None:
        """`prove` raises when a partition is not ours; `now_ms`: the clock, in Unix milliseconds."""
        self._service = service
        self._letter_writer = letter_writer
        self._transports = transports
        self._index = index
        self._delivery = delivery
        self._framing = framing
        self._prove = prove
        self._now_ms = now_ms

    def deliver(self, job: Job, retry: Retry) -> Notice:
        """Bring a letter out, and record it; return its notice.

        Raises: PoisonError, TemporaryRefusal, DependencyError, PartitionLost, Abandoned. The job remembers how far it came.
        """
        if job.outcome is None:
            self._look_up(job)
            draft = self._letter_writer.draft(job.recommendation, job.written_ms)
            job.channel = draft.route.channel
            self._check_size(job, draft)
            self._prove(job.record.partition)
            self._begin(job, draft, retry)
            self._prove(job.record.partition)
            job.outcome = self._out(job, draft)
        self.record(job.outcome, retry)
        return job.outcome

    def record(self, one: Notice, retry: Retry) -> None:
        """Write a notice, wait until the brokers have it, and take it into the index.

        Raises: DependencyError, Abandoned; ConfigurationError where the topic refuses it for good.
        """
        refused = self._delivery.deliver([self._output(one)], retry)
        if refused:
            message = (
                f"the topic {self._service.topic_notices} refuses the notice of a letter that went out: {refused[0].reason}; "
                "see to its max.message.bytes (coach topics apply), and start again"
            )
            raise ConfigurationError(message)
        self._index.add([one])

    def bury(self, record: Inbound, error: PoisonError, *, attempts: int, failed: Notice | None, retry: Retry) -> None:
        """Write a dead letter, and after it the notice that says so. Raises: as `record`."""
        topic, now_ms, framing = self._service.topic_dlq, self._now_ms(), self._framing
        letter = dead_letter(record, error, topic=topic, attempts=attempts, now_ms=now_ms, framing=framing)
        refused = self._delivery.deliver([letter], retry)
        if refused:
            letter = dead_letter_without_value(
                record, error, topic=topic, attempts=attempts, now_ms=now_ms, framing=framing
            )
            refused = self._delivery.deliver([letter], retry)
        if refused:
            message = f"the topic {self._service.topic_dlq} refuses a dead letter: {refused[0].reason}"
            raise ConfigurationError(message)
        if failed is not None:
            self.record(failed, retry)

    def _look_up(self, job: Job) -> None:
        """Take up what an earlier try left: then this letter is of its date, so that two would be the same."""
        if job.written_ms:
            return
        known = self._index.known(job.notice_id)
        if known is not None and known.begun_ms is not None:
            job.duplicate_possible = True
            job.written_ms = known.begun_ms
        else:
            job.written_ms = self._now_ms()

    def _begin(self, job: Job, draft: Draft, retry: Retry) -> None:
        """Say on the topic that a letter is about to go; once a job."""
        if job.begun:
            return
        begun = notice(
            job.recommendation,
            status="sending",
            now_ms=job.written_ms,
            rendered=draft.rendered,
            route=draft.route,
            duplicate_possible=job.duplicate_possible,
        )
        self.record(begun, retry)
        job.begun = True

    def _out(self, job: Job, draft: Draft) -> Notice:
        """Hand a letter over, by post where its recipient's address is refused; write its notice."""
        error = None
        try:
            reply = self._sent(job, draft)
        except AddressRefused as bounced:
            why = CHANNELS[draft.route.channel].refused_why
            draft = self._letter_writer.printed(job.recommendation, draft, job.written_ms, why)
            error = f"Bounced: {bounced}"
            reply = self._sent(job, draft)
        job.wanted, job.needs_address = draft.wanted, draft.package.needs_address
        return notice(
            job.recommendation,
            status="printed" if draft.route.channel == "print" else "sent",
            now_ms=self._now_ms(),
            rendered=draft.rendered,
            route=draft.route,
            attempts=job.attempts,
            reply=reply,
            duplicate_possible=job.duplicate_possible,
            error=error,
        )

    def _sent(self, job: Job, draft: Draft) -> str:
        job.attempts += 1
        try:
            return self._transports[draft.route.channel].send(draft.package)
        except TemporaryRefusal as later:
            job.duplicate_possible = job.duplicate_possible or later.uncertain
            raise

    def _check_size(self, job: Job, draft: Draft) -> None:
        """See before a letter goes out that its record fits the topic."""
        whole = notice(job.recommendation, status="sent", now_ms=0, rendered=draft.rendered, route=draft.route)
        size = len(self._output(whole).value) + RECORD_ROOM_BYTES
        if size > self._service.recommendation_bytes_max:
            message = (
                f"the letter's record would take {size} bytes, more than COACH_RECOMMENDATION_BYTES_MAX lets through"
            )
            raise LetterRefused(message)

    def _output(self, one: Notice) -> Output:
        topic = self._service.topic_notices
        return Output(
            topic=topic, key=one["decision_id"].encode(), value=self._framing.encode("Notice", one, topic=topic)
        )
