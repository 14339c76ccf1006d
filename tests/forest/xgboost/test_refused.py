from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xgboost as xgb

from stream.errors import ModelRefused
from stream.forest.xgboost.reader import read_xgboost
from tests.forest.models import USUAL, xgboost_matrix, xgboost_model
from tests.forest.xgboost.models import (
    SETTINGS,
    changed,
    read,
    refused,
    saved,
)


def train_on(target: Any, *, rounds: int = 2, names: list[str] | None = USUAL.names, **parameters: Any) -> bytes:
    rows, _ = USUAL.data()
    matrix = xgb.DMatrix(rows, target, feature_names=names, nthread=1)
    return saved(xgb.train({**SETTINGS, **parameters}, matrix, rounds))


def real_files() -> dict[str, bytes]:
    """Real files that the library wrote, by what their refusal has to say."""
    rows, target = USUAL.data()
    three = np.arange(len(target)) % 3
    wide = np.where(rows > 0, np.nan, 3e38)
    wide[:5] = 3.4e38
    both = np.stack([target, 1 - target], axis=1)
    overflowing = xgb.DMatrix(wide, rows[:, 0] > 0, feature_names=USUAL.names, nthread=1)
    groups = xgboost_matrix(rows, USUAL, target)
    groups.set_group([len(target)])
    regression: dict[str, Any] = {"objective": "reg:squarederror", "multi_strategy": "multi_output_tree"}
    return {
        "booster is gblinear, which has no trees": train_on(target, booster="gblinear"),
        "it has 3 classes .multi:softprob": train_on(three, objective="multi:softprob", num_class=3),
        "it has 3 classes .multi:softmax": train_on(three, objective="multi:softmax", num_class=3),
        "it has 2 targets": train_on(both),
        "it has 2 targets; train one": train_on(both, **regression),
        "it has 2 quantile_alpha": train_on(target, objective="reg:quantileerror", quantile_alpha=[0.1, 0.9]),
        "objective is rank:ndcg, whose scores only order": saved(xgb.train({"objective": "rank:ndcg"}, groups, 2)),
        "objective is rank:map, whose scores only order": saved(xgb.train({"objective": "rank:map"}, groups, 2)),
        "objective is rank:pairwise": saved(xgb.train({"objective": "rank:pairwise"}, groups, 2)),
        "its features have no names": train_on(target, names=None),
        r"tree \d+ node \d+ holds inf": saved(xgb.train(SETTINGS, overflowing, 2)),
        "it has no trees": train_on(target, rounds=0),
        "not JSON": saved(xgboost_model(USUAL), "ubj"),
        "is damaged": b'{"version":[3,2,0],"learner":{}}',
        "JSON without a learner": b'{"version":[3,2,0]}',
        "old binary format": b"binf\x00\x00\x00",
    }


REAL = real_files()


@pytest.mark.parametrize("what", REAL)
def test_what_we_cannot_reproduce_is_refused_by_name(what: str) -> None:
    """Given a real file of a kind out of scope, the refusal names the reason and what to do."""
    with pytest.raises(ModelRefused, match=what):
        read_xgboost(REAL[what], ubj=False, trees="all", missing=None)
    refused(REAL[what], "all")


def test_an_objective_that_no_library_knows_is_refused_with_those_that_are() -> None:
    """Given the name of a custom objective in the file, the refusal lists the objectives that have a link."""
    raw = changed(xgboost_model(USUAL), lambda learner: learner["objective"].update(name="bank:own"))
    said = refused(raw)
    assert "objective is bank:own" in said
    assert "binary:logistic" in said


def test_two_features_of_one_name_are_refused() -> None:
    """Given a name twice, which no row could be aligned by, the model is refused."""
    raw = changed(xgboost_model(USUAL), lambda learner: learner.update(feature_names=["f0", "f1", "f2", "f1"]))
    assert "two of its features have one name" in refused(raw)


def test_vector_leaves_are_refused_by_their_tree() -> None:
    """Given a tree that says it has several values per leaf, the refusal names the tree and the setting."""

    def widen(learner: Any) -> None:
        learner["gradient_booster"]["model"]["trees"][1]["tree_param"]["size_leaf_vector"] = "2"

    assert "tree 1 has vector leaves; train with multi_strategy" in refused(changed(xgboost_model(USUAL), widen))


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), 1e39])
def test_a_leaf_that_is_not_finite_is_refused_with_its_tree(value: float) -> None:
    """Given a leaf of inf or NaN, the refusal says in which tree and node it is."""

    def spoil(learner: Any) -> None:
        tree = learner["gradient_booster"]["model"]["trees"][2]
        tree["split_conditions"][tree["left_children"].index(-1)] = value

    assert "tree 2 node" in refused(changed(xgboost_model(USUAL), spoil))


def test_a_weight_of_dart_that_makes_a_leaf_infinite_is_refused() -> None:
    """Given a leaf that its tree's weight lifts past float32, the refusal says in which tree it is."""

    def lift(learner: Any) -> None:
        booster = learner["gradient_booster"]
        booster["weight_drop"][3] = 3e38
        tree = booster["gbtree"]["model"]["trees"][3]
        tree["split_conditions"][tree["left_children"].index(-1)] = -100.0

    assert "tree 3 node" in refused(changed(xgboost_model(USUAL, booster="dart"), lift))


@pytest.mark.parametrize("missing", [np.inf, -np.inf, 1e39])
def test_a_sentinel_that_float32_makes_infinite_is_refused(missing: float) -> None:
    """Given a number for missing that XGBoost would compare as infinite, it is refused."""
    with pytest.raises(ModelRefused, match="missing value is infinite"):
        read_xgboost(saved(xgboost_model(USUAL)), ubj=False, trees=None, missing=missing)


def test_no_sentinel_is_nan_too() -> None:
    """Given None or NaN for the sentinel, the forest has none."""
    booster = xgboost_model(USUAL)
    assert read(booster).missing is None
    assert read(booster, missing=np.nan).digest == read(booster).digest


def test_a_best_iteration_of_thousands_of_digits_lies_beyond_the_last() -> None:
    """Given a best_iteration that Python reads no integer from, all trees count, as with any that is not before the last."""
    raw = changed(xgboost_model(USUAL), lambda learner: learner["attributes"].update(best_iteration="9" * 5_000))
    assert read_xgboost(raw, ubj=False, trees=None, missing=None).trees == USUAL.trees


@pytest.mark.parametrize("sign", ["<", "[", "]"])
def test_a_name_that_xgboost_takes_in_no_table_is_refused(sign: str) -> None:
    """Given a file whose feature name holds a sign that XGBoost refuses in names, we refuse it first and show the name."""
    raw = changed(xgboost_model(USUAL), lambda learner: learner["feature_names"].__setitem__(0, f"a{sign}b"))
    assert f"its feature name a{sign}b holds one of" in refused(raw)
