"""Per tier, a target that the model accepts: near costs least, mid lasts, far lasts and is like people who were accepted.

Near is searched for directly (`least_effort`); where that finds nothing, the ranking is walked down until a *projected*
comparator is accepted by the model itself, and what is found made cheaper. Mid and far set out from near
(`robust_question`). The paper returns the best-ranked comparator and loses validity to the moves that nobody can make
(section "Recourse the subject can act on"); here the comparator beside a target, the best-ranked of its tercile, is who
explains it. Where no way is found, branch and bound looks for one until it is proven that there is none (`proof`), or
its budget is used up. Trees too deep for that are walked for every tier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream.events import TierName
from stream.forest.trees import Forest
from stream.forest.walk import margins_of
from stream.recourse.comparators.ranking import Ranking
from stream.recourse.search.least_effort import cheapened, least_effort
from stream.recourse.search.proof import prove_for
from stream.recourse.search.robust_space import RobustSpace
from stream.recourse.search.robust_targets import robust_question
from stream.recourse.search.searched_model import SearchedModel
from stream.recourse.space.moves import Moves, moves_of, state_of, target_of
from stream.recourse.space.person_reach import PersonReach

TIERS: tuple[TierName, ...] = ("near", "mid", "far")
FIRST_CHUNK, CHUNK_MAX = 16, 1024  # candidates projected and scored at once; most queries stop in the first few
AIMED_RANKS_MAX = 128  # how far down the ranking a tier looks for one that reaches its tercile's least score
SLACK_ULPS = 2.0  # of the model's floats at its largest sum: beyond the cutoff, for a sum in another precision
SLACK_TRIES = 8  # how often that is doubled where the model declines what was found

_Walked: TypeAlias = tuple[int, int, NDArray[np.float64]]  # rank, comparator (its row in the matrix), target


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TierTarget:
    """One tier's answer: the target row (features,) float64, and the comparator (its row in the matrix) beside it."""

    tier: TierName
    rank: int
    from_tercile: bool
    comparator: int
    target: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """The targets of all tiers, or none; then `proven` says whether it is certain that the rules permit none."""

    targets: tuple[TierTarget, ...]
    proven: bool = False


def targets_of(model: SearchedModel, reach: PersonReach, ranking: Ranking, *, first: int, cutoff: float) -> Found:
    """Find a target for each tier, or for none.

    `ranking` is of the comparators matrix[first:], which ascend by what the model says of them, so
    that the terciles of the paper are slices. `cutoff` is a native margin; accepted means at or past it.
    Ties in score go to the comparator nearer to the cutoff.
    """
    if not len(ranking):
        return Found(targets=())
    query = _Query(model=model, reach=reach, ranking=ranking, first=first, cutoff=cutoff)
    return query.walked_all() if model.robust is None else query.searched_all(model.robust)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Query:
    """One person's question."""

    model: SearchedModel
    reach: PersonReach
    ranking: Ranking
    first: int
    cutoff: float

    @property
    def _terciles(self) -> list[tuple[int, int]]:
        bounds = [len(self.ranking) * k // len(TIERS) for k in range(len(TIERS) + 1)]
        return list(pairwise(bounds))

    def searched_all(self, space: RobustSpace) -> Found:
        """Search for what costs least, and from there for what lasts."""
        model = self.model
        moves = moves_of(self.reach, float(model.policy.action_cost))
        near = self._cheapest(moves)
        if near is None and (walked := self._walked(self.ranking.scores(), *self._terciles[0])) is not None:
            near = self._cheapened(moves, walked[2])
        if near is None:
            outcome, near = prove_for(model.forest, model.trees, self.reach, cutoff=self.cutoff, sign=model.policy.sign)
            if near is None:
                return Found(targets=(), proven=outcome == "none")
            near = self._cheapened(moves, near)
        question = robust_question(
            model, space, self.reach, cutoff=self.cutoff, accepts=self._accepts, cheapest=self._cheapest
        )
        targets = (near, *question.answers(near, self._slack))
        return Found(targets=tuple(self._beside(k, target) for k, target in enumerate(targets)))

    def _beside(self, k: int, target: NDArray[np.float64]) -> TierTarget:
        """Put the best-ranked comparator of the k-th tier's tercile beside its target."""
        low, high = self._terciles[k]
        inside = low < high
        comparator = self.first + (self.ranking.best(low, high) if inside else self.ranking.best(0, len(self.ranking)))
        return TierTarget(tier=TIERS[k], rank=0, from_tercile=inside, comparator=comparator, target=target)

    def walked_all(self) -> Found:
        """Walk down the ranking for every tier."""
        found, scores = [], self.ranking.scores()
        for tier, (low, high) in zip(TIERS, self._terciles, strict=True):
            walked = self._walked(scores, low, high)
            if walked is None:  # it looked at everyone, so no other tier finds one either
                break
            rank, comparator, target = walked
            inside = low <= comparator - self.first < high
            found.append(TierTarget(tier=tier, rank=rank, from_tercile=inside, comparator=comparator, target=target))
        return Found(targets=tuple(found))

    def _walked(self, scores: NDArray[np.float64], low: int, high: int) -> _Walked | None:
        """Walk down the tercile's ranking, then everyone else's, and give back what its least score does not need."""
        forest, reach, sign = self.model.forest, self.reach, self.model.policy.sign
        floor = float(sign * reach.matrix.margins[self.first + low]) if low < high else sign * self.cutoff
        ranked = _ranked(scores, low, high)
        walked = _walk(forest, reach, ranked, first=self.first, cutoff=self.cutoff, sign=sign, objective=floor)
        if walked is None:
            return None
        rank, comparator, target = walked
        floor = min(floor, self._margin(target))
        return rank, comparator, prune(forest, reach, target, floor=floor, sign=sign)

    def _cheapest(self, moves: Moves) -> NDArray[np.float64] | None:
        return self._accepted(lambda gap: least_effort(self.model.trees, moves, gap))

    def _cheapened(self, moves: Moves, target: NDArray[np.float64]) -> NDArray[np.float64]:
        """Polish what was found elsewhere; without a cheaper target that the model accepts, it stays."""
        start = state_of(self.reach, moves, target, self.model.cells, self.model.cells)
        cheaper = self._accepted(lambda gap: cheapened(self.model.trees, moves, gap, start))
        return target if cheaper is None else cheaper

    def _accepted(self, find: Callable[[float], NDArray[np.int32] | None]) -> NDArray[np.float64] | None:
        """Give the target of the state that `find` finds for a gap, where the model itself accepts it.

        The kernels sum in another precision than the model: a slack covers that, and grows where it does not.
        """
        sign, slack = self.model.policy.sign, self._slack
        short = sign * self.cutoff - self._margin(self.reach.row)
        for _ in range(1 + SLACK_TRIES):
            state = find(short + slack)
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


def _moved(row: NDArray[np.float64], target: NDArray[np.float64]) -> list[int]:
    return np.flatnonzero((target != row) & ~np.isnan(target)).tolist()


def prune(
    forest: Forest, reach: PersonReach, target: NDArray[np.float64], *, floor: float, sign: int
) -> NDArray[np.float64]:
    """Give moves back, the dearest first, as long as sign * margin stays at or above `floor`.

    Shapes: (features,) -> (features,). Features that move together are given back as one: a group, and a driver with
    all that follows it. At most one round a move.
    """
    grouped = {j: unit.members for unit in reach.rules.units for j in unit.members}
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
    reach: PersonReach,
    ranked: Iterator[NDArray[np.int64]],
    *,
    first: int,
    cutoff: float,
    sign: int,
    objective: float,
) -> _Walked | None:
    """Take the first projection at or past `objective` among the first ranks, else the first that the model accepts."""
    passed = 0
    settled: _Walked | None = None
    for candidates in ranked:
        targets = reach.project(reach.matrix.cells[first + candidates])
        reached = sign * margins_of(forest, targets)
        aimed = reached[: max(0, AIMED_RANKS_MAX - passed)] >= objective
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
