"""Random models of both libraries with random training options: exact, all of them. CI runs a seeded share."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from stream.errors import ModelRefused
from stream.forest.ledger import exact_sums, in_units, leaf_units
from stream.forest.link import link_of
from stream.forest.trees import Forest
from stream.forest.walk import leaf_ids, leaf_slots, margins
from stream.forest.xgboost_link import XgboostLink
from stream.recourse.table import by_feature, contrast
from tests.forest.models import Recipe, Rows, forest_of, lightgbm_model, owner_of, probes, xgboost_model

MODELS, MODELS_IN_CI = 600, 25  # of each library
PAIRS = 12  # of rows whose ledgers are added up, for each model
FLOATS_AT_ONCE = 1 << 24

kinds = st.builds(
    Recipe,
    seed=st.integers(0, 2**32 - 1),
    rows=st.sampled_from([2, 30, 200, 200, 600]),
    features=st.integers(1, 6),
    trees=st.sampled_from([1, 2, 7, 25, 25, 60, 60, 800]),
    depth=st.sampled_from([1, 2, 4, 6, 9, 12]),
    missing=st.sampled_from([0.0, 0.2, 0.9]),
    whole=st.booleans(),
    constant=st.booleans(),
    signal=st.booleans(),
    categories=st.integers(0, 2),
    cardinality=st.sampled_from([2, 5, 33, 60]),
    zeros=st.sampled_from([0.0, 0.3]),
).filter(lambda recipe: recipe.categories <= recipe.features - recipe.constant)
sentinels = st.sampled_from([None, None, -999.0, 0.0, 1e-36, 16777217.0])

xgboost_options = st.fixed_dictionaries(
    {
        "objective": st.sampled_from(
            [
                *("binary:logistic", "binary:logistic", "binary:logitraw", "binary:hinge", "reg:logistic"),
                *("reg:squarederror", "reg:squaredlogerror", "reg:pseudohubererror", "reg:absoluteerror"),
                *("count:poisson", "reg:tweedie", "survival:cox"),
            ]
        ),
        "booster": st.sampled_from(["gbtree", "gbtree", "dart"]),
        "num_parallel_tree": st.sampled_from([1, 1, 1, 3]),
        "eta": st.sampled_from([0.01, 0.3, 1.0]),
        "tree_method": st.sampled_from(["hist", "approx", "exact"]),
        "max_cat_to_onehot": st.sampled_from([1, 4, 100]),
        "min_child_weight": st.sampled_from([0.0, 1.0]),
        "gamma": st.sampled_from([0.0, 0.5]),
        "subsample": st.sampled_from([0.6, 1.0]),
        "colsample_bynode": st.sampled_from([0.5, 1.0]),
        "scale_pos_weight": st.sampled_from([1.0, 3.7]),
    },
    optional={"base_score": st.floats(0.01, 0.99), "max_delta_step": st.sampled_from([0.0, 1.0])},
)
dart_options = st.fixed_dictionaries(
    {
        "rate_drop": st.sampled_from([0.1, 0.5]),
        "skip_drop": st.sampled_from([0.0, 0.5]),
        "sample_type": st.sampled_from(["uniform", "weighted"]),
        "normalize_type": st.sampled_from(["tree", "forest"]),
    }
)
lightgbm_options = st.fixed_dictionaries(
    {
        "objective": st.sampled_from(
            [
                *("binary", "binary", "cross_entropy", "cross_entropy_lambda", "regression", "regression_l1", "huber"),
                *("fair", "quantile", "mape", "poisson", "tweedie"),
            ]
        ),
        "boosting": st.sampled_from(["gbdt", "gbdt", "dart", "rf"]),
        "learning_rate": st.sampled_from([0.01, 0.3, 1.0]),
        "use_missing": st.booleans(),
        "zero_as_missing": st.booleans(),
        "path_smooth": st.sampled_from([0.0, 1.0]),
        "extra_trees": st.booleans(),
        "boost_from_average": st.booleans(),
        "reg_sqrt": st.booleans(),
        "max_cat_to_onehot": st.sampled_from([1, 4, 100]),
        "cat_smooth": st.sampled_from([0.0, 10.0]),
        "min_data_per_group": st.sampled_from([1, 20]),
        "bagging_fraction": st.sampled_from([0.5, 0.9]),
        "min_gain_to_split": st.sampled_from([0.0, 0.0, 1e6]),
    },
    optional={"sigmoid": st.floats(0.01, 5)},
)


def assert_exact(forest: Forest, owner: Any, data: Rows) -> None:
    """Leaves, margins and predictions have the library's bits, and the rows of ledgers sum to their gaps."""
    rows = probes(forest, data)
    slots = leaf_slots(forest, rows)
    scored = margins(forest, slots)
    assert np.array_equal(leaf_ids(forest, slots), owner.leaves(rows))
    assert scored.tobytes() == owner.ask(rows, "margin").tobytes()
    assert link_of(forest).probabilities(scored).tobytes() == owner.ask(rows, "probability").tobytes()
    units = leaf_units(forest)
    chosen = np.linspace(0, len(rows) - 1, PAIRS + 1).astype(np.int64)
    exact = exact_sums(units, slots[chosen])
    for (a, b), (sum_a, sum_b) in zip(pairwise(chosen.tolist()), pairwise(exact), strict=True):
        found = contrast(forest, units, slots[a], slots[b])
        shares = by_feature(forest, found.decisive())
        assert sum(share.contribution for share in shares.values()) == found.gap == sum_b - sum_a
        assert in_units(units, float(scored[a])) - sum_a == _rounding(forest, slots[a], units.unit_log2)


def _rounding(forest: Forest, slots: Any, unit_log2: int) -> Fraction:
    """What the library loses while it adds, step by step, in units: the published difference, counted apart."""
    total, lost = forest.base_margin, Fraction(0)
    for weight in forest.weight[slots]:
        rounded = total + weight
        lost += Fraction(float(rounded)) - Fraction(float(total)) - Fraction(float(weight))
        total = rounded
    return lost / Fraction(2) ** unit_log2


def check_xgboost(recipe: Recipe, sentinel: float | None, options: dict[str, Any], dart: dict[str, Any]) -> None:
    if options["booster"] == "dart":
        options = options | dart
    if recipe.categories:
        sentinel = None  # a code is no sentinel
        options = options | {"tree_method": "hist"} if options["tree_method"] == "exact" else options
    recipe = Recipe(**{name: getattr(recipe, name) for name in recipe.__slots__} | {"sentinel": sentinel})
    try:
        booster = xgboost_model(recipe, **options)
    except xgb.core.XGBoostError:
        reject()
    forest = forest_of(booster, missing=sentinel)
    assert_exact(forest, owner_of(booster, forest), recipe.data()[0])


def check_lightgbm(recipe: Recipe, options: dict[str, Any]) -> None:
    fixed = {"bagging_freq": 1, "feature_fraction": 0.9, "cat_l2": 0.0, "seed": 0}
    try:
        booster = lightgbm_model(recipe, **options, **fixed)
    except lgb.basic.LightGBMError:
        reject()
    if not booster.num_trees():
        reject()
    try:
        forest = forest_of(booster)
    except ModelRefused as refused:  # of two rows and one in the bag, LightGBM's rf makes leaves of NaN
        if not re.search("holds (nan|inf)", str(refused)):
            raise
        reject()
    assert_exact(forest, owner_of(booster, forest), recipe.data()[0])


def on_each(check: Callable[..., None], models: int, **strategies: Any) -> None:
    """Run a check on so many random models."""
    settings(max_examples=models)(given(**strategies)(check))()


@pytest.mark.parametrize("models", [MODELS_IN_CI, pytest.param(MODELS, marks=pytest.mark.nightly)])
@pytest.mark.timeout(3600)
def test_any_xgboost_model_with_any_options_is_exact(models: int) -> None:
    """Given random XGBoost models, leaves, margins and predictions of every probe have the library's bits, and ledgers sum."""
    on_each(check_xgboost, models, recipe=kinds, sentinel=sentinels, options=xgboost_options, dart=dart_options)


@pytest.mark.parametrize("models", [MODELS_IN_CI, pytest.param(MODELS, marks=pytest.mark.nightly)])
@pytest.mark.timeout(3600)
def test_any_lightgbm_model_with_any_options_is_exact(models: int) -> None:
    """Given random LightGBM models, leaves, margins and predictions of every probe have the library's bits, and ledgers sum."""
    on_each(check_lightgbm, models, recipe=kinds, options=lightgbm_options)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_every_finite_margin_has_xgboost_s_probability() -> None:
    """Given each of the 4,278,190,080 finite float32, the link in use gives the bits of XGBoost's booster."""
    link = XgboostLink("binary:logistic")
    for first in range(0, 1 << 32, FLOATS_AT_ONCE):
        asked = np.arange(first, first + FLOATS_AT_ONCE, dtype=np.uint64).astype(np.uint32).view(np.float32)
        asked = asked[np.isfinite(asked)]
        assert link.probabilities(asked).tobytes() == link.owner.probabilities(asked).tobytes()
