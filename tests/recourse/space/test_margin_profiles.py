from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.recourse.space.margin_profiles import profile
from tests.examples import examples
from tests.recourse.category_lenders import category_lender
from tests.recourse.lenders import LENDERS, Approve, Lender, Library, lender
from tests.recourse.planted import CellsOfRow, Planted, Sort, planted

sorts = st.lists(st.sampled_from(["number", "category", "zero"]), min_size=1, max_size=5).map(tuple)
LIBRARIES = pytest.mark.parametrize("library", ["xgboost", "lightgbm"])


def lines(forest: Planted, own: CellsOfRow) -> CellsOfRow:
    """The row's cells with one feature moved, for every feature and cell in their order."""
    moved = np.repeat(own[None], int(forest.trees.start[-1]), axis=0)
    for j, (first, end) in enumerate(zip(forest.trees.start, forest.trees.start[1:], strict=False)):
        moved[first:end, j] = np.arange(end - first)
    return moved


def to_missing(forest: Planted, own: CellsOfRow) -> list[int]:
    """Whether each entry of the profiles is a move from a value to missing."""
    cells = forest.cells
    return [
        int(forest.trees.start[j]) + k
        for j in range(len(own))
        for k in range(cells.count(j))
        if cells.is_missing(j, k) and own[j] != k
    ]


@LIBRARIES
@settings(max_examples=examples(150), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), kinds=sorts, trees=st.sampled_from([1, 3, 12]), depth=st.sampled_from([0, 1, 3, 6])
)
def test_a_gain_is_what_scoring_the_moved_row_gives(
    library: Library, seed: int, kinds: tuple[Sort, ...], trees: int, depth: int
) -> None:
    """Given any forest and row, the gain of each move of one feature is the exact difference of the leaves' sums; a move to missing gains nothing."""
    rng = np.random.default_rng(seed)
    forest = planted(rng, library, kinds, trees=trees, depth=depth, thresholds=4)
    for _ in range(3):
        own = np.array([rng.integers(forest.cells.count(j)) for j in range(len(kinds))], np.int32)
        gains = np.full(int(forest.trees.start[-1]) + 1, math.nan)
        total = profile(forest.trees, own, gains)
        wanted = forest.sums(lines(forest, own)) - forest.sums(own[None])[0]
        wanted[to_missing(forest, own)] = 0.0
        assert total == forest.sums(own[None])[0]
        assert gains[:-1].tolist() == wanted.tolist()


@pytest.mark.parametrize(("library", "approve"), LENDERS)
@pytest.mark.parametrize("make", [lender, category_lender])
def test_a_trained_model_s_gains_stay_within_what_float64_rounds(
    library: Library, approve: Approve, make: object
) -> None:
    """Given a model as its library wrote it, each gain differs from the exact one by less than trees * cells * 2^-50 of the largest sum."""
    shop: Lender = (lender if make is lender else category_lender)(library, approve)
    model = shop.model
    forest = Planted(forest=model.forest, cells=model.cells, trees=model.trees, sign=shop.sign)
    bound = model.forest.trees * int(forest.trees.start[-1]) * 2.0**-50 * forest.trees.magnitude
    for row in model.cells.of(shop.pool[:6]):
        gains = np.empty(int(forest.trees.start[-1]) + 1)
        profile(forest.trees, row, gains)
        moved = lines(forest, row)
        kept = np.array([i for i in range(len(moved)) if i not in to_missing(forest, row)])
        wanted = forest.sums(moved[kept]) - forest.sums(row[None])[0]
        assert (np.abs(gains[kept] - wanted) <= bound).all()
        assert (wanted != 0).any()


@LIBRARIES
def test_the_largest_sum_bounds_every_margin(library: Library) -> None:
    """Given a pool, no margin of the library is larger than `magnitude`; of a model of one leaf it is that leaf."""
    shop = lender(library)
    assert np.abs(shop.owner.ask(shop.pool, "margin")).max() <= shop.model.trees.magnitude
    leaf = planted(np.random.default_rng(5), library, ("number",), trees=1, depth=0, thresholds=1)
    assert leaf.trees.magnitude == abs(leaf.sums(np.zeros((1, 1), np.int32))[0]) > 0
