"""One record as it was read from Kafka, free of the types of Faust and of Kafka's client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from stream.events import Header, Source
from stream.times import TIME_MS_MAX, rfc3339

UNREADABLE_HEADERS: Final = (("coach-unreadable-headers", None),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbound:
    """A record of a topic, byte for byte, where it stood, and when this process first saw it (Unix ms), if that matters.

    `timestamp_ms` is None where the broker has none.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    generation: int = 0
    first_seen_ms: int = 0
    handle: object = field(default=None, compare=False, repr=False)  # what the reader acks it by

    @property
    def where(self) -> str:
        """The record as messages name it: topic[partition]@offset."""
        return f"{self.topic}[{self.partition}]@{self.offset}"

    @property
    def timestamp(self) -> str | None:
        """The broker's timestamp as RFC 3339; None where it is none, or later than the year 9999."""
        if self.timestamp_ms is None or not 0 <= self.timestamp_ms <= TIME_MS_MAX:
            return None
        return rfc3339(self.timestamp_ms)

    @property
    def source(self) -> Source:
        """Where it stood, for the audit record's envelope."""
        return {"topic": self.topic, "partition": self.partition, "offset": self.offset, "timestamp": self.timestamp}

    @property
    def header_list(self) -> list[Header]:
        """The headers in their order, as dead letters carry them."""
        return [{"key": key, "value": value} for key, value in self.headers]


def inbound_of(message: Message, *, first_seen_ms: int = 0) -> Inbound:
    """Free a message of the client's types."""
    kind, timestamp_ms = message.timestamp()
    key, value = message.key(), message.value()
    return Inbound(
        key=None if key is None else bytes(key),
        value=None if value is None else bytes(value),
        headers=headers_of(message),
        topic=str(message.topic()),
        partition=int(message.partition() or 0),
        offset=int(message.offset() or 0),
        timestamp_ms=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        first_seen_ms=first_seen_ms,
    )


def headers_of(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    """Give a record's headers in their order; UNREADABLE_HEADERS in place of all where the name of one is no UTF-8."""
    pairs: Sequence[tuple[str, Any]]
    try:
        pairs = message.headers() or []  # type: ignore[assignment]  # never a mapping when read
    except (SystemError, UnicodeDecodeError):  # confluent-kafka 2.16.1 raises the former, with the latter as its cause
        return UNREADABLE_HEADERS
    return tuple((name, None if value is None else bytes(value)) for name, value in pairs)
