"""Known traps of LightGBM by name: where other readers of its models are silently wrong, ours has the library's bits."""

from __future__ import annotations

import json
import math
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

from stream.errors import ModelRefused
from stream.forest.lightgbm.reader import read_lightgbm
from stream.forest.link import link_of
from stream.forest.trees import CATEGORY, ZERO_IS_MISSING, ZERO_REACH, Forest
from stream.forest.walk import leaf_ids, leaf_slots, margins, margins_of
from stream.recourse.rules.features import rules_for
from tests.forest.exactness import assert_equals_owner
from tests.forest.lightgbm.models import CATEGORICAL, assert_exact, mixed, said_by_lightgbm, trained
from tests.forest.models import Rows

ROWS, TARGET = mixed()
NAMES = ["a", "b", "c", "d"]
BY_CATEGORY: dict[str, Any] = {"feature_name": NAMES, "categorical_feature": [2, 3], **CATEGORICAL}


def rows_with(feature: int, values: list[float]) -> Rows:
    """Each of the first rows with each of these values of one feature."""
    rows = np.repeat(ROWS[:20], len(values), axis=0)
    rows[:, feature] = np.tile(values, 20)
    return rows


def margins_with(forest: Forest, feature: int, values: list[float]) -> Rows:
    """Margins of these rows, (rows, values)."""
    return margins_of(forest, rows_with(feature, values)).reshape(20, len(values))


def test_zero_as_missing() -> None:
    """Given zero_as_missing, zero, what LightGBM takes for zero, and NaN go where missing goes, and nothing else."""
    forest = assert_exact(trained(ROWS, TARGET, zero_as_missing=True, **BY_CATEGORY), ROWS)
    assert ((forest.kind == ZERO_IS_MISSING) & (forest.split_feature == 1)).any()
    past = math.nextafter(ZERO_REACH, 1)
    asked = [np.nan, 0.0, -0.0, 1e-36, -1e-36, ZERO_REACH, -ZERO_REACH, past, -past]
    assert_exact(trained(ROWS, TARGET, zero_as_missing=True, **BY_CATEGORY), rows_with(1, asked))
    found = margins_with(forest, 1, asked)
    assert (found[:, :7] == found[:, :1]).all()
    assert (found[:, 7:] != found[:, :1]).any()


def test_nan_is_zero_without_use_missing() -> None:
    """Given use_missing=false, NaN counts as zero; given true, it goes its own way."""
    asked = [np.nan, 0.0]
    for use_missing in (True, False):
        text = trained(ROWS, TARGET, use_missing=use_missing, **BY_CATEGORY)
        forest = assert_exact(text, rows_with(0, asked))
        found = margins_with(forest, 0, asked)
        assert (found[:, 0] == found[:, 1]).all() != use_missing


FEATURES_TOML = """
[age]
type = "number"
mutability = "immutable"

[town]
type = "category"
mutability = "mutable"
"""
TOWNS = list("pqrst")


def towns_model(**parameters: Any) -> str:
    """The text of a model of a number and a word, each missing in some rows."""
    codes = np.nan_to_num(ROWS[:, 3], nan=-1).astype(int)
    table = pd.DataFrame({"age": ROWS[:, 0], "town": pd.Categorical.from_codes(codes, TOWNS)})
    good = (np.nan_to_num(ROWS[:, 0], nan=0.9) > 0) ^ (codes % 2 == 1)  # those of no town are odd
    return trained(table, good.astype(int), **CATEGORICAL, **parameters)


@pytest.mark.parametrize("nothing", [None, np.nan], ids=["None", "NaN"])
@pytest.mark.parametrize("parameters", [{}, {"use_missing": False}, {"zero_as_missing": True}], ids=str)
def test_none_against_nan(parameters: dict[str, bool], nothing: float | None) -> None:
    """Given None or NaN in any form of rows that the library takes, it scores as we score a decision's null, to the bit."""
    text = towns_model(**parameters)
    forest = read_lightgbm(text, trees=None)
    rules = rules_for(forest, FEATURES_TOML)
    decisions = '[[null, "r"], [-0.7, null], [null, null], [-0.7, "r"]]'
    rows = np.array([rules.encode(dict(zip(forest.features, one, strict=True))) for one in json.loads(decisions)])
    ages, words = [nothing, -0.7, nothing, -0.7], ["r", nothing, nothing, "r"]
    codes = [[nothing, 2.0], [-0.7, nothing], [nothing, nothing], [-0.7, 2.0]]
    held = np.array(codes, dtype=object)
    assert held[0, 0] is nothing
    word = pd.Series(words, dtype=object).astype(pd.CategoricalDtype(TOWNS))
    tables = [pd.DataFrame({"age": age, "town": word}) for age in (ages, pd.array(ages, dtype="Float64"))]
    for form in (codes, held, *tables):
        assert_equals_owner(forest, *said_by_lightgbm(text, form), rows)
    scored = margins_of(forest, rows)
    assert scored[0] != scored[3] != scored[1]  # a value there would have scored otherwise


def test_none_in_a_column_of_objects_is_refused_by_the_library() -> None:
    """Given None in a DataFrame's column of objects, the library raises, so that there is no score to differ from."""
    booster = lgb.Booster(model_str=towns_model())
    word, age = pd.Categorical(["p", "q"], categories=TOWNS), pd.Series([None, 1.0], dtype=object)
    with pytest.raises(ValueError, match=r"(?s)dtypes must be int, float or bool.*age: object"):
        booster.predict(pd.DataFrame({"age": age, "town": word}))
    with pytest.raises(ValueError, match="categorical_feature do not match"):
        booster.predict(pd.DataFrame({"age": [1.0, 1.0], "town": pd.Series([None, "q"], dtype=object)}))


UNLISTED = [-1.0, np.nan, -1e300, -1.5, 40.0, 4096.0, 2.0**31, 2.0**32, 2.0**32 + 3, 2.0**63, 1e300]


def test_a_category_of_minus_1_nan_3_7_minus_a_half_and_2_to_the_31() -> None:
    """Given codes that are none, they go where an unseen code goes; 3.7 is 3, and -0.5 is 0."""
    text = trained(ROWS, TARGET, **BY_CATEGORY)
    forest = assert_exact(text, rows_with(2, [*UNLISTED, 3.7, 3.0, 3.999, -0.5, -0.999, 0.0, -0.0]))
    assert ((forest.kind == CATEGORY) & (forest.split_feature == 2)).any()
    unlisted = margins_with(forest, 2, UNLISTED)
    assert (unlisted == unlisted[:, :1]).all()
    three, zero = margins_with(forest, 2, [3.0, 3.7, 3.999]), margins_with(forest, 2, [0.0, -0.5, -0.999])
    assert (three == three[:, :1]).all()
    assert (zero == zero[:, :1]).all()
    assert (three[:, 0] != zero[:, 0]).any()


def test_an_unseen_category_goes_to_the_right_everywhere() -> None:
    """Given a code that no training row had, in a DataFrame as an unknown word, it scores as missing does."""
    words = pd.DataFrame(
        {"a": ROWS[:, 0], "town": pd.Categorical.from_codes(np.nan_to_num(ROWS[:, 3]).astype(int), list("pqrst"))}
    )
    text = trained(words, TARGET, **CATEGORICAL)
    forest = read_lightgbm(text, trees=None)
    assert forest.words == (None, tuple("pqrst"))
    unseen = pd.DataFrame({"a": ROWS[:, 0], "town": pd.Categorical(["elsewhere"] * len(ROWS))})
    want = np.asarray(lgb.Booster(model_str=text).predict(unseen, raw_score=True, num_threads=1))
    for code in (np.nan, 5.0, -1.0):
        asked = np.column_stack([ROWS[:, 0], np.full(len(ROWS), code)])
        assert margins_of(forest, asked).tobytes() == want.tobytes()


@pytest.mark.parametrize("to_onehot", [1, 4])
def test_a_categorical_model_of_500_trees(to_onehot: int) -> None:
    """Given 500 trees on codes up to thousands, each leaf and each bit is LightGBM's."""
    rng = np.random.default_rng(11)
    rows = np.column_stack(
        [rng.integers(0, 60, 3000), rng.integers(0, 4, 3000) * 1500 + 7, rng.normal(size=3000)]
    ).astype(float)
    rows[rng.random(rows.shape) < 0.05] = np.nan
    target = (np.sin(np.nan_to_num(rows[:, 0])) + np.cos(np.nan_to_num(rows[:, 1])) + rng.normal(size=3000) > 0).astype(
        int
    )
    options = {**CATEGORICAL, "max_cat_to_onehot": to_onehot, "learning_rate": 0.05, "num_leaves": 15}
    text = trained(rows, target, rounds=500, feature_name=["c", "big", "x"], categorical_feature=[0, 1], **options)
    forest = assert_exact(text, rows)
    codes = {code for node in np.flatnonzero(forest.kind == CATEGORY).tolist() for code in forest.listed(node)}
    assert forest.trees == 500
    assert max(codes) > 4000


def test_a_row_on_every_threshold_and_one_ulp_to_each_side() -> None:
    """Given a value equal to a threshold, it goes left, and the next double goes right, in each tree as LightGBM says."""
    text = trained(ROWS, TARGET, **BY_CATEGORY)
    forest = assert_exact(text, ROWS[:1])
    for feature in (0, 1):
        on = forest.thresholds(feature)
        asked = np.concatenate([on, np.nextafter(on, -np.inf), np.nextafter(on, np.inf)]).tolist()
        assert len(on) > 1
        assert_exact(text, rows_with(feature, asked))


def test_1_0000000180025095e_minus_35_and_one_ulp_past_it() -> None:
    """Given a threshold next to zero, what is within a float32's 1e-35 of zero goes left with zero, and one ulp past goes right."""
    positive = np.where(ROWS[:, 1:2] > 0, 1.0, 0.0) * np.abs(ROWS[:, 1:2])
    text = trained(positive, (positive[:, 0] > 0).astype(int), feature_name=["b"], rounds=1)
    assert "threshold=1.0000000180025095e-35" in text
    edge = 1.0000000180025095e-35
    asked = np.array([[value] for value in (0.0, -edge, edge, math.nextafter(edge, 0), math.nextafter(edge, 1), 1e-34)])
    forest = assert_exact(text, asked)
    left = leaf_ids(forest, leaf_slots(forest, asked))[:, 0]
    assert edge == ZERO_REACH
    assert (left[:4] == left[0]).all()
    assert (left[4:] != left[0]).all()


def test_a_reordered_column_is_taken_by_its_place_by_lightgbm_and_by_its_name_by_us() -> None:
    """Given a DataFrame with its columns in another order, LightGBM ignores their names; `features` puts them right."""
    text = trained(ROWS, TARGET, feature_name=NAMES)
    booster, forest = lgb.Booster(model_str=text), read_lightgbm(text, trees=None)
    table = pd.DataFrame(ROWS, columns=NAMES)
    shuffled = table[["d", "a", "c", "b"]]
    right = np.asarray(booster.predict(table, raw_score=True, num_threads=1))
    wrong = np.asarray(booster.predict(shuffled, raw_score=True, num_threads=1))
    assert (wrong != right).any()
    aligned = shuffled[list(forest.features)].to_numpy()
    assert margins_of(forest, aligned).tobytes() == right.tobytes()


def test_a_dropped_column_is_an_error() -> None:
    """Given rows without one of the columns, both LightGBM and we refuse, and neither shifts the others."""
    text = trained(ROWS, TARGET, feature_name=NAMES)
    with pytest.raises(lgb.basic.LightGBMError, match="number of features"):
        lgb.Booster(model_str=text).predict(ROWS[:, :3])
    with pytest.raises(ValueError, match="do not fit a forest of 4 features"):
        margins_of(read_lightgbm(text, trees=None), ROWS[:, :3])


def test_the_margin_of_rf_is_a_sum_and_its_link_takes_the_mean() -> None:
    """Given boosting=rf, raw_score is the sum of the trees, and the prediction is the link of their mean, to the bit."""
    for rounds in (1, 3, 7, 10, 49):  # the last is what is asked below
        options = {"boosting": "rf", "bagging_fraction": 0.6, "bagging_freq": 1, "rounds": rounds}
        for objective in ("binary", "regression", "poisson"):
            forest = assert_exact(trained(ROWS, TARGET, objective=objective, **options, **BY_CATEGORY), ROWS)
            assert forest.averages
    alone = assert_exact(trained(ROWS, TARGET, objective="poisson", **BY_CATEGORY), ROWS)
    mean, one = (link_of(f).probabilities(np.array([sum_])) for f, sum_ in ((forest, 49.0), (alone, 1.0)))
    assert mean.tobytes() == one.tobytes()


def test_a_tree_of_a_single_leaf_is_a_constant() -> None:
    """Given a model that found nothing to split on, every row has the leaf 0 and the same margin."""
    for options in (
        {},
        {"objective": "regression", "boost_from_average": False},
        {"boosting": "rf", "bagging_fraction": 0.5, "bagging_freq": 1},
    ):
        text = trained(ROWS, TARGET, min_gain_to_split=1e9, **options, **BY_CATEGORY)
        forest = assert_exact(text, ROWS)
        assert set(leaf_ids(forest, leaf_slots(forest, ROWS)).ravel().tolist()) == {0}
        assert len(np.unique(margins(forest, leaf_slots(forest, ROWS)))) == 1


def test_linear_tree_is_refused() -> None:
    """Given leaves that are linear functions, which no sum of leaves reproduces, the model is refused with what to do."""
    text = trained(ROWS[:, :2], TARGET, linear_tree=True, feature_name=["a", "b"])
    with pytest.raises(ModelRefused, match=r"linear_tree\); train with linear_tree=false"):
        read_lightgbm(text, trees=None)


@pytest.mark.parametrize(("objective", "name"), [("cross_entropy", "logistic"), ("cross_entropy_lambda", "log1p_exp")])
def test_cross_entropy(objective: str, name: str) -> None:
    """Given targets that are probabilities, each cross-entropy has the link that LightGBM gives it."""
    forest = assert_exact(trained(ROWS, TARGET * 0.8 + 0.1, objective=objective, **BY_CATEGORY), ROWS)
    assert link_of(forest).name == name
