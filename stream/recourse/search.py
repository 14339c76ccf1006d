"""Per tier, the target that the model accepts: walk down the ranking until a projected comparator is one, then prune.

The paper returns the best-ranked comparator and loses validity to the moves that nobody can make (section "Recourse
the subject can act on"). Walking on until the *projected* target is accepted by the model itself keeps it. A tier's
target should also score as its tercile does: so the walk prefers the first one that reaches the tercile's least score,
and settles for the first accepted one where none of the best-ranked does.

Near is another question, what costs least: it is searched for directly (`least_effort`), and the comparator beside it is
the best-ranked of its tercile. Where features move in groups, which the search does not move, and where it finds
nothing, the walk answers, or what the search can still make cheaper of its answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream.events import TierName
from stream.forest.trees import Forest
from stream.forest.walk import margins_of
from stream.recourse.feasible import Reach, groups
from stream.recourse.least_effort import Prices, cheapened, least_effort
from stream.recourse.profiles import CellTrees, is_searchable

TIERS: tuple[TierName, ...] = ("near", "mid", "far")
FIRST_CHUNK, CHUNK_MAX = 16, 1024  # candidates projected and scored at once; most queries stop in the first few
AIMED_RANKS_MAX = 128  # how far down the ranking a tier looks for one that reaches its tercile's least score
SLACK_ULPS = 2.0  # of the model's floats at its largest sum: beyond the cutoff, for a sum in another precision
SLACK_TRIES = 8  # how often that is doubled where the model declines what was found

_Answer: TypeAlias = tuple[int, int, NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TierTarget:
    """One tier's answer: the target row (features,) float64, and the comparator (its row in the matrix) behind it."""

    tier: TierName
    rank: int
    from_tercile: bool
    comparator: int
    target: NDArray[np.float64]


def targets_of(
    forest: Forest,
    trees: CellTrees,
    reach: Reach,
    scores: NDArray[np.float64],
    *,
    first: int,
    cutoff: float,
    sign: int,
    action_cost: float,
) -> list[TierTarget]:
    """Find a target for each tier that has one.

    Shapes: scores (n - first,) of the comparators matrix[first:], which ascend by what the model says of them, so
    that the terciles of the paper are slices. `cutoff` is a native margin; accepted means at or past it.
    Ties in score go to the comparator nearer to the cutoff.
    """
    query = _Query(
        forest=forest,
        trees=trees,
        reach=reach,
        scores=scores,
        first=first,
        cutoff=cutoff,
        sign=sign,
        action_cost=action_cost,
    )
    found = []
    bounds = [len(scores) * k // len(TIERS) for k in range(len(TIERS) + 1)]
    for tier, (low, high) in zip(TIERS, pairwise(bounds), strict=True):
        answer = query.near(low, high) if tier == "near" else query.walked(low, high)
        if answer is None:  # it looked at everyone, so no other tier finds one either
            break
        rank, comparator, target = answer
        inside = low <= comparator - first < high
        found.append(TierTarget(tier=tier, rank=rank, from_tercile=inside, comparator=comparator, target=target))
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Query:
    """One person's question. An answer is a rank, a comparator (its row in the matrix) and a target (features,)."""

    forest: Forest
    trees: CellTrees
    reach: Reach
    scores: NDArray[np.float64]
    first: int
    cutoff: float
    sign: int
    action_cost: float

    def near(self, low: int, high: int) -> _Answer | None:
        """Take the least effort found, and beside it the comparator that stands first in the tercile's ranking."""
        if not len(self.scores):
            return None
        prices, searched = None, None
        if is_searchable(self.forest):
            prices = Prices(self.reach.prices(), self.action_cost)
            searched = self._least_effort(prices)
        beside = None
        if searched is not None:
            beside = 0, self.first + int(next(_ranked(self.scores, low, high))[0]), searched
        if beside is not None and not groups(self.reach.rules):
            return beside
        walked = self.walked(low, high)
        if walked is not None and prices is not None:
            walked = *walked[:2], self._cheapened(prices, walked)
        if beside is None or walked is None:
            return walked if beside is None else beside
        return beside if self._price(beside[2]) <= self._price(walked[2]) else walked

    def walked(self, low: int, high: int) -> _Answer | None:
        """Walk down the tercile's ranking, then everyone else's, and give back what its least score does not need."""
        forest, reach, sign = self.forest, self.reach, self.sign
        floor = float(sign * reach.matrix.margins[self.first + low]) if low < high else sign * self.cutoff
        ranked = _ranked(self.scores, low, high)
        answer = _walk(forest, reach, ranked, first=self.first, cutoff=self.cutoff, sign=sign, aim=floor)
        if answer is None:
            return None
        rank, comparator, target = answer
        floor = min(floor, self._margin(target))
        return rank, comparator, prune(forest, reach, target, floor=floor, sign=sign)

    def _least_effort(self, prices: Prices) -> NDArray[np.float64] | None:
        def search(gap: float) -> NDArray[np.int32] | None:
            found = least_effort(self.trees, self.reach.cells, prices, gap)
            return None if found is None else found[1]

        return self._accepted(search)

    def _cheapened(self, prices: Prices, walked: _Answer) -> NDArray[np.float64]:
        """Polish what the walk found; without a cheaper target that the model accepts, it stays."""
        _, comparator, target = walked
        moved = np.isin(np.arange(len(target)), _moved(self.reach.row, target))
        start = np.where(moved, self.reach.matrix.cells[comparator], self.reach.cells).astype(np.int32)
        cheaper = self._accepted(lambda gap: cheapened(self.trees, self.reach.cells, prices, gap, start))
        return cheaper if cheaper is not None and self._price(cheaper) < self._price(target) else target

    def _accepted(self, find: Callable[[float], NDArray[np.int32] | None]) -> NDArray[np.float64] | None:
        """Give the target in the cells that `find` finds for a gap, where the model itself accepts it.

        The kernels sum in another precision than the model: a slack covers that, and grows where it does not.
        """
        short = self.sign * self.cutoff - self._margin(self.reach.row)
        slack = SLACK_ULPS * float(np.finfo(self.forest.dtype).eps) * self.trees.magnitude
        for _ in range(1 + SLACK_TRIES):
            cells = find(short + slack)
            if cells is None:
                return None
            target: NDArray[np.float64] = self.reach.project(cells[None])[0]
            if self._margin(target) >= self.sign * self.cutoff:
                return target
            slack *= 2
        return None

    def _margin(self, row: NDArray[np.float64]) -> float:
        return float(self.sign * margins_of(self.forest, row[None])[0])

    def _price(self, target: NDArray[np.float64]) -> float:
        moved = _moved(self.reach.row, target)
        return math.fsum(self.reach.effort(j, float(target[j])) + self.action_cost for j in moved)


def _moved(row: NDArray[np.float64], target: NDArray[np.float64]) -> list[int]:
    return np.flatnonzero((target != row) & ~np.isnan(target)).tolist()


def prune(forest: Forest, reach: Reach, target: NDArray[np.float64], *, floor: float, sign: int) -> NDArray[np.float64]:
    """Give moves back, the dearest first, as long as sign * margin stays at or above `floor`.

    Shapes: (features,) -> (features,). A group is given back whole. At most one round a move.
    """
    grouped = {j: members for members in groups(reach.rules) for j in members}
    moved = _moved(reach.row, target)
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
) -> _Answer | None:
    """Take the first projection at or past `aim` among the first ranks, else the first that the model accepts."""
    passed = 0
    settled: _Answer | None = None
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
