"""What the demo measured, as lines a person reads."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import orjson

SHARES: Final = (50, 90, 99)
ANSWERED: Final = "decision.ended"  # the worker's log line at the end of each decision


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all do not exceed (nearest rank); NaN of nothing."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def in_milliseconds(seconds: Sequence[float]) -> str:
    """`p50 8.1 ms, p90 11.9 ms, p99 31.0 ms`."""
    return ", ".join(f"p{share} {1000 * percentile(seconds, share):.1f} ms" for share in SHARES)


def own_times_s(worker_log: str) -> list[float]:
    """The worker's own time for each answered decision, from its log: bytes in to bytes ready to send, in seconds."""
    return [line["elapsed_us"] / 1e6 for line in _lines(worker_log) if "elapsed_us" in line]


def by_count(counts: Mapping[str, int]) -> str:
    """`ok 240, no_feasible_recourse 7`, the most frequent first."""
    return ", ".join(f"{name} {count:,}" for name, count in Counter(counts).most_common()) or "none"


def _lines(worker_log: str) -> Iterator[dict[str, float]]:
    for text in worker_log.splitlines():
        if ANSWERED in text:
            try:
                line = orjson.loads(text)
            except orjson.JSONDecodeError:
                continue
            yield line
