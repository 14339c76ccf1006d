"""How far a row lies from people whom the model accepts: the mean distance to the five nearest of them.

Source: the paper's manifold distance (Luzio 2026, section Evaluation). A number's distance is in scales, and where there is
none it stands at the pool's median: that it is not known makes nobody unlike others. Another category, or one on one side
alone, counts one, as it does in the ranking. People are known by their cells alone, each placed where
many who share the cell are, so that no value of one of them decides what is asked of another. Squares are float32, added in
the features' order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from stream.forest.cells import Cells
from stream.recourse.comparators.leaf_matrix import LeafMatrix, without_no_record
from stream.recourse.rules.features import FeatureRules

NEAREST = 5  # accepted people, as in the paper's manifold distance (Luzio 2026, Experimental Setup)
FARTHEST = np.float32(1e9)  # of one feature: squares of such, and their sums, stay finite
CROWDED = 20  # people in a cell: with fewer, their median could be one person's own value
MEDIANS_AMONG_MAX = 32_768  # people, evenly chosen, whose medians are taken: it is done whenever a bundle is opened
GENUINE_SAMPLE = 256  # accepted people whose own distance to the others is measured
GENUINE_AMONG_MAX = 32_768  # of these others, evenly chosen, for it is measured whenever a bundle is opened


class People(NamedTuple):
    """Rows in scales, categories by cell. Shapes: coordinates (n, features) float32, NaN of no category; nominal (features,)."""

    coordinates: NDArray[np.float32]
    nominal: NDArray[np.bool_]


def people_of(rules: FeatureRules, matrix: LeafMatrix, cells: Cells) -> People:
    """Give each of the pool coordinates, a number those of its cell: nobody is nothing more to us than that.

    `cells` are those of `matrix`. A number of no record is none, and stands at the pool's median.
    """
    coordinates = np.empty(matrix.cells.shape, np.float32)
    nominal = _nominal(rules)
    among = np.unique(np.linspace(0, len(coordinates) - 1, MEDIANS_AMONG_MAX).astype(np.int64))
    for j in range(len(rules.rules)):
        where = np.arange(cells.count(j), dtype=np.float64)
        if not nominal[j]:
            where = _middles(cells, j, float(matrix.medians[j]))
            _put_medians(where, matrix.cells[among, j], matrix.rows[among, j])
        coordinates[:, j] = _in_scales(where, np.where(nominal[j], 1.0, matrix.scales[j]))[matrix.cells[:, j]]
    unknown = np.where(nominal, np.nan, _in_scales(matrix.medians, matrix.scales)).astype(np.float32)
    return People(np.where(np.isnan(matrix.rows), unknown, coordinates), nominal)


def coordinates_of(
    values: NDArray[np.float64], features: NDArray[np.int64], rules: FeatureRules, matrix: LeafMatrix, cells: Cells
) -> NDArray[np.float32]:
    """The coordinates of single values, NaN where there is none. Shapes: values, features (n,) -> (n,), as of `People`."""
    found = _in_scales(np.where(np.isnan(values), matrix.medians[features], values), matrix.scales[features])
    for j in np.flatnonzero(_nominal(rules)).tolist():
        own = features == j
        known = own & ~np.isnan(values)
        found[own] = np.nan
        found[known] = cells.of_column(j, values[known])
    return found


def coordinates_of_rows(
    rows: NDArray[np.float64], rules: FeatureRules, matrix: LeafMatrix, cells: Cells
) -> NDArray[np.float32]:
    """The coordinates of people's rows, each as if alone. Shape: (n, features) -> (n, features)."""
    features = np.tile(np.arange(rows.shape[1]), len(rows))
    coordinates = coordinates_of(without_no_record(rows, rules).ravel(), features, rules, matrix, cells)
    return coordinates.reshape(rows.shape)


def coordinates_of_row(
    row: NDArray[np.float64], rules: FeatureRules, matrix: LeafMatrix, cells: Cells
) -> NDArray[np.float32]:
    """The coordinates of one person's row. Shape: (features,)."""
    coordinates: NDArray[np.float32] = coordinates_of_rows(row[None], rules, matrix, cells)[0]
    return coordinates


def _nominal(rules: FeatureRules) -> NDArray[np.bool_]:
    return np.array([rule.type == "category" for rule in rules.rules], np.bool_)


def _in_scales(values: NDArray[np.float64], scales: NDArray[np.float64]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        found: NDArray[np.float32] = np.clip(values / scales, -FARTHEST, FARTHEST).astype(np.float32)
    return found


def _middles(cells: Cells, j: int, median: float) -> NDArray[np.float64]:
    """The middle of each cell of a number, of one without an end its other end, and the pool's median where there is none.

    It is NaN for the cell of missing.
    """
    found = np.zeros(cells.count(j))
    for cell in range(len(found)):
        if cells.is_missing(j, cell):
            found[cell] = math.nan
            continue
        ends = [end for end in (cells.smallest(j, cell), cells.largest(j, cell)) if math.isfinite(end)]
        found[cell] = sum(end / len(ends) for end in ends) if ends else median
    return found


def _put_medians(where: NDArray[np.float64], cells: NDArray[np.int32], values: NDArray[np.float64]) -> None:
    """Fill in the median of the values in each cell that is crowded. Shapes: where (cells,); cells, values (n,), NaN for none."""
    known = ~np.isnan(values)
    order = np.lexsort((values[known], cells[known]))
    sorted_cells, sorted_values = cells[known][order], values[known][order]
    crowded, first, count = np.unique(sorted_cells, return_index=True, return_counts=True)
    for cell, begin, size in zip(crowded.tolist(), first.tolist(), count.tolist(), strict=True):
        if size >= CROWDED:
            where[cell] = np.median(sorted_values[begin : begin + size])


def genuine_distance(people: People, first: int) -> float:
    """How far accepted people lie from each other: the mean over some of them, evenly chosen from coordinates[first:]."""
    among = np.unique(np.linspace(first, len(people.coordinates) - 1, GENUINE_AMONG_MAX).astype(np.int64))
    accepted = people.coordinates[among] if first < len(people.coordinates) else people.coordinates[:0]
    if not len(accepted):
        return 0.0
    chosen = np.unique(np.linspace(0, len(accepted) - 1, GENUINE_SAMPLE).astype(np.int64))
    return float(_genuine(accepted, people.nominal, chosen))


def nearest_people(people: People, first: int, x: NDArray[np.float32], most: int) -> NDArray[np.int64]:
    """Find who of coordinates[first:] is nearest to a row, nearest first, of equal ones the earlier. Shapes: x (features,) -> (k,)."""
    squares = np.empty(len(people.coordinates) - first, np.float32)
    squares_to(people.coordinates[first:], people.nominal, x, squares)
    most = min(most, len(squares))
    if most == 0:
        return np.empty(0, np.int64)
    reach = np.partition(squares, most - 1)[most - 1]  # sorting them all takes longer
    within = np.flatnonzero(squares <= reach)
    nearest: NDArray[np.int64] = first + within[np.argsort(squares[within], kind="stable")[:most]]
    return nearest


@numba.njit(cache=True, nogil=True)
def distances(
    people: NDArray[np.float32], nominal: NDArray[np.bool_], rows: NDArray[np.float32]
) -> NDArray[np.float64]:
    """The mean distance of each row to the nearest of those people. Shape: rows (n, features) -> (n,)."""
    found = np.empty(rows.shape[0])
    squares = np.empty(people.shape[0], np.float32)
    for i in range(rows.shape[0]):
        squares_to(people, nominal, rows[i], squares)
        found[i] = mean_of_nearest(squares)
    return found


@numba.njit(cache=True, nogil=True)
def _genuine(accepted: NDArray[np.float32], nominal: NDArray[np.bool_], chosen: NDArray[np.int64]) -> float:
    squares = np.empty(accepted.shape[0], np.float32)
    total = 0.0
    for i in chosen:
        squares_to(accepted, nominal, accepted[i], squares)
        squares[i] = np.inf  # nobody is their own neighbour
        total += mean_of_nearest(squares)
    return float(total / chosen.shape[0])


@numba.njit(cache=True, nogil=True, inline="always")
def square(a: np.float32, b: np.float32, nominal: np.bool_) -> np.float32:
    """The squared distance of two values of one feature."""
    if np.isnan(a) or np.isnan(b):
        return np.float32(0.0) if np.isnan(a) and np.isnan(b) else np.float32(1.0)
    if nominal:
        return np.float32(0.0) if a == b else np.float32(1.0)
    return (a - b) * (a - b)


@numba.njit(cache=True, nogil=True)
def squares_to(
    coordinates: NDArray[np.float32], nominal: NDArray[np.bool_], x: NDArray[np.float32], squares: NDArray[np.float32]
) -> None:
    """Fill in the squared distance of a row to each person. Shapes: x (features,) -> squares (n,)."""
    for i in range(coordinates.shape[0]):
        total = np.float32(0.0)
        for j in range(coordinates.shape[1]):
            total += square(x[j], coordinates[i, j], nominal[j])
        squares[i] = total


@numba.njit(cache=True, nogil=True)
def mean_of_nearest(squares: NDArray[np.float32]) -> float:
    """The mean of the five least distances, by their squares; of all where there are fewer."""
    nearest = np.full(NEAREST, np.float32(np.inf))
    for value in squares:
        if value < nearest[NEAREST - 1]:
            k = NEAREST - 1
            while k > 0 and nearest[k - 1] > value:
                nearest[k] = nearest[k - 1]
                k -= 1
            nearest[k] = value
    total, counted = 0.0, 0
    for value in nearest:
        if value < np.inf:
            total += np.sqrt(max(np.float64(value), 0.0))
            counted += 1
    return total / max(counted, 1)
