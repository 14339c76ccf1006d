"""What one person can reach: for a feature and a cell, the nearest value that the rules permit.

Targets are made from cells, never from a comparator's values: the nearest value to the person's own that lies in the
cell, is whole, on the step and in range where features.toml says so, moves the way its label permits, and is no
"no record" value. Coming from below that is the cell's least permitted value, from above its greatest: both belong to
the model, so they are found once (`Landings`) and looked up for each person (`Reach`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from itertools import count as count_from
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from stream.recourse.cells import Cells
from stream.recourse.features import FeatureRule, FeatureRules, Mutability
from stream.recourse.leaf_matrix import LeafMatrix

GRID_POINTS_TRIED = 3  # next to a cell's end, before the cell counts as holding none

EFFORT_MAX = 1e300  # of one move: a sum of such stays finite, whatever an applicant's numbers are

IMMUTABLE = "immutable"
WRONG_DIRECTION = "against the permitted direction"
TO_MISSING = "a missing value is never a target"
NO_PERMITTED_VALUE = "no permitted value in the cell"
UNKNOWN_DIRECTION = "from a missing value the direction is not known"
GROUP = "another feature of its group cannot move"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Landings:
    """Per cell, the value a person lands on when coming from below, from above, or from no value; NaN: none permitted.

    Shapes: start (features + 1,) int64: the cells of feature j are start[j]:start[j + 1]; the rest (cells,):
    feature and cell int64, from_below, from_above, from_nothing float64. A category without a direction is entered
    at the code that is commonest in the pool, as from nothing: its codes have no order.
    """

    start: NDArray[np.int64]
    feature: NDArray[np.int64]
    cell: NDArray[np.int64]
    from_below: NDArray[np.float64]
    from_above: NDArray[np.float64]
    from_nothing: NDArray[np.float64]


def landings_of(rules: FeatureRules, cells: Cells, matrix: LeafMatrix) -> Landings:
    """Find every landing of a model once."""
    of_features = [
        (_category_landings if rule.type == "category" else _number_landings)(rule, cells, matrix, j)
        for j, rule in enumerate(rules.rules)
    ]
    counts = [len(landings) for landings in of_features]
    ways = np.concatenate([*of_features, np.empty((0, 3))])
    start = np.cumsum([0, *counts])
    feature = np.repeat(np.arange(len(counts)), counts)
    return Landings(
        start=start,
        feature=feature,
        cell=np.arange(len(feature)) - start[feature],
        from_below=ways[:, 0].copy(),
        from_above=ways[:, 1].copy(),
        from_nothing=ways[:, 2].copy(),
    )


def _number_landings(rule: FeatureRule, cells: Cells, matrix: LeafMatrix, j: int) -> NDArray[np.float64]:
    """The landings of a number, from below, above and nothing. Shape: (cells, 3)."""
    landings = np.full((cells.count(j), 3), np.nan)
    median = cells.interval_of(j, float(matrix.medians[j]))
    for c in range(len(landings)):
        if not cells.is_missing(j, c):
            below, above = (_number_landing(rule, cells, j, c, upward=up) for up in (True, False))
            # From no value: the end nearer to the pool's median; a cell that holds it is entered from below.
            landings[c] = below, above, below if 0 < c >= median else above
    return landings


def _category_landings(rule: FeatureRule, cells: Cells, matrix: LeafMatrix, j: int) -> NDArray[np.float64]:
    """The same of a category, at codes of the pool that a decision can say: what nobody there has is not suggested."""
    landings = np.full((cells.count(j), 3), np.nan)
    codes, counts = matrix.categories_of(j)
    sayable = np.array([rule.min <= code <= rule.max and rule.has_word(code) for code in codes.tolist()], np.bool_)
    codes, counts = codes[sayable], counts[sayable]
    cell_of = cells.of_column(j, codes)
    for c in np.unique(cell_of).tolist():
        held, often = codes[cell_of == c], counts[cell_of == c]
        landings[c] = held.min(), held.max(), held[often.argmax()]  # codes ascend: of equally frequent ones the least
    return landings


def _number_landing(rule: FeatureRule, cells: Cells, j: int, cell: int, *, upward: bool) -> float:
    low, high = max(rule.min, cells.smallest(j, cell)), min(rule.max, cells.largest(j, cell))
    start = low if upward else high
    if not math.isfinite(start) or low > high:
        return math.nan
    # Each "no record" value can stand in the way once, as the model reads it: -9 and its neighbours in float32.
    sentinels = [cells.read(v) for v in rule.no_record] + [cells.read(v) for v in (cells.missing,) if v is not None]
    tried = _numbers(start, cells, upward=upward) if rule.step is None else _grid(start, rule, rule.step, upward=upward)
    for value in islice(tried, len(sentinels) + GRID_POINTS_TRIED):
        if low <= value <= high and cells.cell(j, value) == cell and cells.read(value) not in sentinels:
            return value
    return math.nan


def _numbers(start: float, cells: Cells, *, upward: bool) -> Iterator[float]:
    """Give `start`, and from there each next number that the model tells apart."""
    yield start
    while math.isfinite(start):
        start = cells.next_to(start, upward=upward)
        yield start


def _grid(start: float, rule: FeatureRule, step: float, *, upward: bool) -> Iterator[float]:
    """Give the grid points from `start` on, in decimal so that 0.29 is 0.29."""
    origin = Decimal(repr(rule.min)) if math.isfinite(rule.min) else Decimal(0)
    count = (Decimal(repr(start)) - origin) / Decimal(repr(step))
    first = count.to_integral_value(ROUND_CEILING if upward else ROUND_FLOOR)
    for k in count_from(0, 1 if upward else -1):
        yield float(origin + (first + k) * Decimal(repr(step)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reach:
    """All moves open to one person.

    Shapes: row (features,) float64 as the model takes it; cells (features,) int32; mutability (features,) int8;
    landing (cells of the model,) float64: the target value in each cell, NaN where this person cannot go.
    """

    rules: FeatureRules
    matrix: LeafMatrix
    landings: Landings
    row: NDArray[np.float64]
    cells: NDArray[np.int32]
    mutability: NDArray[np.int8]
    landing: NDArray[np.float64]

    def project(self, cells: NDArray[np.int32]) -> NDArray[np.float64]:
        """Move a person toward each comparator as far as the rules permit.

        Shapes: cells (k, features) int32, the comparators' -> (k, features) float64. A group moves whole or not.
        """
        stays = cells == self.cells
        landing = self.landing[self.landings.start[:-1] + cells]
        held = np.isnan(landing)
        for members in groups(self.rules):
            held[:, members] = (held[:, members] & ~stays[:, members]).any(axis=1, keepdims=True)
        return np.where(stays | held, self.row, landing)

    def why_not(self, j: int, cells: NDArray[np.int32]) -> str | None:
        """Say why feature j stays when a person moves toward a comparator with these cells; None if it moves."""
        own = self._why_not(j, int(cells[j]))
        if own is not None or self.rules.rules[j].group is None or cells[j] == self.cells[j]:
            return own
        members = next(m for m in groups(self.rules) if j in m)
        return GROUP if any(self._why_not(m, int(cells[m])) for m in members) else None

    def effort(self, j: int, to: float) -> float:
        """Price a move of feature j: its cost times |move| in scales; a category, or from no value, counts one scale."""
        rule, own = self.rules.rules[j], float(self.row[j])
        unordered = rule.type == "category" or rule.is_unrecorded(own)
        return min(rule.cost * (1.0 if unordered else abs(to - own) / float(self.matrix.scales[j])), EFFORT_MAX)

    def prices(self) -> NDArray[np.float64]:
        """Price every move of a single feature as `effort` does: inf where it is not permitted, 0 at the own cell.

        Shape: (cells of the model,). A feature of a group does not move alone.
        """
        at, rules = self.landings.feature, self.rules.rules
        unordered = [r.type == "category" or r.is_unrecorded(x) for r, x in zip(rules, self.row.tolist(), strict=True)]
        with np.errstate(over="ignore"):
            scaled = np.abs(self.landing - self.row[at]) / self.matrix.scales[at]
            dear = np.array([rule.cost for rule in rules])[at] * np.where(np.array(unordered)[at], 1.0, scaled)
        price: NDArray[np.float64] = np.minimum(dear, EFFORT_MAX)
        alone = np.array([rule.group is None for rule in rules])[at]
        price[np.isnan(self.landing) | ~alone] = np.inf
        price[self.landings.start[:-1] + self.cells] = 0.0
        return price

    def _why_not(self, j: int, cell: int) -> str | None:
        at = int(self.landings.start[j]) + cell
        if cell == self.cells[j] or not math.isnan(self.landing[at]):
            return None
        label = Mutability(int(self.mutability[j]))
        if label == Mutability.IMMUTABLE:
            return IMMUTABLE
        if at + 1 == self.landings.start[j + 1] and self.landings.start[j + 1] - self.landings.start[j] > 1:
            return TO_MISSING
        if self.rules.rules[j].is_unrecorded(float(self.row[j])):
            return NO_PERMITTED_VALUE if label == Mutability.MUTABLE else UNKNOWN_DIRECTION
        upward = cell > self.cells[j]
        against = label == (Mutability.DECREASE_ONLY if upward else Mutability.INCREASE_ONLY)
        return WRONG_DIRECTION if against else NO_PERMITTED_VALUE


def reach_of(
    rules: FeatureRules,
    matrix: LeafMatrix,
    landings: Landings,
    *,
    row: NDArray[np.float64],
    cells: NDArray[np.int32],
    mutability: NDArray[np.int8],
) -> Reach:
    """Look up where one person can go. Shapes: row, cells, mutability (features,)."""
    at = landings.feature
    label = mutability[at]
    mutable = label == Mutability.MUTABLE
    nothing = np.array([rule.is_unrecorded(x) for rule, x in zip(rules.rules, row.tolist(), strict=True)])[at]
    unordered = np.array([rule.type == "category" for rule in rules.rules])[at] & mutable
    above = landings.cell > cells[at]
    landing = np.where(above, landings.from_below, landings.from_above)
    landing = np.where(nothing | unordered, landings.from_nothing, landing)
    permitted = mutable | (~nothing & (label == np.where(above, Mutability.INCREASE_ONLY, Mutability.DECREASE_ONLY)))
    landing[~permitted] = np.nan
    return Reach(
        rules=rules, matrix=matrix, landings=landings, row=row, cells=cells, mutability=mutability, landing=landing
    )


def groups(rules: FeatureRules) -> list[list[int]]:
    """List the feature indices of each group, in the order in which the groups appear."""
    found: dict[str, list[int]] = {}
    for j, rule in enumerate(rules.rules):
        if rule.group is not None:
            found.setdefault(rule.group, []).append(j)
    return list(found.values())
