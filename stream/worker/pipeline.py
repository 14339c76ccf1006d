"""From decisions read to offsets safe to commit: batches, outputs in their order, and decisions that wait for a model.

One batch is under way at a time. Whatever arrives meanwhile is the next one, so batches are small when there is little
to do and large when there is much. Per batch: every audit record is acknowledged by the broker, then every
recommendation, then every dead letter, then the offsets. A decision whose model nobody published waits aside; the ones
behind it go on, and only the commit of its partition waits with it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from stream.errors import (
    BundleLoading,
    BundleLost,
    DependencyError,
    DiskUnavailable,
    KafkaUnavailable,
    RedisUnavailable,
    RegistryUnavailable,
    SchemaUnavailable,
)
from stream.runtime.kafka.commit_order import CommitOrder, Entry
from stream.runtime.kafka.inbound import Inbound
from stream.runtime.retry import Abandoned, Retry, StopRequested
from stream.runtime.settings import Settings
from stream.worker.answering import DECLINED, Answered, Outcome, Refused, Waiting
from stream.worker.decision_log import DecisionLog, now_ms
from stream.worker.outputs import Tried

log = logging.getLogger(__name__)

RECHECK_INTERVAL_S: Final = 5.0  # before a decision asks again for a lost bundle or schema: nobody tells of it
LOADING_MAX_S: Final = 30.0  # for a bundle that is being fetched and opened, whatever COACH_MODEL_WAIT_S says
LOOK_AGAIN_S: Final = 0.1  # while decisions wait for a model: is it there, are we to stop?
FRESH_BATCHES_MAX: Final = 2  # how many batches may lie ready before the reader waits
OUTAGES: Final[dict[type[DependencyError], str]] = {
    KafkaUnavailable: "kafka",
    RedisUnavailable: "redis",
    RegistryUnavailable: "registry",
    DiskUnavailable: "disk",
}
BATCH: Final = "the batch under way"  # what /health hears of
STALLED_AFTER_S: Final = 300.0  # past its own bound: opening a bundle from an object store, compiling on a first run
STAGES_OF_DELIVERY: Final = 4  # audit records, recommendations, dead letters, and those again without their value


@dataclass(slots=True, eq=False)
class Work:
    """One decision on its way; `overdue` when it must not wait for its model any longer."""

    entry: Entry
    record: Inbound
    tries: int = 0
    parked_at_s: float | None = None
    models_seen: int = -1  # how much was published when it was tried last
    again_at_s: float | None = None  # when it is to be tried whatever was published
    overdue: bool = False


@dataclass(slots=True)
class _Batch:
    work: list[Work]
    acknowledged_ms: int = 0
    rest: list[Work] = field(default_factory=list)  # what the time did not suffice for
    outcomes: list[Outcome] = field(default_factory=list)


class Pipeline:
    """Takes records in from the agent, and works through them in `run`. All methods belong to the event loop."""

    def __init__(
        self,
        *,
        outcomes_of: Callable[[Sequence[Inbound], float], list[Outcome]],
        write_out: Callable[[Sequence[Tried], Sequence[Outcome], Retry], list[Outcome]],
        order: CommitOrder,
        settings: Settings,
        decision_log: DecisionLog,
        generation: Callable[[], int],
        suspended: Callable[[], bool],
        models_changes: Callable[[], int],
    ) -> None:
        """Compose. `outcomes_of` is that of answering.py, `write_out` that of outputs.py but for its last three arguments.

        `generation` is the consumer group's present one; `suspended` is true while a stop or rebalance goes on.
        """
        self._outcomes_of = outcomes_of
        self._write_out = write_out
        self._order = order
        self._settings = settings
        self._decision_log = decision_log
        self._counters = decision_log.counters
        self._vitals = decision_log.vitals
        self._generation = generation
        self._suspended = suspended
        self._models_changes = models_changes
        self._more_due = False  # of the parked, more than one batch takes
        self._ended = False
        self._away: DependencyError | None = None
        self._logged_waiting: set[tuple[str | None, str | None]] = set()
        self._fresh: deque[Work] = deque()
        self._parked: deque[Work] = deque()
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()

    async def take(self, record: Inbound) -> None:
        """Take in a record that was just read; wait while there is no room for more."""
        self._counters.add("decisions_read_total")
        self._fresh.append(Work(self._order.add(record), record))
        self._arrived.set()
        if self._ended:
            self._let_go()
        while self._full():
            self._room.clear()
            await self._room.wait()

    async def run(self) -> None:
        """Work until cancelled.

        Raises: DependencyError when an outage outlasts its bound, CorruptionError, ConfigurationError when the
        dead-letter topic refuses a dead letter. In all of them nothing of the batch under way is acked.
        """
        try:
            while True:
                await self._wait()
                if self._suspended():
                    self._let_go()
                    continue
                batch = self._next_batch()
                if batch.work:
                    await self._work_through(batch)
                if not self._full():
                    self._room.set()
        finally:
            self._ended = True
            self._let_go()  # so that Faust's stop does not wait for what nobody will finish

    @property
    def parked(self) -> int:
        """How many decisions wait for their model."""
        return len(self._parked)

    @property
    def uncommitted(self) -> int:
        """How many decisions are read and not acked."""
        return len(self._order)

    @property
    def waiting_for(self) -> str | None:
        """What is away while an outage is waited out: kafka, redis, registry, disk or other."""
        if self._away is None:
            return None
        return next((name for kind, name in OUTAGES.items() if isinstance(self._away, kind)), "other")

    async def _wait(self) -> None:
        if self._fresh or self._more_due:
            return
        self._arrived.clear()
        try:
            await asyncio.wait_for(self._arrived.wait(), LOOK_AGAIN_S if self._parked else None)
        except TimeoutError:
            return

    def _next_batch(self) -> _Batch:
        """Parked decisions whose model may be there now or whose wait is over, then fresh ones."""
        parked_max = max(1, self._settings.batch_max // 2)  # leaves room for the fresh ones
        now_s, published = time.monotonic(), self._models_changes()
        batch, self._more_due = _Batch([]), False
        keep: deque[Work] = deque()
        for work in self._parked:
            parked_at_s = now_s if work.parked_at_s is None else work.parked_at_s
            work.overdue |= now_s - parked_at_s >= self._settings.model_wait_s
            again = work.again_at_s is not None and now_s >= work.again_at_s
            due = work.overdue or again or work.models_seen != published
            fits = len(batch.work) < parked_max
            (batch.work if due and fits else keep).append(work)
            self._more_due |= due and not fits
        self._parked = keep
        while self._fresh and len(batch.work) < self._settings.batch_max:
            batch.work.append(self._fresh.popleft())
        batch.work = [work for work in batch.work if not work.entry.released]
        for work in batch.work:
            work.models_seen = published
        return batch

    async def _work_through(self, batch: _Batch) -> None:
        self._counters.add("batches_total")
        retry = Retry(
            total_s=self._settings.outage_max_s,
            pause_max_s=self._settings.retry_delay_max_s,
            abandoned=StopRequested(self._suspended, self._settings.drain_s),
            on_wait=self._note_outage,
        )
        try:
            await asyncio.to_thread(self._answer_and_deliver, batch, retry)
        except Abandoned:
            self._let_go()
            return
        finally:
            self._away = None
            self._vitals.rest(BATCH)
        self._fresh.extendleft(reversed(batch.rest))
        finished = []
        for work, outcome in zip(batch.work, batch.outcomes, strict=True):
            if isinstance(outcome, Waiting):
                self._park(work, outcome)
            else:
                finished.append(work.entry)
        # No await from here to the last ack: a commit in between would see half a batch.
        self._counters.add("decisions_acked_total", self._order.settle(finished, self._generation()))
        self._counters.observe("batch_decisions", len(batch.work))
        records = [work.record for work in batch.work]
        self._decision_log.close(zip(records, batch.outcomes, strict=True), acknowledged_ms=batch.acknowledged_ms)

    def _answer_and_deliver(self, batch: _Batch, retry: Retry) -> None:
        """The batch's whole blocking part, in a thread: answers, then outputs in their order."""
        records = [work.record for work in batch.work]
        while True:
            self._vitals.expect(BATCH, self._settings.batch_s_max + STALLED_AFTER_S)
            try:
                outcomes = self._outcomes_of(records, self._settings.batch_s_max)
                break
            except DependencyError as away:
                retry.pause(away)
        retry.progress()
        self._away = None
        batch.work, batch.rest = batch.work[: len(outcomes)], batch.work[len(outcomes) :]
        for work in batch.work:
            work.tries += 1 + retry.pauses
        batch.outcomes = [
            _given_up(work, outcome) if isinstance(outcome, Waiting) and _is_over(work, outcome) else outcome
            for work, outcome in zip(batch.work, outcomes, strict=True)
        ]
        tried = [(work.record, work.tries) for work in batch.work]
        self._vitals.expect(BATCH, STAGES_OF_DELIVERY * self._settings.delivery_timeout_s + STALLED_AFTER_S)
        began_s = time.perf_counter()
        batch.outcomes = self._write_out(tried, batch.outcomes, retry)
        batch.acknowledged_ms = now_ms()
        for outcome in batch.outcomes:
            if isinstance(outcome, Answered | Refused):
                outcome.timer.stages_s["deliver"] = time.perf_counter() - began_s

    def _park(self, work: Work, waiting: Waiting) -> None:
        """Let a decision wait for its model; when too many wait, the oldest waited long enough."""
        now_s = time.monotonic()
        if work.parked_at_s is None:
            work.parked_at_s = now_s
            self._counters.add("decisions_parked_total")
            self._log_waiting(waiting)
        asks_again = isinstance(waiting.error, BundleLost | SchemaUnavailable)
        work.again_at_s = now_s + RECHECK_INTERVAL_S if asks_again else None
        self._parked.append(work)
        for oldest in list(self._parked)[: max(0, len(self._parked) - self._settings.parked_max)]:
            oldest.overdue = True

    def _log_waiting(self, waiting: Waiting) -> None:
        """One line for each model version, until nothing waits any more."""
        if not self._parked:
            self._logged_waiting.clear()
        model = waiting.model_id, waiting.model_version
        if model not in self._logged_waiting and len(self._logged_waiting) < self._settings.parked_max:
            self._logged_waiting.add(model)
            extra = {"model_id": model[0], "model_version": model[1], "reason": waiting.error.reason}
            bound_s = self._settings.model_wait_s
            log.warning("decisions.waiting", extra={**extra, "why": str(waiting.error), "wait_max_s": bound_s})

    def _full(self) -> bool:
        uncommitted = len(self._order) >= self._settings.uncommitted_max
        if uncommitted and self._parked:  # what waits for a model may not stall the others
            self._parked[0].overdue = True
            self._arrived.set()
        return uncommitted or len(self._fresh) >= FRESH_BATCHES_MAX * self._settings.batch_max

    def _let_go(self) -> None:
        """Release all that is not finished, so that a stop or rebalance need not wait for it."""
        count = self._order.release_all()
        if count:
            self._counters.add("decisions_released_total", count)
            log.info("decisions.released", extra={"count": count, "parked": len(self._parked)})
        self._fresh.clear()
        self._parked.clear()
        self._more_due = False
        self._room.set()

    def _note_outage(self, why: DependencyError, waited_s: float) -> None:
        self._away = why
        self._vitals.expect(
            BATCH, self._settings.retry_delay_max_s + self._settings.delivery_timeout_s + STALLED_AFTER_S
        )
        self._counters.add("outage_pauses_total")
        log.warning("outage.waiting", extra={"why": str(why), "waited_s": round(waited_s, 3)})


def _is_over(work: Work, waiting: Waiting) -> bool:
    """Whether a decision waited long enough: a bundle that is on its way is waited for even where a missing one is not."""
    if isinstance(waiting.error, BundleLoading):
        began_s = time.monotonic() if work.parked_at_s is None else work.parked_at_s
        return work.overdue and time.monotonic() - began_s >= LOADING_MAX_S
    return work.overdue


def _given_up(work: Work, waiting: Waiting) -> Refused:
    waited_s = 0.0 if work.parked_at_s is None else time.monotonic() - work.parked_at_s
    error = type(waiting.error)(f"{waiting.error} (waited {waited_s:.0f} s)")
    return Refused(decision_id=waiting.decision_id, error=error, outcome=DECLINED)
