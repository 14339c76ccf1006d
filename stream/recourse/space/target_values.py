"""Which value of a cell is suggested to somebody below it, above it, or without a value. The same for every applicant.

A target is whole, on the step and in range where features.toml says so, and is no "no record" value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from itertools import count as count_from
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from stream.forest.cells import Cells
from stream.recourse.comparators.leaf_matrix import LeafMatrix
from stream.recourse.rules.feature_rule import FeatureRule

VALUES_TRIED = 3  # from a cell's end inward, besides one per sentinel, before the cell counts as empty; by judgement


def target_values(rule: FeatureRule, cells: Cells, matrix: LeafMatrix, j: int) -> NDArray[np.float64]:
    """The target values of feature j from below, above and nothing; NaN: none is permitted. Shape: (cells, 3)."""
    return (_of_category if rule.type == "category" else _of_number)(rule, cells, matrix, j)


def sentinels_of(rule: FeatureRule, cells: Cells) -> list[np.floating]:
    """The numbers that say "no record", as the model reads them: in float32 -9 takes its near neighbours in."""
    return [cells.read(v) for v in rule.no_record] + [cells.read(v) for v in (cells.missing,) if v is not None]


def past_sentinels(rule: FeatureRule, cells: Cells, *, upward: bool) -> list[float]:
    """For each "no record" value, the next number after it, in a direction, that may be a target."""
    sentinels = sentinels_of(rule, cells)
    found = (
        _first(rule, cells, float(s), sentinels, low=rule.min, high=rule.max, upward=upward)
        for s in sentinels
        if math.isfinite(s)
    )
    return [value for value in found if not math.isnan(value)]


def grid_origin(rule: FeatureRule) -> Decimal:
    """The number that a rule's steps are counted from."""
    return Decimal(repr(rule.min)) if math.isfinite(rule.min) else Decimal(0)


def _of_number(rule: FeatureRule, cells: Cells, matrix: LeafMatrix, j: int) -> NDArray[np.float64]:
    cell_targets = np.full((cells.count(j), 3), np.nan)
    median = cells.interval_of(j, float(matrix.medians[j]))
    for c in range(len(cell_targets)):
        if not cells.is_missing(j, c):
            below, above = (_in_cell(rule, cells, j, c, upward=up) for up in (True, False))
            # From no value: the end nearer to the pool's median; a cell that holds it is entered from below.
            cell_targets[c] = below, above, below if 0 < c >= median else above
    return cell_targets


def _of_category(rule: FeatureRule, cells: Cells, matrix: LeafMatrix, j: int) -> NDArray[np.float64]:
    """The same for a category, at codes that somebody in the pool has and that a decision can spell."""
    cell_targets = np.full((cells.count(j), 3), np.nan)
    codes, counts = matrix.categories_of(j)
    sayable = np.array([rule.min <= code <= rule.max and rule.has_word(code) for code in codes.tolist()], np.bool_)
    codes, counts = codes[sayable], counts[sayable]
    cell_of = cells.of_column(j, codes)
    for c in np.unique(cell_of).tolist():
        held, often = codes[cell_of == c], counts[cell_of == c]
        # Codes ascend: of equally frequent ones the least.
        cell_targets[c] = held.min(), held.max(), held[often.argmax()]
    return cell_targets


def _in_cell(rule: FeatureRule, cells: Cells, j: int, cell: int, *, upward: bool) -> float:
    low, high = max(rule.min, cells.smallest(j, cell)), min(rule.max, cells.largest(j, cell))
    start = low if upward else high
    if not math.isfinite(start) or low > high:
        return math.nan
    value = _first(rule, cells, start, sentinels_of(rule, cells), low=low, high=high, upward=upward)
    return value if not math.isnan(value) and cells.cell(j, value) == cell else math.nan


def _first(
    rule: FeatureRule,
    cells: Cells,
    start: float,
    sentinels: list[np.floating],
    *,
    low: float,
    high: float,
    upward: bool,
) -> float:
    """The first number from `start` on that is on the step, in range and no sentinel; NaN if none is near."""
    tried = _numbers(start, cells, upward=upward) if rule.step is None else _grid(start, rule, rule.step, upward=upward)
    # Each sentinel can be in the way once.
    for value in islice(tried, len(sentinels) + VALUES_TRIED):
        if low <= value <= high and cells.read(value) not in sentinels:
            return value
    return math.nan


def _numbers(start: float, cells: Cells, *, upward: bool) -> Iterator[float]:
    """Yield `start`, and from there each next number of the model's dtype."""
    yield start
    while math.isfinite(start):
        start = cells.next_to(start, upward=upward)
        yield start


def _grid(start: float, rule: FeatureRule, step: float, *, upward: bool) -> Iterator[float]:
    """Yield the grid points from `start` on, in decimal so that 0.29 is 0.29."""
    origin = grid_origin(rule)
    count = (Decimal(repr(start)) - origin) / Decimal(repr(step))
    first = count.to_integral_value(ROUND_CEILING if upward else ROUND_FLOOR)
    for k in count_from(0, 1 if upward else -1):
        yield float(origin + (first + k) * Decimal(repr(step)))
