"""The model's cells: per feature, sets of values that no split tells apart, with missing as a cell of its own.

For a number these are the intervals between consecutive thresholds, for a category the sets of codes that every split lists
together or not at all. Rows in the same cells reach the same leaves, so a comparator is reduced to its cells: targets and
ledgers are computed from them alone, and no value of a real person can leak through either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count as count_from
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stream.events import CellInterval
from stream.forest.trees import CATEGORY, ENDS_OF_ZERO, ZERO_IS_MISSING, Forest

NOT_A_CODE = -1  # stands for a number that is no code


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CodeCells:
    """The cells of a category. Shapes: codes (listed,) int64, ascending: every code that a split lists; cell (listed,) int32.

    Cells are numbered by their least code; `others`, the next number, is the cell of all unlisted codes.
    """

    codes: NDArray[np.int64]
    cell: NDArray[np.int32]
    others: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells:
    """Feature j has cells 0..k (k thresholds) and the cell k + 1 for missing; without splits only cell 0.

    A category has the cells of `CodeCells` and after them that of missing. thresholds: per feature, sorted and unique,
    in the forest's dtype. At a threshold the value belongs to the cell above in a `<` forest (XGBoost) and to the one
    below in a `<=` forest (LightGBM). Missing is NaN and the sentinel `missing`, as the model reads it.
    """

    thresholds: tuple[NDArray[Any], ...]
    threshold_is_low: bool  # True for `<`: the low end belongs to the cell
    dtype: np.dtype[Any]
    missing: float | None = None
    codes: tuple[CodeCells | None, ...] | None = None  # per feature, None for a number; None: all are numbers
    zero_is_cell: tuple[bool, ...] | None = (
        None  # per feature: whether values that round to zero have a cell of their own
    )
    insides: dict[tuple[int, int], float] = field(default_factory=dict, repr=False)  # cache of `inside`

    def of(self, rows: NDArray[np.float64]) -> NDArray[np.int32]:
        """The cell of each value. Shapes: rows (n, features) float64 -> (n, features) int32."""
        cells = np.empty(rows.shape, np.int32)
        read, is_missing = self._as_read(rows)
        for j in range(len(self.thresholds)):
            cells[:, j] = self._cells_of(j, read[:, j], is_missing[:, j])
        return cells

    def cell(self, j: int, value: float) -> int:
        """The cell of `value` of feature j."""
        number = self.read(value)
        if self.category(j) is not None:
            return int(self.of_column(j, np.array([value]))[0])
        if len(self.thresholds[j]) and (math.isnan(number) or number == self.missing):
            return len(self.thresholds[j]) + 1
        return self.interval_of(j, value)

    def interval_of(self, j: int, value: float) -> int:
        """The interval that a number falls into, even if it is the sentinel."""
        return int(np.searchsorted(self.thresholds[j], self.read(value), self._side))

    def of_column(self, j: int, values: NDArray[np.float64]) -> NDArray[np.int32]:
        """The cell of each value of feature j. Shapes: (n,) float64 -> (n,) int32."""
        return self._cells_of(j, *self._as_read(values))

    def _as_read(self, values: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Values as the model reads them, and which of them it takes as missing."""
        with np.errstate(over="ignore"):
            read = values.astype(self.dtype)
        return read, np.isnan(read) if self.missing is None else np.isnan(read) | (read == self.missing)

    def _cells_of(self, j: int, read: NDArray[Any], is_missing: NDArray[np.bool_]) -> NDArray[np.int32]:
        if self.count(j) == 1:
            return np.zeros(len(read), np.int32)
        own = self.category(j)
        if own is None:
            cells = np.searchsorted(self.thresholds[j], read, self._side).astype(np.int32)
        else:
            code = self._codes_of(read)
            at = np.minimum(np.searchsorted(own.codes, code), max(len(own.codes) - 1, 0))
            cells = np.full(len(read), own.others, np.int32)
            listed = own.codes[at] == code if len(own.codes) else np.zeros(len(read), np.bool_)
            cells[listed] = own.cell[at[listed]]
        cells[is_missing] = self.count(j) - 1
        return cells

    @property
    def _side(self) -> Literal["left", "right"]:
        return "right" if self.threshold_is_low else "left"

    def _codes_of(self, column: NDArray[Any]) -> NDArray[np.int64]:
        """Read numbers as codes: both libraries cut 3.7 off to 3, and LightGBM -0.5 to 0."""
        least = 0.0 if self.threshold_is_low else math.nextafter(-1.0, 0.0)
        is_code = (column >= least) & (column < np.iinfo(np.int32).max)
        return np.where(is_code, column, NOT_A_CODE).astype(np.int64)

    def read(self, value: float) -> np.floating:
        """A number as the model reads it; inf beyond the range of its floats, as in the libraries."""
        with np.errstate(over="ignore"):
            number: np.floating = self.dtype.type(value)
        return number

    def next_to(self, value: float, *, upward: bool) -> float:
        """The next number that the model distinguishes from `value`, as the shortest decimal for it."""
        return _shortest(_next(self.read(value), upward=upward))

    def category(self, j: int) -> CodeCells | None:
        """The cells of feature j as a category; None where the model splits on it as a number, or never."""
        return None if self.codes is None else self.codes[j]

    def count(self, j: int) -> int:
        """Number of cells of feature j, that of missing values included."""
        own = self.category(j)
        if own is not None:
            return own.others + 2
        return len(self.thresholds[j]) + 2 if len(self.thresholds[j]) else 1

    def is_missing(self, j: int, cell: int) -> bool:
        """Whether a cell of feature j is that of missing values."""
        return self.count(j) > 1 and cell == self.count(j) - 1

    def interval(self, j: int, cell: int) -> CellInterval:
        """The ends of a number's cell; None is unbounded."""
        t = self.thresholds[j]
        return {
            "low": float(t[cell - 1]) if cell > 0 else None,
            "high": float(t[cell]) if cell < len(t) else None,
            "closed": "low" if self.threshold_is_low else "high",
        }

    def listed(self, j: int, cell: int) -> list[int]:
        """The codes of a category's cell, ascending; none for the cell of unlisted codes."""
        own = self.category(j)
        return [] if own is None else own.codes[own.cell == cell].tolist()

    def smallest(self, j: int, cell: int) -> float:
        """The least value of a number's cell, as the shortest decimal that the model reads as it; -inf if unbounded.

        0.0 for the cell of zero, whatever else rounds to it.
        """
        if cell == 0:
            return -math.inf
        if self._is_zero(j, cell):
            return 0.0
        t = self.thresholds[j][cell - 1]
        return _shortest(t if self.threshold_is_low else _next(t, upward=True))

    def largest(self, j: int, cell: int) -> float:
        """The greatest value of a number's cell, as the shortest decimal that the model reads as it; inf if unbounded.

        0.0 for the cell of zero, whatever else rounds to it.
        """
        if cell >= len(self.thresholds[j]):
            return math.inf
        if self._is_zero(j, cell):
            return 0.0
        t = self.thresholds[j][cell]
        return _shortest(_next(t, upward=False) if self.threshold_is_low else t)

    def _is_zero(self, j: int, cell: int) -> bool:
        return self.zero_is_cell is not None and self.zero_is_cell[j] and cell == self.interval_of(j, 0.0)

    def inside(self, j: int, cell: int) -> float:
        """Any value of a cell, NaN for that of missing: all of them reach the same leaves. Cached."""
        known = self.insides.get((j, cell))
        if known is None:
            known = self.insides[j, cell] = self._inside(j, cell)
        return known

    def _inside(self, j: int, cell: int) -> float:
        if self.is_missing(j, cell):
            return math.nan
        own = self.category(j)
        if own is None:
            ends = ((self.smallest(j, cell), True), (self.largest(j, cell), False))
            inward = [(end, self.next_to(end, upward=upward)) for end, upward in ends if math.isfinite(end)]
            tried = [value for pair in inward for value in pair] or [0.0, 1.0]  # one candidate may be the sentinel
        elif cell == own.others:
            taken = {*own.codes.tolist(), self.missing}
            tried = [float(next(code for code in count_from() if code not in taken))]
        else:
            tried = [float(own.codes[own.cell == cell][0])]
        return next((value for value in tried if self.cell(j, value) == cell), tried[0])


def _next(number: np.floating, *, upward: bool) -> np.floating:
    with np.errstate(over="ignore"):  # inf lies beyond the largest
        beyond: np.floating = np.nextafter(number, type(number)(np.inf if upward else -np.inf))
    return beyond


def _shortest(value: np.floating) -> float:
    # 31.1 and not 31.100000381469727: both are the same float32, and people read it.
    return float(str(value))


def cells_of(forest: Forest) -> Cells:
    """Collect the cells of a forest."""
    features = range(len(forest.features))
    nodes = [np.flatnonzero(forest.split_feature == j) for j in features]
    kinds = [frozenset(forest.kind[own].tolist()) for own in nodes]
    return Cells(
        thresholds=tuple(_thresholds(forest, j, kinds[j]) for j in features),
        threshold_is_low=forest.operator == "<",
        dtype=forest.dtype,
        missing=forest.missing,
        codes=tuple(
            _code_cells(forest, own) if CATEGORY in kind else None for own, kind in zip(nodes, kinds, strict=True)
        ),
        zero_is_cell=tuple(ZERO_IS_MISSING in kind for kind in kinds),
    )


def common_cells(parts: Sequence[Cells]) -> Cells:
    """Part values as finely as all of several models do together; they are of one library, and of the same features."""
    first = parts[0]
    features = range(len(first.thresholds))
    return Cells(
        thresholds=tuple(np.unique(np.concatenate([part.thresholds[j] for part in parts])) for j in features),
        threshold_is_low=first.threshold_is_low,
        dtype=first.dtype,
        missing=first.missing,
        codes=tuple(_refined([part.category(j) for part in parts]) for j in features),
        zero_is_cell=tuple(any(p.zero_is_cell is not None and p.zero_is_cell[j] for p in parts) for j in features),
    )


def _refined(parts: Sequence[CodeCells | None]) -> CodeCells | None:
    listed = [part for part in parts if part is not None]
    if not listed:
        return None
    codes = np.unique(np.concatenate([part.codes for part in listed]))
    cell = np.zeros(len(codes), np.int64)
    for part in listed:
        at = np.minimum(np.searchsorted(part.codes, codes), max(len(part.codes) - 1, 0))
        own = np.where(part.codes[at] == codes, part.cell[at], part.others) if len(part.codes) else np.int64(0)
        cell = np.unique((part.others + 1) * cell + own, return_inverse=True)[1]
    return _by_least_code(codes, cell)


def _by_least_code(codes: NDArray[np.int64], cell: NDArray[np.int64]) -> CodeCells:
    """Number the cells of ascending codes by their least code."""
    _, first, cell = np.unique(cell, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    return CodeCells(codes=codes, cell=rank[cell].astype(np.int32), others=len(first))


def _thresholds(forest: Forest, j: int, kinds: frozenset[int]) -> NDArray[Any]:
    """The thresholds that part values: between the ends of zero none does where all splits take zero for missing."""
    t = forest.thresholds(j)
    return t[(t <= ENDS_OF_ZERO[0]) | (t >= ENDS_OF_ZERO[1])] if kinds == {ZERO_IS_MISSING} else t


def _code_cells(forest: Forest, nodes: NDArray[np.int64]) -> CodeCells:
    lists = [np.array(codes, np.int64) for codes in {forest.listed(node) for node in nodes.tolist()}]
    codes = np.unique(np.concatenate(lists))
    codes = codes[codes.astype(forest.dtype) != forest.missing] if forest.missing is not None else codes
    cell = np.zeros(len(codes), np.int64)
    for listed in lists:  # each list parts every cell so far into those in it and those not
        cell = np.unique(2 * cell + np.isin(codes, listed), return_inverse=True)[1]
    return _by_least_code(codes, cell)
