"""What takes minutes: a thousand random models with random training options, and every float32 through the link."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.forest.link import XgboostLogistic, link_of
from stream.forest.walk import leaf_ids, leaf_slots, margins
from tests.forest.models import Recipe, forest_of, lightgbm_model, owner_of, probes, recipes, xgboost_model

MODELS = 500  # of each library
FLOATS_AT_ONCE = 1 << 24

xgboost_options = st.fixed_dictionaries(
    {
        "eta": st.sampled_from([0.01, 0.3, 1.0]),
        "tree_method": st.sampled_from(["hist", "exact", "approx"]),
        "min_child_weight": st.sampled_from([0.0, 1.0]),
        "gamma": st.sampled_from([0.0, 0.5]),
        "subsample": st.sampled_from([0.6, 1.0]),
    },
    optional={"base_score": st.floats(0.01, 0.99)},
)
lightgbm_options = st.fixed_dictionaries(
    {
        "learning_rate": st.sampled_from([0.01, 0.3, 1.0]),
        "use_missing": st.booleans(),
        "path_smooth": st.sampled_from([0.0, 1.0]),
        "extra_trees": st.booleans(),
        "boosting": st.sampled_from(["gbdt", "dart"]),
        "boost_from_average": st.booleans(),
    },
)


def assert_equals_the_owner(booster: Any, recipe: Recipe) -> None:
    forest = forest_of(booster)
    owner = owner_of(booster, forest)
    rows = probes(forest, recipe.data()[0])
    slots = leaf_slots(forest, rows)
    scored = margins(forest, slots)
    assert np.array_equal(leaf_ids(forest, slots), owner.leaves(rows))
    assert scored.tobytes() == owner.ask(rows, "margin").tobytes()
    assert link_of(forest).probabilities(scored).tobytes() == owner.ask(rows, "probability").tobytes()


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@settings(max_examples=MODELS)
@given(recipe=recipes, options=xgboost_options)
def test_any_xgboost_model_with_any_options_is_exact(recipe: Recipe, options: dict[str, Any]) -> None:
    """Given a random XGBoost model, leaves, margins and probabilities of every probe have the library's bits."""
    assert_equals_the_owner(xgboost_model(recipe, **options), recipe)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@settings(max_examples=MODELS)
@given(recipe=recipes, options=lightgbm_options)
def test_any_lightgbm_model_with_any_options_is_exact(recipe: Recipe, options: dict[str, Any]) -> None:
    """Given a random LightGBM model, leaves, margins and probabilities of every probe have the library's bits."""
    assert_equals_the_owner(lightgbm_model(recipe, **options), recipe)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_every_finite_margin_has_xgboost_s_probability() -> None:
    """Given each of the 4,278,190,080 finite float32, the link in use gives the bits of XGBoost's booster."""
    link = XgboostLogistic("binary:logistic")
    for first in range(0, 1 << 32, FLOATS_AT_ONCE):
        asked = np.arange(first, first + FLOATS_AT_ONCE, dtype=np.uint64).astype(np.uint32).view(np.float32)
        asked = asked[np.isfinite(asked)]
        assert link.probabilities(asked).tobytes() == link.owner.probabilities(asked).tobytes()
