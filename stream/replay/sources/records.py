"""What a replay reads: a decision as it was sent, or a stored answer with the decision by value in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from stream.errors import ConfigurationError, MalformedRecord
from stream.events import Decision, Source
from stream.runtime.kafka.inbound import Inbound
from stream.times import time_ms
from stream.wire.decisions import decision_of, json_object, read_decision
from stream.wire.framing import Framing

FRAMED: Final = (b"\xc3\x01", b"\x00")  # single-object encoding, a schema registry's
SHA256_DIGITS: Final = 64
OF_A_BODY: Final[Mapping[str, type | tuple[type, ...]]] = {
    "bundle": dict, "decision": dict, "engine_version": str, "status": str, "margin": (int, float), "tiers": list,
    "reasons": list,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Raw:
    """One record of a source, not decoded yet.

    `content`: bytes of a topic, bytes of a line (`is_line`), an audit record's JSON shape, or why there is none.
    `source` goes into the envelope of the answer; None for a line of a file.
    """

    where: str
    inbound: Inbound
    content: bytes | Mapping[str, Any] | str
    is_line: bool = False

    @property
    def source(self) -> Source | None:
        """Where it was read, as an envelope says it."""
        return None if self.is_line else self.inbound.source


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stored:
    """A stored answer: the audit body, what was published as its hash, and what else was kept with it."""

    decision: Decision
    body: Mapping[str, Any]
    body_sha256: object
    recommendation: Mapping[str, Any] | None
    traceparent: str | None
    replay: bool

    @property
    def bundle_sha256(self) -> str:
        """SHA-256 of the bundle that gave the answer."""
        return str(self.body["bundle"]["bundle_sha256"])

    @property
    def engine_version(self) -> str:
        """The version of the method that answered."""
        return str(self.body["engine_version"])


Record: TypeAlias = Decision | Stored


def read_raw(raw: Raw, framing: Framing, *, decision_bytes_max: int) -> Record:
    """Decode a record. Raises: MalformedRecord, UnknownSchema, InvalidDecision or one of its branches."""
    if isinstance(raw.content, str):
        raise MalformedRecord(raw.content)
    if isinstance(raw.content, Mapping):
        return stored_of(raw.content, None)
    if raw.is_line:
        return _from_line(raw.content)
    if not raw.content.startswith(FRAMED):
        return read_decision(raw.content, bytes_max=decision_bytes_max, framing=framing, topic=raw.inbound.topic)
    name, record = framing.decode(raw.content, topic=raw.inbound.topic)
    if name == "Decision":
        return decision_of(record)
    if name == "AuditRecord":
        return stored_of(record, None)
    message = f"the record is of type {name}; a replay reads decisions and audit records"
    raise MalformedRecord(message)


def stored_of(record: Mapping[str, Any], recommendation: object) -> Stored:
    """Take an audit record apart, as far as a replay needs it.

    Raises: MalformedRecord, InvalidDecision or one of its branches.
    """
    body, envelope = record.get("body"), record.get("envelope") or {}
    if not isinstance(body, dict) or not isinstance(envelope, dict):
        message = "the record has no body, so it is no audit record"
        raise MalformedRecord(message)
    for key, kind in OF_A_BODY.items():
        if not isinstance(body.get(key), kind):
            message = f"the body has no {key} as an audit record's has"
            raise MalformedRecord(message)
    if len(str(body["bundle"].get("bundle_sha256", ""))) != SHA256_DIGITS:
        message = "the body does not name the bundle that answered"
        raise MalformedRecord(message)
    if recommendation is not None and not isinstance(recommendation, dict):
        message = "the line has a recommendation that is no JSON object"
        raise MalformedRecord(message)
    return Stored(
        decision=decision_of(body["decision"], timed=False),
        body=body,
        body_sha256=record.get("body_sha256"),
        recommendation=recommendation,
        traceparent=envelope.get("traceparent"),
        replay=envelope.get("replay") is True,
    )


def _from_line(line: bytes) -> Record:
    value = json_object(line)
    if "audit" in value and isinstance(value["audit"], dict):
        return stored_of(value["audit"], value.get("recommendation"))
    if "body" in value:
        return stored_of(value, None)
    return decision_of(value, timed=False)


def decided_at_ms(record: Record, inbound: Inbound) -> int | None:
    """When it was decided; for a record that does not say so, when it was written."""
    decision = record.decision if isinstance(record, Stored) else record
    return inbound.timestamp_ms if decision.event_time_ms is None else decision.event_time_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """From when (included) until when (excluded) decisions are replayed, in Unix milliseconds; None: no bound."""

    from_ms: int | None = None
    to_ms: int | None = None

    def holds(self, decided_ms: int | None) -> bool:
        """Whether a time lies in it; a record without any time does only where there is no bound."""
        if decided_ms is None:
            return self.from_ms is None and self.to_ms is None
        return (self.from_ms is None or decided_ms >= self.from_ms) and (self.to_ms is None or decided_ms < self.to_ms)


def window_of(from_text: str | None, to_text: str | None) -> Window:
    """Read the two flags. Raises: ConfigurationError that names the flag."""
    found: dict[str, int | None] = {}
    for flag, text in (("--from", from_text), ("--to", to_text)):
        try:
            found[flag] = None if text is None else time_ms(text)
        except ValueError as error:
            message = f"{flag}: {error}"
            raise ConfigurationError(message) from None
    window = Window(from_ms=found["--from"], to_ms=found["--to"])
    if window.from_ms is not None and window.to_ms is not None and window.from_ms >= window.to_ms:
        message = "--from is not before --to"
        raise ConfigurationError(message)
    return window
