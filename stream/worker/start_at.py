"""Where a group begins to read what it has never read: named by a person, never by a default."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal


@dataclass(frozen=True, slots=True)
class StartAt:
    """`earliest`, `latest`, or the first decision whose record is not older than a time (Unix milliseconds)."""

    kind: Literal["earliest", "latest", "time"]
    time_ms: int | None = None

    def __str__(self) -> str:
        """As it is written in a setting."""
        if self.time_ms is None:
            return self.kind
        moment = datetime.fromtimestamp(self.time_ms / 1000, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_start_at(text: str) -> StartAt:
    """Read the setting.

    Raises: ValueError saying what it takes.
    """
    if text == "earliest":
        return StartAt("earliest")
    if text == "latest":
        return StartAt("latest")
    wanted = "must be earliest, latest, or an RFC 3339 time with its zone such as 2026-11-27T10:15:00Z"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(wanted) from None
    if moment.tzinfo is None:
        raise ValueError(wanted)
    return StartAt("time", int(moment.timestamp() * 1000))
