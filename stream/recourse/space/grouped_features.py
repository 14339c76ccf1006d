"""Groups: features that may only take combinations that several people of the pool have.

A combination holds the values of categories and integers, and the cells of other numbers: education and its
years must occur together, while a limit of 4,210.37 would identify somebody, so only its cell counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from stream.forest.cells import Cells
from stream.recourse.comparators.leaf_matrix import LeafMatrix
from stream.recourse.rules.feature_rule import Mutability
from stream.recourse.space.applicant import Applicant, UnitMember
from stream.recourse.space.target_values import grid_origin

COMBINATIONS_MAX = 256  # of a group, the commonest, for a search tries them all; by judgement, see docs/features.md
PEOPLE_MIN = 2  # of the pool who have a combination, so that no one person's is disclosed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupedFeatures:
    """A group and its combinations, for every person.

    Shapes: value (combinations, members) float64, NaN for a member matched by its cell; cell (combinations, members)
    int32; by_value (members,): which are matched by their value; start (members,) int64: where the cells of each member's
    feature begin among the model's. `guide` is None: a group follows no single feature.
    """

    members: tuple[UnitMember, ...]
    value: NDArray[np.float64]
    cell: NDArray[np.int32]
    by_value: NDArray[np.bool_]
    start: NDArray[np.int64]
    guide: None = None

    def alternatives(self, person: Applicant) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """The members' values and cells in every combination that a person may take.

        Shapes: (n, members) float64, int32. The person's own combination may be among them, and several of the same cells.
        """
        at = [one.j for one in self.members]
        own = person.row[at]
        if any(person.label(j) == Mutability.IMMUTABLE for j in at):
            return np.empty((0, len(at))), np.empty((0, len(at)), np.int32)
        target_value = person.target_value[self.start + self.cell]
        stays = self.cell == person.cells[at]
        values = np.where(self.by_value, self.value, np.where(stays, own, target_value))
        permitted = (self.by_value | stays | ~np.isnan(target_value)).all(axis=1)
        for k, one in enumerate(self.members):
            permitted &= one.permits(values[:, k], float(own[k]), person.label(one.j))
        return values[permitted], self.cell[permitted]

    def obstacle(self, row: NDArray[np.float64]) -> None:  # noqa: ARG002 - as `LinkedFeatures.obstacle`
        """Why a row permits no alternative: for a group, the row is never the reason."""
        return


def grouped_features_of(
    members: Sequence[UnitMember], cells: Cells, matrix: LeafMatrix, start: NDArray[np.int64]
) -> GroupedFeatures:
    """Find the commonest combinations of the pool, of equally common ones the lesser. start: as of `CellTargets`."""
    columns = matrix.rows[:, [one.j for one in members]].astype(np.float64)
    by_value = np.array([one.rule.type != "number" for one in members])
    columns = columns[~np.isnan(columns).any(axis=1)]
    key, permitted = np.empty(columns.shape), np.ones(len(columns), np.bool_)
    for k, one in enumerate(members):
        if by_value[k]:
            values, inverse = np.unique(columns[:, k], return_inverse=True)
            may = np.array([_may_be_target(one, value) for value in values.tolist()], np.bool_)
            permitted &= may[inverse]
            key[:, k] = columns[:, k]
        else:
            key[:, k] = cells.of_column(one.j, columns[:, k])
    seen, people = np.unique(key[permitted], axis=0, return_counts=True)
    seen, people = seen[people >= PEOPLE_MIN], people[people >= PEOPLE_MIN]
    seen = seen[np.argsort(-people, kind="stable")[:COMBINATIONS_MAX]]
    cell = np.empty(seen.shape, np.int32)
    for k, one in enumerate(members):
        cell[:, k] = cells.of_column(one.j, seen[:, k]) if by_value[k] else seen[:, k]
    return GroupedFeatures(
        members=tuple(members),
        value=np.where(by_value, seen, np.nan),
        cell=cell,
        by_value=by_value,
        start=start[[one.j for one in members]],
    )


def _may_be_target(one: UnitMember, value: float) -> bool:
    if not one.permits(np.array([value]), np.nan, Mutability.MUTABLE)[0]:
        return False
    if one.rule.type == "category":
        return one.rule.has_word(value)
    step = Fraction(repr(one.rule.step or 1.0))
    return (Fraction(repr(value)) - Fraction(grid_origin(one.rule))) % step == 0
