"""What one person can reach: for each feature and cell, the nearest value that the rules permit.

Targets are made from cells, never from a comparator's values: the value nearest to the person's own that lies in the cell,
is whole, on the step and in range where features.toml says so, lies in a permitted direction, and is no "no record" value.
From below that is the cell's least permitted value, from above its greatest. Both depend on the model alone, so they are
found once (`CellTargets`) and looked up for each person (`PersonReach`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream.forest.cells import Cells
from stream.recourse.comparators.leaf_matrix import LeafMatrix
from stream.recourse.rules.effort import efforts, is_own
from stream.recourse.rules.feature_rule import Mutability
from stream.recourse.rules.features import FeatureRules
from stream.recourse.space.applicant import Applicant
from stream.recourse.space.target_values import target_values
from stream.recourse.space.unit_moves import Alternatives, UnitMoves, alternatives_of, unit_moves

IMMUTABLE = "immutable"
WRONG_DIRECTION = "against the permitted direction"
TO_MISSING = "a missing value is never a target"
NO_PERMITTED_VALUE = "no permitted value in the cell"
UNKNOWN_DIRECTION = "from a missing value the direction is not known"
GROUP = "another feature of its group cannot move"
UNSEEN = "too few people have these values of its group together"
DEPENDS = "it moves with another feature, and does not get there"
STAYS = "another feature is computed with it and moves in its place"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellTargets:
    """Per cell, the target value from below, from above, and from no value; NaN: none is permitted.

    Shapes: start (features + 1,) int64: the cells of feature j are start[j]:start[j + 1]; the rest (cells,):
    feature and cell int64, from_below, from_above, from_nothing float64. A category without a direction is entered
    at the code that is commonest in the pool, as from nothing: its codes have no order. alone, stays (features,):
    whether a feature moves by itself, and whether it stays because a ratio is computed with it; the others move
    together, in `units`.
    """

    start: NDArray[np.int64]
    feature: NDArray[np.int64]
    cell: NDArray[np.int64]
    from_below: NDArray[np.float64]
    from_above: NDArray[np.float64]
    from_nothing: NDArray[np.float64]
    alone: NDArray[np.bool_]
    stays: NDArray[np.bool_]
    units: tuple[UnitMoves, ...]


def cell_targets_of(rules: FeatureRules, cells: Cells, matrix: LeafMatrix) -> CellTargets:
    """Find every target value of a model once, in `cells`: the model's own, or finer ones.

    Raises: ConfigurationError where features cannot move together as their rules say.
    """
    of_features = [target_values(rule, cells, matrix, j) for j, rule in enumerate(rules.rules)]
    counts = [len(cell_targets) for cell_targets in of_features]
    values = np.concatenate([*of_features, np.empty((0, 3))])
    start = np.cumsum([0, *counts])
    feature = np.repeat(np.arange(len(counts)), counts)
    together = rules.units
    stays = np.zeros(len(counts), np.bool_)
    stays[[j for unit in together for j in unit.stays]] = True
    alone = ~stays
    alone[[j for unit in together for j in unit.members]] = False
    return CellTargets(
        start=start,
        feature=feature,
        cell=np.arange(len(feature)) - start[feature],
        from_below=values[:, 0].copy(),
        from_above=values[:, 1].copy(),
        from_nothing=values[:, 2].copy(),
        alone=alone,
        stays=stays,
        units=unit_moves(rules, cells, matrix, start, of_features),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PersonReach:
    """All moves open to one person.

    Shapes: row (features,) float64 as the model takes it; cells (features,) int32; mutability (features,) int8;
    target_value (cells of the model,) float64: the target value in each cell, NaN where none is permitted to this person.
    For a feature that moves with others it is where it could go alone; `alternatives` holds where its unit can go, and
    `obstacles` per unit why the row permits no alternative, if it does not.
    """

    rules: FeatureRules
    matrix: LeafMatrix
    cell_targets: CellTargets
    row: NDArray[np.float64]
    cells: NDArray[np.int32]
    mutability: NDArray[np.int8]
    target_value: NDArray[np.float64]
    alternatives: Alternatives
    obstacles: tuple[str | None, ...]

    def project(self, cells: NDArray[np.int32]) -> NDArray[np.float64]:
        """Move a person toward each comparator as far as the rules permit.

        Shapes: cells (k, features) int32, the comparators' -> (k, features) float64. Features that move together do so
        by the alternative that `Alternatives.toward` chooses, or stay.
        """
        target_value = self.target_value[self.cell_targets.start[:-1] + cells]
        moves = (cells != self.cells) & ~np.isnan(target_value) & self.cell_targets.alone
        targets = np.where(moves, target_value, self.row)
        for u, unit in enumerate(self.cell_targets.units):
            at = [one.j for one in unit.members]
            targets[:, at] = self.alternatives.of(u)[1][self.alternatives.toward(u, unit.guide, cells[:, at])]
        return targets

    def why_not(self, j: int, cells: NDArray[np.int32]) -> str | None:
        """Say why feature j stays when a person moves toward a comparator with these cells; None if it moves."""
        if cells[j] == self.cells[j]:
            return None
        own = self._why_not(j, int(cells[j]))
        if self.cell_targets.alone[j]:
            return own
        if self.cell_targets.stays[j]:
            return IMMUTABLE if own == IMMUTABLE else STAYS
        u = next(u for u, unit in enumerate(self.cell_targets.units) if any(one.j == j for one in unit.members))
        unit = self.cell_targets.units[u]
        at = [one.j for one in unit.members]
        to = self.alternatives.of(u)[1][self.alternatives.toward(u, unit.guide, cells[None, at])[0], at.index(j)]
        if to != self.row[j] and not math.isnan(to):
            return None
        if unit.guide is not None:
            return own or self.obstacles[u] or DEPENDS
        others = any(
            self._why_not(m, int(cells[m])) is not None or self.mutability[m] == Mutability.IMMUTABLE for m in at
        )
        return own or (GROUP if others else UNSEEN)

    def effort(self, j: int, to: float) -> float:
        """Price a move of feature j as `effort.efforts` does."""
        rule, own = self.rules.rules[j], float(self.row[j])
        unordered = rule.is_unordered_from(own)
        return float(efforts(np.array([to]), own, cost=rule.cost, scale=self.matrix.scales[j], unordered=unordered)[0])

    def prices(self) -> NDArray[np.float64]:
        """The effort of every move of a single feature: inf where it is not permitted, 0 at the own cell.

        Shape: (cells of the model,). A feature that moves with others has no move alone.
        """
        at = self.cell_targets.feature
        price = self._efforts(self.target_value, at)
        price[np.isnan(self.target_value) | ~self.cell_targets.alone[at]] = np.inf
        price[self.cell_targets.start[:-1] + self.cells] = 0.0
        return price

    def costs(self, targets: NDArray[np.float64], action_cost: float) -> NDArray[np.float64]:
        """The cost of each target: the effort of each feature that moves, plus `action_cost`. Shape: (n, features) -> (n,)."""
        moved = ~is_own(targets, self.row)
        each = self._efforts(targets, np.arange(len(self.row))) + action_cost
        cost: NDArray[np.float64] = np.where(moved, each, 0.0).sum(axis=1)
        return cost

    def _efforts(self, values: NDArray[np.float64], at: NDArray[np.int64]) -> NDArray[np.float64]:
        """Price moves of features to values. Shapes: at (k,), values (..., k) -> (..., k)."""
        rules, row = self.rules.rules, self.row.tolist()
        unordered = np.array([rule.is_unordered_from(own) for rule, own in zip(rules, row, strict=True)])
        cost = np.array([rule.cost for rule in rules])
        return efforts(values, self.row[at], cost=cost[at], scale=self.matrix.scales[at], unordered=unordered[at])

    def _why_not(self, j: int, cell: int) -> str | None:
        at = int(self.cell_targets.start[j]) + cell
        if cell == self.cells[j] or not math.isnan(self.target_value[at]):
            return None
        label = Mutability(int(self.mutability[j]))
        if label == Mutability.IMMUTABLE:
            return IMMUTABLE
        if at + 1 == self.cell_targets.start[j + 1] and self.cell_targets.start[j + 1] - self.cell_targets.start[j] > 1:
            return TO_MISSING
        if self.rules.rules[j].is_unrecorded(float(self.row[j])):
            return NO_PERMITTED_VALUE if label == Mutability.MUTABLE else UNKNOWN_DIRECTION
        upward = cell > self.cells[j]
        against = label == (Mutability.DECREASE_ONLY if upward else Mutability.INCREASE_ONLY)
        return WRONG_DIRECTION if against else NO_PERMITTED_VALUE


def person_reach(
    rules: FeatureRules,
    matrix: LeafMatrix,
    cell_targets: CellTargets,
    *,
    row: NDArray[np.float64],
    cells: NDArray[np.int32],
    mutability: NDArray[np.int8],
) -> PersonReach:
    """Look up what one person can reach. Shapes: row, cells, mutability (features,)."""
    at = cell_targets.feature
    label = mutability[at]
    mutable = label == Mutability.MUTABLE
    nothing = np.array([rule.is_unrecorded(x) for rule, x in zip(rules.rules, row.tolist(), strict=True)])[at]
    unordered = np.array([rule.type == "category" for rule in rules.rules])[at] & mutable
    above = cell_targets.cell > cells[at]
    target_value = np.where(above, cell_targets.from_below, cell_targets.from_above)
    target_value = np.where(nothing | unordered, cell_targets.from_nothing, target_value)
    permitted = mutable | (~nothing & (label == np.where(above, Mutability.INCREASE_ONLY, Mutability.DECREASE_ONLY)))
    target_value[~permitted] = np.nan
    applicant = Applicant(row=row, cells=cells, mutability=mutability, target_value=target_value)
    alternatives, obstacles = alternatives_of(cell_targets.units, applicant)
    return PersonReach(
        rules=rules,
        matrix=matrix,
        cell_targets=cell_targets,
        row=row,
        cells=cells,
        mutability=mutability,
        target_value=target_value,
        alternatives=alternatives,
        obstacles=obstacles,
    )
