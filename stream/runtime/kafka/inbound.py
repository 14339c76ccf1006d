"""One record as it was read from Kafka, free of Faust's types."""

from __future__ import annotations

from dataclasses import dataclass, field

from stream.events import Header, Source
from stream.times import TIME_MS_MAX, rfc3339


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbound:
    """A record of the decisions topic, byte for byte, where it stood, and when this process first saw it (Unix ms)."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    generation: int = 0
    first_seen_ms: int
    handle: object = field(default=None, compare=False, repr=False)  # what the reader acks it by

    @property
    def timestamp(self) -> str | None:
        """The broker's timestamp as RFC 3339; None where it is none, or later than the year 9999."""
        if self.timestamp_ms is None or not 0 <= self.timestamp_ms <= TIME_MS_MAX:
            return None
        return rfc3339(self.timestamp_ms)

    @property
    def source(self) -> Source:
        """Where it stood, for the audit record's envelope."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.timestamp,
        }

    @property
    def header_list(self) -> list[Header]:
        """The headers in their order, as dead letters carry them."""
        return [{"key": key, "value": value} for key, value in self.headers]
