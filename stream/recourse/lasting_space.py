"""Where targets that last are searched for: the model and its searched shadows in common cells, and the pool's people."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stream.forest.link import Link
from stream.forest.trees import Forest
from stream.recourse.cells import Cells, cells_of, common_cells
from stream.recourse.feasible import Landings, groups, landings_of
from stream.recourse.features import FeatureRules
from stream.recourse.joint import JointTrees, joint_trees
from stream.recourse.lasting import Aim, Crowd, descend
from stream.recourse.leaf_matrix import LeafMatrix
from stream.recourse.moves import no_moves
from stream.recourse.people import People, distances, genuine_distance, people_of
from stream.recourse.policy import Policy
from stream.recourse.within_reach import within_reach

LOGISTIC = "logistic"  # in the names of links whose margins are log odds
LOGIT_DEVIATION = math.pi / math.sqrt(3)  # the standard deviation of the logistic distribution
ODDS = 0.75  # a probability at which log odds are measured; any other gives the same


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LastingSpace:
    """What belongs to a published model. margin_unit: of one log odd, in margins; genuine: see `genuine_distance`."""

    cells: Cells
    landings: Landings
    joint: JointTrees
    people: People
    genuine: float
    margin_unit: float

    def have_compiled(self) -> None:
        """Descend once where nothing is permitted."""
        trees = self.joint.trees
        moves = no_moves(trees)
        features, models = len(moves.own), len(self.joint.base)
        nothing = np.empty(0, np.float32)
        crowd = Crowd(
            np.zeros((1, features), np.float32), self.people.nominal, np.zeros(features, np.float32), nothing, nothing
        )
        descend(
            within_reach(self.joint, moves),
            moves,
            Aim(np.zeros(models), 1.0, 1.0, 1.0, 1.0, 1.0),
            crowd,
            moves.own.copy(),
            1,
        )
        distances(crowd.place, crowd.nominal, crowd.place)


def lasting_space(
    forests: tuple[Forest, ...],
    rules: FeatureRules,
    matrix: LeafMatrix,
    *,
    link: Link,
    policy: Policy,
    cutoff: float,
) -> LastingSpace:
    """Put together what is common to all decisions. `forests`: the model, then its searched shadows."""
    parts = [cells_of(forest) for forest in forests]
    cells = common_cells(parts)
    people = people_of(rules, matrix, parts[0])
    return LastingSpace(
        cells=cells,
        landings=landings_of(rules, cells, matrix),
        joint=joint_trees(forests, cells, policy.sign, groups(rules)),
        people=people,
        genuine=genuine_distance(people, matrix.first_past(cutoff, policy.sign)),
        margin_unit=_margin_unit(link, matrix),
    )


def _margin_unit(link: Link, matrix: LeafMatrix) -> float:
    """How many margins make one log odd; of models without odds, what gives the pool the logistic distribution's deviation."""
    if LOGISTIC in link.name:
        even, more = (link.cutoff(p, "probability", "above") for p in (0.5, ODDS))
        return (more - even) / math.log(ODDS / (1 - ODDS))
    deviation = float(np.std(matrix.margins.astype(np.float64)))
    return deviation / LOGIT_DEVIATION if deviation > 0 else 1.0
