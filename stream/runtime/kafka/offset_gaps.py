"""Records that a topic lost before its reader came to them: named, counted, and told as an error.

Nothing brings them back; whoever runs the topic must know, and the lender still has the decisions.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from stream.runtime.counters import Counters, Meter, counter

log = logging.getLogger(__name__)

LOST: Final[Meter] = counter(
    "decisions_lost_total",
    "Offsets that the topic deleted before they were read: a decision each, but for markers of transactions.",
)
REMADE: Final[Meter] = counter("topic_remade_total", "Times that a partition began anew below where its reader stood.")
OFFSET_GAPS: Final = (LOST, REMADE)


@dataclass(frozen=True, slots=True)
class Gap:
    """The reader was to go on at offset `expected`, and the partition now begins at `begins`."""

    topic: str
    partition: int
    expected: int
    begins: int

    @property
    def is_remade(self) -> bool:
        """Whether the partition begins below where its reader stood: it is another one than it was."""
        return self.begins < self.expected


def tell_gap(gap: Gap, counters: Counters) -> None:
    """Log the gap with its partition and offsets, and count it."""
    where = {"topic": gap.topic, "partition": gap.partition}
    if gap.is_remade:
        counters.add(REMADE.name)
        log.error("topic.remade", extra={**where, "expected": gap.expected, "begins": gap.begins})
    else:
        count = gap.begins - gap.expected
        counters.add(LOST.name, count)
        log.error("decisions.lost", extra={**where, "from": gap.expected, "to": gap.begins - 1, "count": count})
