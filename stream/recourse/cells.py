"""The model's cells: per feature, the intervals between its consecutive thresholds, and missing as its own.

Two rows in the same cells reach the same leaves, so a comparator is nothing more to us than its cells: targets and
ledgers are made from them alone, and no value of a real person can leak through either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stream.events import CellInterval
from stream.forest.trees import Forest


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells:
    """Feature j has cells 0..k (k thresholds) and the cell k + 1 for missing; without thresholds only cell 0.

    thresholds: per feature, sorted and unique, in the forest's dtype. At a threshold the value belongs to the cell
    above in a `<` forest (XGBoost) and to the one below in a `<=` forest (LightGBM).
    """

    thresholds: tuple[NDArray[Any], ...]
    threshold_is_low: bool  # True for `<`: the low end belongs to the cell
    dtype: np.dtype[Any]

    def of(self, rows: NDArray[np.float64]) -> NDArray[np.int32]:
        """Find each value's cell. Shapes: rows (n, features) float64 -> (n, features) int32."""
        side: Literal["left", "right"] = "right" if self.threshold_is_low else "left"
        cells = np.empty(rows.shape, np.int32)
        for j, thresholds in enumerate(self.thresholds):
            with np.errstate(over="ignore"):
                column = rows[:, j].astype(self.dtype)
            cells[:, j] = np.searchsorted(thresholds, column, side)
            if len(thresholds):
                cells[np.isnan(column), j] = len(thresholds) + 1
            else:
                cells[:, j] = 0
        return cells

    def cell(self, j: int, value: float) -> int:
        """Find the cell that the model puts `value` (a number) of feature j into."""
        side: Literal["left", "right"] = "right" if self.threshold_is_low else "left"
        return int(np.searchsorted(self.thresholds[j], self.read(value), side))

    def read(self, value: float) -> np.floating:
        """Give a number as the model reads it; past the range of its floats that is inf, as for the libraries."""
        with np.errstate(over="ignore"):
            number: np.floating = self.dtype.type(value)
        return number

    def next_to(self, value: float, *, upward: bool) -> float:
        """Give the next number that the model tells from `value`, as the shortest decimal that it reads as that."""
        return _shortest(_next(self.read(value), upward=upward))

    def count(self, j: int) -> int:
        """Count the cells of feature j, that of missing values included."""
        return len(self.thresholds[j]) + 2 if len(self.thresholds[j]) else 1

    def is_missing(self, j: int, cell: int) -> bool:
        """Whether that cell of feature j is the one of missing values."""
        return cell == len(self.thresholds[j]) + 1

    def interval(self, j: int, cell: int) -> CellInterval:
        """Give the cell's ends as numbers; None is unbounded."""
        t = self.thresholds[j]
        return {
            "low": float(t[cell - 1]) if cell > 0 else None,
            "high": float(t[cell]) if cell < len(t) else None,
            "closed": "low" if self.threshold_is_low else "high",
        }

    def smallest(self, j: int, cell: int) -> float:
        """Give the least value of the cell, as the shortest decimal that the model reads as it; -inf if unbounded."""
        if cell == 0:
            return -math.inf
        t = self.thresholds[j][cell - 1]
        return _shortest(t if self.threshold_is_low else _next(t, upward=True))

    def largest(self, j: int, cell: int) -> float:
        """Give the greatest value of the cell, as the shortest decimal that the model reads as it; inf if unbounded."""
        if cell >= len(self.thresholds[j]):
            return math.inf
        t = self.thresholds[j][cell]
        return _shortest(_next(t, upward=False) if self.threshold_is_low else t)


def _next(number: np.floating, *, upward: bool) -> np.floating:
    with np.errstate(over="ignore"):  # beyond the largest there is inf
        beyond: np.floating = np.nextafter(number, type(number)(np.inf if upward else -np.inf))
    return beyond


def _shortest(value: np.floating) -> float:
    # 31.1 and not 31.100000381469727: both are the same float32, and people read it.
    return float(str(value))


def cells_of(forest: Forest) -> Cells:
    """Collect the cells of a forest."""
    return Cells(
        thresholds=tuple(forest.thresholds(j) for j in range(len(forest.features))),
        threshold_is_low=forest.operator == "<",
        dtype=forest.dtype,
    )
