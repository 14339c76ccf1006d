"""Progress of a run, and its rate limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from stream.replay.sources.records import Raw
from stream.replay.sources.source import Chunk

PACE_STEP_S: Final = 1.0

Progress: TypeAlias = Callable[[int, int, int], None]  # (records done, of them before this start, records in all)


class ProgressCount:
    """Counts records for a progress display; offsets without a record count once their chunk is done."""

    def __init__(self, progress: Progress, *, before: int, total: int) -> None:
        """`before` records of `total` were done by an earlier start."""
        self._progress, self._before, self._total = progress, before, total
        self._done = self._at = before

    def step(self) -> None:
        """A record is judged."""
        self._at += 1
        self._progress(self._at, self._before, self._total)

    def finished(self, chunk: Chunk) -> None:
        """A chunk is written down."""
        self._done += chunk.end - chunk.first
        self._at = self._done
        self._progress(self._at, self._before, self._total)


class Pace:
    """Limits the replay to a rate of records per second; None does not limit it."""

    def __init__(self, records_per_s: float | None) -> None:
        self._every_s = 0.0 if records_per_s is None else 1 / records_per_s
        self._next_s = time.monotonic()

    def paced(self, raws: Sequence[Raw]) -> Iterator[Raw]:
        """Give records when it is time for them."""
        for raw in raws:
            while self._every_s and (early_s := self._next_s - time.monotonic()) > 0:
                time.sleep(min(early_s, PACE_STEP_S))
            self._next_s = max(self._next_s, time.monotonic() - PACE_STEP_S) + self._every_s
            yield raw
