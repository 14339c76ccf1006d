from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import xgboost as xgb

from stream.errors import ModelRefused
from stream.forest.trees import CATEGORY
from stream.forest.xgboost.reader import read_xgboost
from tests.forest.models import USUAL, xgboost_matrix, xgboost_model
from tests.forest.xgboost.models import (
    BOOSTERS,
    CATEGORICAL,
    SETTINGS,
    assert_exact,
    read,
    refused,
    saved,
    with_words,
)


@pytest.mark.parametrize("onehot", [1, 100], ids=["partition", "one-hot"])
@pytest.mark.parametrize("booster", BOOSTERS, ids=["gbtree", "dart", "parallel"])
def test_splits_on_categories_are_exact(onehot: int, booster: dict[str, Any]) -> None:
    """Given categories split one by one or into sets, each code goes where the library sends it."""
    model = xgboost_model(CATEGORICAL, max_cat_to_onehot=onehot, max_cat_threshold=20, **booster)
    forest = read(model)
    splits = np.flatnonzero(forest.kind == CATEGORY)
    assert max(len(forest.listed(int(node))) for node in splits) == 1 if onehot == 100 else len(splits) > 0
    assert forest.is_category == (True, True, False, False)
    assert_exact(model, forest, CATEGORICAL.data()[0])


def test_a_file_without_feature_types_has_the_categories_that_it_splits_on() -> None:
    """Given a model whose feature types were taken away, its splits say which features are categories."""
    model = xgboost_model(CATEGORICAL)
    model.feature_types = None
    assert read(model).is_category == (True, True, False, False)
    model = xgboost_model(USUAL)
    model.feature_types = None
    assert read(model).is_category == (False,) * 4


def test_splits_on_categories_that_were_pruned_away_are_leaves() -> None:
    """Given a penalty that prunes splits on categories again, what is left of them is exact."""
    rows, target = CATEGORICAL.data()
    pruning = {**SETTINGS, "process_type": "update", "updater": "prune", "gamma": 8.0, "max_depth": 2}
    grown = xgboost_model(CATEGORICAL)
    model = xgb.train(pruning, xgboost_matrix(rows, CATEGORICAL, target), 20, xgb_model=grown)
    trees = json.loads(saved(model))["learner"]["gradient_booster"]["model"]["trees"]
    assert any(tree["left_children"][node] < 0 for tree in trees for node in tree["categories_nodes"])
    assert_exact(model, read(model), rows)


@pytest.mark.parametrize("booster", [{}, {"booster": "dart"}], ids=["gbtree", "dart"])
def test_words_of_text_are_read_in_the_order_of_their_codes(booster: dict[str, Any]) -> None:
    """Given a column of strings, the forest knows each by its code, and nothing of a column of numbers."""
    forest = read(with_words(["rent", "own", "free"], **booster))
    assert forest.words == (None, ("rent", "own", "free"))
    assert forest.is_category == (False, True)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_words_that_are_whole_numbers_are_read_as_numbers(dtype: str) -> None:
    """Given categories of each type of whole number that XGBoost takes, the words are those numbers."""
    assert read(with_words(np.array([9, 3, 127], dtype))).words[1] == (9.0, 3.0, 127.0)


def test_words_that_no_float_holds_are_refused() -> None:
    """Given a category beyond 2 ** 53, which another could look like, the model is refused."""
    assert "beyond those that a float holds" in refused(saved(with_words(np.array([2**60 + 1, 5]))))


def test_words_beyond_ascii_are_unknown_since_pandas_garbles_them_in_the_file() -> None:
    """Given an accent in a pandas column, the file cuts bytes where characters end, so no words are read from it."""
    booster = with_words(["Évora", "Fulda", "Gent"])
    encoding = json.loads(saved(booster))["learner"]["gradient_booster"]["model"]["cats"]["enc"][1]
    held = bytes(byte & 0xFF for byte in encoding["values"])
    assert held == "ÉvoraFuldaGent".encode()[:-1]
    assert encoding["offsets"] == [0, 5, 10, 14]
    assert read(booster).words == (None, None)


def test_a_matrix_of_codes_leaves_the_words_unknown() -> None:
    """Given codes instead of words in training, the forest has no words for them."""
    assert read(xgboost_model(CATEGORICAL)).words == (None,) * 4


def test_unsigned_words_in_ubjson_are_refused_since_xgboost_garbles_them() -> None:
    """Given unsigned categories, which XGBoost 3.2.0 cannot read back from its own UBJSON, the refusal says to use JSON."""
    raw = saved(with_words(np.array([9, 3, 127], np.uint16)), "ubj")
    with pytest.raises(xgb.core.XGBoostError):
        xgb.Booster(model_file=bytearray(raw))
    with pytest.raises(ModelRefused, match=r"not UBJSON .*; .*model\.json"):
        read_xgboost(raw, ubj=True, trees=None, missing=None)
