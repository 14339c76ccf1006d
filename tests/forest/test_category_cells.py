"""Cells of categories, of zero that is missing, and of the sentinel, on planted forests."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.forest.cells import cells_of
from stream.forest.trees import ZERO_REACH, Forest, SavedNode, build_forest
from stream.forest.walk import leaf_slots
from stream.recourse.comparators.leaf_matrix import build_leaf_matrix
from stream.recourse.rules.features import read_features
from stream.recourse.space.person_reach import cell_targets_of
from tests.examples import examples
from tests.recourse.lenders import Library, kind

LIBRARIES: list[Library] = ["xgboost", "lightgbm"]
code_lists = st.frozensets(st.integers(0, 70), max_size=12)


def stump(listed: frozenset[int], *, default_left: bool = False, weight: float = 1.0) -> list[SavedNode]:
    return [
        SavedNode(number=0, feature=0, value=0.0, left=1, right=2, default_left=default_left, categories=listed),
        SavedNode(number=0, value=-weight),
        SavedNode(number=1, value=weight),
    ]


def forest_with(library: Library, lists: list[frozenset[int]], **changes: Any) -> Forest:
    trees = [stump(listed, default_left=k % 2 == 0) for k, listed in enumerate(lists)]
    return build_forest(trees, kind(library, ("a",), is_category=(True,), **changes))


def code_of(library: Library, value: float) -> int | None:
    """The code that a library reads: XGBoost knows none below zero, LightGBM cuts -0.5 off to 0."""
    if value <= -1 or (library == "xgboost" and value < 0):
        return None
    return int(value)


@pytest.mark.parametrize("library", LIBRARIES)
@settings(max_examples=examples(60))
@given(
    lists=st.lists(code_lists, min_size=1, max_size=6),
    values=st.lists(
        st.integers(0, 75).map(float) | st.sampled_from([3.7, -0.5, -1.0, -7.0, 2.0**31, 1e30]), min_size=2
    ),
)
def test_a_cell_is_what_no_split_tells_apart(
    library: Library, lists: list[frozenset[int]], values: list[float]
) -> None:
    """Given codes of any kind, two are in one cell just where every split lists both or neither, and then all their leaves are equal."""
    forest = forest_with(library, lists)
    cells = cells_of(forest)
    rows = np.array(values)[:, None]
    found, slots = cells.of(rows)[:, 0].tolist(), leaf_slots(forest, rows).tolist()
    member = [tuple(code_of(library, value) in listed for listed in lists) for value in values]
    for i in range(len(values)):
        assert cells.cell(0, values[i]) == found[i]
        for k in range(i):
            assert (found[i] == found[k]) == (member[i] == member[k])
            assert (found[i] == found[k]) == (slots[i] == slots[k])


@pytest.mark.parametrize("library", LIBRARIES)
@settings(max_examples=examples(40))
@given(lists=st.lists(code_lists, min_size=1, max_size=6))
def test_cells_are_numbered_by_their_least_code(library: Library, lists: list[frozenset[int]]) -> None:
    """Given a category, its cells ascend by their least code, then come the codes of no list, then missing; a value inside each is in it."""
    cells = cells_of(forest_with(library, lists))
    others, missing = cells.count(0) - 2, cells.count(0) - 1
    least = [min(cells.listed(0, cell)) for cell in range(others)]
    assert least == sorted(least)
    assert sorted(code for cell in range(others) for code in cells.listed(0, cell)) == sorted(frozenset().union(*lists))
    assert cells.listed(0, others) == cells.listed(0, missing) == []
    assert [cells.cell(0, x) for x in (99.0, math.nan)] == [others, missing]
    assert [cells.cell(0, cells.inside(0, cell)) for cell in range(cells.count(0))] == list(range(cells.count(0)))
    assert [cells.is_missing(0, cell) for cell in range(cells.count(0))] == [False] * missing + [True]


@settings(max_examples=examples(40))
@given(
    thresholds=st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=3, unique=True),
    sentinel=st.integers(-3, 3).map(float),
    values=st.lists(st.integers(-6, 6).map(lambda k: k / 2), min_size=1),
)
def test_the_sentinel_is_in_the_cell_of_missing(thresholds: list[float], sentinel: float, values: list[float]) -> None:
    """Given a number that stands for missing, it and what float32 reads as it share the cell of NaN, wherever thresholds lie."""
    trees = [
        [
            SavedNode(number=0, feature=0, value=t, left=1, right=2),
            SavedNode(number=1, value=-1.0),
            SavedNode(number=2, value=1.0),
        ]
        for t in thresholds
    ]
    cells = cells_of(build_forest(trees, kind("xgboost", ("a",), missing=sentinel)))
    missing = len(thresholds) + 1
    rows = np.array([[math.nan], [sentinel], [math.nextafter(sentinel, math.inf)], *([v] for v in values)])
    found = cells.of(rows)[:, 0].tolist()
    assert found[:3] == [missing] * 3
    assert found[3:] == [missing if v == sentinel else sum(t <= v for t in thresholds) for v in values]
    assert [cells.cell(0, float(row)) for row in rows[:, 0]] == found
    for cell in range(missing):
        assert cells.cell(0, cells.inside(0, cell)) in (cell, missing)  # a cell can hold the sentinel alone


@settings(max_examples=examples(60))
@given(thresholds=st.lists(st.sampled_from([-2.0, -ZERO_REACH, 0.0, ZERO_REACH, 1e-30, 2.0]), min_size=1, unique=True))
def test_zero_is_a_cell_that_is_told_as_zero(thresholds: list[float]) -> None:
    """Given splits that take zero for missing, all that rounds to zero is one cell, said as 0.0, and what lies beyond is not in it."""
    trees = [
        [
            SavedNode(number=0, feature=0, value=t, left=1, right=2, default_left=k % 2 == 0, zero_is_missing=True),
            SavedNode(number=0, value=-1.0),
            SavedNode(number=1, value=1.0),
        ]
        for k, t in enumerate(thresholds)
    ]
    forest = build_forest(trees, kind("lightgbm", ("a",)))
    cells = cells_of(forest)
    zero = cells.cell(0, 0.0)
    near = [ZERO_REACH, -ZERO_REACH, 1e-36, -0.0]
    assert {cells.cell(0, x) for x in near} == {zero}
    beyond = [math.nextafter(ZERO_REACH, 1), math.nextafter(-ZERO_REACH, -1), -1.0, 1.0]
    assert zero not in {cells.cell(0, x) for x in beyond}
    assert (cells.smallest(0, zero), cells.largest(0, zero), cells.inside(0, zero)) == (0.0, 0.0, 0.0)
    rows = np.array([[x] for x in (*near, *beyond, 0.0, 3.0, -3.0)])
    seen: dict[int, list[int]] = {}
    for cell, slots in zip(cells.of(rows)[:, 0].tolist(), leaf_slots(forest, rows).tolist(), strict=True):
        assert seen.setdefault(cell, slots) == slots


CODES = '[a]\ntype = "category"\nmutability = "mutable"\n'


def test_a_cell_is_entered_at_its_commonest_code() -> None:
    """Given a pool, a category's cell is entered at the code that the pool holds most often there, of equal ones the least, and at none that nobody could say."""
    forest = forest_with("lightgbm", [frozenset({1, 2}), frozenset({5})])
    pool = np.array([[1.0]] + [[2.0]] * 2 + [[5.0]] * 3 + [[7.0], [9.0], [-1.0], [-1.0], [7.5], [7.5], [np.nan]])
    bare = read_features(CODES, ("a",), is_category=(True,))
    words = read_features(CODES + f"categories = {json.dumps(list('abcdefgh'))}", ("a",), is_category=(True,))
    for rules, lands in ((bare, [2.0, 5.0, 7.0]), (words, [2.0, 5.0, 7.0])):
        matrix = build_leaf_matrix(forest, pool, rules, "above", b"")
        cell_targets = cell_targets_of(rules, cells_of(forest), matrix)
        assert cell_targets.from_nothing.tolist()[:3] == lands
        assert np.isnan(cell_targets.from_nothing[3])
    few = read_features(CODES + f"categories = {json.dumps(list('abcdef'))}", ("a",), is_category=(True,))
    cell_targets = cell_targets_of(few, cells_of(forest), build_leaf_matrix(forest, pool, few, "above", b""))
    assert np.isnan(cell_targets.from_nothing[2:]).all()  # what lies there has no word
