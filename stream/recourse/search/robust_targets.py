"""One person's question: what lasts, and what lasts and is like people who were really accepted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream.forest.walk import margins_of
from stream.recourse.comparators.people import distances, nearest_people, place_of, place_of_row, place_of_rows
from stream.recourse.rules.effort import is_own
from stream.recourse.search.robust_descent import EXCHANGES_MAX, Neighbourhood, Objective, descend
from stream.recourse.search.robust_space import RobustSpace
from stream.recourse.search.searched_model import SearchedModel
from stream.recourse.space.moves import Moves, moves_of, state_of, target_of, without
from stream.recourse.space.person_reach import PersonReach, person_reach
from stream.recourse.space.reachable_leaves import ReachableLeaves, reachable_leaves

NEIGHBOURHOOD_MAX = 1024  # accepted people nearest to mid's target, among whom the search for far goes on
COMPARED_MAX = 64  # of them, the cheapest to come near to
BESIDE_MAX = 3  # of these, from whom that search sets out as well
OTHERS_MAX = 3  # moves of a target that all tiers share, without each of which another way is looked for
OTHER_COST_MAX = 3.0  # times what the shared target costs: a dearer way is no choice
LEAST_PRICE = 0.1  # of mid's target, when the reserve is priced by it

Target = NDArray[np.float64]  # (features,)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RobustQuestion:
    """What it takes to answer: a person's reach in the model's cells, and in those that the shadows share with it."""

    model: SearchedModel
    space: RobustSpace
    reach: PersonReach
    there: PersonReach
    moves: Moves
    searched: list[int]  # the numbers of the shadows that are asked
    leaves: ReachableLeaves  # what is within reach of the model and of them
    cutoff: float
    accepts: Callable[[Target], bool]  # whether the model itself does
    cheapest: Callable[[Moves], Target | None]  # that it accepts, of such as these moves make

    def answers(self, near: Target, slack: float) -> tuple[Target, Target]:
        """Give the targets of mid and far, setting out from near's. `slack`: margin, for sums in another precision.

        A tier for which nothing better is found has the target of the tier before; where that would be one for all three,
        far is another way, if there is one.
        """
        policy, space, reach = self.model.policy, self.space, self.reach
        goals, unit = np.full(len(self.leaves.base), policy.sign * self.cutoff), space.deviation
        goals[0] += slack
        robust = Objective(
            goals, policy.mid_surplus * unit, policy.mid_surplus_price / unit,
            0.0, 0.0, 0.0,
        )  # fmt: skip
        mid = self._settled(robust, self._neighbourhood(np.empty(0, np.int64)), [near])
        mid = near if mid is None else mid
        price = policy.far_distance_price * space.genuine
        dear = max(float(self.reach.costs(mid[None], float(policy.action_cost))[0]), LEAST_PRICE)
        like_others = Objective(
            goals, policy.far_surplus * unit, policy.far_surplus_price / unit,
            policy.far_reserve * unit, policy.far_reserve_price / dear / unit, price,
        )  # fmt: skip
        around = np.empty(0, np.int64)
        if price > 0:
            place = place_of_row(mid, reach.rules, reach.matrix, self.model.cells)
            around = nearest_people(space.people, self._first_accepted, place, NEIGHBOURHOOD_MAX)
        neighbourhood = self._neighbourhood(around)
        beside = self._beside(around, neighbourhood, price) if price > 0 else ()
        far = self._settled(like_others, neighbourhood, [mid, *beside])
        far = mid if far is None else far
        if is_own(near, mid).all() and is_own(mid, far).all():
            far = self._another(like_others, neighbourhood, near)
        return mid, far

    @property
    def _first_accepted(self) -> int:
        return self.model.matrix.first_past(self.cutoff, self.model.policy.sign)

    def _another(self, objective: Objective, neighbourhood: Neighbourhood, target: Target) -> Target:
        """Of the ways that do without one of a target's moves the one that is worth most; the target itself if there is none.

        As many of the models asked accept it.
        """
        action_cost = float(self.model.policy.action_cost)
        here = moves_of(self.reach, action_cost)
        state = state_of(self.reach, here, target, self.model.cells, self.model.cells)
        dearest = OTHER_COST_MAX * float(self.reach.costs(target[None], action_cost)[0])
        found = []
        moved = np.flatnonzero((state != here.own) & np.isfinite(here.price[here.start[:-1] + state]))
        for slot in moved[:OTHERS_MAX].tolist():
            start = self.cheapest(without(here, slot))
            if start is None:
                continue
            settled = self._settled(objective, neighbourhood, [start], without(self.moves, slot))
            for other in (settled, start):
                if other is None or (self._past(other) >= 0).sum() < (self._past(target) >= 0).sum():
                    continue
                if float(self.reach.costs(other[None], action_cost)[0]) <= dearest:
                    found.append(other)
                    break
        return min(found, key=lambda other: self._worth(objective, neighbourhood, other), default=target)

    def _settled(
        self, objective: Objective, neighbourhood: Neighbourhood, starts: list[Target], moves: Moves | None = None
    ) -> Target | None:
        """Descend from each start, then exchange from where it ends best.

        None where the model declines what comes of it, or where the first start was better: the common cells can part a
        combination of features that move together so far that nobody may go there, and then the descent begins elsewhere.
        """
        moves = self.moves if moves is None else moves
        states = [state_of(self.there, moves, start, self.space.cells, self.model.cells) for start in starts]
        worth, state = descend(self.leaves, moves, objective, neighbourhood, np.array(states), EXCHANGES_MAX)
        target = target_of(self.there, state)
        if math.isinf(worth) or not self.accepts(target):
            return None
        begun = self.space.cells.of(np.array([starts[0], target_of(self.there, states[0])]))
        return (
            None
            if (begun[0] != begun[1]).any() and self._worth(objective, neighbourhood, starts[0]) <= worth
            else target
        )

    def _worth(self, objective: Objective, neighbourhood: Neighbourhood, target: Target) -> float:
        """The objective of a target, by the models themselves."""
        reach, past = self.reach, self._past(target)
        short = objective.surplus_price * np.maximum(
            objective.surplus - past, 0
        ) + objective.reserve_price * np.maximum(objective.reserve - past, 0)
        worth = float(reach.costs(target[None], float(self.model.policy.action_cost))[0]) + float(np.mean(short))
        if objective.distance_price > 0:
            place = place_of_rows(target[None], reach.rules, reach.matrix, self.model.cells)
            worth += objective.distance_price * float(distances(neighbourhood.place, neighbourhood.nominal, place)[0])
        return worth

    def _past(self, target: Target) -> NDArray[np.float64]:
        """How far past the cutoff each model asked puts a target. Shape: (models asked,)."""
        asked = [self.model.shadows.forests[k] for k in self.searched] or [self.model.forest]
        sign = self.model.policy.sign
        return np.array([sign * (float(margins_of(forest, target[None])[0]) - self.cutoff) for forest in asked])

    def _neighbourhood(self, around: NDArray[np.int64]) -> Neighbourhood:
        """Place a person's own places among the people with these rows of the pool."""
        known = self.reach.rules, self.reach.matrix, self.model.cells
        alternatives = self.there.alternatives
        members = np.split(self.moves.members, self.moves.first_member[1:-1]) if len(alternatives.price) else []
        counts = np.diff(alternatives.unit_start)
        tiled = [np.tile(of_unit, count) for of_unit, count in zip(members, counts.tolist(), strict=True)]
        features = np.concatenate([np.empty(0, np.int64), *tiled]).astype(np.int64)
        row = place_of_row(self.reach.row, *known)
        still = (alternatives.value == self.reach.row[features]) | np.isnan(alternatives.value)
        return Neighbourhood(
            place=self.space.people.place[around],
            nominal=self.space.people.nominal,
            row=row,
            value=place_of(self.there.target_value, self.there.cell_targets.feature, *known),
            of_cells=np.where(still, row[features], place_of(alternatives.value, features, *known)),
        )

    def _beside(self, around: NDArray[np.int64], neighbourhood: Neighbourhood, price: float) -> Sequence[Target]:
        """Go as near as permitted to those of the people around with whom that is worth most, the best first."""
        reach, policy = self.reach, self.model.policy
        targets = reach.project(reach.matrix.cells[around])
        efforts = reach.costs(targets, float(policy.action_cost))
        cheapest = np.argsort(efforts, kind="stable")[:COMPARED_MAX]
        accepted = policy.sign * margins_of(self.model.forest, targets[cheapest]).astype(np.float64) >= (
            policy.sign * self.cutoff
        )
        kept = cheapest[accepted]
        if not len(kept):
            return ()
        places = place_of_rows(targets[kept], reach.rules, reach.matrix, self.model.cells)
        worth = efforts[kept] + price * distances(neighbourhood.place, neighbourhood.nominal, places)
        return list(targets[kept[np.argsort(worth, kind="stable")[:BESIDE_MAX]]])


def robust_question(
    model: SearchedModel,
    space: RobustSpace,
    reach: PersonReach,
    *,
    cutoff: float,
    accepts: Callable[[Target], bool],
    cheapest: Callable[[Moves], Target | None],
) -> RobustQuestion:
    """Put a person's question into the space that the shadows share."""
    cells = space.cells.of(reach.row[None])[0]
    there = person_reach(
        reach.rules, reach.matrix, space.cell_targets, row=reach.row, cells=cells, mutability=reach.mutability
    )
    moves = moves_of(there, float(model.policy.action_cost))
    searched = model.shadows.ring(reach.row)[: model.shadows.searched]
    return RobustQuestion(
        model=model,
        space=space,
        reach=reach,
        there=there,
        moves=moves,
        searched=searched,
        leaves=reachable_leaves(space.joint, moves, np.array([0, *(1 + k for k in searched)])),
        cutoff=cutoff,
        accepts=accepts,
        cheapest=cheapest,
    )
