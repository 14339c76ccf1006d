from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

from stream.bundle.gate import owner as owners
from stream.bundle.gate.probe import INTEGERS, in_integers, in_words, probe
from stream.errors import ProbeMismatch
from stream.forest.link import link_of
from stream.forest.trees import INSIDE
from tests.bundle.gate.test_probe import LIBRARIES, _read, file_of
from tests.bundle.kinds import LIGHTGBM, XGBOOST, Made, lightgbm, xgboost
from tests.forest.models import USUAL, Rows, forest_of, lightgbm_model, xgboost_model

LARGE = dataclasses.replace(USUAL, whole=True, seed=4)


def pool_of(made: Made) -> Rows:
    """The pool in codes, with the debt in whole numbers."""
    city = made.pool["city"]
    codes = city.cat.codes.astype(float).replace(-1, np.nan) if city.dtype == "category" else city
    return np.column_stack([made.pool["income"], made.pool["debt"].round(), codes]).astype(np.float64)


@pytest.mark.parametrize("model", LIBRARIES)
def test_features_that_are_whole_in_the_pool_are_asked_as_integers(model: Any) -> None:
    """Given a pool of whole numbers with some missing, then the library is asked in columns of int64 beyond float32's whole numbers, and reads them as we do."""
    booster = model(LARGE)
    forest, pool = forest_of(booster), LARGE.data()[0]
    tabled = in_integers(forest, pool)
    assert tabled.integers == (0, 1, 2, 3)
    assert len(tabled.rows) == len(pool) + 4 * len(INTEGERS)
    for j in range(4):
        own = tabled.feature == j
        assert tabled.rows[own, j].tolist() == list(INTEGERS)
        missing = np.isnan(pool[tabled.pool_rows, j]) & ~own
        assert missing.any()
        assert set(tabled.rows[missing, j].tolist()) == {0.0}
        kept = ~missing & ~own
        assert tabled.rows[kept, j].tobytes() == pool[tabled.pool_rows[kept], j].tobytes()
    tables: list[Any] = []
    with mock.patch.object(owners, "_in_words", side_effect=_kept(tables)):
        report = probe(forest, link_of(forest), file_of(booster), pool)
    assert report.integer_rows == len(tabled.rows)
    assert [set(map(str, table.dtypes)) for table in tables] == [{"int64"}]


def _kept(tables: list[Any]) -> Any:
    made = owners._in_words  # noqa: SLF001 - the table that a library is given is seen nowhere else

    def keep(*told: Any) -> Any:
        tables.append(made(*told))
        return tables[-1]

    return keep


def test_integers_of_a_sentinel_hold_it_where_a_value_is_missing() -> None:
    """Given a sentinel that is whole, then what is missing stands as the sentinel in columns of integers, and the library takes it for missing."""
    recipe = dataclasses.replace(LARGE, sentinel=-999.0)
    booster = xgboost_model(recipe)
    forest = forest_of(booster, missing=-999.0)
    pool = np.where(recipe.data()[0] == -999.0, np.nan, recipe.data()[0])
    tabled = in_integers(forest, pool)
    assert (tabled.rows[np.isnan(pool[tabled.pool_rows]) & (tabled.feature == INSIDE)[:, None]] == -999.0).all()
    assert probe(forest, link_of(forest), file_of(booster), pool).integer_rows == len(tabled.rows)


@pytest.mark.parametrize("model", [xgboost_model, lightgbm_model])
def test_features_of_fractions_or_of_nothing_are_no_integers(model: Any) -> None:
    """Given features with one fraction, beyond the whole numbers of float64, or missing for everyone, then none of them is an integer."""
    forest, pool = forest_of(model(LARGE)), LARGE.data()[0].copy()
    pool[3, 0], pool[5, 1], pool[:, 2] = 0.5, 2.0**60, np.nan
    assert in_integers(forest, pool).integers == (3,)
    pool[7, 3] = np.inf
    assert len(in_integers(forest, pool).rows) == 0


@pytest.mark.parametrize("make", [xgboost, lightgbm])
@pytest.mark.parametrize("categories", ["words", "codes"])
def test_integers_stand_beside_words_and_codes(make: Any, categories: str) -> None:
    """Given a category, then whole numbers are asked as integers beside its words, or its codes as integers where it has none."""
    made = make(categories=categories)
    forest, pool = _read(made), pool_of(made)
    expected = (1,) if categories == "words" else (1, 2)
    assert in_integers(forest, pool).integers == expected
    assert probe(forest, link_of(forest), made.content, pool).integer_rows == len(pool) + len(INTEGERS)


@pytest.mark.parametrize("kinds", [XGBOOST, LIGHTGBM], ids=["xgboost", "lightgbm"])
def test_a_missing_word_is_said_as_none(kinds: Any) -> None:
    """Given a model with words, when a category is missing, then its cell is given as None, beside words as objects, and all is equal."""
    made: Made = next(kinds["categories of a DataFrame, with their words in the file"].models())
    forest, pool = _read(made), pool_of(made)
    given: list[Any] = []
    true_category = pd.Categorical

    def categorical(values: Any, **more: Any) -> Any:
        given.append(values)
        return true_category(values, **more)

    with mock.patch.object(pd, "Categorical", side_effect=categorical):
        report = probe(forest, link_of(forest), made.content, pool)
    words = forest.words[2]
    assert words is not None
    assert report.word_rows == len(in_words(forest, pool).rows) > len(pool)
    assert {type(cell) for values in given for cell in values} == {str, type(None)}
    assert {cell for values in given for cell in values} == {*words, None}


@pytest.mark.parametrize("model", LIBRARIES)
def test_integers_that_are_read_otherwise_are_found(model: Any) -> None:
    """Given a library that reads integers as 32 bits, then the gate refuses and names the row and the integer that was put there."""
    booster = model(LARGE)
    forest = forest_of(booster)
    wrong = _Short(owners.owner_of(forest, file_of(booster)))
    told = r"integer probe \d+, which is row \d+ of the pool \(from 0\) in integers with 'f\d' put to -?\d+, tree \d+ parts"
    with mock.patch("stream.bundle.gate.probe.owner_of", return_value=wrong), pytest.raises(ProbeMismatch, match=told):
        probe(forest, link_of(forest), file_of(booster), LARGE.data()[0])


class _Short:
    """An owner that reads int64 as int32."""

    def __init__(self, owner: owners.Owner) -> None:
        self._owner = owner
        self.version, self.predict, self.tree_margins = owner.version, owner.predict, owner.tree_margins

    def predict_table(self, rows: Rows, integers: Sequence[int] = ()) -> owners.OwnerPredictions:
        """Give what belongs to the integers' last 32 bits."""
        return self._owner.predict_table(rows.astype(np.int64).astype(np.int32).astype(np.float64), integers)
