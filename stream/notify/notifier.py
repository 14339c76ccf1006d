"""Decides what each recommendation gets: a letter, nothing, a report of a different answer, or a dead letter."""

from __future__ import annotations

import logging
import random
import time
import traceback
from collections.abc import Callable
from typing import Final, cast

from stream.errors import MalformedRecord, NoticeGivenUp, PoisonError, UnexpectedFault
from stream.events import Recommendation
from stream.notify.consumer import PartitionLost
from stream.notify.delivery_steps import DeliverySteps, Job
from stream.notify.notices.notice import KIND, Notice, answer_sha256, notice, notice_id
from stream.notify.notices.notice_index import NoticeIndex
from stream.notify.settings import Channel, NotifySettings
from stream.notify.transports.transport import TemporaryRefusal
from stream.notify.warnings import LocaleFallbacks
from stream.runtime.counters import Counters
from stream.runtime.kafka.inbound import Inbound
from stream.runtime.retry import Retry
from stream.times import time_ms
from stream.wire.framing import Framing

log = logging.getLogger(__name__)

JITTER: Final = (0.5, 1.0)  # share of a pause: letters refused together are not retried together
PARTITION_LOST_PAUSE_S: Final = 0.5
GIVE_UP_TWICE: Final = 2  # factor of the bound while the channel sends no letter at all


class Notifier:
    """Takes recommendations one at a time; a letter that is refused temporarily waits while others are sent.

    `settled` gets each record that is done; `retry` gives the retry of one record, by its partition.
    """

    def __init__(  # noqa: PLR0913 - composed in one place, by name
        self,
        settings: NotifySettings,
        *,
        delivery_steps: DeliverySteps,
        index: NoticeIndex,
        framing: Framing,
        counters: Counters,
        settled: Callable[[Inbound], None],
        retry: Callable[[int], Retry],
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        clock: Callable[[], float] = time.monotonic,
        chance: random.Random | None = None,
    ) -> None:
        self._settings = settings
        self._delivery_steps = delivery_steps
        self._index = index
        self._framing = framing
        self._counters = counters
        self._locale_fallbacks = LocaleFallbacks(counters)
        self._settled = settled
        self._retry = retry
        self._now_ms = now_ms
        self._clock = clock
        self._chance = chance or random.Random()  # noqa: S311 - jitter needs no secret
        self._waiting: dict[str, Job] = {}
        self._last_sent_s: dict[Channel, float] = {}
        counters.follow("notices_waiting", lambda: len(self._waiting))
        counters.follow("notices_urgent", lambda: self._due_within(settings.notify_urgent_s))
        counters.follow("notices_overdue", lambda: self._due_within(0))

    @property
    def full(self) -> bool:
        """Whether as many letters wait as may."""
        return len(self._waiting) >= self._settings.notify_waiting_max

    def take(self, record: Inbound) -> None:
        """Process one record.

        Raises: DependencyError when an outage lasts too long, Abandoned at a stop; ConfigurationError, CorruptionError.
        """
        self._counters.add("notify_read_total")
        try:
            recommendation = self._read(record, self._retry(record.partition))
        except PoisonError as error:
            self._bury(record, error, None, attempts=1)
            return
        why = "replay" if recommendation["replay"] else recommendation["status"]
        if why in ("replay", "not_model_decline"):
            self._counters.add("notify_skipped_total", why=why)
            if why != "replay":
                log.info("notice.skipped", extra={"decision_id": recommendation["decision_id"], "why": why})
            self._settled(record)
            return
        one = notice_id(recommendation["decision_id"], KIND)
        waiting = self._waiting.get(one)
        if waiting is not None:
            waiting.followers.append(record)
            return
        job = Job(record=record, recommendation=recommendation, notice_id=one, first_tried_s=self._clock())
        self._try(job)

    def take_due(self, stopping: Callable[[], bool] = lambda: False) -> float:
        """Retry the letters that are due, until a stop; return the seconds until the next is due, at most 1. Raises: as `take`."""
        now_s = self._clock()
        for job in [job for job in self._waiting.values() if job.due_s <= now_s]:
            if stopping():
                return 0.0
            if self._waiting.get(job.notice_id) is job:  # not dropped meanwhile
                self._try(job)
        left = [job.due_s - self._clock() for job in self._waiting.values()]
        return max(0.0, min([1.0, *left]))

    def drop(self, partitions: set[int]) -> None:
        """Forget the waiting letters of lost partitions: the new owner reads them again."""
        for one, job in list(self._waiting.items()):
            if job.record.partition in partitions:
                del self._waiting[one]

    def _try(self, job: Job) -> None:
        retry = self._retry(job.record.partition)

        def attempt() -> None:
            if not self._is_answered(job, retry):
                self._count(job, self._delivery_steps.deliver(job, retry))

        try:
            retry.outlast(attempt)
        except PartitionLost:  # or about to be: a rebalance decides, and calls `drop`
            job.due_s = self._clock() + PARTITION_LOST_PAUSE_S
            self._waiting[job.notice_id] = job
            return
        except TemporaryRefusal as refusal:
            self._postpone(job, refusal)
            return
        except PoisonError as error:
            self._fail(job, error)
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as fault:
            # The error's text may hold a value, so only the places in the code are logged.
            where = traceback.format_tb(fault.__traceback__)
            log.error("notice.fault", extra={"decision_id": job.recommendation["decision_id"], "where": where})  # noqa: TRY400
            self._fail(job, UnexpectedFault(f"a fault of this software: {type(fault).__name__}"))
        self._finish(job)

    def _is_answered(self, job: Job, retry: Retry) -> bool:
        """Whether the decision has, or may have, its letter already; a different answer is reported, once."""
        known = self._index.known(job.notice_id)
        answer = answer_sha256(job.recommendation)
        if known is None or not (known.done or (known.begun_ms is not None and known.answer != answer)):
            return False
        if known.answer == answer:
            self._skip_quietly(job, "duplicate")
        elif self._index.is_withheld(job.notice_id, answer):
            self._skip_quietly(job, "different_answer_again")
        else:
            withheld = notice(job.recommendation, status="withheld_different_answer", now_ms=self._now_ms())
            self._delivery_steps.record(withheld, retry)
            self._counters.add("notices_withheld_total")
            log.warning(
                "notice.withheld_different_answer",
                extra={
                    "decision_id": job.recommendation["decision_id"],
                    "recommendation_id": job.recommendation["recommendation_id"],
                    "what_next": "the applicant has a letter that says otherwise; a person must decide what to tell them",
                },
            )
        return True

    def _count(self, job: Job, done: Notice) -> None:
        late = self._is_due(job, 0)
        channel = cast("Channel", done["channel"])
        self._last_sent_s[channel] = self._clock()
        self._counters.add("notices_total", channel=channel, why=done["channel_why"])
        self._counters.observe("notice_duration_seconds", max(0.0, self._now_ms() - job.record.first_seen_ms) / 1000)
        if done["duplicate_possible"]:
            self._counters.add("notices_duplicate_possible_total")
        if late:
            self._counters.add("notices_late_total")
        if job.needs_address:
            self._counters.add("notices_by_hand_total")
        self._locale_fallbacks.record(wanted=job.wanted, taken=done["locale"] or "")
        log.log(
            logging.WARNING if late else logging.INFO,
            "notice.late" if late else "notice.sent",
            extra={
                name: cast("dict[str, object]", done)[name]
                for name in (
                    "decision_id", "notice_id", "kind", "status", "channel", "channel_why", "locale", "attempts",
                    "duplicate_possible", "error",
                )
            },
        )  # fmt: skip

    def _postpone(self, job: Job, refusal: TemporaryRefusal) -> None:
        settings, now_s = self._settings, self._clock()
        waited_s = now_s - job.first_tried_s
        channel = cast("Channel", job.channel)
        self._counters.add("notify_retries_total", channel=channel)
        others_sent = self._last_sent_s.get(channel, -1.0) >= job.first_tried_s
        if waited_s >= settings.notify_give_up_s * (1 if others_sent else GIVE_UP_TWICE):
            message = f"the letter was refused {job.attempts} times in {waited_s:.0f} s, the last time with: {refusal}"
            self._fail(job, NoticeGivenUp(message))
            self._finish(job)
            return
        doubled = min(settings.notify_retry_first_s * 2 ** min(job.attempts - 1, 30), settings.notify_retry_max_s)
        job.due_s = now_s + doubled * self._chance.uniform(*JITTER)
        self._waiting[job.notice_id] = job
        log.info(
            "notice.later",
            extra={
                "decision_id": job.recommendation["decision_id"],
                "channel": channel,
                "attempts": job.attempts,
                "why": str(refusal),
                "overdue": self._is_due(job, 0),
            },
        )

    def _fail(self, job: Job, error: PoisonError) -> None:
        failed = notice(
            job.recommendation,
            status="failed",
            now_ms=self._now_ms(),
            attempts=job.attempts,
            duplicate_possible=job.duplicate_possible,
            error=error.reason,
        )
        self._bury(job.record, error, failed, attempts=max(1, job.attempts), decision_id=failed["decision_id"])

    def _finish(self, job: Job) -> None:
        """End a job, and take the records of the same decision that arrived meanwhile."""
        self._waiting.pop(job.notice_id, None)
        self._settled(job.record)
        for follower in job.followers:
            self.take(follower)

    def _bury(
        self,
        record: Inbound,
        error: PoisonError,
        failed: Notice | None,
        *,
        attempts: int,
        decision_id: str | None = None,
    ) -> None:
        retry = self._retry(record.partition)
        retry.outlast(lambda: self._delivery_steps.bury(record, error, attempts=attempts, failed=failed, retry=retry))
        self._counters.add("notices_dead_total", reason=error.reason)
        where = {"partition": record.partition, "offset": record.offset}
        log.warning(
            "notice.dead", extra={"decision_id": decision_id, **where, "error": error.reason, "why": str(error)}
        )
        if failed is None:
            self._settled(record)

    def _read(self, record: Inbound, retry: Retry) -> Recommendation:
        value = record.value
        if value is None:
            message = "the record has no value"
            raise MalformedRecord(message)
        # This may ask the schema registry.
        name, found = retry.outlast(lambda: self._framing.decode(value, topic=record.topic))
        if name != "Recommendation":
            message = f"the record is of the kind {name}; expected Recommendation"
            raise MalformedRecord(message)
        return cast("Recommendation", found)

    def _skip_quietly(self, job: Job, why: str) -> None:
        self._counters.add("notify_skipped_total", why=why)
        log.debug("notice.skipped", extra={"decision_id": job.recommendation["decision_id"], "why": why})

    def _is_due(self, job: Job, within_s: float) -> bool:
        due_at = job.recommendation["notice_due_at"]
        return due_at is not None and time_ms(due_at) - self._now_ms() < within_s * 1000

    def _due_within(self, within_s: float) -> int:
        return sum(self._is_due(job, within_s) for job in list(self._waiting.values()))
