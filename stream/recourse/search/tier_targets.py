"""A target for each tier that the model accepts: near costs least, mid is robust, far is robust and like accepted people.

Near is searched directly (`least_effort`). Where that finds nothing, the ranking is walked down until the model accepts
the person's *projection* toward a comparator, which is then made cheaper. Mid and far start from near (`robust_targets`).
The paper returns the best-ranked comparator and loses validity to moves that the subject cannot make (section "Recourse
the subject can act on"); here the best-ranked comparator of a target's tercile explains it. Where no target is found,
branch and bound (`proof`) looks for one until it has proven that there is none, or its budget is used up. For trees too
deep to search, every tier walks the ranking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream.events import TIERS, TierName
from stream.forest.trees import Forest
from stream.forest.walk import margins_of
from stream.recourse.comparators.ranking import Ranking
from stream.recourse.search.least_effort import least_effort, polished
from stream.recourse.search.proof import prove_for
from stream.recourse.search.robust_space import RobustSpace
from stream.recourse.search.robust_targets import robust_search
from stream.recourse.search.searched_model import SearchedModel
from stream.recourse.space.moves import Moves, moves_of, state_of, target_of
from stream.recourse.space.person_reach import PersonReach

# Bounds chosen by judgement; docs/recourse.md states them, and `python -m tests.evaluation --only bars` measures what they give.
FIRST_CHUNK, CHUNK_MAX = 16, 1024  # comparators projected and scored at once: most walks stop in the first few
AIMED_RANKS_MAX = 128  # ranks in which a tier looks for its tercile's least score; after them any accepted one will do
SLACK_ULPS = 2.0  # of the model's dtype at its largest sum: aimed past the cutoff, for kernels sum in float64
SLACK_DOUBLINGS_MAX = 8  # while the model declines what was found

_Ranked: TypeAlias = tuple[int, int, NDArray[np.float64]]  # rank, comparator (its row in the matrix), target


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TierTarget:
    """One tier's answer: the target row (features,) float64, and the comparator (its row in the matrix) beside it."""

    tier: TierName
    rank: int
    from_tercile: bool
    comparator: int
    target: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TierTargets:
    """The targets of all tiers, or none; then `proven` says whether it is proven that the rules permit none."""

    targets: tuple[TierTarget, ...]
    proven: bool = False


def targets_of(model: SearchedModel, reach: PersonReach, ranking: Ranking, *, first: int, cutoff: float) -> TierTargets:
    """Find a target for each tier, or for none.

    `ranking` is of the comparators matrix[first:], which ascend by the model's margin, so that the paper's terciles are
    slices. `cutoff` is a native margin; accepted means at or past it. Ties in score go to the comparator nearer to the
    cutoff.
    """
    if not len(ranking):
        return TierTargets(targets=())
    search = _TierSearch(model=model, reach=reach, ranking=ranking, first=first, cutoff=cutoff)
    return search.by_ranking() if model.robust is None else search.by_descent(model.robust)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _TierSearch:
    model: SearchedModel
    reach: PersonReach
    ranking: Ranking
    first: int
    cutoff: float

    @property
    def _terciles(self) -> list[tuple[int, int]]:
        bounds = [len(self.ranking) * k // len(TIERS) for k in range(len(TIERS) + 1)]
        return list(pairwise(bounds))

    def by_descent(self, space: RobustSpace) -> TierTargets:
        """Search for the cheapest target, and from there for robust ones."""
        model = self.model
        moves = moves_of(self.reach, float(model.policy.action_cost))
        near = self._cheapest(moves)
        if near is None and (ranked := self._first_ranked(self.ranking.scores(), *self._terciles[0])) is not None:
            near = self._polished(moves, ranked[2])
        if near is None:
            outcome, near = prove_for(model.forest, model.trees, self.reach, cutoff=self.cutoff, sign=model.policy.sign)
            if near is None:
                return TierTargets(targets=(), proven=outcome == "none")
            near = self._polished(moves, near)
        search = robust_search(
            model, space, self.reach, cutoff=self.cutoff, accepts=self._accepts, cheapest=self._cheapest
        )
        targets = (near, *search.mid_and_far(near, self._slack))
        return TierTargets(targets=tuple(self._tier_target(k, target) for k, target in enumerate(targets)))

    def _tier_target(self, k: int, target: NDArray[np.float64]) -> TierTarget:
        """Explain the k-th tier's target by the best-ranked comparator of its tercile."""
        low, high = self._terciles[k]
        inside = low < high
        comparator = self.first + (self.ranking.best(low, high) if inside else self.ranking.best(0, len(self.ranking)))
        return TierTarget(tier=TIERS[k], rank=0, from_tercile=inside, comparator=comparator, target=target)

    def by_ranking(self) -> TierTargets:
        """Walk down the ranking for every tier."""
        found, scores = [], self.ranking.scores()
        for tier, (low, high) in zip(TIERS, self._terciles, strict=True):
            ranked = self._first_ranked(scores, low, high)
            if ranked is None:  # the walk saw every comparator, so no other tier finds one either
                break
            rank, comparator, target = ranked
            inside = low <= comparator - self.first < high
            found.append(TierTarget(tier=tier, rank=rank, from_tercile=inside, comparator=comparator, target=target))
        return TierTargets(targets=tuple(found))

    def _first_ranked(self, scores: NDArray[np.float64], low: int, high: int) -> _Ranked | None:
        """Walk down the tercile's ranking, then everyone else's; prune what the tercile's least score does not need."""
        forest, reach, sign = self.model.forest, self.reach, self.model.policy.sign
        floor = float(sign * reach.matrix.margins[self.first + low]) if low < high else sign * self.cutoff
        ranked = _in_rank_order(scores, low, high)
        found = _walk(forest, reach, ranked, first=self.first, cutoff=self.cutoff, sign=sign, aim=floor)
        if found is None:
            return None
        rank, comparator, target = found
        floor = min(floor, self._margin(target))
        return rank, comparator, prune(forest, reach, target, floor=floor, sign=sign)

    def _cheapest(self, moves: Moves) -> NDArray[np.float64] | None:
        return self._accepted_target(lambda gap: least_effort(self.model.trees, moves, gap))

    def _polished(self, moves: Moves, target: NDArray[np.float64]) -> NDArray[np.float64]:
        """Polish a target from elsewhere; it stays where nothing cheaper is accepted."""
        start = state_of(self.reach, moves, target, self.model.cells, self.model.cells)
        cheaper = self._accepted_target(lambda gap: polished(self.model.trees, moves, gap, start))
        return target if cheaper is None else cheaper

    def _accepted_target(self, find: Callable[[float], NDArray[np.int32] | None]) -> NDArray[np.float64] | None:
        """Give the target of the state that `find` finds for a gap in margin, if the model itself accepts it.

        The kernels sum in another precision than the model: a slack covers that, and doubles until it does.
        """
        sign, slack = self.model.policy.sign, self._slack
        gap = sign * self.cutoff - self._margin(self.reach.row)
        for _ in range(1 + SLACK_DOUBLINGS_MAX):
            state = find(gap + slack)
            if state is None:
                return None
            target = target_of(self.reach, state)
            if self._accepts(target):
                return target
            slack *= 2
        return None

    @property
    def _slack(self) -> float:
        return SLACK_ULPS * float(np.finfo(self.model.forest.dtype).eps) * float(self.model.trees.magnitude)

    def _accepts(self, target: NDArray[np.float64]) -> bool:
        return self._margin(target) >= self.model.policy.sign * self.cutoff

    def _margin(self, row: NDArray[np.float64]) -> float:
        return float(self.model.policy.sign * margins_of(self.model.forest, row[None])[0])


def prune(
    forest: Forest, reach: PersonReach, target: NDArray[np.float64], *, floor: float, sign: int
) -> NDArray[np.float64]:
    """Take moves back, the dearest first, as long as sign * margin stays at or above `floor`.

    Shapes: (features,) -> (features,). Features that move together, a group or a driver and its dependents, are taken
    back as one. Each round takes one back.
    """
    grouped = {j: unit.members for unit in reach.rules.units for j in unit.members}
    moved: list[int] = np.flatnonzero((target != reach.row) & ~np.isnan(target)).tolist()
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
    reach: PersonReach,
    ranked: Iterator[NDArray[np.int64]],
    *,
    first: int,
    cutoff: float,
    sign: int,
    aim: float,
) -> _Ranked | None:
    """Find the first projection at or past `aim` among the first ranks, else the first that the model accepts."""
    passed = 0
    found: _Ranked | None = None
    for candidates in ranked:
        targets = reach.project(reach.matrix.cells[first + candidates])
        reached = sign * margins_of(forest, targets)
        aimed = reached[: max(0, AIMED_RANKS_MAX - passed)] >= aim
        accepted = reached >= sign * cutoff
        if aimed.any() or (found is None and accepted.any()):
            best = int((aimed if aimed.any() else accepted).argmax())
            found = passed + best, first + int(candidates[best]), targets[best]
        passed += len(candidates)
        if aimed.any() or (found is not None and passed >= AIMED_RANKS_MAX):
            break
    return found


def _in_rank_order(scores: NDArray[np.float64], low: int, high: int) -> Iterator[NDArray[np.int64]]:
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
