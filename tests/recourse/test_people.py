from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.recourse.leaf_matrix import without_no_record
from stream.recourse.people import (
    FARTHEST,
    GENUINE_SAMPLE,
    NEAREST,
    People,
    distances,
    genuine_distance,
    mean_of_nearest,
    nearest_people,
    people_of,
    place_of,
    place_of_row,
    squares_to,
)
from tests.recourse.category_lenders import category_lender
from tests.recourse.lenders import FEATURES, LENDERS, Approve, Lender, Library, Rows, lender

PAIRS = pytest.mark.parametrize(("library", "approve"), LENDERS)
SEEDS = st.integers(0, 2**32 - 1)


def a_crowd(rng: np.random.Generator, people: int) -> People:
    """People at random, of few values so that some are equally near, with gaps and categories."""
    features = int(rng.integers(1, 7))
    place = rng.integers(-3, 4, (people, features)) / 4
    place[rng.random(place.shape) < 0.2] = np.nan
    return People(place.astype(np.float32), rng.random(features) < 0.3)


def squares(crowd: People, x: Rows) -> Rows:
    """The reference: squared distances in float64; a category, and a value on one side alone, counts one."""
    place, other = crowd.place.astype(np.float64), x.astype(np.float64)
    apart = (place - other) ** 2
    apart[:, crowd.nominal] = (place != other)[:, crowd.nominal]
    neither, one = np.isnan(place) & np.isnan(other), np.isnan(place) ^ np.isnan(other)
    return np.asarray(np.where(neither, 0.0, np.where(one, 1.0, apart)).sum(axis=1))


def mean_distance(found: Rows) -> float:
    """The reference: the mean of the five least distances, of all where there are fewer, 0 without any."""
    nearest = [math.sqrt(one) for one in np.sort(found)[:NEAREST].tolist()]
    return sum(nearest) / len(nearest) if nearest else 0.0


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, people=st.integers(0, 40))
def test_distances_are_those_of_plain_arithmetic(seed: int, people: int) -> None:
    """Given anyone among any people, few or none, squares are exact where float32 holds them, and the mean of the five nearest is that of plain float64."""
    rng = np.random.default_rng(seed)
    crowd = a_crowd(rng, people)
    rows = a_crowd(rng, 3).place
    rows = np.resize(rows, (3, crowd.place.shape[1]))
    told = distances(crowd.place, crowd.nominal, rows)
    for row, distance in zip(rows, told.tolist(), strict=True):
        found = np.empty(people, np.float32)
        squares_to(crowd.place, crowd.nominal, row, found)
        wanted = squares(crowd, row)
        assert found.tolist() == wanted.tolist()
        assert mean_of_nearest(found) == distance
        assert distance == mean_distance(wanted)


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, people=st.integers(0, 40), most=st.integers(0, 50))
def test_the_nearest_come_in_their_order_and_equals_in_the_pool_s(seed: int, people: int, most: int) -> None:
    """Given people of whom some are equally near, those found are what a stable sort by distance puts first, counted from the pool's start."""
    rng = np.random.default_rng(seed)
    crowd = a_crowd(rng, people)
    x = np.resize(a_crowd(rng, 1).place, (1, crowd.place.shape[1]))[0]
    first = int(rng.integers(people + 1))
    wanted = first + np.argsort(squares(People(crowd.place[first:], crowd.nominal), x), kind="stable")[:most]
    assert nearest_people(crowd, first, x, most).tolist() == wanted.tolist()


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, people=st.integers(0, 40))
def test_accepted_people_are_as_far_apart_as_each_is_from_the_others(seed: int, people: int) -> None:
    """Given fewer accepted people than are sampled, the genuine distance is the mean over all of them of that to the five nearest others; 0 without any."""
    crowd = a_crowd(np.random.default_rng(seed), people)
    first = people // 3
    accepted = People(crowd.place[first:], crowd.nominal)
    apart = [mean_distance(np.delete(squares(accepted, x), i)) for i, x in enumerate(accepted.place)]
    assert genuine_distance(crowd, first) == (sum(apart) / len(apart) if apart else 0.0)
    assert genuine_distance(crowd, people) == 0.0


def test_of_many_accepted_people_some_are_asked_evenly() -> None:
    """Given two thousand accepted people along a line, the genuine distance is that of the sample, and the same every time."""
    place = np.cumsum(np.linspace(0.0, 1.0, 2000))[:, None].astype(np.float32)
    crowd = People(place, np.zeros(1, np.bool_))
    chosen = np.unique(np.linspace(0, 1999, GENUINE_SAMPLE).astype(np.int64))
    wanted = [mean_distance(np.delete((place[:, 0] - place[i, 0]) ** 2, i)) for i in chosen.tolist()]  # in float32
    assert genuine_distance(crowd, 0) == sum(wanted) / len(wanted)
    assert genuine_distance(crowd, 0) == genuine_distance(crowd, 0)


@PAIRS
@pytest.mark.parametrize("make", [lender, category_lender])
def test_people_are_placed_by_their_cells(
    library: Library, approve: Approve, make: Callable[[Library, Approve], Lender]
) -> None:
    """Given a lender, whoever shares a cell has one place there, within the cell or at its only end; categories are placed by their cells, and what is no record nowhere."""
    model = make(library, approve).model
    people, cells = people_of(model.rules, model.matrix, model.cells), model.cells
    known = ~np.isnan(without_no_record(model.matrix.rows, model.rules))
    assert (np.isnan(people.place) == ~known).all()
    for j, rule in enumerate(model.rules.rules):
        assert people.nominal[j] == (rule.type == "category")
        for cell in np.unique(model.matrix.cells[known[:, j], j]).tolist():
            there = people.place[known[:, j] & (model.matrix.cells[:, j] == cell), j]
            assert (there == there[0]).all()
            if people.nominal[j]:
                assert there[0] == cell
            elif cells.count(j) > 1:
                ends = [end for end in (cells.smallest(j, cell), cells.largest(j, cell)) if math.isfinite(end)]
                assert there[0] == np.float32(sum(end / len(ends) for end in ends) / model.matrix.scales[j])


@PAIRS
def test_a_person_is_placed_in_scales(library: Library, approve: Approve) -> None:
    """Given people, their numbers are in scales and their categories are cells; what is no record has no place."""
    shop = category_lender(library, approve)
    model = shop.model
    category = np.array([rule.type == "category" for rule in model.rules.rules])
    assert category.any()
    for row in shop.declined(10):
        placed = place_of_row(row, model.rules, model.matrix, model.cells)
        wanted = (without_no_record(row[None], model.rules)[0] / model.matrix.scales).astype(np.float32)
        at = np.where(np.isnan(wanted), np.nan, model.cells.of(row[None])[0])
        assert np.array_equal(placed, np.where(category, at, wanted).astype(np.float32), equal_nan=True)


def test_the_farthest_value_has_a_finite_place() -> None:
    """Given the largest numbers there are, their places and the squares of their distances are finite."""
    model = lender("lightgbm").model
    matrix = dataclasses.replace(model.matrix, scales=np.full(len(FEATURES), 1e-300))
    placed = place_of(np.array([1.7e308, -1.7e308]), np.array([0, 0]), model.rules, matrix, model.cells)
    assert placed.tolist() == [FARTHEST, -FARTHEST]
    found = np.empty(1, np.float32)
    squares_to(placed[:1, None], np.zeros(1, np.bool_), placed[1:], found)
    assert np.isfinite(found).all()
