"""The space in which robust targets are searched: the model and its shadows in common cells, and the pool's people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stream.forest.cells import Cells, cells_of, common_cells
from stream.forest.cutoffs import Link
from stream.forest.trees import Forest
from stream.forest.walk import margins_of
from stream.recourse.comparators.leaf_matrix import LeafMatrix
from stream.recourse.comparators.people import People, distances, genuine_distance, people_of
from stream.recourse.rules.features import FeatureRules
from stream.recourse.rules.policy import Policy
from stream.recourse.search.robust_descent import Neighbourhood, Objective, descend
from stream.recourse.space.joint_trees import JointTrees, joint_trees
from stream.recourse.space.moves import no_moves
from stream.recourse.space.person_reach import CellTargets, cell_targets_of
from stream.recourse.space.reachable_leaves import reachable_leaves

LOGISTIC = "logistic"  # part of the names of links whose margins are log odds
LOGIT_DEVIATION = math.pi / math.sqrt(3)  # the standard deviation of the logistic distribution
PROBABILITY = 0.75  # at which log odds are measured; any other gives the same
ASSUMED_DEVIATION = 0.4  # log odds between models, without shadows: about what `_deviation` measures between bootstraps
DEVIATIONS_AMONG_MAX = 2048  # people, evenly chosen, on whom it is measured at each opening of a bundle; by judgement


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RobustSpace:
    """What belongs to a published model and all its decisions.

    deviation: how far apart the models' margins lie, see `_deviation`; people_apart: scales between accepted people, see
    `genuine_distance`.
    """

    cells: Cells
    cell_targets: CellTargets
    joint: JointTrees
    people: People
    people_apart: float
    deviation: float

    def warm_up(self) -> None:
        """Compile the kernels, by a descent where nothing is permitted."""
        trees = self.joint.trees
        moves = no_moves(trees)
        features, models = len(moves.own), len(self.joint.base)
        nothing = np.empty(0, np.float32)
        neighbourhood = Neighbourhood(
            np.zeros((1, features), np.float32), self.people.nominal, np.zeros(features, np.float32), nothing, nothing
        )
        descend(
            reachable_leaves(self.joint, moves, np.arange(models)),
            moves,
            Objective(np.zeros(models), 1.0, 1.0, 1.0, 1.0, 1.0),
            neighbourhood,
            moves.own[None].copy(),
            1,
        )
        distances(neighbourhood.people, neighbourhood.nominal, neighbourhood.people)


def robust_space(
    forests: tuple[Forest, ...],
    own_cells: Cells,
    rules: FeatureRules,
    matrix: LeafMatrix,
    *,
    link: Link,
    policy: Policy,
    cutoff: float,
) -> RobustSpace:
    """Prepare what all decisions share. `forests`: the model, then its shadows; `own_cells`: the model's."""
    cells = common_cells([own_cells, *(cells_of(forest) for forest in forests[1:])])
    people = people_of(rules, matrix, own_cells)
    return RobustSpace(
        cells=cells,
        cell_targets=cell_targets_of(rules, cells, matrix),
        joint=joint_trees(forests, cells, policy.sign),
        people=people,
        people_apart=genuine_distance(people, matrix.first_past(cutoff, policy.sign)),
        deviation=_deviation(forests, link, matrix),
    )


def _deviation(forests: Sequence[Forest], link: Link, matrix: LeafMatrix) -> float:
    """How far the shadows' margins lie from the model's: each person's root mean square, and of these the median."""
    among = np.unique(np.linspace(0, len(matrix) - 1, DEVIATIONS_AMONG_MAX).astype(np.int64))
    own, *others = (margins_of(forest, matrix.rows[among]).astype(np.float64) for forest in forests)
    apart = np.array([margins - own for margins in others])
    found = float(np.median(np.sqrt(np.mean(apart**2, axis=0)))) if len(apart) else 0.0
    return found if 0 < found < math.inf else ASSUMED_DEVIATION * _log_odd(link, matrix)


def _log_odd(link: Link, matrix: LeafMatrix) -> float:
    """How many margins make one log odd; without odds, the scale at which the pool has the logistic distribution's deviation."""
    if LOGISTIC in link.name:
        even, more = (link.cutoff(p, "probability", "above") for p in (0.5, PROBABILITY))
        return (more - even) / math.log(PROBABILITY / (1 - PROBABILITY))
    deviation = float(np.std(matrix.margins.astype(np.float64)))
    return deviation / LOGIT_DEVIATION if deviation > 0 else 1.0
