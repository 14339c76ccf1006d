"""Mid and far for one person: targets that are robust, and targets that are robust and like accepted people."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream.forest.walk import margins_of
from stream.recourse.comparators.people import (
    coordinates_of,
    coordinates_of_row,
    coordinates_of_rows,
    distances,
    nearest_people,
)
from stream.recourse.rules.effort import is_own
from stream.recourse.search.robust_descent import EXCHANGES_MAX, Neighbourhood, Objective, descend
from stream.recourse.search.robust_space import RobustSpace
from stream.recourse.search.searched_model import SearchedModel
from stream.recourse.space.moves import Moves, moves_of, state_of, target_of, without
from stream.recourse.space.person_reach import PersonReach, person_reach
from stream.recourse.space.reachable_leaves import ReachableLeaves, reachable_leaves

# Bounds chosen by judgement; docs/recourse.md states them, and `python -m tests.evaluation --only bars` measures what they give.
NEIGHBOURHOOD_MAX = 1024  # accepted people nearest to mid's target, to whom far's distances are measured
PROJECTED_MAX = 64  # of them, those cheapest to move toward, whom the model scores
PEOPLE_STARTS_MAX = 3  # of these, projections from which the search for far starts too
OTHER_STARTS_MAX = 3  # moves of a target shared by all tiers, each forbidden once in the search for another
OTHER_COST_MAX = 3.0  # times the cost of the shared target: a dearer one is no choice
LEAST_COST = 0.1  # scales, of mid's target where the reserve is priced by it

Target = NDArray[np.float64]  # (features,)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RobustSearch:
    """One person's search for mid and far: reach in the model's cells, joint_reach in those it shares with its shadows."""

    model: SearchedModel
    space: RobustSpace
    reach: PersonReach
    joint_reach: PersonReach
    moves: Moves  # in the joint cells
    searched: list[int]  # numbers of the searched shadows
    leaves: ReachableLeaves  # of the model and the searched shadows
    cutoff: float
    accepts: Callable[[Target], bool]  # whether the model itself does
    cheapest: Callable[[Moves], Target | None]  # accepted by the model, within such moves

    def mid_and_far(self, near: Target, slack: float) -> tuple[Target, Target]:
        """Find the targets of mid and far, starting from near's. `slack`: margin, for sums in another precision.

        A tier for which nothing better is found has the target of the tier before. Where all three would be the same, far
        is another target, if there is one.
        """
        policy, space, reach = self.model.policy, self.space, self.reach
        goals, unit = np.full(len(self.leaves.base), policy.sign * self.cutoff), space.deviation
        goals[0] += slack
        robust = Objective(
            goals, policy.mid_surplus * unit, policy.mid_surplus_price / unit,
            0.0, 0.0, 0.0,
        )  # fmt: skip
        mid = self._descended(robust, self._neighbourhood(np.empty(0, np.int64)), [near])
        mid = near if mid is None else mid
        price = policy.far_distance_price * space.people_apart
        cost = max(self._cost(mid), LEAST_COST)
        like_others = Objective(
            goals, policy.far_surplus * unit, policy.far_surplus_price / unit,
            policy.far_reserve * unit, policy.far_reserve_price / cost / unit, price,
        )  # fmt: skip
        around = np.empty(0, np.int64)
        if price > 0:
            coordinates = coordinates_of_row(mid, reach.rules, reach.matrix, self.model.cells)
            first_accepted = self.model.matrix.first_past(self.cutoff, policy.sign)
            around = nearest_people(space.people, first_accepted, coordinates, NEIGHBOURHOOD_MAX)
        neighbourhood = self._neighbourhood(around)
        toward = self._toward_people(around, neighbourhood, price) if price > 0 else ()
        far = self._descended(like_others, neighbourhood, [mid, *toward])
        far = mid if far is None else far
        if is_own(near, mid).all() and is_own(mid, far).all():
            far = self._other_target(like_others, neighbourhood, near)
        return mid, far

    def _other_target(self, objective: Objective, neighbourhood: Neighbourhood, target: Target) -> Target:
        """Find the best target that does without one of this one's moves; the target itself where there is none.

        At least as many searched models accept it.
        """
        moves = moves_of(self.reach, float(self.model.policy.action_cost))
        state = state_of(self.reach, moves, target, self.model.cells, self.model.cells)
        cost_max = OTHER_COST_MAX * self._cost(target)
        found = []
        moved = np.flatnonzero((state != moves.own) & np.isfinite(moves.price[moves.start[:-1] + state]))
        for slot in moved[:OTHER_STARTS_MAX].tolist():
            start = self.cheapest(without(moves, slot))
            if start is None:
                continue
            descended = self._descended(objective, neighbourhood, [start], without(self.moves, slot))
            for other in (descended, start):
                if other is None or (self._surpluses(other) >= 0).sum() < (self._surpluses(target) >= 0).sum():
                    continue
                if self._cost(other) <= cost_max:
                    found.append(other)
                    break
        return min(found, key=lambda other: self._objective_of(objective, neighbourhood, other), default=target)

    def _descended(
        self, objective: Objective, neighbourhood: Neighbourhood, starts: list[Target], moves: Moves | None = None
    ) -> Target | None:
        """Descend from each start, then by exchanges from the best end.

        None where the model declines the end, or where the first start was better: the joint cells can split a unit's
        alternative into some that nobody may take, and then the descent starts from another.
        """
        moves = self.moves if moves is None else moves
        states = [state_of(self.joint_reach, moves, start, self.space.cells, self.model.cells) for start in starts]
        value, state = descend(self.leaves, moves, objective, neighbourhood, np.array(states), EXCHANGES_MAX)
        target = target_of(self.joint_reach, state)
        if math.isinf(value) or not self.accepts(target):
            return None
        first_cells = self.space.cells.of(starts[0][None])[0]
        moved_by_split = (states[0][: len(first_cells)] != first_cells).any()  # only members of units can be
        if moved_by_split and self._objective_of(objective, neighbourhood, starts[0]) <= value:
            return None
        return target

    def _objective_of(self, objective: Objective, neighbourhood: Neighbourhood, target: Target) -> float:
        """The objective of a target, scored by the models themselves."""
        reach, surpluses = self.reach, self._surpluses(target)
        shortfalls = objective.surplus_price * np.maximum(
            objective.surplus - surpluses, 0
        ) + objective.reserve_price * np.maximum(objective.reserve - surpluses, 0)
        value = self._cost(target) + float(np.mean(shortfalls))
        if objective.distance_price > 0:
            point = coordinates_of_rows(target[None], reach.rules, reach.matrix, self.model.cells)
            value += objective.distance_price * float(distances(neighbourhood.people, neighbourhood.nominal, point)[0])
        return value

    def _cost(self, target: Target) -> float:
        return float(self.reach.costs(target[None], float(self.model.policy.action_cost))[0])

    def _surpluses(self, target: Target) -> NDArray[np.float64]:
        """The margin past the cutoff by each searched shadow, or the model without any. Shape: (models,)."""
        forests = [self.model.shadows.forests[k] for k in self.searched] or [self.model.forest]
        sign = self.model.policy.sign
        return np.array([sign * (float(margins_of(forest, target[None])[0]) - self.cutoff) for forest in forests])

    def _neighbourhood(self, around: NDArray[np.int64]) -> Neighbourhood:
        """Locate a person's options among the people with these rows of the pool."""
        known = self.reach.rules, self.reach.matrix, self.model.cells
        alternatives = self.joint_reach.alternatives
        members = np.split(self.moves.members, self.moves.first_member[1:-1]) if len(alternatives.price) else []
        counts = np.diff(alternatives.unit_start)
        tiled = [np.tile(of_unit, count) for of_unit, count in zip(members, counts.tolist(), strict=True)]
        features = np.concatenate([np.empty(0, np.int64), *tiled]).astype(np.int64)
        own = coordinates_of_row(self.reach.row, *known)
        unchanged = (alternatives.value == self.reach.row[features]) | np.isnan(alternatives.value)
        return Neighbourhood(
            people=self.space.people.coordinates[around],
            nominal=self.space.people.nominal,
            own=own,
            options=coordinates_of(self.joint_reach.target_value, self.joint_reach.cell_targets.feature, *known),
            cells=np.where(unchanged, own[features], coordinates_of(alternatives.value, features, *known)),
        )

    def _toward_people(self, around: NDArray[np.int64], neighbourhood: Neighbourhood, price: float) -> Sequence[Target]:
        """Project the person toward the people around; keep the accepted projections with the least cost and distance."""
        reach, policy = self.reach, self.model.policy
        targets = reach.project(reach.matrix.cells[around])
        costs = reach.costs(targets, float(policy.action_cost))
        cheapest = np.argsort(costs, kind="stable")[:PROJECTED_MAX]
        accepted = policy.sign * margins_of(self.model.forest, targets[cheapest]).astype(np.float64) >= (
            policy.sign * self.cutoff
        )
        kept = cheapest[accepted]
        if not len(kept):
            return ()
        coordinates = coordinates_of_rows(targets[kept], reach.rules, reach.matrix, self.model.cells)
        values = costs[kept] + price * distances(neighbourhood.people, neighbourhood.nominal, coordinates)
        return list(targets[kept[np.argsort(values, kind="stable")[:PEOPLE_STARTS_MAX]]])


def robust_search(
    model: SearchedModel,
    space: RobustSpace,
    reach: PersonReach,
    *,
    cutoff: float,
    accepts: Callable[[Target], bool],
    cheapest: Callable[[Moves], Target | None],
) -> RobustSearch:
    """Express a person's reach in the cells that the model shares with its shadows, and collect their leaves."""
    cells = space.cells.of(reach.row[None])[0]
    joint_reach = person_reach(
        reach.rules, reach.matrix, space.cell_targets, row=reach.row, cells=cells, mutability=reach.mutability
    )
    moves = moves_of(joint_reach, float(model.policy.action_cost))
    searched = model.shadows.ring(reach.row)[: model.shadows.searched]
    return RobustSearch(
        model=model,
        space=space,
        reach=reach,
        joint_reach=joint_reach,
        moves=moves,
        searched=searched,
        leaves=reachable_leaves(space.joint, moves, np.array([0, *(1 + k for k in searched)])),
        cutoff=cutoff,
        accepts=accepts,
        cheapest=cheapest,
    )
