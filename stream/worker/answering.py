"""Decision bytes -> outcome: the answer's two records as bytes, or the typed reason why there is none.

Free of Faust and of Kafka's clients. Everything here blocks or computes; the worker runs it off the event loop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from stream.canonical import sha256
from stream.errors import (
    CorruptionError,
    DecisionConflict,
    DependencyError,
    ModelNotPublished,
    PoisonError,
    RecordTooLarge,
    RegistryUnavailable,
    SchemaUnavailable,
    UnexpectedFault,
    UnreadableRecords,
    where_raised,
)
from stream.events import AuditRecord, Decision, ModelPublished
from stream.models.model_table import ModelTable
from stream.recourse.answer import Answer, answer
from stream.recourse.model import PublishedModel
from stream.recourse.record.decision_record import decision_by_value
from stream.runtime.kafka.dead_letters import SOFTWARE_VERSION
from stream.runtime.kafka.inbound import Inbound
from stream.runtime.kafka.record_batches import UnreadableBatch
from stream.runtime.settings import Settings
from stream.wire.decisions import read_decision
from stream.wire.framing import Framing
from stream.worker.stage_timer import StageTimer

log = logging.getLogger(__name__)

# What Kafka adds to key and value of a record: the batch's header (61), the record's own (at most 21), and some to spare.
RECORD_OVERHEAD_BYTES: Final = 128
APPROVED: Final = "approved"
DECLINED: Final = "declined"
UNREAD: Final = "unread"  # the outcome of a decision that could not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A declined decision with its answer, encoded; `model` is id, version and revision of what answered it."""

    decision_id: str
    digest: bytes
    model: tuple[str, str, str]
    status: str
    tiers: int
    audit: bytes
    recommendation: bytes
    elapsed_us: int
    timer: StageTimer = field(default_factory=StageTimer, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """Nothing to answer: counted and skipped."""

    decision_id: str
    digest: bytes
    timer: StageTimer = field(default_factory=StageTimer, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Nobody published the model version that the decision names, yet, or its bundle is lost for now.

    Or nobody can read the decision before the schema registry is back: then id, model and version are None.
    """

    decision_id: str | None
    model_id: str | None
    model_version: str | None
    error: ModelNotPublished | SchemaUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A dead letter; `outcome` is the decision's own, approved or declined, where it could be read."""

    decision_id: str | None
    error: PoisonError
    outcome: str = UNREAD
    timer: StageTimer = field(default_factory=StageTimer, compare=False)


Outcome: TypeAlias = Answered | Approved | Waiting | Refused


class Answerer:
    """Turns records into outcomes. One thread at a time."""

    def __init__(
        self,
        *,
        table: ModelTable,
        open_model: Callable[[ModelPublished], PublishedModel],
        remember: Callable[[Sequence[tuple[str, bytes]]], list[bool]],
        framing: Framing,
        settings: Settings,
    ) -> None:
        """`open_model` gives a publication's model. Raises: ModelNotPublished, DependencyError, CorruptionError.

        `remember` takes (decision_id, digest) pairs: True where an id came with another digest. Raises: RedisUnavailable.
        `settings`: the output topics, and the largest records that they and the input take.
        """
        self._framing = framing
        self._settings = settings
        self._table = table
        self._open_model = open_model
        self._remember = remember

    def outcomes(self, records: Sequence[Inbound], budget_s: float) -> list[Outcome]:
        """Answer a batch, in order, as far as the time goes: at least one, none begun after `budget_s`.

        A decision_id's content is remembered only once it can be answered, so that one sent again with its mistake
        corrected is no conflict.
        Raises: DependencyError when something that everything waits for is away, CorruptionError; then nothing is
        remembered that a second try would not remember in the same way.
        """
        deadline_s = time.monotonic() + budget_s
        found: list[Outcome] = []
        for record in records:
            found.append(self._outcome(record))
            if time.monotonic() >= deadline_s:
                break
        began_s = time.perf_counter()
        to_remember = [one for one in found if isinstance(one, Answered | Approved)]
        conflicts = iter(self._remember([(one.decision_id, one.digest) for one in to_remember]) if to_remember else ())
        for one in to_remember:
            one.timer.stages_s["remember"] = time.perf_counter() - began_s
        return [_conflict(one) if isinstance(one, Answered | Approved) and next(conflicts) else one for one in found]

    def _outcome(self, record: Inbound) -> Outcome:
        decision: Decision | None = None
        timer = StageTimer()
        try:
            decision = self._read(record)
            timer.record_stage("decode")
            return self._answered(decision, record, timer)
        except SchemaUnavailable as unread:
            return Waiting(decision_id=None, model_id=None, model_version=None, error=unread)
        except ModelNotPublished as missing:
            if decision is None:
                raise
            return Waiting(
                decision_id=decision.decision_id,
                model_id=decision.model_id,
                model_version=decision.model_version,
                error=missing,
            )
        except PoisonError as refused:
            return _refused(decision, refused, timer)
        except (DependencyError, CorruptionError, MemoryError):
            raise
        except Exception as fault:  # noqa: BLE001 - whatever it is, it must not stop the decisions behind this one
            error = UnexpectedFault(
                f"{type(fault).__name__} at {where_raised(fault)}: a fault of this software; report it, then redrive"
            )
            log.error(  # noqa: TRY400 - a traceback's last line may hold a feature's value
                "decision.fault", extra={"decision_id": decision.decision_id if decision else None, "fault": str(error)}
            )
            return _refused(decision, error, timer)

    def _read(self, record: Inbound) -> Decision:
        """Raises: SchemaUnavailable, for only this one has to wait while the registry is away; other PoisonErrors."""
        if isinstance(record.value, UnreadableBatch):
            raise UnreadableRecords(record.value.account(record.offset))
        try:
            bytes_max = self._settings.decision_bytes_max
            return read_decision(record.value or b"", bytes_max=bytes_max, framing=self._framing, topic=record.topic)
        except RegistryUnavailable as away:
            raise SchemaUnavailable(str(away)) from away

    def _answered(self, decision: Decision, record: Inbound, timer: StageTimer) -> Answered | Approved:
        digest = bytes.fromhex(sha256(decision_by_value(decision)))
        if decision.outcome == APPROVED:
            return Approved(decision_id=decision.decision_id, digest=digest, timer=timer)
        if decision.event_time_ms is None:
            message = "read_decision let a decision without event_time through"
            raise CorruptionError(message)
        published = self._table.resolve(decision.model_id, decision.model_version, decision.event_time_ms).published
        model = self._open_model(published)
        timer.record_stage("resolve")
        found = answer(decision, model)
        timer.record_stage("answer")
        audit, recommendation = self._encoded(decision, found, record)
        timer.record_stage("encode")
        return Answered(
            decision_id=decision.decision_id,
            digest=digest,
            model=(decision.model_id, decision.model_version, str(published["revision"])),
            status=found.recommendation["status"],
            tiers=len(found.recommendation["tiers"]),
            audit=audit,
            recommendation=recommendation,
            elapsed_us=int(sum(timer.stages_s.values()) * 1e6),
            timer=timer,
        )

    def _encoded(self, decision: Decision, found: Answer, record: Inbound) -> tuple[bytes, bytes]:
        audit: AuditRecord = {
            "decision_id": decision.decision_id,
            "body": found.body,
            "body_sha256": found.body_sha256,
            "envelope": {
                "source": record.source,
                "software_version": SOFTWARE_VERSION,
                "traceparent": decision.traceparent,
                "replay": False,
                "run_id": None,
                "seal": None,
            },
        }
        settings, key_bytes = self._settings, len(decision.decision_id.encode())
        encoded = self._framing.encode("AuditRecord", audit, topic=settings.topic_audit)
        _check_size("audit record", "COACH_AUDIT_BYTES_MAX", key_bytes + len(encoded), settings.audit_bytes_max)
        recommendation = self._framing.encode(
            "Recommendation", found.recommendation, topic=settings.topic_recommendations
        )
        size_bytes, limit_bytes = key_bytes + len(recommendation), settings.recommendation_bytes_max
        _check_size("recommendation", "COACH_RECOMMENDATION_BYTES_MAX", size_bytes, limit_bytes)
        return encoded, recommendation


def _check_size(what: str, setting: str, size_bytes: int, limit_bytes: int) -> None:
    needed = size_bytes + RECORD_OVERHEAD_BYTES
    if needed > limit_bytes:
        message = f"the {what} needs {needed} bytes and its topic takes {limit_bytes}; raise {setting} and that limit"
        raise RecordTooLarge(message)


def _conflict(one: Answered | Approved) -> Refused:
    message = (
        f"decision_id {one.decision_id} came before with other content within the last COACH_CONFLICT_WINDOW_S; "
        "give the other decision an id of its own"
    )
    outcome = APPROVED if isinstance(one, Approved) else DECLINED
    return Refused(decision_id=one.decision_id, error=DecisionConflict(message), outcome=outcome, timer=one.timer)


def _refused(decision: Decision | None, error: PoisonError, timer: StageTimer) -> Refused:
    if decision is None:
        return Refused(decision_id=None, error=error, timer=timer)
    return Refused(decision_id=decision.decision_id, error=error, outcome=decision.outcome, timer=timer)
