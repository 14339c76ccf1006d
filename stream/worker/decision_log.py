"""What the pipeline tells of itself: counts, signs of life, and the end of each decision.

A decision at its end is counted by what became of it, measured, and one line in the log, without a feature value.
Counts and times are gathered for a batch and handed over at once: one by one they cost a tenth of the worker's speed.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from stream.errors import shown
from stream.runtime.counters import Counters
from stream.runtime.health import Vitals
from stream.runtime.kafka.dead_letters import MESSAGE_CHARACTERS_MAX
from stream.runtime.kafka.inbound import Inbound
from stream.worker.answering import APPROVED, DECLINED, Answered, Approved, Outcome, Refused, Waiting
from stream.worker.stage_timer import StageTimer

log = logging.getLogger("stream.worker.decisions")

DEAD_LETTER: Final = "dead_letter"
NOT_NEEDED: Final = "not_needed"  # an approved decision's status: nobody has to be told anything


class DecisionLog:
    """Counts what a worker's batches came to, and logs the end of each decision once."""

    def __init__(self, counters: Counters, vitals: Vitals) -> None:
        """`counters` has the worker's meters; `vitals` hears of each batch."""
        self.counters = counters
        self.vitals = vitals

    def close(self, batch: Iterable[tuple[Inbound, Outcome]], *, acknowledged_ms: int) -> None:
        """Account for a batch whose outputs the brokers acknowledged at that time (Unix ms)."""
        decisions: Counter[tuple[str, str]] = Counter()
        models: Counter[tuple[str, str, str]] = Counter()
        stages: defaultdict[str, list[float]] = defaultdict(list)
        whole: list[float] = []
        for record, outcome in batch:
            if isinstance(outcome, Waiting):
                continue
            for stage, elapsed_s in outcome.timer.stages_s.items():
                stages[stage].append(elapsed_s)
            if isinstance(outcome, Answered):
                decisions[DECLINED, outcome.status] += 1
                models[outcome.model] += 1
                whole_ms = _since(record, acknowledged_ms)
                if whole_ms is not None:
                    whole.append(whole_ms / 1000)
                _log_answered(record, outcome, whole_ms)
            elif isinstance(outcome, Approved):
                decisions[APPROVED, NOT_NEEDED] += 1
                _log_end(record, outcome.decision_id, APPROVED, NOT_NEEDED, outcome.timer)
            else:
                decisions[outcome.outcome, DEAD_LETTER] += 1
                self.counters.add("dead_letters_total", stage=outcome.error.stage, reason=outcome.error.reason)
                _log_refused(record, outcome)
        for (outcome_word, status), count in decisions.items():
            self.counters.add("decisions_total", count, outcome=outcome_word, status=status)
        for model, count in models.items():
            names = dict(zip(("model_id", "model_version", "revision"), model, strict=True))
            self.counters.add("model_decisions_total", count, **names)
        self.counters.observe_all("decision_duration_seconds", whole)
        for stage, elapsed in stages.items():
            self.counters.observe_all("decision_stage_duration_seconds", elapsed, stage=stage)


def now_ms() -> int:
    """The time, as records' timestamps have it."""
    return time.time_ns() // 1_000_000


def _since(record: Inbound, acknowledged_ms: int) -> int | None:
    """The time from a record's timestamp on; not below 0, for the clocks of two machines differ."""
    return None if record.timestamp_ms is None else max(0, acknowledged_ms - record.timestamp_ms)


def _log_answered(record: Inbound, one: Answered, whole_ms: int | None) -> None:
    if log.isEnabledFor(logging.INFO):
        model = shown("/".join(one.model))
        more = {"model": model, "tiers": one.tiers, "elapsed_us": one.elapsed_us, "whole_ms": whole_ms}
        _log_end(record, one.decision_id, DECLINED, one.status, one.timer, more)


def _log_refused(record: Inbound, one: Refused) -> None:
    why = str(one.error)[:MESSAGE_CHARACTERS_MAX]
    more = {"reason": one.error.reason, "stage": one.error.stage, "why": why}
    _log_end(record, one.decision_id, one.outcome, DEAD_LETTER, one.timer, more, level=logging.WARNING)


def _log_end(
    record: Inbound,
    decision_id: str | None,
    outcome: str,
    status: str,
    timer: StageTimer,
    more: Mapping[str, object] = MappingProxyType({}),
    *,
    level: int = logging.INFO,
) -> None:
    if log.isEnabledFor(level):
        where = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        what = {"decision_id": decision_id, "outcome": outcome, "status": status}
        log.log(level, "decision.ended", extra={**what, **where, **more, **timer.in_us()})
