"""Per tier, the target that the model accepts: walk down the ranking until a projected comparator is one, then prune.

The paper returns the best-ranked comparator and loses validity to the moves that nobody can make (section "Recourse
the subject can act on"). Walking on until the *projected* target is accepted by the model itself keeps it. A tier's
target should also score as its tercile does: so the walk prefers the first one that reaches the tercile's least score,
and settles for the first accepted one where none of the best-ranked does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stream.events import TierName
from stream.forest.trees import Forest
from stream.forest.walk import margins_of
from stream.recourse.feasible import Reach, groups

TIERS: tuple[TierName, ...] = ("near", "mid", "far")
FIRST_CHUNK, CHUNK_MAX = 16, 1024  # candidates projected and scored at once; most queries stop in the first few
AIMED_RANKS_MAX = 128  # how far down the ranking a tier looks for one that reaches its tercile's least score


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TierTarget:
    """One tier's answer: the target row (features,) float64, and the comparator (its row in the matrix) behind it."""

    tier: TierName
    rank: int
    from_tercile: bool
    comparator: int
    target: NDArray[np.float64]


def targets_of(
    forest: Forest, reach: Reach, scores: NDArray[np.float64], *, first: int, cutoff: float, sign: int
) -> list[TierTarget]:
    """Find a target for each tier that has one.

    Shapes: scores (n - first,) of the comparators matrix[first:], which ascend by what the model says of them, so
    that the terciles of the paper are slices. `cutoff` is a native margin; accepted means at or past it.
    Ties in score go to the comparator nearer to the cutoff.
    """
    found = []
    eligible = len(scores)
    bounds = [eligible * k // len(TIERS) for k in range(len(TIERS) + 1)]
    for tier, (low, high) in zip(TIERS, pairwise(bounds), strict=True):
        floor = float(sign * reach.matrix.margins[first + low]) if low < high else sign * cutoff
        answer = _walk(forest, reach, _ranked(scores, low, high), first=first, cutoff=cutoff, sign=sign, aim=floor)
        if answer is None:  # it looked at everyone, so no other tier finds one either
            break
        rank, comparator, target = answer
        floor = min(floor, float(sign * margins_of(forest, target[None])[0]))
        found.append(
            TierTarget(
                tier=tier,
                rank=rank,
                from_tercile=low <= comparator - first < high,
                comparator=comparator,
                target=prune(forest, reach, target, floor=floor, sign=sign),
            )
        )
    return found


def prune(forest: Forest, reach: Reach, target: NDArray[np.float64], *, floor: float, sign: int) -> NDArray[np.float64]:
    """Give moves back, the dearest first, as long as sign * margin stays at or above `floor`.

    Shapes: (features,) -> (features,). A group is given back whole. At most one round a move.
    """
    grouped = {j: members for members in groups(reach.rules) for j in members}
    moved = [j for j in range(len(target)) if target[j] != reach.row[j] and not np.isnan(target[j])]
    units = list({tuple(grouped.get(j, [j])): None for j in moved})
    price = {unit: sum(reach.effort(j, float(target[j])) for j in unit if j in moved) for unit in units}
    while len(units) > 1:
        trial = np.repeat(target[None], len(units), axis=0)
        for k, unit in enumerate(units):
            trial[k, unit] = reach.row[list(unit)]
        holds = sign * margins_of(forest, trial) >= floor
        spare = [k for k in range(len(units)) if holds[k]]
        if not spare:
            break
        dearest = max(spare, key=lambda k: (price[units[k]], -k))
        target = trial[dearest]
        del units[dearest]
    return target


def _walk(
    forest: Forest,
    reach: Reach,
    ranked: Iterator[NDArray[np.int64]],
    *,
    first: int,
    cutoff: float,
    sign: int,
    aim: float,
) -> tuple[int, int, NDArray[np.float64]] | None:
    """Take the first projection at or past `aim` among the first ranks, else the first that the model accepts."""
    passed = 0
    settled: tuple[int, int, NDArray[np.float64]] | None = None
    for candidates in ranked:
        targets = reach.project(reach.matrix.cells[first + candidates])
        reached = sign * margins_of(forest, targets)
        aimed = reached[: max(0, AIMED_RANKS_MAX - passed)] >= aim
        accepted = reached >= sign * cutoff
        if aimed.any() or (settled is None and accepted.any()):
            best = int((aimed if aimed.any() else accepted).argmax())
            settled = passed + best, first + int(candidates[best]), targets[best]
        passed += len(candidates)
        if aimed.any() or (settled is not None and passed >= AIMED_RANKS_MAX):
            break
    return settled


def _ranked(scores: NDArray[np.float64], low: int, high: int) -> Iterator[NDArray[np.int64]]:
    """Give the tercile's comparators by score, then all others', in growing chunks."""
    inside = low + np.argsort(-scores[low:high], kind="stable")
    yield from _chunks(inside)
    outside = np.concatenate([np.arange(low), np.arange(high, len(scores))])
    yield from _chunks(outside[np.argsort(-scores[outside], kind="stable")])


def _chunks(order: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    start, size = 0, FIRST_CHUNK
    while start < len(order):
        yield order[start : start + size]
        start, size = start + size, min(2 * size, CHUNK_MAX)
