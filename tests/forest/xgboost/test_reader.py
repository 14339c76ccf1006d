from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
import xgboost as xgb
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream.forest.trees import TreesUsed
from stream.forest.walk import margins_of
from stream.forest.xgboost.link import LINK_OF_OBJECTIVE
from stream.forest.xgboost.reader import read_xgboost
from tests.examples import examples
from tests.forest.models import USUAL, Owner, Recipe, xgboost_matrix, xgboost_model
from tests.forest.xgboost.models import (
    BOOSTERS,
    CATEGORICAL,
    SETTINGS,
    assert_exact,
    changed,
    read,
    refused,
    saved,
    trained,
)

each_objective = pytest.mark.parametrize("objective", LINK_OF_OBJECTIVE)


@pytest.mark.parametrize("booster", BOOSTERS, ids=["gbtree", "dart", "parallel"])
@pytest.mark.parametrize("recipe", [USUAL, CATEGORICAL], ids=["numbers", "categories"])
def test_both_forms_of_a_file_are_one_forest(recipe: Recipe, booster: dict[str, Any]) -> None:
    """Given one booster saved as JSON and as UBJSON, both are read as the same forest, writer's version included."""
    model = xgboost_model(recipe, **booster)
    forest = read(model)
    binary = read_xgboost(saved(model, "ubj"), ubj=True, trees=None, missing=None)
    assert forest.digest == binary.digest
    assert binary.library_version == forest.library_version == xgb.__version__
    assert (forest.features, forest.objective) == (("f0", "f1", "f2", "f3"), "binary:logistic")
    assert forest.trees == 20 * booster.get("num_parallel_tree", 1)


def test_the_arrays_of_a_forest_cannot_be_changed() -> None:
    """Given a forest, writing into one of its arrays raises: its digest stays true."""
    forest = read(xgboost_model(USUAL))
    with pytest.raises(ValueError, match="read-only"):
        forest.weight[0] = 0


def test_a_classifier_s_file_is_read_like_a_booster_s() -> None:
    """Given an XGBClassifier fitted on a named table, its saved booster is read and scores as it does."""
    rows, target = USUAL.data()
    table = pd.DataFrame(rows, columns=USUAL.names)
    classifier = xgb.XGBClassifier(n_estimators=9, max_depth=2, n_jobs=1).fit(table, target)
    forest = read(classifier.get_booster())
    assert margins_of(forest, rows).tobytes() == classifier.predict(table, output_margin=True).tobytes()


@each_objective
@pytest.mark.parametrize("booster", BOOSTERS, ids=["gbtree", "dart", "parallel"])
def test_a_model_of_any_objective_is_exact(objective: str, booster: dict[str, Any]) -> None:
    """Given a model of each objective and way of boosting, leaves, margins and predictions have the library's bits."""
    model = trained(objective, **booster)
    assert_exact(model, read(model), USUAL.data()[0])


@pytest.mark.parametrize(
    "constraints",
    [
        {"monotone_constraints": "(1,-1,0,1)"},
        {"interaction_constraints": "[[0, 1], [2, 3]]"},
        {"grow_policy": "lossguide", "max_leaves": 9, "max_depth": 0},
        {"tree_method": "exact"},
    ],
    ids=["monotone", "interaction", "lossguide", "exact"],
)
def test_a_model_trained_under_constraints_is_exact(constraints: dict[str, Any]) -> None:
    """Given constraints on training, the file is a model like any other."""
    model = xgboost_model(USUAL, **constraints)
    assert_exact(model, read(model), USUAL.data()[0])


def stopped_early(**parameters: Any) -> xgb.Booster:
    """Build a booster with trees past its best iteration, as early stopping leaves one."""
    rows, target = USUAL.data()
    other = xgboost_matrix(rows, USUAL, np.roll(target, 1))
    watched = [(other, "other")]
    options = {**SETTINGS, "eta": 1.0, **parameters}
    return xgb.train(
        options, xgboost_matrix(rows, USUAL, target), 30, evals=watched, early_stopping_rounds=4, verbose_eval=False
    )


STOPPED = [{}, {"num_parallel_tree": 3, "subsample": 0.5}, {"booster": "dart", "rate_drop": 0.4}]
each_stopped = pytest.mark.parametrize("parameters", STOPPED, ids=["gbtree", "parallel", "dart"])


@each_stopped
def test_trees_past_the_best_iteration_need_a_word(parameters: dict[str, Any]) -> None:
    """Given an early-stopped model and no word on its trees, it is refused with both choices named."""
    said = refused(saved(stopped_early(**parameters)))
    assert "--trees best" in said
    assert "--trees all" in said


@each_stopped
@pytest.mark.parametrize("trees", ["best", "all"])
@pytest.mark.parametrize("with_starts", [True, False], ids=["as saved", "as old versions saved"])
def test_the_trees_asked_for_are_the_trees_used(
    trees: TreesUsed, parameters: dict[str, Any], *, with_starts: bool
) -> None:
    """Given an early-stopped model, best and all each score as the library does with so many iterations."""
    booster = stopped_early(**parameters)

    def without_starts(learner: Any) -> None:
        if not with_starts:
            part = learner["gradient_booster"]
            del part.get("gbtree", part)["model"]["iteration_indptr"]

    raw = changed(booster, without_starts)
    forest = read_xgboost(raw, ubj=False, trees=trees, missing=None)
    iterations = booster.best_iteration + 1 if trees == "best" else booster.num_boosted_rounds()
    assert forest.trees == iterations * parameters.get("num_parallel_tree", 1)
    matrix = xgboost_matrix(USUAL.data()[0], USUAL)
    owner = booster.predict(matrix, output_margin=True, iteration_range=(0, iterations))
    assert margins_of(forest, USUAL.data()[0]).tobytes() == owner.tobytes()


@pytest.mark.parametrize("best", ["-1", "x", "", "1.5"])
def test_a_best_iteration_that_is_no_number_is_refused(best: str) -> None:
    """Given an attribute that no version of XGBoost wrote, the file is called damaged."""
    raw = changed(stopped_early(), lambda learner: learner["attributes"].update(best_iteration=best))
    assert "best_iteration" in refused(raw, "all")


def with_base_score(written: str, booster: xgb.Booster | None = None) -> bytes:
    def write(learner: Any) -> None:
        learner["learner_model_param"]["base_score"] = written

    return changed(booster or xgboost_model(USUAL), write)


@pytest.mark.parametrize("written", ["5E-1", "[5E-1]", "0.5"])
def test_a_base_score_of_one_half_adds_nothing(written: str) -> None:
    """Given any form in which a version of XGBoost wrote one half, the base margin is zero."""
    assert read_xgboost(with_base_score(written), ubj=False, trees=None, missing=None).base_margin == 0.0


@pytest.mark.parametrize("written", ["[5E-1,5E-1]", "-1", "1.5E0", "nan", "inf"])
def test_a_base_score_without_a_margin_is_refused(written: str) -> None:
    """Given a base score that no single finite margin stands for, the model is refused."""
    assert "base_score" in refused(with_base_score(written))


@pytest.mark.parametrize("objective", ["count:poisson", "reg:gamma", "reg:tweedie", "survival:cox", "survival:aft"])
def test_a_base_score_of_zero_has_no_logarithm_and_is_refused(objective: str) -> None:
    """Given an exponential link and nothing to take the logarithm of, the refusal names base_score."""
    assert "base_score" in refused(with_base_score("0E0", trained(objective)))


@each_objective
@pytest.mark.parametrize("base_score", [0.25, 3000.0, 1e-9])
@pytest.mark.parametrize("written", ["{}", "[{}]"])
def test_every_form_of_base_score_is_exact_for_every_objective(objective: str, base_score: float, written: str) -> None:
    """Given a base score that the objective takes, as a number or a vector of one, margins are the library's."""
    if LINK_OF_OBJECTIVE[objective] == "logistic" and base_score > 1:
        base_score = 0.75
    raw = with_base_score(written.format(repr(base_score)), trained(objective, rounds=2))
    booster = xgb.Booster({"nthread": 1}, model_file=bytearray(raw))
    assert_exact(booster, read_xgboost(raw, ubj=False, trees=None, missing=None), USUAL.data()[0][:20])


def test_a_base_margin_of_minus_zero_keeps_its_sign() -> None:
    """Given a base score of one half and leaves of minus zero, our margin is minus zero as the library's is."""
    booster = xgboost_model(dataclasses.replace(USUAL, trees=2), gamma=1e9, base_score=0.5, max_delta_step=1e-30)
    rows = USUAL.data()[0][:1]
    forest = read(booster)
    assert margins_of(forest, rows).tobytes() == Owner(booster, USUAL.names, 2).ask(rows, "margin").tobytes()
    assert np.signbit(forest.base_margin)


@settings(max_examples=examples(60))
@example(score=0.4844989478588104)  # a correctly rounded logarithm differs from XGBoost's in the last bit
@example(score=1e-7)  # XGBoost 3.2.0 clamps it to 1e-6
@given(score=st.floats(1e-9, 1 - 1e-7))
def test_any_base_score_becomes_the_library_s_base_margin(score: float) -> None:
    """Given any base score, margins have the bits of the library's."""
    raw = with_base_score(f"[{float(np.float32(score))!r}]")
    booster = xgb.Booster({"nthread": 1}, model_file=bytearray(raw))
    forest = read_xgboost(raw, ubj=False, trees=None, missing=None)
    rows = USUAL.data()[0][:20]
    assert margins_of(forest, rows).tobytes() == Owner(booster, USUAL.names, 20).ask(rows, "margin").tobytes()
