"""Features that move together, for one person: each unit's alternatives, in the form that kernels take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream.forest.cells import Cells
from stream.recourse.comparators.leaf_matrix import LeafMatrix
from stream.recourse.rules.effort import is_own
from stream.recourse.rules.features import FeatureRules
from stream.recourse.space.applicant import Applicant, unit_member
from stream.recourse.space.grouped_features import GroupedFeatures, grouped_features_of
from stream.recourse.space.linked_features import LinkedFeatures, first_of_each, linked_features_of

UnitMoves: TypeAlias = GroupedFeatures | LinkedFeatures


class Alternatives(NamedTuple):
    """One person's alternatives for each unit: cells and values of all members at once, and the price.

    Shapes: unit_start (units + 1,) int64: the alternatives of unit u are unit_start[u]:unit_start[u + 1], the first of
    them the person's own, at price 0, the others by price; no two of a unit have the same cells. member_start (units +
    1,) int64, members int32: the features of unit u, ascending. cell_start (units + 1,) int64, cells int32, value
    float64: those of alternative k of unit u, from 0, begin at cell_start[u] + k * (number of its members).
    price (alternatives,) float64: the efforts of all members, added in their order; moved (alternatives,) int32: how
    many members change.
    """

    unit_start: NDArray[np.int64]
    member_start: NDArray[np.int64]
    members: NDArray[np.int32]
    cell_start: NDArray[np.int64]
    cells: NDArray[np.int32]
    value: NDArray[np.float64]
    price: NDArray[np.float64]
    moved: NDArray[np.int32]

    def of(self, u: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The cells and the values of a unit's alternatives. Shapes: (alternatives, members)."""
        span = slice(int(self.cell_start[u]), int(self.cell_start[u + 1]))
        form = -1, int(self.member_start[u + 1] - self.member_start[u])
        return self.cells[span].reshape(form), self.value[span].reshape(form)

    def toward(self, u: int, guide: int | None, cells: NDArray[np.int32]) -> NDArray[np.int64]:
        """The alternative of unit u that leads toward each comparator's cells; 0, the own one, where none does.

        It is the one with just these cells, else the cheapest with the cell of the member `guide`, if there is a guide.
        Shape: cells (n, members) -> (n,).
        """
        own = self.of(u)[0]
        same = (cells[:, None, :] == own).all(axis=2)
        if guide is not None:
            same[~same.any(axis=1)] = (cells[:, None, guide] == own[:, guide])[~same.any(axis=1)]
        nearest: NDArray[np.int64] = same.argmax(axis=1)
        return nearest


def unit_moves(
    rules: FeatureRules,
    cells: Cells,
    matrix: LeafMatrix,
    start: NDArray[np.int64],
    values: Sequence[NDArray[np.float64]],
) -> tuple[UnitMoves, ...]:
    """Prepare each unit for every person. start: as of `CellTargets`; values: per feature, as `target_values` gives them."""
    found: list[UnitMoves] = []
    for unit in rules.units:
        members = [unit_member(rules, cells, matrix, j) for j in unit.members]
        if unit.driver is None:
            found.append(grouped_features_of(members, cells, matrix, start))
        else:
            found.append(linked_features_of(unit, members, rules, [values[j] for j in unit.members]))
    return tuple(found)


def alternatives_of(units: Sequence[UnitMoves], person: Applicant) -> tuple[Alternatives, tuple[str | None, ...]]:
    """Find one person's alternatives, and per unit why the row permits none, if it does not."""
    of_units = [_alternatives(unit, person) for unit in units]
    price = [np.empty(0), *(one[2] for one in of_units)]
    alternatives = Alternatives(
        unit_start=_starts([len(one[2]) for one in of_units]),
        member_start=_starts([len(unit.members) for unit in units]),
        members=np.array([one.j for unit in units for one in unit.members], np.int32),
        cell_start=_starts([one[0].size for one in of_units]),
        cells=np.concatenate([np.empty(0, np.int32), *(one[0].ravel() for one in of_units)]),
        value=np.concatenate([np.empty(0), *(one[1].ravel() for one in of_units)]),
        price=np.concatenate(price),
        moved=np.concatenate([np.empty(0, np.int32), *(one[3] for one in of_units)]),
    )
    return alternatives, tuple(one[4] for one in of_units)


def _alternatives(
    unit: UnitMoves, person: Applicant
) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64], NDArray[np.int32], str | None]:
    """One unit's cells, values, prices and numbers of moved members, the person's own first."""
    at = [one.j for one in unit.members]
    values, cells = unit.alternatives(person)
    values = np.concatenate([person.row[at][None], values])
    cells = np.concatenate([person.cells[at][None], cells])
    price, moved = np.zeros(len(values)), np.zeros(len(values), np.int32)
    for k, one in enumerate(unit.members):
        own = float(person.row[one.j])
        price += one.efforts(values[:, k], own)
        moved += ~is_own(values[:, k], own)
    order = np.concatenate([[0], 1 + np.argsort(price[1:], kind="stable")])
    kept = order[first_of_each(cells[order])]
    return cells[kept], values[kept], price[kept], moved[kept], unit.obstacle(person.row)


def _starts(counts: Sequence[int]) -> NDArray[np.int64]:
    return np.cumsum([0, *counts]).astype(np.int64)
