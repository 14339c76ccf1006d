"""Groups: features that take only combinations that several people of the pool have.

A combination says the value of a category and of an integer, and the cell of another number: education and its years
stay those of somebody, while a limit of 4,210.37 is nobody's business and only its cell counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from stream.forest.cells import Cells
from stream.recourse.comparators.leaf_matrix import LeafMatrix
from stream.recourse.rules.feature_rule import FeatureRule, Mutability
from stream.recourse.space.applicant import Applicant, UnitMember
from stream.recourse.space.target_values import grid_origin

COMBINATIONS_MAX = 256  # of a group, the commonest; a search looks at each of them
PEOPLE_MIN = 2  # of the pool who have a combination, so that nobody's own is told


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupedFeatures:
    """What belongs to the model of a group.

    Shapes: value (combinations, members) float64, NaN for a member that goes by its cell; cell (combinations,
    members) int32; by_value (members,): which go by their value; start (members,) int64: where the cells of each
    member's feature begin among the model's. `guide` is None: a group follows no single feature.
    """

    members: tuple[UnitMember, ...]
    value: NDArray[np.float64]
    cell: NDArray[np.int32]
    by_value: NDArray[np.bool_]
    start: NDArray[np.int64]
    guide: None = None

    def ways(self, person: Applicant) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """Give the members' values in every combination that is open to a person, and their cells.

        Shapes: (ways, members) float64, int32. The own combination may be among them, and several of the same cells.
        """
        at = [one.j for one in self.members]
        own = person.row[at]
        if any(person.label(j) == Mutability.IMMUTABLE for j in at):
            return np.empty((0, len(at))), np.empty((0, len(at)), np.int32)
        target_value = person.target_value[self.start + self.cell]
        here = self.cell == person.cells[at]
        values = np.where(self.by_value, self.value, np.where(here, own, target_value))
        permitted = (self.by_value | here | ~np.isnan(target_value)).all(axis=1)
        for k, one in enumerate(self.members):
            permitted &= one.permits(values[:, k], float(own[k]), person.label(one.j))
        return values[permitted], self.cell[permitted]

    def unable(self, row: NDArray[np.float64]) -> None:  # noqa: ARG002 - what `LinkedFeatures.unable` asks for
        """Say why a row allows nothing, which for a group there is no reason for."""
        return


def grouped_features_of(
    members: Sequence[UnitMember], cells: Cells, matrix: LeafMatrix, start: NDArray[np.int64]
) -> GroupedFeatures:
    """Find the commonest combinations of the pool; of equally common ones those of lesser values. start: as `CellTargets`."""
    columns = matrix.rows[:, [one.j for one in members]].astype(np.float64)
    whole = np.array([one.rule.type != "number" for one in members])
    columns = columns[~np.isnan(columns).any(axis=1)]
    key, held = np.empty(columns.shape), np.ones(len(columns), np.bool_)
    for k, one in enumerate(members):
        if whole[k]:
            values, inverse = np.unique(columns[:, k], return_inverse=True)
            may = np.array([_may_be_target(one, value) for value in values.tolist()], np.bool_)
            held &= may[inverse]
            key[:, k] = columns[:, k]
        else:
            key[:, k] = cells.of_column(one.j, columns[:, k])
    seen, people = np.unique(key[held], axis=0, return_counts=True)
    seen, people = seen[people >= PEOPLE_MIN], people[people >= PEOPLE_MIN]
    seen = seen[np.argsort(-people, kind="stable")[:COMBINATIONS_MAX]]
    cell = np.empty(seen.shape, np.int32)
    for k, one in enumerate(members):
        cell[:, k] = cells.of_column(one.j, seen[:, k]) if whole[k] else seen[:, k]
    return GroupedFeatures(
        members=tuple(members),
        value=np.where(whole, seen, np.nan),
        cell=cell,
        by_value=whole,
        start=start[[one.j for one in members]],
    )


def _may_be_target(one: UnitMember, value: float) -> bool:
    if not one.permits(np.array([value]), np.nan, Mutability.MUTABLE)[0]:
        return False
    return one.rule.has_word(value) if one.rule.type == "category" else _is_on_grid(one.rule, value)


def _is_on_grid(rule: FeatureRule, value: float) -> bool:
    step = Fraction(repr(rule.step or 1.0))
    return (Fraction(repr(value)) - Fraction(grid_origin(rule))) % step == 0
