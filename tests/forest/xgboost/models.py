"""XGBoost models of other objectives than a classifier's, their files, and the comparison with the library."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd  # type: ignore[import-untyped]
import pytest
import xgboost as xgb

from stream.errors import ModelRefused
from stream.forest.trees import Forest, TreesUsed
from stream.forest.xgboost.reader import read_xgboost
from tests.forest.exactness import assert_equals_owner
from tests.forest.models import USUAL, Recipe, Rows, owner_of, probes, xgboost_matrix

SETTINGS: dict[str, Any] = {"objective": "binary:logistic", "max_depth": 3, "nthread": 1, "seed": 0, "verbosity": 0}
CATEGORICAL = dataclasses.replace(USUAL, categories=2, cardinality=40)
BOOSTERS: list[dict[str, Any]] = [
    {},
    {"booster": "dart", "rate_drop": 0.4, "one_drop": 1},
    {"num_parallel_tree": 3, "subsample": 0.5},
]


def saved(booster: xgb.Booster, form: str = "json") -> bytes:
    return bytes(booster.save_raw(form))


def read(booster: xgb.Booster, *, trees: TreesUsed | None = None, missing: float | None = None) -> Forest:
    return read_xgboost(saved(booster), ubj=False, trees=trees, missing=missing)


def changed(booster: xgb.Booster, change: Any) -> bytes:
    """The booster's file after `change` was made to what it holds."""
    model = json.loads(saved(booster))
    change(model["learner"])
    return json.dumps(model).encode()


def target_for(objective: str, recipe: Recipe = USUAL) -> npt.NDArray[np.float64]:
    """A target that this objective can be trained on: above zero, or of two classes."""
    rows, target = recipe.data()
    of_classes = objective.startswith("binary:") or objective == "reg:logistic"
    return target.astype(np.float64) if of_classes else np.abs(np.nan_to_num(rows[:, 0])) / 100 + target + 0.5


def trained(objective: str = "binary:logistic", *, recipe: Recipe = USUAL, rounds: int = 6, **parameters: Any) -> Any:
    """A booster of any objective on the recipe's rows."""
    matrix = xgboost_matrix(recipe.data()[0], recipe, target_for(objective, recipe))
    if objective == "survival:aft":
        matrix.set_float_info("label_lower_bound", target_for(objective, recipe))
        matrix.set_float_info("label_upper_bound", target_for(objective, recipe) * 2)
    if objective == "reg:quantileerror":
        parameters = {"quantile_alpha": 0.3, **parameters}
    return xgb.train({**SETTINGS, **parameters, "objective": objective}, matrix, rounds)


def assert_exact(booster: xgb.Booster, forest: Forest, rows: Rows) -> None:
    """Leaves, margins and predictions of the rows, and of probes around them, have the library's bits."""
    owner, asked = owner_of(booster, forest), probes(forest, rows)
    leaves, scored, predicted = owner.leaves(asked), owner.ask(asked, "margin"), owner.ask(asked, "probability")
    assert_equals_owner(forest, leaves, scored, predicted, asked)


def refused(raw: bytes, trees: TreesUsed | None = None) -> str:
    """The refusal of these bytes as JSON, which has one line and says what to do."""
    with pytest.raises(ModelRefused) as refusal:
        read_xgboost(raw, ubj=False, trees=trees, missing=None)
    said = str(refusal.value)
    assert said.startswith("XGBoost model refused: ")
    assert "\n" not in said
    assert "; " in said
    return said


def with_words(categories: Any, **parameters: Any) -> xgb.Booster:
    """A booster trained on a table with a number and a column of these categories, round by round."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, len(categories), 200)
    word = pd.Categorical.from_codes(codes, categories=pd.Index(categories))
    matrix = xgb.DMatrix(pd.DataFrame({"age": rng.normal(size=200), "word": word}), codes % 2, enable_categorical=True)
    booster = xgb.Booster({**SETTINGS, **parameters}, [matrix])  # xgb.train cannot copy a model with unsigned words
    for i in range(3):
        booster.update(matrix, i)
    return booster
