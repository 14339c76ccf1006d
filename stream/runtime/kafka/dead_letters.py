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
    record: Inbound,
    error: PoisonError,
    *,
    topic: str,
    attempts: int,
    now_ms: int,
    framing: Framing,
    without_value: bool = False,
) -> Output:
    """Write the dead letter of a record: original key, value and headers byte for byte, stage and typed reason.

    `without_value`: for when `topic` refuses the letter for good. `message` then gives the value's size and sha256, and the
    letter is retryable whatever the reason: the original still lies at its topic, partition and offset, and can only be
    had from there.
    """
    message, value = str(error), None if record.value is None else bytes(record.value)
    if without_value:
        digest = hashlib.sha256(value or b"").hexdigest()
        message = (
            f"the value of {len(value or b'')} bytes, sha256 {digest}, is left out, for {topic} does not take it; it lies where "
            f"it was read; {error}"
        )
        value = None
    redrive_ids = [given for key, given in record.headers if key == REDRIVE_HEADER and given is not None]
    letter: DeadLetter = {
        "key": record.key,
        "value": value,
        "headers": record.header_list,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "stage": error.stage,
        "error": error.reason,
        "message": message[:MESSAGE_CHARACTERS_MAX],
        "attempts": attempts,
        "first_seen": rfc3339(record.first_seen_ms),
        "last_seen": rfc3339(max(now_ms, record.first_seen_ms)),
        "software_version": SOFTWARE_VERSION,
        "retryable": error.retryable or without_value,
        "redrive_id": redrive_ids[-1].decode(errors="replace") if redrive_ids else None,
    }
    return Output(topic=topic, key=record.key, value=framing.encode("DeadLetter", letter, topic=topic))
