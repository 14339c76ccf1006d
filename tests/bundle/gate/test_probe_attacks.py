from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pytest

from stream.bundle.gate.probe import probe
from stream.errors import ProbeMismatch
from stream.forest.link import link_of
from stream.forest.trees import CATEGORY, INSIDE, Forest
from tests.bundle.cells import reached, shows
from tests.bundle.gate.test_probe import changed, file_of
from tests.forest.models import Recipe, Rows, forest_of, lightgbm_model, xgboost_model

TRIES = 40
SMALL = Recipe(seed=0, rows=300, features=3, trees=4, depth=3, missing=0.15, whole=False, constant=False, signal=True)
CODED = dataclasses.replace(SMALL, categories=1, cardinality=12)
ZEROS = dataclasses.replace(SMALL, zeros=0.3)
WHOLE = dataclasses.replace(SMALL, whole=True)
SENTINEL = dataclasses.replace(WHOLE, sentinel=-999.0)
GROUPS = {"min_data_per_group": 1, "cat_smooth": 1.0, "max_cat_to_onehot": 1}
MODELS: dict[str, list[tuple[Callable[..., Any], Recipe, dict[str, Any]]]] = {
    "xgboost": [
        (xgboost_model, SMALL, {}),
        (xgboost_model, CODED, {"max_cat_to_onehot": 1}),
        (xgboost_model, SENTINEL, {"num_parallel_tree": 2, "subsample": 0.6}),
        (xgboost_model, CODED, {"booster": "dart", "rate_drop": 0.5, "one_drop": 1, "max_cat_to_onehot": 100}),
    ],
    "lightgbm": [
        (lightgbm_model, SMALL, {}),
        (lightgbm_model, CODED, GROUPS),
        (lightgbm_model, ZEROS, {"zero_as_missing": True}),
        (lightgbm_model, CODED, GROUPS | {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6}),
    ],
}
Attack: TypeAlias = Callable[[Forest, np.random.Generator], Forest | None]


@cache
def made(library: str, number: int) -> tuple[bytes, Forest, Rows]:
    """A small model, our reading of it, and a pool of so few people that many nodes see none of them."""
    model, recipe, settings = MODELS[library][number]
    own = dataclasses.replace(recipe, seed=number, trees=2 if "num_parallel_tree" in settings else recipe.trees)
    booster = model(own, **settings)
    return file_of(booster), forest_of(booster, missing=own.sentinel), own.data()[0][:12]


def moved_threshold(forest: Forest, rng: np.random.Generator) -> Forest:
    node = rng.choice(np.flatnonzero((forest.left != INSIDE) & (forest.kind != CATEGORY)))
    moved = forest.threshold.copy()
    moved[node] = np.nextafter(moved[node], forest.dtype.type(rng.choice([-np.inf, np.inf])))
    return changed(forest, threshold=moved)


def flipped_default(forest: Forest, rng: np.random.Generator) -> Forest:
    node = rng.choice(np.flatnonzero(forest.left != INSIDE))
    flipped = forest.default_left.copy()
    flipped[node] = not flipped[node]
    return changed(forest, default_left=flipped)


def moved_code(forest: Forest, rng: np.random.Generator) -> Forest | None:
    """One code more or less at a split on categories; None for a forest without one."""
    nodes = np.flatnonzero(forest.kind == CATEGORY)
    if len(nodes) == 0:
        return None
    bits = forest.category_bits.copy()
    bits[forest.category_start[rng.choice(nodes)]] ^= np.uint32(1) << np.uint32(rng.integers(0, CODED.cardinality + 1))
    return changed(forest, category_bits=bits)


@pytest.mark.parametrize("library", MODELS)
@pytest.mark.parametrize("attack", [moved_threshold, flipped_default, moved_code])
def test_a_decision_that_is_wrong_anywhere_is_found(library: str, attack: Attack) -> None:
    """Given a threshold one ulp off, a default direction the wrong way, or a code more or less, at any node, then the gate refuses whatever a row can show."""
    rng, tried = np.random.default_rng(5), 0
    while tried < TRIES:
        content, forest, pool = made(library, int(rng.integers(4)))
        wrong = attack(forest, rng)
        if wrong is None or not shows(forest, wrong):
            continue
        tried += 1
        with pytest.raises(ProbeMismatch, match="parts at node"):
            probe(wrong, link_of(wrong), content, pool)


@pytest.mark.parametrize("library", MODELS)
def test_a_leaf_that_is_one_ulp_off_is_found_in_any_tree(library: str) -> None:
    """Given any leaf that a row reaches, when it is off by one ulp of its own, then the gate refuses."""
    rng, tried = np.random.default_rng(6), 0
    while tried < TRIES:
        content, forest, pool = made(library, int(rng.integers(4)))
        slot = int(rng.integers(len(forest.weight)))
        if not reached(forest)[forest.leaf_node[slot]]:
            continue
        tried += 1
        weight = forest.weight.copy()
        weight[slot] = np.nextafter(weight[slot], forest.dtype.type(rng.choice([-np.inf, np.inf])))
        with pytest.raises(ProbeMismatch, match=r"the margin is|alone is"):
            probe(changed(forest, weight=weight), link_of(forest), content, pool)


@pytest.mark.parametrize("library", MODELS)
def test_the_attacked_models_pass_and_nothing_of_them_is_left_out(library: str) -> None:
    """Given the models of these attacks as their libraries wrote them, then the gate passes, and cuts and misses nothing that a row reaches."""
    for number in range(4):
        content, forest, pool = made(library, number)
        report = probe(forest, link_of(forest), content, pool)
        came, split = reached(forest), forest.left != INSIDE
        assert report.splits_unreachable == int((split & ~came).sum())
        assert report.leaves_unreachable == int((~split & ~came).sum())
        assert report.leaf_rows == int((~split & came).sum())
        assert (report.splits_left_out, report.codes_left_out, report.leaves_left_out) == (0, 0, 0)
