"""Dead letters: what could not be answered, with its original bytes and a reason that says what to do."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from typing import Final

from stream.errors import PoisonError
from stream.events import DeadLetter
from stream.runtime.kafka.delivery import Output
from stream.runtime.kafka.inbound import Inbound
from stream.times import rfc3339
from stream.wire.framing import Framing

SOFTWARE_VERSION: Final = version("coach-stream")
MESSAGE_CHARACTERS_MAX: Final = 1_000
REDRIVE_HEADER: Final = "coach-redrive-id"
LEFT_OUT: Final = r"the value of \d+ bytes, sha256 (?P<sha256>[0-9a-f]{64}), is left out"  # how such a message begins


def dead_letter(
    record: Inbound, error: PoisonError, *, topic: str, attempts: int, now_ms: int, framing: Framing
) -> Output:
    """Write the dead letter of a record: original key, value and headers byte for byte, stage and typed reason."""
    letter = _letter(record, error, attempts=attempts, now_ms=now_ms)
    return Output(topic=topic, key=record.key, value=framing.encode("DeadLetter", letter, topic=topic))


def _letter(record: Inbound, error: PoisonError, *, attempts: int, now_ms: int) -> DeadLetter:
    return {
        "key": record.key,
        "value": record.value,
        "headers": record.header_list,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "stage": error.stage,
        "error": error.reason,
        "message": str(error)[:MESSAGE_CHARACTERS_MAX],
        "attempts": attempts,
        "first_seen": rfc3339(record.first_seen_ms),
        "last_seen": rfc3339(max(now_ms, record.first_seen_ms)),
        "software_version": SOFTWARE_VERSION,
        "retryable": error.retryable,
        "redrive_id": _redrive_id(record),
    }


def dead_letter_without_value(
    record: Inbound, error: PoisonError, *, topic: str, attempts: int, now_ms: int, framing: Framing
) -> Output:
    """Write the dead letter of a record whose own one `topic` refuses for good: all but the value.

    `message` gives the value's size and sha256. It is retryable whatever the reason, for the original still lies at
    its topic, partition and offset, and only from there it can be had.
    """
    value = record.value or b""
    told = (
        f"the value of {len(value)} bytes, sha256 {hashlib.sha256(value).hexdigest()}, is left out, for {topic} does not "
        f"take it; it lies where it was read; {error}"
    )
    letter = _letter(record, error, attempts=attempts, now_ms=now_ms)
    letter |= {"value": None, "message": told[:MESSAGE_CHARACTERS_MAX], "retryable": True}
    return Output(topic=topic, key=record.key, value=framing.encode("DeadLetter", letter, topic=topic))


def _redrive_id(record: Inbound) -> str | None:
    given = [value for key, value in record.headers if key == REDRIVE_HEADER and value is not None]
    return given[-1].decode(errors="replace") if given else None
