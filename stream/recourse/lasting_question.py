"""One person's question: what lasts, and what lasts and is like people who were really accepted."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream.forest.walk import margins_of
from stream.recourse.feasible import Reach, reach_of
from stream.recourse.joint import JointTrees
from stream.recourse.lasting import EXCHANGES_MAX, Aim, Crowd, descend
from stream.recourse.lasting_space import LastingSpace
from stream.recourse.model import PublishedModel
from stream.recourse.moves import Moves, moves_of, state_of, target_of
from stream.recourse.people import distances, nearest_people, place_of, place_of_row
from stream.recourse.within_reach import within_reach

CROWD_MAX = 256  # accepted people nearest to mid's target, among whom the search for far goes on
STARTS_MAX = 64  # of them, the cheapest to come near to, from one of whom that search sets out as well
LEAST_PRICE = 0.1  # of mid's target, when the reserve is priced by it

Target = NDArray[np.float64]  # (features,)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LastingQuestion:
    """What it takes to answer: a person's reach in the model's cells, and in those that the shadows share with it."""

    model: PublishedModel
    space: LastingSpace
    reach: Reach
    there: Reach
    moves: Moves
    joint: JointTrees  # what is within reach of it
    cutoff: float
    accepts: Callable[[Target], bool]  # whether the model itself does

    def answers(self, near: Target, slack: float) -> tuple[Target, Target]:
        """Give the targets of mid and far, setting out from near's. `slack`: margin, for sums in another precision.

        A tier for which nothing better is found has the target of the tier before.
        """
        policy, space, reach = self.model.policy, self.space, self.reach
        goals, unit = policy.sign * self.cutoff - self.joint.base, space.margin_unit
        goals[0] += slack
        lasting = Aim(
            goals, policy.mid_surplus * unit, policy.mid_surplus_price / unit,
            0.0, 0.0, 0.0,
        )  # fmt: skip
        mid = self._settled(lasting, self._crowd(np.empty(0, np.int64)), [near])
        if mid is None:
            return near, near
        price = policy.far_distance_price * space.genuine
        dear = max(float(self._efforts(mid[None])[0]), LEAST_PRICE)
        like_others = Aim(
            goals, policy.far_surplus * unit, policy.far_surplus_price / unit,
            policy.far_reserve * unit, policy.far_reserve_price / dear / unit, price,
        )  # fmt: skip
        around = np.empty(0, np.int64)
        if price > 0:
            place = place_of_row(mid, reach.rules, reach.matrix, self.model.cells)
            around = nearest_people(space.people, self._first_accepted, place, CROWD_MAX)
        crowd = self._crowd(around)
        beside = self._beside(around, crowd, price) if price > 0 else None
        far = self._settled(like_others, crowd, [mid] if beside is None else [mid, beside])
        return mid, mid if far is None else far

    @property
    def _first_accepted(self) -> int:
        return self.model.matrix.first_past(self.cutoff, self.model.policy.sign)

    def _settled(self, aim: Aim, crowd: Crowd, starts: list[Target]) -> Target | None:
        """Descend from each start, then exchange from where it ends best; None where the model declines what comes of it."""
        states = [state_of(self.there, self.moves, start, self.space.cells.of(start[None])[0]) for start in starts]
        worth = [descend(self.joint, self.moves, aim, crowd, state, 0) for state in states]
        state = states[int(np.argmin(worth))]  # of equal ones the first
        worth_it = descend(self.joint, self.moves, aim, crowd, state, EXCHANGES_MAX)
        target = target_of(self.there, state)
        return None if math.isinf(worth_it) or not self.accepts(target) else target

    def _crowd(self, around: NDArray[np.int64]) -> Crowd:
        """Place a person's own places among the people with these rows of the pool."""
        known = self.reach.rules, self.reach.matrix, self.model.cells
        alternatives = self.there.alternatives
        members = np.split(self.moves.members, self.moves.first_member[1:-1]) if len(alternatives.price) else []
        counts = np.diff(alternatives.unit_start)
        tiled = [np.tile(of_unit, count) for of_unit, count in zip(members, counts.tolist(), strict=True)]
        features = np.concatenate([np.empty(0, np.int64), *tiled]).astype(np.int64)
        row = place_of_row(self.reach.row, *known)
        still = (alternatives.value == self.reach.row[features]) | np.isnan(alternatives.value)
        return Crowd(
            place=self.space.people.place[around],
            nominal=self.space.people.nominal,
            row=row,
            value=place_of(self.there.landing, self.there.landings.feature, *known),
            of_cells=np.where(still, row[features], place_of(alternatives.value, features, *known)),
        )

    def _beside(self, around: NDArray[np.int64], crowd: Crowd, price: float) -> Target | None:
        """Of the people around, go as near as permitted to the one with whom that is worth most; None: to nobody."""
        reach, policy = self.reach, self.model.policy
        targets = reach.project(reach.matrix.cells[around])
        efforts = self._efforts(targets)
        cheapest = np.argsort(efforts, kind="stable")[:STARTS_MAX]
        accepted = policy.sign * margins_of(self.model.forest, targets[cheapest]).astype(np.float64) >= (
            policy.sign * self.cutoff
        )
        kept = cheapest[accepted]
        if not len(kept):
            return None
        places = np.array(
            [place_of_row(targets[k], reach.rules, reach.matrix, self.model.cells) for k in kept.tolist()]
        )
        worth = efforts[kept] + price * distances(crowd.place, crowd.nominal, places)
        best: Target = targets[kept[int(worth.argmin())]]
        return best

    def _efforts(self, targets: NDArray[np.float64]) -> NDArray[np.float64]:
        """What targets cost, actions included. Shape: (n, features) -> (n,)."""
        reach, rules = self.reach, self.reach.rules.rules
        unordered = [r.type == "category" or r.is_unrecorded(x) for r, x in zip(rules, reach.row.tolist(), strict=True)]
        with np.errstate(over="ignore"):
            scaled = np.where(unordered, 1.0, np.abs(targets - reach.row) / reach.matrix.scales)
            dear = np.array([rule.cost for rule in rules]) * scaled + self.model.policy.action_cost
        moved = (targets != reach.row) & ~np.isnan(targets)
        cost: NDArray[np.float64] = np.where(moved, dear, 0.0).sum(axis=1)
        return cost


def lasting_question(
    model: PublishedModel,
    space: LastingSpace,
    reach: Reach,
    *,
    cutoff: float,
    accepts: Callable[[Target], bool],
) -> LastingQuestion:
    """Put a person's question into the space that the shadows share."""
    cells = space.cells.of(reach.row[None])[0]
    there = reach_of(reach.rules, reach.matrix, space.landings, row=reach.row, cells=cells, mutability=reach.mutability)
    moves = moves_of(there, float(model.policy.action_cost))
    return LastingQuestion(
        model=model,
        space=space,
        reach=reach,
        there=there,
        moves=moves,
        joint=within_reach(space.joint, moves),
        cutoff=cutoff,
        accepts=accepts,
    )
