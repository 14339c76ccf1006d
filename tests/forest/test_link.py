from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.errors import InvalidDecision, ModelRefused
from stream.forest.cutoffs import Approve, Link
from stream.forest.link import check_predictions, link_of
from stream.forest.trees import Floats, Forest
from stream.forest.walk import leaf_slots, margins
from stream.forest.xgboost.link import XgboostLink
from tests.examples import examples
from tests.forest.models import USUAL, forest_of, lightgbm_model, owner_of, probes, xgboost_model

MODELS = [(xgboost_model, {}), (lightgbm_model, {}), (lightgbm_model, {"sigmoid": 0.37})]
each_model = pytest.mark.parametrize(("model", "parameters"), MODELS)
XGBOOST = forest_of(xgboost_model(USUAL))
LIGHTGBM = forest_of(lightgbm_model(USUAL))


@each_model
def test_probabilities_are_the_library_s(model: Any, parameters: dict[str, Any]) -> None:
    """Given margins of a model, the link gives the bits of the library's own predict."""
    booster = model(USUAL, **parameters)
    forest = forest_of(booster)
    rows = probes(forest, USUAL.data()[0])
    linked = link_of(forest).probabilities(margins(forest, leaf_slots(forest, rows)))
    assert linked.dtype == forest.dtype
    assert linked.tobytes() == owner_of(booster, forest).ask(rows, "probability").tobytes()


def test_the_compiled_link_of_xgboost_is_the_booster_s_on_a_hundred_thousand_margins() -> None:
    """Given margins of any size, the formula gives the bits of a booster with that base margin."""
    link = XgboostLink("binary:logistic")
    anything = np.random.default_rng(5).integers(0, 2**32, 120_000, dtype=np.uint32).view(np.float32)
    asked = anything[np.isfinite(anything)]
    assert link.probabilities(asked).tobytes() == link.owner.probabilities(asked).tobytes()


def test_where_the_formula_fails_its_proof_the_booster_serves() -> None:
    """Given a machine whose exp differs from XGBoost's, the link answers by the booster, in the same bits."""
    link = XgboostLink("binary:logistic")
    asked = np.linspace(-9, 9, 100, dtype=np.float32)
    by_formula = link.probabilities(asked)
    link.compiled = False
    assert link.probabilities(asked).tobytes() == by_formula.tobytes()
    assert link.probabilities(asked[:0]).shape == (0,)


def test_the_link_of_lightgbm_is_the_library_s_on_a_hundred_thousand_margins() -> None:
    """Given a model whose leaves are many different margins, the link gives the probabilities that it predicts."""
    recipe = USUAL
    booster = lightgbm_model(recipe, num_leaves=200, learning_rate=0.7)
    forest = forest_of(booster)
    rng = np.random.default_rng(6)
    rows = recipe.data()[0][rng.integers(0, recipe.rows, (100_000, 4)), np.arange(4)]
    scored = owner_of(booster, forest).ask(rows, "margin")
    linked = link_of(forest).probabilities(scored)
    assert linked.tobytes() == owner_of(booster, forest).ask(rows, "probability").tobytes()


@pytest.mark.parametrize("forest", [XGBOOST, LIGHTGBM], ids=["xgboost", "lightgbm"])
def test_a_probability_does_not_depend_on_its_batch(forest: Forest) -> None:
    """Given margins asked alone, together, or none, each has its own probability."""
    link = link_of(forest)
    asked = np.linspace(-5, 5, 200).astype(forest.dtype)
    alone = np.concatenate([link.probabilities(asked[i : i + 1]) for i in range(len(asked))])
    assert alone.tobytes() == link.probabilities(asked).tobytes()
    assert link.probabilities(asked[:0]).dtype == forest.dtype


@pytest.mark.parametrize("forest", [XGBOOST, LIGHTGBM], ids=["xgboost", "lightgbm"])
def test_threads_share_a_link(forest: Forest) -> None:
    """Given eight threads asking one link at once, each gets its own answer."""
    link = link_of(forest)
    asked = [np.random.default_rng(i).normal(size=5).astype(forest.dtype) * 4 for i in range(200)]
    want = [link.probabilities(margins).tobytes() for margins in asked]
    with ThreadPoolExecutor(8) as pool:
        assert [got.tobytes() for got in pool.map(link.probabilities, asked)] == want


def neighbour(forest: Forest, cutoff: float, toward: float) -> Floats:
    return np.array([cutoff, np.nextafter(forest.dtype.type(cutoff), forest.dtype.type(toward))], forest.dtype)


@settings(max_examples=examples(40))
@given(threshold=st.floats(1e-6, 1 - 1e-6))
@pytest.mark.parametrize("forest", [XGBOOST, LIGHTGBM], ids=["xgboost", "lightgbm"])
def test_a_probability_threshold_becomes_the_first_margin_that_reaches_it(forest: Forest, threshold: float) -> None:
    """Given a threshold, the cutoff's probability passes it, and that of the next margin on the other side does not."""
    link = link_of(forest)
    above = neighbour(forest, link.cutoff(threshold, "probability", "above"), -math.inf)
    at, before = link.probabilities(above).tolist()
    assert at >= threshold > before
    below = neighbour(forest, link.cutoff(threshold, "probability", "below"), math.inf)
    at, after = link.probabilities(below).tolist()
    assert at <= threshold < after


@settings(max_examples=examples(40))
@given(threshold=st.floats(-30, 30), other=st.floats(-30, 30, width=32))
@pytest.mark.parametrize("forest", [XGBOOST, LIGHTGBM], ids=["xgboost", "lightgbm"])
def test_a_margin_threshold_decides_as_the_double_that_it_is(forest: Forest, threshold: float, other: float) -> None:
    """Given a threshold between two float32, comparing with the cutoff is comparing with the threshold."""
    link = link_of(forest)
    near = float(forest.dtype.type(threshold))
    for margin in (other, near, float(np.nextafter(np.float32(near), np.float32(99)))):
        assert (margin >= link.cutoff(threshold, "margin", "above")) == (margin >= threshold)
        assert (margin <= link.cutoff(threshold, "margin", "below")) == (margin <= threshold)


@pytest.mark.parametrize("approve", ["above", "below"])
@pytest.mark.parametrize("threshold", [0.0, 1.0, -0.1, 1.5, math.nan, math.inf])
def test_a_probability_threshold_outside_0_and_1_is_refused(threshold: float, approve: Approve) -> None:
    """Given a threshold that decides nothing, cutoff() raises what becomes a dead letter."""
    with pytest.raises(InvalidDecision, match="between 0 and 1"):
        link_of(XGBOOST).cutoff(threshold, "probability", approve)


@pytest.mark.parametrize("threshold", [math.nan, math.inf, 1e39])
def test_a_margin_threshold_outside_the_margins_is_refused(threshold: float) -> None:
    """Given a threshold that no margin can be compared with, cutoff() raises what becomes a dead letter."""
    with pytest.raises(InvalidDecision, match="margin scale"):
        link_of(XGBOOST).cutoff(threshold, "margin", "above")


def test_a_threshold_below_every_probability_is_refused_below_and_the_lowest_margin_above() -> None:
    """Given a threshold under the least probability that float32 has here, nothing is below it and all is above it."""
    link = link_of(XGBOOST)
    with pytest.raises(InvalidDecision, match="no margin"):
        link.cutoff(1e-300, "probability", "below")
    assert link.cutoff(1e-300, "probability", "above") == float(np.finfo(np.float32).min)


def test_the_cutoffs_remembered_are_bounded_and_right() -> None:
    """Given more thresholds than a link remembers, it forgets old ones and still answers alike."""
    link: Link = XgboostLink("binary:logistic")
    first = link.cutoff(0.3, "margin", "above")
    for i in range(1000):
        link.cutoff(i / 7, "margin", "above")
    assert link.cutoff(0.3, "margin", "above") == first


def test_a_model_that_could_predict_something_infinite_is_refused() -> None:
    """Given counts whose exp(margin) no float32 holds for some row, the model is refused; one within reach of them is not."""
    within = forest_of(xgboost_model(USUAL, objective="count:poisson", base_score=3000.0))
    check_predictions(within, link_of(within))
    beyond = forest_of(xgboost_model(USUAL, objective="count:poisson", base_score=3.3e38))
    with pytest.raises(ModelRefused, match="count:poisson predicts something infinite"):
        check_predictions(beyond, link_of(beyond))


def test_leaves_whose_sum_no_double_holds_are_refused() -> None:
    """Given two LightGBM trees with leaves of 1e308, the model is refused, and nothing overflows on the way."""
    booster = lightgbm_model(USUAL)
    for tree in range(2):
        booster.set_leaf_output(tree, 0, 1e308)
    forest = forest_of(booster)
    with pytest.raises(ModelRefused, match="predicts something infinite"):
        check_predictions(forest, link_of(forest))
