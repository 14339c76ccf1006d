"""Links and ratios: one feature, the driver, moves, and its dependents follow by a formula.

The driver moves along a line. Wherever it or a dependent enters another cell there is a stop: an alternative of the unit, at
the driver's permitted value nearest to the person's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream.forest.cells import Cells
from stream.recourse.rules.feature_rule import Mutability
from stream.recourse.rules.features import FeatureRules
from stream.recourse.rules.formulas import (
    EXACT_BELOW,
    Formula,
    digits_of,
    digits_of_text,
    divided,
    exact,
    whole,
    whole_of_text,
    wholes,
)
from stream.recourse.rules.units import Dependent, Follower, Unit
from stream.recourse.space.applicant import Applicant, UnitMember
from stream.recourse.space.target_values import grid_origin, past_sentinels

LINE_STOPS_MAX = 256  # alternatives of one line, evenly spread where there are more; by judgement, see docs/features.md

NOT_KNOWN = "a value that it moves with is not known"
NO_RATIO = "what its ratio is divided by is not known, or not above zero"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkedFeatures:
    """A driver and its dependents, for every person.

    driver, guide, positions: the indexes of the driver, the guide and each dependent among `members`. The guide is the
    member whose cell says how far to move toward somebody else: the driver, or the first that the model splits on.
    upward, downward: per member, the values at which a cell, or the range past a "no record" value, is entered from below
    and from above.
    """

    members: tuple[UnitMember, ...]
    rules: FeatureRules
    driver: int
    dependents: tuple[Dependent, ...]
    positions: tuple[int, ...]
    guide: int
    upward: tuple[NDArray[np.float64], ...]
    downward: tuple[NDArray[np.float64], ...]

    def alternatives(self, person: Applicant) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """The members' values and cells along the line: per combination of cells, those nearest to the person's own.

        Shapes: (n, members) float64, int32.
        """
        at = [one.j for one in self.members]
        own = person.row[at]
        if self.obstacle(person.row) is not None or any(person.label(j) == Mutability.IMMUTABLE for j in at):
            return np.empty((0, len(at))), np.empty((0, len(at)), np.int32)
        formulas = [self._formula(one, person.row) for one in self.dependents]
        drivers, digits = self._drivers(formulas, person)
        values = np.repeat(own[None], len(drivers), axis=0)
        values[:, self.driver] = divided(drivers, 10**digits)
        for k, formula in zip(self.positions, formulas, strict=True):
            reached = formula.values(drivers, digits)
            values[:, k] = np.where(reached == own[k], own[k], reached)
        permitted = values[:, self.driver] != own[self.driver]
        for k, one in enumerate(self.members):
            permitted &= one.permits(values[:, k], float(own[k]), person.label(one.j))
        return self._nearest_of_each(values[permitted], float(own[self.driver]), person.cells[at])

    def obstacle(self, row: NDArray[np.float64]) -> str | None:
        """Why a row permits no alternative: what the formulas lack in it; None where they lack nothing."""
        driver = self.members[self.driver].j
        needed = {driver}
        for one in self.dependents:
            if isinstance(one, Follower):
                needed.add(one.j)
                continue
            needed.add(one.other)
            below = one.other if one.driver_above else driver
            if self._is_unrecorded(below, row) or not row[below] > 0:
                return NO_RATIO
        return NOT_KNOWN if any(self._is_unrecorded(j, row) for j in needed) else None

    def _is_unrecorded(self, j: int, row: NDArray[np.float64]) -> bool:
        return self.rules.rules[j].is_unrecorded(float(row[j]))

    def _formula(self, one: Dependent, row: NDArray[np.float64]) -> Formula:
        rule = self.rules.rules[one.j]
        return Formula(
            kind="link" if isinstance(one, Follower) else "above" if one.driver_above else "below",
            factor=exact(one.factor),
            own=exact(float(row[one.j if isinstance(one, Follower) else one.other])),
            start=exact(float(row[self.members[self.driver].j])),
            origin=grid_origin(rule) if rule.step is not None else exact(0.0),
            step=None if rule.step is None else exact(rule.step),
        )

    def _drivers(self, formulas: Sequence[Formula], person: Applicant) -> tuple[NDArray[Any], int]:
        """The driver's candidate values, ascending, as whole units of 10 ** -digits, and digits.

        Each stop comes with its neighbours: doubles miss a stop by a step at most.
        """
        driver = self.members[self.driver]
        own, label, rule = float(person.row[driver.j]), person.label(driver.j), driver.rule
        stops = self._stops(formulas, person.row)
        stops = stops[np.isfinite(stops)]
        stops = stops[(label != Mutability.INCREASE_ONLY) | (stops >= own)]
        stops = stops[(label != Mutability.DECREASE_ONLY) | (stops <= own)]
        digits = max([digits_of(exact(own)), *(formula.digits for formula in formulas)])
        if rule.step is None:
            texts = _neighbouring_numbers(stops, driver.cells)
            digits = max([digits, *map(digits_of_text, texts)])
            drivers = wholes(sorted({whole_of_text(text, digits) for text in texts}))
        else:
            origin, step = grid_origin(rule), exact(rule.step)
            digits = max(digits, digits_of(origin), digits_of(step))
            near = _neighbouring_counts((stops - float(origin)) / rule.step)
            first, each = whole(origin, digits), whole(step, digits)
            if abs(first) + each * max(map(abs, near[[0, -1]].tolist()), default=0) < EXACT_BELOW:
                drivers = first + each * near
            else:
                drivers = wholes(first + each * k for k in near.tolist())
        return (drivers[drivers > 0] if any(formula.kind == "below" for formula in formulas) else drivers), digits

    def _stops(self, formulas: Sequence[Formula], row: NDArray[np.float64]) -> NDArray[np.float64]:
        """The driver's values, to within a double, at which a member enters another cell."""
        at, up, down = row[self.members[self.driver].j], self.upward[self.driver], self.downward[self.driver]
        # Beside its own value too, where a recorded ratio that disagrees with its parts is corrected.
        stops = [up[up > at], down[down < at], np.array([at])]
        for k, formula in zip(self.positions, formulas, strict=True):
            step, begins = self.members[k].rule.step or 0.0, formula.begins()
            own_steps = _steps_around_own(formula, float(row[self.members[k].j]))
            for side, entered in ((1, self.upward[k]), (-1, self.downward[k])):
                ends = np.concatenate([entered, own_steps]) - side * step / 2
                stops.append(formula.back(ends[side * ends >= side * begins - step]))
        return np.concatenate(stops)

    def _nearest_of_each(
        self, values: NDArray[np.float64], own: float, own_cells: NDArray[np.int32]
    ) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """Keep, per combination of cells, the values whose driver is nearest to the person's own, up to `LINE_STOPS_MAX`."""
        driver = values[:, self.driver]  # ascends, so of two equally near the lesser comes first
        values = values[np.argsort(np.abs(driver - own), kind="stable")]
        cells = cells_of_members(self.members, values)
        first = first_of_each(cells)
        first = first[(cells[first] != own_cells).any(axis=1)]
        if len(first) > LINE_STOPS_MAX:
            along = first[np.argsort(values[first, self.driver])]
            first = along[np.linspace(0, len(along) - 1, LINE_STOPS_MAX).round().astype(np.int64)]
        return values[first], cells[first]


def cells_of_members(members: Sequence[UnitMember], values: NDArray[np.float64]) -> NDArray[np.int32]:
    """The cell of each member's values. Shape: (n, members) -> (n, members) int32."""
    return np.column_stack([one.cells.of_column(one.j, values[:, k]) for k, one in enumerate(members)])


def first_of_each(cells: NDArray[np.int32]) -> NDArray[np.int64]:
    """The first row of each combination of cells, ascending. Shape: (n, members) int32 -> (combinations,)."""
    first: dict[tuple[int, ...], int] = {}
    for row, combination in enumerate(map(tuple, cells.tolist())):
        first.setdefault(combination, row)
    return np.array(list(first.values()), np.int64)


def linked_features_of(
    unit: Unit, members: Sequence[UnitMember], rules: FeatureRules, cell_targets: Sequence[NDArray[np.float64]]
) -> LinkedFeatures:
    """Prepare a unit for every person. cell_targets: per member, (cells, 3) as `target_values` gives them."""
    at = [one.j for one in members]
    driver = unit.members.index(unit.driver if unit.driver is not None else unit.members[0])
    positions = tuple(at.index(one.j) for one in unit.dependents)
    split = [k for k in (driver, *positions) if members[k].cells.count(at[k]) > 1]
    return LinkedFeatures(
        members=tuple(members),
        rules=rules,
        driver=driver,
        dependents=unit.dependents,
        positions=positions,
        guide=split[0] if split else driver,
        upward=tuple(
            _entered(one, target_value[:, 0], upward=True)
            for one, target_value in zip(members, cell_targets, strict=True)
        ),
        downward=tuple(
            _entered(one, target_value[:, 1], upward=False)
            for one, target_value in zip(members, cell_targets, strict=True)
        ),
    )


def _entered(one: UnitMember, target_value: NDArray[np.float64], *, upward: bool) -> NDArray[np.float64]:
    return np.unique(
        np.concatenate([target_value[~np.isnan(target_value)], past_sentinels(one.rule, one.cells, upward=upward)])
    )


def _steps_around_own(formula: Formula, own: float) -> list[float]:
    """The values of a dependent around its own, where its label stops permitting."""
    if formula.step is None or not math.isfinite(own):
        return [own]
    origin, step = float(formula.origin), float(formula.step)
    with np.errstate(over="ignore"):
        count = float(np.float64(own - origin) / step)
    if not math.isfinite(count):
        return [own]
    steps = math.floor(count)
    return [origin + k * step for k in range(steps - 1, steps + 3)]


def _neighbouring_counts(stops: NDArray[np.float64]) -> NDArray[np.int64]:
    """The whole numbers at and beside each stop, ascending."""
    counts = np.rint(stops[np.abs(stops) < EXACT_BELOW / 2]).astype(np.int64)
    return np.unique(np.concatenate([counts - 1, counts, counts + 1]))


def _neighbouring_numbers(stops: NDArray[np.float64], cells: Cells) -> list[str]:
    """The numbers of the model's dtype at and beside each stop, as the shortest decimals that read as them."""
    with np.errstate(over="ignore"):
        read = np.unique(stops.astype(cells.dtype))
        ends = [np.nextafter(read, read.dtype.type(end)) for end in (-np.inf, np.inf)]
    near = np.concatenate([read, *ends])
    return [str(number) for number in near[np.isfinite(near)]]
