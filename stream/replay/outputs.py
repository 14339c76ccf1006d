"""A chunk's verdicts -> records on the run's topics and lines in its files, in the worker's order.

The brokers acknowledge every audit record, then every recommendation, then every dead letter; files are written atomically.
Only then is the chunk recorded as done, so a kill in between makes equal duplicates and loses nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson

from stream.canonical import canonical_json
from stream.errors import ConfigurationError, DeliveryRefused, PoisonError
from stream.events import AuditRecord, Recommendation
from stream.replay.fence import FencedDelivery, ReplayOutput, ReplayTopic, ReplayTopics
from stream.replay.judge.verdict import ERROR, Verdict, refused
from stream.replay.run_folder import write_whole
from stream.replay.sources.records import Raw
from stream.replay.sources.source import Chunk
from stream.runtime.kafka.dead_letters import SOFTWARE_VERSION, dead_letter
from stream.runtime.kafka.inbound import Inbound
from stream.runtime.retry import Retry
from stream.runtime.settings import Settings
from stream.wire.framing import Framing
from stream.wire.schema_files import RecordName

Judged: TypeAlias = tuple[Raw, Verdict]
ANSWERS: Final = "answers"
REFUSED: Final = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToTopics:
    """Writes to the topics of a run."""

    delivery: FencedDelivery
    topics: ReplayTopics
    framing: Framing
    settings: Settings

    def write(self, chunk: Chunk, judged: Sequence[Judged]) -> list[Judged]:  # noqa: ARG002 - topics know no chunks
        """Write a chunk; return its verdicts, refused where a topic does not take the record.

        Raises: DependencyError, ConfigurationError; part of the chunk may be written by then.
        """
        retry = Retry(total_s=self.settings.outage_max_s, pause_max_s=self.settings.retry_delay_max_s)
        settled = list(judged)
        in_order: tuple[tuple[ReplayTopic, RecordName], ...] = (
            (self.topics.audit, "AuditRecord"),
            (self.topics.recommendations, "Recommendation"),
        )
        for topic, record in in_order:
            places = {
                self._output(topic, record, raw, verdict): place
                for place, (raw, verdict) in enumerate(settled)
                if verdict.answer is not None
            }
            for one in self.delivery.deliver(list(places), retry):
                raw, verdict = settled[places[one.output]]
                error = DeliveryRefused(
                    f"topic {topic.name} refuses the record of {len(one.output.value)} bytes for good: {one.reason}"
                )
                settled[places[one.output]] = (
                    raw,
                    replace(refused(verdict.decision_id, error), conflict=verdict.conflict),
                )
        self._write_dead_letters([(raw, one.error) for raw, one in settled if one.error is not None], retry)
        return settled

    def _output(self, topic: ReplayTopic, record: RecordName, raw: Raw, verdict: Verdict) -> ReplayOutput:
        value = self.framing.encode(record, records_of(raw, verdict, topic.run_id)[record], topic=topic.name)
        return ReplayOutput(topic=topic, key=str(verdict.decision_id).encode(), value=value)

    def _write_dead_letters(self, dead: Sequence[tuple[Raw, PoisonError]], retry: Retry) -> None:
        topic, now_ms = self.topics.dlq, time.time_ns() // 1_000_000
        letters = {}
        for raw, error in dead:
            letter = dead_letter(
                _inbound(raw), error, topic=topic.name, attempts=1, now_ms=now_ms, framing=self.framing
            )
            letters[ReplayOutput(topic=topic, key=letter.key, value=letter.value)] = raw, error
        shorter = []
        for unkept in self.delivery.deliver(list(letters), retry):
            raw, error = letters[unkept.output]
            letter = dead_letter(
                _inbound(raw),
                error,
                topic=topic.name,
                attempts=1,
                now_ms=now_ms,
                framing=self.framing,
                without_value=True,
            )
            shorter.append(ReplayOutput(topic=topic, key=letter.key, value=letter.value))
        for lost in self.delivery.deliver(shorter, retry) if shorter else ():
            message = (
                f"topic {topic.name} refuses a dead letter of {len(lost.output.value)} bytes ({lost.reason}); raise "
                "its max.message.bytes and start this run again with the same --run-id"
            )
            raise ConfigurationError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToFiles:
    """Writes a file of answers and one of refusals for each chunk; both sort as the source does."""

    folder: Path
    run_id: str

    def write(self, chunk: Chunk, judged: Sequence[Judged]) -> list[Judged]:
        """As `ToTopics.write` does; files take every record."""
        answers = [_answer_line(raw, one, self.run_id) for raw, one in judged if one.answer is not None]
        refusals = [_refusal_line(raw, one) for raw, one in judged if one.outcome == ERROR]
        for name, lines in ((ANSWERS, answers), (REFUSED, refusals)):
            if lines:
                write_whole(self.folder / name / f"{chunk.name}.jsonl", b"".join(lines))
        return list(judged)


def records_of(raw: Raw, verdict: Verdict, run_id: str) -> dict[str, Any]:
    """The audit record and the recommendation of an answer, by their schemas, both marked as a replay's."""
    if verdict.answer is None or verdict.decision is None:
        message = "a verdict without an answer has no records"
        raise ValueError(message)
    audit_record: AuditRecord = {
        "decision_id": verdict.decision.decision_id,
        "body": verdict.answer.body,
        "body_sha256": verdict.answer.body_sha256,
        "envelope": {
            "source": raw.source,
            "software_version": SOFTWARE_VERSION,
            "traceparent": verdict.decision.traceparent,
            "replay": True,
            "run_id": run_id,
            "seal": None,
        },
    }
    recommendation: Recommendation = {**verdict.answer.recommendation, "replay": True, "run_id": run_id}
    return {"AuditRecord": audit_record, "Recommendation": recommendation}


def _answer_line(raw: Raw, verdict: Verdict, run_id: str) -> bytes:
    records = records_of(raw, verdict, run_id)
    line = {
        "decision_id": verdict.decision_id,
        "recommendation": records["Recommendation"],
        "audit": records["AuditRecord"],
    }
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def _refusal_line(raw: Raw, verdict: Verdict) -> bytes:
    error = verdict.error
    told: dict[str, Any] = {
        "where": raw.where,
        "decision_id": verdict.decision_id,
        "stage": None if error is None else error.stage,
        "error": None if error is None else error.reason,
        "message": str(error),
    }
    return orjson.dumps(told, option=orjson.OPT_APPEND_NEWLINE)


def _inbound(raw: Raw) -> Inbound:
    """The record as a dead letter carries it: byte for byte where it came from a topic, else as canonical JSON."""
    if isinstance(raw.content, dict) and raw.inbound.value is None:
        return replace(raw.inbound, value=canonical_json(raw.content))
    return raw.inbound
