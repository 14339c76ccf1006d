"""The dead letters that a topic holds, each with its partition and offset there, and a filter over them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from stream.errors import DependencyError, PoisonError
from stream.events import DeadLetter
from stream.runtime.kafka.dead_letters import REDRIVE_HEADER
from stream.runtime.kafka.topic_scan import scan_topic
from stream.times import time_ms
from stream.wire.decisions import json_object
from stream.wire.framing import Framing

JSON_BEGINS: Final = (b"{", b" ", b"\n", b"\t", b"\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLetter:
    """One record of the dead letters' topic. `letter` is what it says, or why it is no dead letter."""

    partition: int
    offset: int
    letter: DeadLetter | str
    decision_id: str | None = None  # of the record within, where it can be read

    @property
    def position(self) -> str:
        """How an operator names it: partition:offset."""
        return f"{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Which dead letters are meant. What is None does not narrow the filter; times are Unix ms of `last_seen`."""

    positions: frozenset[str] = frozenset()
    reasons: frozenset[str] = frozenset()
    stage: str | None = None
    key: bytes | None = None
    decision_id: str | None = None
    topic: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    retryable_only: bool = False

    def takes(self, stored: StoredLetter, letter: DeadLetter) -> bool:
        """Whether a letter is among those meant."""
        seen_ms = time_ms(letter["last_seen"])
        return (
            (not self.positions or stored.position in self.positions)
            and (not self.reasons or letter["error"] in self.reasons)
            and self.stage in (None, letter["stage"])
            and self.key in (None, letter["key"])
            and self.decision_id in (None, stored.decision_id)
            and self.topic in (None, letter["topic"])
            and (self.since_ms is None or seen_ms >= self.since_ms)
            and (self.until_ms is None or seen_ms < self.until_ms)
            and (letter["retryable"] or not self.retryable_only)
        )


def dead_letters(configuration: Mapping[str, Any], topic: str, framing: Framing) -> Iterator[StoredLetter]:
    """Read all dead letters that the topic holds now. Raises: as `scan_topic`."""
    for message in scan_topic(configuration, topic):
        try:
            name, record = framing.decode(message.value() or b"", topic=topic)
            letter = cast("DeadLetter", record) if name == "DeadLetter" else f"is a {name}, not a dead letter"
        except PoisonError as refused:
            letter = f"cannot be read: {refused}"
        yield StoredLetter(
            partition=message.partition() or 0,
            offset=message.offset() or 0,
            letter=letter,
            decision_id=None if isinstance(letter, str) else decision_id_of(letter, framing),
        )


def matching_letters(
    found: Iterable[StoredLetter], letter_filter: LetterFilter
) -> Iterator[tuple[StoredLetter, DeadLetter]]:
    """Yield the dead letters that the filter takes; unreadable records are skipped."""
    for stored in found:
        if not isinstance(stored.letter, str) and letter_filter.takes(stored, stored.letter):
            yield stored, stored.letter


def decision_id_of(letter: DeadLetter, framing: Framing) -> str | None:
    """Give the decision_id within a letter's record, where it can be read at all; the key may be another thing."""
    value = letter["value"]
    if value is None:
        return None
    try:
        record = json_object(value) if value[:1] in JSON_BEGINS else framing.decode(value, topic=letter["topic"])[1]
    except (PoisonError, DependencyError):
        return None
    found = record.get("decision_id")
    return found if isinstance(found, str) else None


def redrives(letter: DeadLetter) -> int:
    """How often the record was sent back already: each time added a header."""
    return sum(1 for header in letter["headers"] if header["key"] == REDRIVE_HEADER)
