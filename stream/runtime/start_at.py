"""Where a consumer group with no committed offset starts: always chosen by an operator, never by default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stream.times import rfc3339, time_ms


@dataclass(frozen=True, slots=True)
class StartAt:
    """`earliest`, `latest`, or the first decision whose record is not older than a time (Unix milliseconds)."""

    kind: Literal["earliest", "latest", "time"]
    time_ms: int | None = None

    def __str__(self) -> str:
        """As it is written in a setting."""
        return self.kind if self.time_ms is None else rfc3339(self.time_ms)


def read_start_at(text: str) -> StartAt:
    """Read the setting. Raises: ValueError saying what it takes."""
    if text == "earliest":
        return StartAt("earliest")
    if text == "latest":
        return StartAt("latest")
    wanted = "must be earliest, latest, or an RFC 3339 time with its zone from 1970 on, such as 2026-11-27T10:15:00Z"
    try:
        moment_ms = time_ms(text)
    except ValueError:
        raise ValueError(wanted) from None
    if moment_ms < 0:  # to brokers, times below 0 are words of their own
        raise ValueError(wanted)
    return StartAt("time", moment_ms)
