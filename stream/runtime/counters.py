"""Counts of what happened, for the log, `/metrics` and tests."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final

# Every counter there is, with its meaning; a label follows in braces where one belongs.
MEANINGS: Final = {
    "decisions_read": "Decisions read from Kafka, those read again included.",
    "decisions_approved": "Approved decisions, which need no answer.",
    "decisions_answered": "Declined decisions answered, by status.",
    "decisions_dead": "Dead letters written, by reason.",
    "decisions_parked": "Times that a decision began to wait for its model.",
    "decisions_released": "Decisions let go of in a rebalance or stop, to be read again.",
    "decisions_acked": "Decisions marked as safe to commit.",
    "outage_pauses": "Pauses while Kafka, Redis or a bundle was away.",
    "batches": "Batches worked through.",
}


class Counters:
    """Counts by (name, label); any thread may add."""

    def __init__(self) -> None:
        """All at 0."""
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, count: int = 1, label: str = "") -> None:
        """Count. Raises: KeyError for a name that has no meaning."""
        MEANINGS[name]
        with self._lock:
            self._counts[name, label] += count

    def read(self) -> dict[tuple[str, str], int]:
        """All counts now, by (name, label)."""
        with self._lock:
            return dict(self._counts)

    def total(self, name: str) -> int:
        """The sum over a counter's labels."""
        with self._lock:
            return sum(count for (one, _), count in self._counts.items() if one == name)
