from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.forest.cells import Cells, cells_of
from stream.forest.trees import SavedNode, build_forest
from stream.forest.walk import leaf_slots
from tests.examples import examples
from tests.forest.models import Recipe, forest_of, lightgbm_model, probes, recipes, xgboost_model
from tests.oracles.target_values import cell_of
from tests.recourse.lenders import LENDERS, Approve, Library, kind, lender

SMALL = recipes.filter(lambda r: r.trees <= 7 and r.depth <= 4)


@pytest.mark.parametrize("train", [xgboost_model, lightgbm_model])
@settings(max_examples=examples(7))
@given(recipe=SMALL, seed=st.integers(0, 2**32 - 1))
def test_rows_of_the_same_cells_reach_the_same_leaves(train: Any, recipe: Recipe, seed: int) -> None:
    """Given rows on every threshold and one ulp to each side, when grouped by their cells, then a group has one leaf vector."""
    forest = forest_of(train(recipe))
    cells = cells_of(forest)
    rng = np.random.default_rng(seed)
    rows = probes(forest, recipe.data()[0][:5])
    # Shuffled within its column, each probed value also meets others that it never stood beside.
    mixed = np.column_stack([rng.permutation(column) for column in rows.T])
    rows = np.concatenate([rows, mixed, mixed])
    found = cells.of(rows)
    slots = leaf_slots(forest, rows)
    seen: dict[bytes, bytes] = {}
    for cell, slot in zip(found, slots, strict=True):
        assert seen.setdefault(cell.tobytes(), slot.tobytes()) == slot.tobytes()


@pytest.mark.parametrize(("library", "approve"), LENDERS[::2])
def test_a_value_moved_within_its_cell_keeps_the_librarys_leaves(library: Library, approve: Approve) -> None:
    """Given rows whose values go to the ends of their own cells, when the library walks them, then no leaf changes."""
    shop = lender(library, approve)
    cells, own = shop.model.cells, shop.pool[:40]
    found = cells.of(own)
    before = shop.owner.leaves(own)
    for end in (cells.smallest, cells.largest):
        moved = own.copy()
        for i, j in np.argwhere(~np.isnan(own)):
            value = end(int(j), int(found[i, j]))
            moved[i, j] = value if np.isfinite(value) else own[i, j]
        assert (moved != own).any()
        assert shop.owner.leaves(moved).tobytes() == before.tobytes()


@pytest.mark.parametrize(("library", "approve"), LENDERS[::2])
def test_the_next_value_beyond_an_end_is_in_another_cell(library: Library, approve: Approve) -> None:
    """Given a cell's smallest and largest value, when read, then both are in it, and the model's next float beyond is not."""
    cells = lender(library, approve).model.cells
    for j, thresholds in enumerate(cells.thresholds):
        for c in range(len(thresholds) + 1):
            for value, away in ((cells.smallest(j, c), -np.inf), (cells.largest(j, c), np.inf)):
                if not np.isfinite(value):
                    assert c == (0 if away < 0 else len(thresholds))
                    continue
                assert cells.cell(j, value) == c
                beyond = np.nextafter(cells.dtype.type(value), cells.dtype.type(away))
                assert cells.cell(j, float(beyond)) == c + np.sign(away)


@pytest.mark.parametrize(("library", "approve"), LENDERS[::2])
def test_an_interval_holds_what_its_cell_holds(library: Library, approve: Approve) -> None:
    """Given a cell's interval, when values on and around its ends are compared with it as numbers, then they agree with cell()."""
    cells = lender(library, approve).model.cells
    for j, thresholds in enumerate(cells.thresholds):
        around = [float(t) for x in thresholds for t in (np.nextafter(x, -np.inf), x, np.nextafter(x, np.inf))]
        for c in range(len(thresholds) + 1):
            interval = cells.interval(j, c)
            low = -np.inf if interval["low"] is None else interval["low"]
            high = np.inf if interval["high"] is None else interval["high"]
            for value in around:
                x = float(cells.dtype.type(value))
                held = low <= x < high if interval["closed"] == "low" else low < x <= high
                assert held == (cells.cell(j, value) == c)


@settings(max_examples=examples(40))
@given(
    thresholds=st.lists(st.floats(-100, 100, width=16), max_size=5, unique=True).map(sorted),
    operator=st.sampled_from(["<", "<="]),
    value=st.floats(-120, 120, width=64),
)
def test_a_cell_counts_the_thresholds_passed(thresholds: list[float], operator: str, value: float) -> None:
    """Given any thresholds and a value, its cell is the number of thresholds that send it right; missing is the one beyond."""
    dtype = np.float32 if operator == "<" else np.float64
    own = np.array(thresholds, dtype)
    cells = Cells(thresholds=(own,), threshold_is_low=operator == "<", dtype=np.dtype(dtype))
    assert cells.cell(0, value) == cell_of(value, own.tolist(), dtype, operator)
    assert cells.of(np.array([[value]]))[0, 0] == cells.cell(0, value)
    missing = int(cells.of(np.array([[np.nan]]))[0, 0])
    assert cells.is_missing(0, missing) == bool(thresholds)
    assert cells.count(0) == (len(thresholds) + 2 if thresholds else 1)


def test_an_end_is_said_in_the_shortest_decimal() -> None:
    """Given a float32 threshold 31.1, when the ends beside it are said, then they read 31.1 and the float below it."""
    own = np.array([31.1], np.float32)
    cells = Cells(thresholds=(own,), threshold_is_low=True, dtype=np.dtype(np.float32))
    assert cells.smallest(0, 1) == 31.1
    assert repr(cells.largest(0, 0)) == "31.099998"


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_nothing_lies_beyond_the_largest_number(library: Library) -> None:
    """Given a threshold at the largest float, which parts missing from all values, then the cell beyond it has no value."""
    largest = float(np.finfo(np.float32 if library == "xgboost" else np.float64).max)
    tree = [
        SavedNode(number=0, feature=0, value=largest, left=1, right=2),
        SavedNode(number=0, value=-1.0),
        SavedNode(number=1, value=1.0),
    ]
    forest = build_forest([tree], kind(library, ("a",)))
    cells = cells_of(forest)
    if library == "lightgbm":  # `<=`: every number there is goes left
        assert cells.smallest(0, 1) == np.inf
        assert cells.of(np.array([[largest], [np.nan]])).ravel().tolist() == [0, 2]
    else:  # `<`: the largest itself goes right, and so does what float32 reads as inf
        assert cells.smallest(0, 1) == float(str(np.float32(largest)))
        assert cells.of(np.array([[largest], [1e300], [np.nan]])).ravel().tolist() == [1, 1, 2]
