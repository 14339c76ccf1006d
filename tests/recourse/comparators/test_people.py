from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.recourse.comparators.leaf_matrix import without_no_record
from stream.recourse.comparators.people import (
    CROWDED,
    FARTHEST,
    GENUINE_SAMPLE,
    MEDIANS_AMONG_MAX,
    NEAREST,
    People,
    coordinates_of,
    coordinates_of_row,
    coordinates_of_rows,
    distances,
    genuine_distance,
    mean_of_nearest,
    nearest_people,
    people_of,
    squares_to,
)
from stream.recourse.model import PublishedModel
from tests.examples import examples
from tests.recourse.category_lenders import category_lender
from tests.recourse.lenders import FEATURES, LENDERS, Approve, Lender, Library, Rows, lender

PAIRS = pytest.mark.parametrize(("library", "approve"), LENDERS)
SEEDS = st.integers(0, 2**32 - 1)


def random_people(rng: np.random.Generator, people: int) -> People:
    """People at random, of few values so that some are equally near, with gaps and categories."""
    features = int(rng.integers(1, 7))
    coordinates = rng.integers(-3, 4, (people, features)) / 4
    coordinates[rng.random(coordinates.shape) < 0.2] = np.nan
    return People(coordinates.astype(np.float32), rng.random(features) < 0.3)


def squares(neighbourhood: People, x: Rows) -> Rows:
    """The reference: squared distances in float64; a category, and a value on one side alone, counts one."""
    coordinates, other = neighbourhood.coordinates.astype(np.float64), x.astype(np.float64)
    apart = (coordinates - other) ** 2
    apart[:, neighbourhood.nominal] = (coordinates != other)[:, neighbourhood.nominal]
    neither, one = np.isnan(coordinates) & np.isnan(other), np.isnan(coordinates) ^ np.isnan(other)
    return np.asarray(np.where(neither, 0.0, np.where(one, 1.0, apart)).sum(axis=1))


def mean_distance(found: Rows) -> float:
    """The reference: the mean of the five least distances, of all where there are fewer, 0 without any."""
    nearest = [math.sqrt(one) for one in np.sort(found)[:NEAREST].tolist()]
    return sum(nearest) / len(nearest) if nearest else 0.0


@settings(max_examples=examples(100), deadline=None)
@given(seed=SEEDS, people=st.integers(0, 40))
def test_distances_are_those_of_plain_arithmetic(seed: int, people: int) -> None:
    """Given anyone among any people, few or none, squares are exact where float32 holds them, and the mean of the five nearest is that of plain float64."""
    rng = np.random.default_rng(seed)
    neighbourhood = random_people(rng, people)
    rows = random_people(rng, 3).coordinates
    rows = np.resize(rows, (3, neighbourhood.coordinates.shape[1]))
    told = distances(neighbourhood.coordinates, neighbourhood.nominal, rows)
    for row, distance in zip(rows, told.tolist(), strict=True):
        found = np.empty(people, np.float32)
        squares_to(neighbourhood.coordinates, neighbourhood.nominal, row, found)
        wanted = squares(neighbourhood, row)
        assert found.tolist() == wanted.tolist()
        assert mean_of_nearest(found) == distance
        assert distance == mean_distance(wanted)


@settings(max_examples=examples(100), deadline=None)
@given(seed=SEEDS, people=st.integers(0, 40), most=st.integers(0, 50))
def test_the_nearest_come_in_their_order_and_equals_in_the_pool_s(seed: int, people: int, most: int) -> None:
    """Given people of whom some are equally near, those found are what a stable sort by distance puts first, counted from the pool's start."""
    rng = np.random.default_rng(seed)
    neighbourhood = random_people(rng, people)
    x = np.resize(random_people(rng, 1).coordinates, (1, neighbourhood.coordinates.shape[1]))[0]
    first = int(rng.integers(people + 1))
    wanted = (
        first
        + np.argsort(squares(People(neighbourhood.coordinates[first:], neighbourhood.nominal), x), kind="stable")[:most]
    )
    assert nearest_people(neighbourhood, first, x, most).tolist() == wanted.tolist()


@settings(max_examples=examples(40), deadline=None)
@given(seed=SEEDS, people=st.integers(0, 40))
def test_accepted_people_are_as_far_apart_as_each_is_from_the_others(seed: int, people: int) -> None:
    """Given fewer accepted people than are sampled, the genuine distance is the mean over all of them of that to the five nearest others; 0 without any."""
    neighbourhood = random_people(np.random.default_rng(seed), people)
    first = people // 3
    accepted = People(neighbourhood.coordinates[first:], neighbourhood.nominal)
    apart = [mean_distance(np.delete(squares(accepted, x), i)) for i, x in enumerate(accepted.coordinates)]
    assert genuine_distance(neighbourhood, first) == (sum(apart) / len(apart) if apart else 0.0)
    assert genuine_distance(neighbourhood, people) == 0.0


def test_of_many_accepted_people_some_are_asked_evenly() -> None:
    """Given two thousand accepted people along a line, the genuine distance is that of the sample, and the same every time."""
    coordinates = np.cumsum(np.linspace(0.0, 1.0, 2000))[:, None].astype(np.float32)
    neighbourhood = People(coordinates, np.zeros(1, np.bool_))
    chosen = np.unique(np.linspace(0, 1999, GENUINE_SAMPLE).astype(np.int64))
    wanted = [
        mean_distance(np.delete((coordinates[:, 0] - coordinates[i, 0]) ** 2, i)) for i in chosen.tolist()
    ]  # in float32
    assert genuine_distance(neighbourhood, 0) == sum(wanted) / len(wanted)
    assert genuine_distance(neighbourhood, 0) == genuine_distance(neighbourhood, 0)


@PAIRS
@pytest.mark.parametrize("make", [lender, category_lender])
def test_people_are_placed_by_their_cells(
    library: Library, approve: Approve, make: Callable[[Library, Approve], Lender]
) -> None:
    """Given a lender, a category is placed by its cell, and a number where its cell is; a number of no record stands at the pool's median, and a category of none nowhere."""
    model = make(library, approve).model
    people, scales = people_of(model.rules, model.matrix, model.cells), model.matrix.scales
    known = ~np.isnan(without_no_record(model.matrix.rows, model.rules))
    for j, rule in enumerate(model.rules.rules):
        assert people.nominal[j] == (rule.type == "category")
        nowhere = np.nan if people.nominal[j] else np.float32(model.matrix.medians[j] / scales[j])
        assert np.array_equal(
            people.coordinates[~known[:, j], j], np.full((~known[:, j]).sum(), nowhere), equal_nan=True
        )
        for cell in np.unique(model.matrix.cells[known[:, j], j]).tolist():
            own = known[:, j] & (model.matrix.cells[:, j] == cell)
            wanted = cell if people.nominal[j] else where(model, j, cell, model.matrix.rows[own, j]) / scales[j]
            assert people.coordinates[own, j].tolist() == [np.float32(wanted)] * int(own.sum())


def where(model: PublishedModel, j: int, cell: int, values: Rows) -> float:
    """The reference: the median of a crowded cell; of another the middle, its only end, or the pool's median."""
    if len(values) >= CROWDED:
        return float(np.median(values))
    ends = [end for end in (model.cells.smallest(j, cell), model.cells.largest(j, cell)) if math.isfinite(end)]
    return sum(end / len(ends) for end in ends) if ends else float(model.matrix.medians[j])


@PAIRS
def test_both_crowded_and_lonely_cells_are_tried(library: Library, approve: Approve) -> None:
    """Given the lender of these tests, some cells hold a neighbourhood, and others fewer people."""
    model = lender(library, approve).model
    sizes = np.concatenate([np.unique(column, return_counts=True)[1] for column in model.matrix.cells.T])
    assert (sizes >= CROWDED).any()
    assert (sizes < CROWDED).any()


@PAIRS
@settings(max_examples=examples(10), deadline=None)
@given(seed=SEEDS, people=st.sampled_from([CROWDED - 1, CROWDED, CROWDED + 1]))
def test_one_person_less_than_a_crowd_leaves_the_middle(
    library: Library, approve: Approve, seed: int, people: int
) -> None:
    """Given just about a neighbourhood in one cell and others elsewhere, in any order, they stand at their median from the twentieth person on, and in the middle before."""
    rng, model = np.random.default_rng(seed), lender(library, approve).model
    matrix = model.matrix
    known = ~np.isnan(matrix.rows[:, 0])
    cell = int(np.bincount(matrix.cells[known, 0]).argmax())
    inside = rng.permutation(np.flatnonzero(known & (matrix.cells[:, 0] == cell)))[:people]
    assert len(inside) == people
    outside = np.flatnonzero(matrix.cells[:, 0] != cell)
    kept = rng.permutation(np.concatenate([inside, outside]))
    smaller = dataclasses.replace(matrix, rows=matrix.rows[kept], cells=matrix.cells[kept])
    coordinates = people_of(model.rules, smaller, model.cells).coordinates[smaller.cells[:, 0] == cell, 0]
    wanted = where(model, 0, cell, matrix.rows[inside, 0])
    assert coordinates.tolist() == [np.float32(wanted / matrix.scales[0])] * people


def test_of_very_many_people_the_medians_are_of_some_evenly_chosen() -> None:
    """Given more people than medians are taken among, those of a cell stand at the median of the chosen, and all of them do."""
    model = lender("xgboost").model
    matrix, many = model.matrix, 2 * MEDIANS_AMONG_MAX + 77
    again = np.random.default_rng(0).integers(0, len(matrix), many)
    larger = dataclasses.replace(matrix, rows=matrix.rows[again], cells=matrix.cells[again])
    chosen = np.unique(np.linspace(0, many - 1, MEDIANS_AMONG_MAX).astype(np.int64))
    coordinates = people_of(model.rules, larger, model.cells).coordinates
    known = ~np.isnan(larger.rows[:, 0])
    for cell in np.unique(larger.cells[known, 0]).tolist():
        own = known & (larger.cells[:, 0] == cell)
        wanted = where(model, 0, cell, larger.rows[chosen[own[chosen]], 0])
        assert set(coordinates[own, 0].tolist()) == {np.float32(wanted / matrix.scales[0])}


@PAIRS
def test_a_person_is_placed_in_scales(library: Library, approve: Approve) -> None:
    """Given people, their numbers are in scales and their categories are cells; a number of no record stands at the pool's median, and a category of none nowhere."""
    shop = category_lender(library, approve)
    model = shop.model
    category = np.array([rule.type == "category" for rule in model.rules.rules])
    assert category.any()
    for row in shop.declined(10):
        ours = coordinates_of_row(row, model.rules, model.matrix, model.cells)
        own = without_no_record(row[None], model.rules)[0]
        wanted = np.where(np.isnan(own), model.matrix.medians, own) / model.matrix.scales
        at = np.where(np.isnan(own), np.nan, model.cells.of(row[None])[0])
        assert np.array_equal(ours, np.where(category, at, wanted).astype(np.float32), equal_nan=True)


@PAIRS
@pytest.mark.parametrize("make", [lender, category_lender])
def test_many_people_are_placed_as_each_alone(
    library: Library, approve: Approve, make: Callable[[Library, Approve], Lender]
) -> None:
    """Given rows, none or many, each has the place, to the last bit, that its values have one by one."""
    shop = make(library, approve)
    known = shop.model.rules, shop.model.matrix, shop.model.cells
    ours = coordinates_of_rows(shop.pool, *known)
    every = np.arange(shop.pool.shape[1])
    for row, coordinates in zip(without_no_record(shop.pool, shop.model.rules), ours, strict=True):
        assert coordinates_of(row, every, *known).tobytes() == coordinates.tobytes()
    assert coordinates_of_rows(shop.pool[:0], *known).shape == (0, shop.pool.shape[1])


def test_the_farthest_value_has_a_finite_place() -> None:
    """Given the largest numbers there are, their places and the squares of their distances are finite."""
    model = lender("lightgbm").model
    matrix = dataclasses.replace(model.matrix, scales=np.full(len(FEATURES), 1e-300))
    ours = coordinates_of(np.array([1.7e308, -1.7e308]), np.array([0, 0]), model.rules, matrix, model.cells)
    assert ours.tolist() == [FARTHEST, -FARTHEST]
    found = np.empty(1, np.float32)
    squares_to(ours[:1, None], np.zeros(1, np.bool_), ours[1:], found)
    assert np.isfinite(found).all()
