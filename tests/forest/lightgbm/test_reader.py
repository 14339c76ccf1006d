from __future__ import annotations

import itertools
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest

from stream.errors import ModelRefused
from stream.forest.lightgbm.reader import read_lightgbm
from stream.forest.trees import CATEGORY, NUMBER, ZERO_IS_MISSING
from stream.forest.walk import margins_of
from tests.forest.lightgbm.models import CATEGORICAL, assert_exact, mixed, trained
from tests.forest.models import USUAL, forest_of, lightgbm_model

ROWS, TARGET = mixed()
NAMES = ["a", "b", "c", "d"]
BY_CATEGORY: dict[str, Any] = {"feature_name": NAMES, "categorical_feature": [2, 3], **CATEGORICAL}
BAGGED = {"bagging_fraction": 0.5, "bagging_freq": 1}


def test_a_forest_says_what_it_was_read_from() -> None:
    """Given a model text, the forest holds its names, trees, objective, its line, and the format's version."""
    forest = forest_of(lightgbm_model(USUAL, sigmoid=0.37))
    assert (forest.library, forest.library_version, forest.objective) == ("lightgbm", "v4", "binary")
    assert (forest.features, forest.trees, forest.link_line) == (("f0", "f1", "f2", "f3"), 20, "binary sigmoid:0.37")
    assert forest.base_margin == 0
    assert not forest.averages
    assert (forest.is_category, forest.words) == ((False,) * 4, (None,) * 4)


def test_leaf_ids_are_the_places_of_the_slots() -> None:
    """Given a LightGBM forest, slots of a tree follow its leaf indices 0, 1, 2, ..."""
    forest = forest_of(lightgbm_model(USUAL))
    for first, end in itertools.pairwise(forest.first_leaf):
        assert forest.leaf_id[first:end].tolist() == list(range(end - first))


OBJECTIVES = [
    *("binary", "cross_entropy", "cross_entropy_lambda", "regression", "regression_l1", "huber", "fair", "quantile"),
    *("mape", "poisson", "gamma", "tweedie"),
]


@pytest.mark.parametrize("boosting", ["gbdt", "dart", "rf", "goss"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_and_boosting_is_exact(objective: str, boosting: str) -> None:
    """Given each objective with each way of boosting, with and without reg_sqrt, all bits are LightGBM's."""
    bagged = {} if boosting == "goss" else BAGGED
    target = TARGET + 0.5 if objective in ("gamma", "regression") else TARGET
    for reg_sqrt in (False, True):
        options = {"objective": objective, "boosting": boosting, "reg_sqrt": reg_sqrt}
        forest = assert_exact(trained(ROWS, target, **options, **bagged, **BY_CATEGORY), ROWS)
        assert (forest.objective, forest.averages) == (objective, boosting == "rf")


OPTIONS: list[dict[str, Any]] = [
    {"zero_as_missing": True},
    {"use_missing": False},
    {"extra_trees": True},
    {"path_smooth": 2.0},
    {"boost_from_average": False},
    {"boost_from_average": False, "objective": "poisson"},
    {"monotone_constraints": [1, -1, 0, 0]},
    {"monotone_constraints": [1, 0, 0, 0], "monotone_constraints_method": "advanced"},
    {"interaction_constraints": [[0, 2], [1, 3]]},
    {"max_cat_to_onehot": 100},
    {"cat_smooth": 30.0, "cat_l2": 10.0},
    {"max_cat_threshold": 2},
    {"max_depth": 1},
    {"num_leaves": 120, "min_data_in_leaf": 1, "min_sum_hessian_in_leaf": 0.0},
    {"linear_tree": False, "feature_fraction": 0.5, "lambda_l1": 0.1, "lambda_l2": 3.0},
    {"xgboost_dart_mode": True, "boosting": "dart", "uniform_drop": True},
    {"max_bin": 7},
    {"use_quantized_grad": True},
    {"is_unbalance": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option_of_training_is_exact(options: dict[str, Any]) -> None:
    """Given a model trained with an option that changes trees, all bits are LightGBM's."""
    assert_exact(trained(ROWS, TARGET, **{**BY_CATEGORY, **options}), ROWS)


def test_each_kind_of_split_is_read_as_it_is() -> None:
    """Given models with each type of missing, their splits are numbers, numbers with zero missing, and categories."""
    kinds = {
        name: set(read_lightgbm(trained(ROWS, TARGET, **BY_CATEGORY, **options), trees=None).kind.tolist())
        for name, options in {"zero": {"zero_as_missing": True}, "none": {"use_missing": False}, "nan": {}}.items()
    }
    assert kinds == {"zero": {NUMBER, ZERO_IS_MISSING, CATEGORY}, "none": {NUMBER, CATEGORY}, "nan": {NUMBER, CATEGORY}}


def test_early_stopping_writes_the_best_trees_only() -> None:
    """Given a model that stopped early, its text holds the trees that `predict` uses, and no other."""
    fold = lgb.Dataset(ROWS[:200], TARGET[:200], feature_name=NAMES)
    told = fold.create_valid(ROWS[200:], TARGET[200:])
    settings = {"objective": "binary", "verbose": -1, "num_threads": 1, "min_data_in_leaf": 2}
    stop = lgb.early_stopping(5, verbose=False)
    booster = lgb.train(settings, fold, 200, valid_sets=[told], callbacks=[stop], keep_training_booster=True)
    forest = read_lightgbm(booster.model_to_string(), trees=None)
    assert 1 < forest.trees == booster.best_iteration < booster.current_iteration()
    assert margins_of(forest, ROWS).tobytes() == np.asarray(booster.predict(ROWS, raw_score=True)).tobytes()


def test_an_objective_of_one_s_own_is_the_identity() -> None:
    """Given a model trained by a function, its text has no objective, and what it predicts is the margin."""

    def squared(predicted: Any, data: lgb.Dataset) -> tuple[Any, Any]:
        return predicted - data.get_label(), np.ones(len(predicted))

    forest = assert_exact(trained(ROWS, TARGET, objective=squared, **BY_CATEGORY), ROWS)
    assert (forest.objective, forest.link_line) == ("custom", "")


def test_a_split_at_infinity_parts_missing_from_every_value() -> None:
    """Given a split that LightGBM writes as `inf`, the largest finite values still go its way."""
    rows = np.full((200, 1), np.nan)
    rows[:100, 0] = np.arange(100)
    text = trained(rows, np.isnan(rows[:, 0]).astype(int), feature_name=["a"], min_data_in_leaf=5)
    assert "threshold=inf" in text
    assert_exact(text, np.array([[1e300], [np.finfo(float).max], [-np.finfo(float).max], [0.0], [np.nan]]))


def test_names_keep_what_lightgbm_keeps_of_them() -> None:
    """Given names with spaces and letters of all scripts, features are called what LightGBM calls them."""
    text = trained(ROWS, TARGET, feature_name=["net income", "Größe", "全角\u3000space", "a=b"])
    assert read_lightgbm(text, trees=None).features == tuple(lgb.Booster(model_str=text).feature_name())
    assert "net_income" in read_lightgbm(text, trees=None).features


def refused() -> dict[str, str]:
    """Real texts that the library wrote, or damaged ones, by what their refusal has to say."""
    rows, target = USUAL.data()
    named: dict[str, Any] = {"feature_name": USUAL.names, "rounds": 2}
    whole = trained(rows, target, **named)
    three = np.arange(len(target)) % 3
    return {
        "objective is multiclass": trained(rows, three, objective="multiclass", num_class=3, **named),
        "objective is multiclassova": trained(rows, three, objective="multiclassova", num_class=3, **named),
        "objective is lambdarank": trained(rows, target, objective="lambdarank", group=[len(target)], **named),
        "objective is rank_xendcg": trained(rows, target, objective="rank_xendcg", group=[len(target)], **named),
        "linear_tree": trained(rows, target, linear_tree=True, **named),
        "no names": trained(rows, target),
        "not a whole": whole[: len(whole) // 3],
        "number of trees": whole.replace("\nTree=1\n", "\n"),
        "tree 0 is damaged": whole.replace("leaf_value=", "leaf_valu=", 1),
        "tree 1 is damaged": whole[::-1].replace("=dlohserht\n", "9 9=dlohserht\n", 1)[::-1],
        "empty or something else": "",
    }


REFUSED = refused()


@pytest.mark.parametrize("what", REFUSED)
def test_what_we_cannot_reproduce_is_refused_by_name(what: str) -> None:
    """Given a real file of a kind out of scope, the refusal names the library, the reason and what to do."""
    expected = "not a whole" if what == "empty or something else" else what
    with pytest.raises(ModelRefused, match=rf"LightGBM.*{expected}.*; .+") as refusal:
        read_lightgbm(REFUSED[what], trees=None)
    assert "\n" not in str(refusal.value)


def test_a_model_without_a_tree_is_refused() -> None:
    """Given a text with no tree, there is nothing to explain and it is refused."""
    data = lgb.Dataset(ROWS, TARGET, feature_name=NAMES)
    booster = lgb.Booster({"objective": "binary", "verbose": -1, "num_threads": 1}, data)
    with pytest.raises(ModelRefused, match="no trees"):
        read_lightgbm(booster.model_to_string(), trees=None)
