"""Where audit records come from: the JSONL of `coach recommend`, or all of the audit topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from confluent_kafka import Message

from stream.canonical import sha256
from stream.errors import ConfigurationError, CorruptionError, PoisonError
from stream.runtime.kafka.topic_scan import scan_topic
from stream.strict_json import STRICT_JSON, DuplicateKeyError, NonFiniteNumberError
from stream.wire.avro_records import decode, encode
from stream.wire.framing import Framing

TOPIC_LINE: Final = {"partition", "offset", "key", "record"}  # of a line that `coach topics read` prints
LINE_BYTES_MAX: Final = 64 << 20  # an audit record on a topic has 16 MiB at most; in JSON it takes about twice that

NO_ENVELOPE: Final = {
    "source": None, "software_version": "", "traceparent": None, "replay": False, "run_id": None, "seal": None,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One record as it was found. `record` is an AuditRecord's JSON shape, or why it is none."""

    where: str
    record: Mapping[str, Any] | str
    recommendation: Mapping[str, Any] | None = None
    named: object = None  # the decision_id of the line around record and recommendation, where there is one
    text: bytes | None = None  # the body as it lies in an archive, which must be its canonical JSON


def from_jsonl(path: Path) -> Iterator[Found]:
    """Read a file with an answer or an audit record on each line. Raises: ConfigurationError if it cannot be read."""
    try:
        with path.open("rb") as file:
            for number, line in _lines(file):
                where = f"line {number}"
                if line is None:
                    yield Found(where=where, record=f"is longer than {LINE_BYTES_MAX >> 20} MiB")
                elif line.strip():
                    yield _from_line(where, line)
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}"
        raise ConfigurationError(message) from error


def _lines(file: IO[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """Give each line with its number; None for one that is too long, of which the rest is skipped."""
    number = 0
    while line := file.readline(LINE_BYTES_MAX):
        number += 1
        if len(line) < LINE_BYTES_MAX or line.endswith(b"\n"):
            yield number, line
            continue
        while (rest := file.readline(LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
            pass
        yield number, None


def _from_line(where: str, line: bytes) -> Found:
    try:
        value = STRICT_JSON.decode(line.decode())
        if value.keys() == TOPIC_LINE:
            value = value["record"]
        record = value.get("audit", value)
        body = record["body"]
    except (DuplicateKeyError, NonFiniteNumberError) as error:
        twice = isinstance(error, DuplicateKeyError)
        why = "has an object with the same key twice" if twice else "holds NaN or Infinity, which JSON does not have"
        return Found(where=where, record=why)
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
        return Found(where=where, record="is neither an audit record nor an answer in JSON")
    if not isinstance(body, dict):
        return Found(where=where, record="has a body that is no JSON object")
    recommendation = value.get("recommendation")
    if "recommendation" in value and not isinstance(recommendation, dict):
        return Found(where=where, record="has a recommendation that is no JSON object")
    misfit = _misfit(record, recommendation)
    if misfit is not None:
        return Found(where=where, record=misfit)
    named = value.get("decision_id", body["decision"]["decision_id"])
    return Found(where=where, record=record, recommendation=recommendation, named=named)


def _misfit(record: Mapping[str, Any], recommendation: Mapping[str, Any] | None) -> str | None:
    """Say what does not fit the published schemas: a field more or less, or a value of another type."""
    body = record["body"]
    try:
        whole = {
            "decision_id": record.get("decision_id", body["decision"]["decision_id"]),
            "body": body,
            "body_sha256": record.get("body_sha256") or "",  # its absence is for the check to name
            "envelope": record.get("envelope", NO_ENVELOPE),
        }
        if sha256(decode(encode("AuditRecord", whole))[1]["body"]) != sha256(body):
            return "has a body that is not one of an audit record's schema"
        if recommendation is not None:
            kept = decode(encode("Recommendation", recommendation))[1]
            if sha256(kept) != sha256(recommendation):
                return "has a recommendation that is not one of its schema"
    except CorruptionError as error:
        return f"does not fit the schema: {error}"
    except (PoisonError, ValueError, AttributeError, TypeError, KeyError, RecursionError):
        return "does not have the shape of an audit record"
    return None


def from_topic(configuration: Mapping[str, Any], topic: str, framing: Framing) -> Iterator[Found]:
    """Read all that the topic holds now. Raises: as `scan_topic`; RegistryUnavailable."""
    return (_from_message(message, framing) for message in scan_topic(configuration, topic))


def _from_message(message: Message, framing: Framing) -> Found:
    where = f"{message.topic()}[{message.partition()}]@{message.offset()}"
    try:
        name, record = framing.decode(message.value() or b"", topic=str(message.topic()))
    except PoisonError as refused:
        return Found(where=where, record=f"cannot be decoded: {refused}")
    if name != "AuditRecord":
        return Found(where=where, record=f"is a {name}, not an audit record")
    if message.key() != str(record["decision_id"]).encode():
        return Found(where=where, record="has another key than its decision_id")
    return Found(where=where, record=record)
