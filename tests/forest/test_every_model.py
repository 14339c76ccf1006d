"""Random models of both libraries with random training options: exact, all of them. CI runs a seeded share."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any, Final, TypeAlias

import lightgbm as lgb
import numpy as np
import numpy.typing as npt
import pytest
import xgboost as xgb
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from stream.errors import ModelRefused
from stream.forest.ledger import exact_sums, in_units, leaf_units
from stream.forest.lightgbm.reader import read_lightgbm
from stream.forest.trees import Forest, TreesUsed
from stream.forest.xgboost.link import XgboostLink
from stream.forest.xgboost.reader import read_xgboost
from stream.recourse.explain.attribution import by_feature, contrast
from tests.forest.exactness import assert_equals_owner
from tests.forest.models import Recipe, Rows, owner_of, probes, xgboost_matrix

MODELS, MODELS_IN_CI = 1_100, 40  # of each library
WITH_SPLITS = 0.5  # at least this share of them differ from all others and have a split
PAIRS = 12  # of rows whose ledgers are added up, for each model
FLOATS_AT_ONCE = 1 << 24

Table: TypeAlias = dict[str, Sequence[Any]]  # what to draw from, each with the same chance
TRUTH: Final = (False, True)
KINDS: Final[Table] = {
    "seed": range(2**32),
    "rows": (2, 30, 200, 200, 600, 600),
    "features": range(1, 7),
    "trees": (1, 2, 7, 25, 25, 60, 60, 800),
    "depth": (1, 2, 4, 6, 9, 12),
    "missing": (0.0, 0.2, 0.9),
    "whole": TRUTH,
    "constant": TRUTH,
    "signal": TRUTH,
    "categories": range(3),
    "cardinality": (2, 5, 33, 60),
    "zeros": (0.0, 0.3),
    "sentinel": (None, None, -999.0, 0.0, 1e-36, 16777217.0),
    "doubled": TRUTH,
}
XGBOOST: Final[Table] = {
    "objective": (
        *("binary:logistic", "binary:logistic", "binary:logitraw", "binary:hinge", "reg:logistic"),
        *("reg:squarederror", "reg:squaredlogerror", "reg:pseudohubererror", "reg:absoluteerror"),
        *("count:poisson", "reg:tweedie", "reg:gamma", "survival:cox", "survival:aft", "reg:quantileerror"),
    ),
    "booster": ("gbtree", "gbtree", "dart"),
    "num_parallel_tree": (1, 1, 1, 3),
    "eta": (0.01, 0.3, 1.0),
    "tree_method": ("hist", "approx", "exact"),
    "max_cat_to_onehot": (1, 4, 100),
    "min_child_weight": (0.0, 1.0),
    "gamma": (0.0, 0.5),
    "subsample": (0.6, 1.0),
    "colsample_bynode": (0.5, 1.0),
    "scale_pos_weight": (1.0, 3.7),
    "grow_policy": ("depthwise", "lossguide"),
    "monotone": TRUTH,
    "interaction": TRUTH,
    "base_score": (None, 0.01, 0.3, 0.77),
    "max_delta_step": (0.0, 1.0),
}
DART: Final[Table] = {
    "rate_drop": (0.1, 0.5),
    "skip_drop": (0.0, 0.5),
    "sample_type": ("uniform", "weighted"),
    "normalize_type": ("tree", "forest"),
}
LIGHTGBM: Final[Table] = {
    "objective": (
        *("binary", "binary", "cross_entropy", "cross_entropy_lambda", "regression", "regression_l1", "huber"),
        *("fair", "quantile", "mape", "poisson", "tweedie", "gamma"),
    ),
    "boosting": ("gbdt", "gbdt", "dart", "rf"),
    "learning_rate": (0.01, 0.3, 1.0),
    "use_missing": TRUTH,
    "zero_as_missing": TRUTH,
    "path_smooth": (0.0, 1.0),
    "extra_trees": TRUTH,
    "boost_from_average": TRUTH,
    "reg_sqrt": TRUTH,
    "max_cat_to_onehot": (1, 4, 100),
    "cat_smooth": (0.0, 10.0),
    "min_data_per_group": (1, 20),
    "bagging_fraction": (0.5, 0.9),
    "min_gain_to_split": (*[0.0] * 9, 1e6),
    "monotone": TRUTH,
    "interaction": TRUTH,
    "sigmoid": (1.0, 0.01, 0.37, 5.0),
}
NOT_MONOTONE: Final = {"quantile", "mape", "regression_l1"}  # LightGBM refuses the two together


def drawn(random: Random, table: Table) -> dict[str, Any]:
    """One choice of each; None leaves the option out."""
    chosen = {name: random.choice(choices) for name, choices in table.items()}
    return {name: choice for name, choice in chosen.items() if choice is not None}


def drawn_recipe(random: Random) -> Recipe:
    recipe = Recipe(**drawn(random, KINDS))
    room = recipe.features - recipe.constant
    # A code is no sentinel.
    return dataclasses.replace(
        recipe,
        categories=min(recipe.categories, room),
        sentinel=None if min(recipe.categories, room) else recipe.sentinel,
    )


def assert_exact(forest: Forest, owner: Any, data: Rows) -> None:
    """Leaves, margins and predictions have the library's bits, and the rows of ledgers sum to their gaps."""
    rows = probes(forest, data)
    slots, scored = assert_equals_owner(
        forest, owner.leaves(rows), owner.ask(rows, "margin"), owner.ask(rows, "probability"), rows
    )
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


def constrained(recipe: Recipe, options: dict[str, Any], *, as_text: bool) -> dict[str, Any]:
    """The training options, with the constraints that were drawn spelt as the library wants them."""
    options = dict(options)
    free = recipe.features - recipe.categories
    if options.pop("monotone"):
        signs = [0] * recipe.categories + [(1, -1, 0)[i % 3] for i in range(free)]
        options["monotone_constraints"] = str(tuple(signs)) if as_text else signs
    if options.pop("interaction") and recipe.features > 1:
        groups = [[0], [*range(1, recipe.features)]]
        options["interaction_constraints"] = str(groups) if as_text else groups
    return options


def target_for(objective: str, target: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """A target that the objective can be trained on: of those with a logarithm, no zero."""
    return target + 1 if objective.rpartition(":")[2] in ("gamma", "aft", "cox") else target


def check_xgboost(found: set[str], seed: int) -> None:
    random = Random(seed)  # noqa: S311 - a model, no secret
    recipe, sentinel = (made := drawn_recipe(random)), made.sentinel
    options = constrained(recipe, drawn(random, XGBOOST), as_text=True)
    dart = drawn(random, DART)
    trees: TreesUsed = random.choice(("best", "all"))
    best = random.randrange(recipe.trees)
    if options["booster"] == "dart":
        options |= dart
    if recipe.categories and options["tree_method"] == "exact":
        options["tree_method"] = "hist"
    if options["tree_method"] == "exact":  # which knows neither
        options = {name: value for name, value in options.items() if name not in ("colsample_bynode", "grow_policy")}
    if options["objective"] == "reg:quantileerror":
        options["quantile_alpha"] = 0.3
    rows, target = recipe.data()
    matrix = xgboost_matrix(rows, recipe, target_for(options["objective"], target))
    if options["objective"] == "survival:aft":
        matrix.set_float_info("label_lower_bound", matrix.get_label())
        matrix.set_float_info("label_upper_bound", matrix.get_label() + 1)
    settings_ = {"max_depth": recipe.depth, "nthread": 1, "seed": 0, "verbosity": 0}
    try:
        booster = xgb.train({**settings_, **options}, matrix, recipe.trees)
    except xgb.core.XGBoostError:
        reject()
    booster.set_attr(best_iteration=str(best))  # as early stopping leaves it
    raw = bytes(booster.save_raw("ubj"))
    forest = read_or_reject(lambda: read_xgboost(raw, ubj=True, trees=trees, missing=sentinel))
    grown = recipe.trees if trees == "all" else best + 1
    assert forest.trees == grown * options["num_parallel_tree"]
    assert_exact(forest, owner_of(booster, forest), rows)
    note(found, forest)


def check_lightgbm(found: set[str], seed: int) -> None:
    random = Random(seed)  # noqa: S311 - a model, no secret
    recipe, options = drawn_recipe(random), drawn(random, LIGHTGBM)
    recipe = dataclasses.replace(recipe, sentinel=None)
    options["monotone"] &= options["objective"] not in NOT_MONOTONE
    options = constrained(recipe, options, as_text=False)
    best = random.randint(1, recipe.trees)
    options |= {"bagging_freq": 1, "feature_fraction": 0.9, "cat_l2": 0.0, "seed": 0, "verbose": -1, "num_threads": 1}
    options |= {"max_depth": recipe.depth, "num_leaves": 2**recipe.depth, "min_data_in_leaf": 2, "min_data_in_bin": 1}
    rows, target = recipe.data()
    categories = list(range(recipe.categories))
    data = lgb.Dataset(
        rows, target_for(options["objective"], target), feature_name=recipe.names, categorical_feature=categories
    )
    try:
        booster = lgb.train({**options, "deterministic": True}, data, recipe.trees)
    except lgb.basic.LightGBMError:
        reject()
    if not booster.num_trees():
        reject()
    text = booster.model_to_string(num_iteration=best)  # as early stopping has it saved
    forest = read_or_reject(lambda: read_lightgbm(text, trees=None))
    assert_exact(forest, owner_of(lgb.Booster(model_str=text), forest), rows)
    note(found, forest)


def read_or_reject(read: Callable[[], Forest]) -> Forest:
    """Read a model; one whose training overflowed is rightly refused, and no other."""
    try:
        return read()
    except ModelRefused as refused:
        if not re.search("holds -?(nan|inf)", str(refused)):
            raise
        reject()


def note(found: set[str], forest: Forest) -> None:
    """Remember a model that has a split."""
    if len(forest.leaf_id) > forest.trees:
        found.add(forest.digest)


def assert_enough(found: set[str], models: int) -> None:
    """Of the models that were made, enough are different and not trivial."""
    print(f"{len(found)} different models with splits, of {models}")
    assert len(found) >= WITH_SPLITS * models


@pytest.mark.parametrize("models", [MODELS_IN_CI, pytest.param(MODELS, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("check", [check_xgboost, check_lightgbm])
@pytest.mark.timeout(3600)
def test_any_model_with_any_options_is_exact(check: Callable[[set[str], int], None], models: int) -> None:
    """Given random models of either library, leaves, margins and predictions of every probe have its bits, and ledgers sum."""
    found: set[str] = set()

    @settings(max_examples=models)  # a stated number, of which a share must differ: not scaled
    @given(seed=st.integers(0, 2**32 - 1))
    def each(seed: int) -> None:
        check(found, seed)

    each()
    print(f"{len(found)} different models with splits, of {models}")
    assert len(found) >= WITH_SPLITS * models


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_every_finite_margin_has_xgboost_s_probability() -> None:
    """Given each of the 4,278,190,080 finite float32, the link in use gives the bits of XGBoost's booster."""
    link = XgboostLink("binary:logistic")
    for first in range(0, 1 << 32, FLOATS_AT_ONCE):
        asked = np.arange(first, first + FLOATS_AT_ONCE, dtype=np.uint64).astype(np.uint32).view(np.float32)
        asked = asked[np.isfinite(asked)]
        assert link.probabilities(asked).tobytes() == link.owner.probabilities(asked).tobytes()
