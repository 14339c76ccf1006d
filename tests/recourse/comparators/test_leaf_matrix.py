from __future__ import annotations

import hashlib
import hmac

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.recourse.comparators.leaf_matrix import build_leaf_matrix
from stream.recourse.rules.features import read_features
from tests.recourse.lenders import FEATURES, LENDERS, RULES, Approve, Library, lender

PAIRS = pytest.mark.parametrize(("library", "approve"), LENDERS)


@PAIRS
def test_the_pool_ascends_by_what_the_model_says(library: Library, approve: Approve) -> None:
    """Given a pool, when built, then rows ascend by the library's own score, and rows of one score keep the pool's order."""
    shop = lender(library, approve)
    score = shop.sign * shop.owner.ask(shop.pool, "margin")
    order = sorted(range(len(score)), key=lambda i: (score[i], i))
    assert len(set(score.tolist())) < len(score), "the pool holds no tie to test"
    assert shop.model.matrix.margins.tobytes() == (shop.sign * score)[order].tobytes()
    assert shop.model.matrix.cells.tobytes() == shop.model.cells.of(shop.pool)[order].tobytes()


@PAIRS
def test_a_code_is_the_place_of_the_librarys_leaf(library: Library, approve: Approve) -> None:
    """Given a pool, when built, then each code names, within its tree, the leaf that the library gives for that row."""
    shop = lender(library, approve)
    forest, matrix = shop.model.forest, shop.model.matrix
    order = np.argsort(shop.sign * shop.owner.ask(shop.pool, "margin"), kind="stable")
    assert matrix.codes.dtype == np.uint8
    found = forest.leaf_id[forest.first_leaf[:-1] + matrix.codes.astype(np.int64)]
    assert found.tolist() == shop.owner.leaves(shop.pool)[order].tolist()


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_trees_of_many_leaves_have_wide_codes(library: Library) -> None:
    """Given a tree of more than 256 leaves, when built, then codes are two bytes wide and still name the library's leaves."""
    shop = lender(library, rows=6000, trees=3, depth=12)
    forest, matrix = shop.model.forest, shop.model.matrix
    assert np.diff(forest.first_leaf).max() > 256
    assert matrix.codes.dtype == np.uint16
    order = np.argsort(shop.owner.ask(shop.pool, "margin"), kind="stable")
    found = forest.leaf_id[forest.first_leaf[:-1] + matrix.codes.astype(np.int64)]
    assert found.tolist() == shop.owner.leaves(shop.pool)[order].tolist()


@PAIRS
@given(place=st.integers(0, 239), beside=st.sampled_from([-np.inf, 0.0, np.inf]))
def test_the_eligible_are_a_suffix(library: Library, approve: Approve, place: int, beside: float) -> None:
    """Given a cutoff on or one ulp beside any margin of the pool, the suffix from first_past() holds all that reach it, and no other."""
    shop = lender(library, approve)
    matrix = shop.model.matrix
    cutoff = float(matrix.margins[place])
    cutoff = cutoff if beside == 0.0 else float(np.nextafter(cutoff, beside))
    reach = shop.sign * matrix.margins.astype(np.float64) >= shop.sign * cutoff
    first = matrix.first_past(cutoff, shop.sign)
    assert reach[first:].all()
    assert not reach[:first].any()


def test_a_reference_is_opaque() -> None:
    """Given two keys, when built, then references are distinct keyed hashes of the pool's row, and one key tells nothing of the other's."""
    shop = lender("xgboost")
    rules, forest = shop.model.rules, shop.model.forest
    one, other = (build_leaf_matrix(forest, shop.pool, rules, "above", key).references for key in (b"one", b"other"))
    assert len({r.tobytes() for r in one} | {r.tobytes() for r in other}) == 2 * len(shop.pool)
    order = np.argsort(shop.owner.ask(shop.pool, "margin"), kind="stable")
    first = hmac.new(b"one", b"comparator %d" % order[0], hashlib.sha256).digest()[:16]
    assert one[0].tobytes() == first


def test_scales_and_medians_know_no_sentinels() -> None:
    """Given a column with -9 for "no record", missing values and a constant, scale and median are of the recorded values alone."""
    shop = lender("xgboost")
    pool = shop.pool.copy()
    pool[:, 1] = 0.5
    pool[:, 8] = np.nan
    matrix = build_leaf_matrix(shop.model.forest, pool, shop.model.rules, "above", b"")
    accounts = pool[pool[:, 3] != -9, 3]
    assert (pool[:, 3] == -9).any()
    assert (matrix.scales[3], matrix.medians[3]) == (np.std(accounts), np.median(accounts))
    age = pool[~np.isnan(pool[:, 2]), 2]
    assert (matrix.scales[2], matrix.medians[2]) == (np.std(age), np.median(age))
    assert (matrix.scales[1], matrix.medians[1]) == (1.0, 0.5)
    assert (matrix.scales[8], matrix.medians[8]) == (1.0, 0.0)
    assert np.isnan(matrix.rows[:, 3]).sum() == (pool[:, 3] == -9).sum()


def test_the_categories_seen_are_counted() -> None:
    """Given category columns, when built, then each code seen is counted, missing and sentinels are not, and numbers have none."""
    shop = lender("xgboost")
    text = RULES.replace('[region]\ntype = "category"', '[region]\ntype = "category"\nno_record = [3]')
    matrix = build_leaf_matrix(shop.model.forest, shop.pool, read_features(text, FEATURES), "above", b"")
    for j, name in enumerate(FEATURES):
        codes, counts = matrix.categories_of(j)
        column = shop.pool[:, j]
        seen = {"purpose": {0.0, 1.0, 2.0, 3.0, 4.0}, "region": {0.0, 1.0, 2.0}}.get(name, set())
        assert set(codes.tolist()) == seen
        assert counts.tolist() == [int((column == c).sum()) for c in codes]
