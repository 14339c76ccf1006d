from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import xgboost as xgb
from hypothesis import given, settings

from stream.errors import LeafOutOfRange
from stream.forest.trees import Forest
from stream.forest.walk import decisive_nodes, leaf_ids, leaf_slots, margins, margins_of
from tests.examples import examples
from tests.forest.models import USUAL, Recipe, forest_of, lightgbm_model, owner_of, probes, recipes, xgboost_model

LIBRARIES = [xgboost_model, lightgbm_model]


def assert_equals_the_owner(booster: Any, recipe: Recipe) -> None:
    forest = forest_of(booster)
    owner = owner_of(booster, forest)
    rows = probes(forest, recipe.data()[0])
    slots = leaf_slots(forest, rows)
    assert np.array_equal(leaf_ids(forest, slots), owner.leaves(rows))
    scored = margins(forest, slots)
    assert scored.dtype == forest.dtype
    assert scored.tobytes() == owner.ask(rows, "margin").tobytes()
    assert margins_of(forest, rows).tobytes() == scored.tobytes()


@settings(max_examples=examples(25))
@given(recipe=recipes)
def test_an_xgboost_forest_reaches_the_same_leaves_and_bits_as_its_library(recipe: Recipe) -> None:
    """Given any XGBoost model, every probe row reaches the leaves of pred_leaf and scores the same bits."""
    assert_equals_the_owner(xgboost_model(recipe), recipe)


@settings(max_examples=examples(25))
@given(recipe=recipes)
def test_a_lightgbm_forest_reaches_the_same_leaves_and_bits_as_its_library(recipe: Recipe) -> None:
    """Given any LightGBM model, every probe row reaches the leaves of pred_leaf and scores the same bits."""
    assert_equals_the_owner(lightgbm_model(recipe), recipe)


@pytest.mark.parametrize(
    "parameters",
    [
        {"base_score": 0.123},
        {"base_score": 0.999},
        {"tree_method": "exact"},
        {"tree_method": "approx"},
        {"gamma": 1e6},
        {"gamma": 1.0},  # prunes: deleted nodes stay in the file's arrays
        {"grow_policy": "lossguide", "max_leaves": 7},
        {"monotone_constraints": "(1,0,0,-1)"},
        {"interaction_constraints": "[[0,1],[2,3]]"},
        {"subsample": 0.5, "colsample_bynode": 0.5, "eta": 1.0},
        {"max_delta_step": 1, "scale_pos_weight": 3.7},
    ],
    ids=str,
)
def test_training_options_of_xgboost_that_leave_a_sum_of_trees_are_exact(parameters: dict[str, Any]) -> None:
    """Given options that shape the trees or the base margin, the forest is still equal to its library."""
    assert_equals_the_owner(xgboost_model(USUAL, **parameters), USUAL)


@pytest.mark.parametrize(
    "parameters",
    [
        {"sigmoid": 0.3},
        {"boost_from_average": False},
        {"use_missing": False},  # missing_type None: NaN is taken for 0
        {"extra_trees": True},
        {"min_gain_to_split": 1e6},  # trees of a single leaf
        {"monotone_constraints": [1, 0, 0, -1]},
        {"is_unbalance": True},
        {"data_sample_strategy": "goss"},
        {"boosting": "dart", "drop_rate": 0.5},  # LightGBM writes the weights into the leaves
        {"linear_tree": False, "path_smooth": 2.0, "max_bin": 15},
    ],
    ids=str,
)
def test_training_options_of_lightgbm_that_leave_a_sum_of_trees_are_exact(parameters: dict[str, Any]) -> None:
    """Given options that shape the trees or the leaves, the forest is still equal to its library."""
    assert_equals_the_owner(lightgbm_model(USUAL, **parameters), USUAL)


def test_integer_columns_score_as_the_library_scores_integers() -> None:
    """Given training and scoring data of an integer dtype, our rows as doubles give the same bits."""
    rng = np.random.default_rng(3)
    rows = rng.integers(-(2**26), 2**26, (300, 3))
    matrix = xgb.DMatrix(rows, (rows[:, 0] > 0).astype(int), feature_names=["a", "b", "c"], nthread=1)
    booster = xgb.train({"objective": "binary:logistic", "nthread": 1}, matrix, 10)
    forest = forest_of(booster)
    assert (
        margins_of(forest, rows.astype(np.float64)).tobytes() == booster.predict(matrix, output_margin=True).tobytes()
    )


@pytest.mark.parametrize("model", LIBRARIES)
def test_no_rows_give_no_margins(model: Any) -> None:
    """Given an empty batch, the walk answers with empty arrays of the right shape and dtype."""
    forest = forest_of(model(USUAL))
    nothing = np.empty((0, len(forest.features)))
    slots = leaf_slots(forest, nothing)
    assert slots.shape == (0, forest.trees)
    for empty in (margins(forest, slots), margins_of(forest, nothing)):
        assert (empty.shape, empty.dtype) == ((0,), forest.dtype)


def test_rows_of_another_width_are_refused() -> None:
    """Given rows with a column too few, the walk raises instead of reading past their end."""
    forest = forest_of(xgboost_model(USUAL))
    with pytest.raises(ValueError, match="3"):
        leaf_slots(forest, np.zeros((1, 3)))


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_leaf_of_another_tree_is_out_of_range(shift: int) -> None:
    """Given a slot of the neighbouring tree, margins() raises and names row and tree."""
    forest = forest_of(xgboost_model(USUAL))
    slots = leaf_slots(forest, USUAL.data()[0][:2])
    slots[1, 5] = forest.first_leaf[5] - 1 if shift < 0 else forest.first_leaf[6]
    with pytest.raises(LeafOutOfRange, match="row 1 is not a leaf of tree 5"):
        margins(forest, slots)


def test_leaves_of_a_forest_with_other_trees_are_out_of_range() -> None:
    """Given slots of too few trees, margins() raises."""
    forest = forest_of(xgboost_model(USUAL))
    with pytest.raises(LeafOutOfRange, match="20 trees"):
        margins(forest, np.zeros((1, 3), np.int32))


def path_of(forest: Forest, slot: int) -> list[int]:
    path = [int(forest.leaf_node[slot])]
    while forest.parent[path[-1]] >= 0:
        path.append(int(forest.parent[path[-1]]))
    return path[::-1]


@pytest.mark.parametrize("model", LIBRARIES)
def test_the_decisive_node_is_where_two_paths_part(model: Any) -> None:
    """Given two rows, each tree's decisive node is the last that both root-to-leaf paths hold, -1 for one leaf."""
    forest = forest_of(model(USUAL))
    slots = leaf_slots(forest, USUAL.data()[0][:40])
    for a, b in pairwise(slots):
        parted = decisive_nodes(forest, a, b)
        for tree in range(forest.trees):
            if a[tree] == b[tree]:
                assert parted[tree] == -1
                continue
            both = zip(path_of(forest, a[tree]), path_of(forest, b[tree]), strict=False)
            assert parted[tree] == [x for x, y in both if x == y][-1]


@pytest.mark.parametrize("model", LIBRARIES)
def test_a_row_scores_the_same_alone_and_in_a_batch(model: Any) -> None:
    """Given a batch, each row's margin is what it is alone."""
    forest = forest_of(model(USUAL))
    rows = USUAL.data()[0][:50]
    alone = np.concatenate([margins_of(forest, rows[i : i + 1]) for i in range(len(rows))])
    assert alone.tobytes() == margins_of(forest, rows).tobytes()
