"""Small real LightGBM models of data made up here, and the comparison of all that one gives with what we read of it."""

from __future__ import annotations

from typing import Any

import lightgbm as lgb
import numpy as np

from stream.forest.lightgbm.reader import read_lightgbm
from stream.forest.trees import Forest
from tests.forest.exactness import assert_equals_owner
from tests.forest.models import Rows, probes

CATEGORICAL: dict[str, Any] = {"min_data_per_group": 1, "cat_smooth": 0, "cat_l2": 0, "max_cat_to_onehot": 1}


def trained(rows: Any, target: Any, **parameters: Any) -> str:
    """The text of a model of 10 rounds on one thread. Parameters of the Dataset may be among the others."""
    data = lgb.Dataset(
        rows,
        target,
        feature_name=parameters.pop("feature_name", "auto"),
        categorical_feature=parameters.pop("categorical_feature", "auto"),
        params={"linear_tree": parameters.get("linear_tree", False), "verbose": -1},
        group=parameters.pop("group", None),
    )
    rounds = parameters.pop("rounds", 10)
    settings = {"objective": "binary", "verbose": -1, "num_threads": 1, "min_data_in_leaf": 2, "min_data_in_bin": 1}
    return str(lgb.train({**settings, **parameters}, data, rounds).model_to_string())


def assert_exact(text: str, rows: Rows) -> Forest:
    """Leaves, margins and predictions have LightGBM's bits on these rows and on every threshold; the forest it is."""
    forest = read_lightgbm(text, trees=None)
    asked = probes(forest, rows)
    assert_equals_owner(forest, *said_by_lightgbm(text, asked), asked)
    return forest


def said_by_lightgbm(text: str, rows: Any) -> tuple[Any, Any, Any]:
    """Leaves, margins and predictions that the library gives for rows of any form that it takes."""
    booster = lgb.Booster(model_str=text)
    leaves = booster.predict(rows, pred_leaf=True, num_threads=1)
    raw = booster.predict(rows, raw_score=True, num_threads=1)
    return leaves, raw, booster.predict(rows, num_threads=1)


def mixed(seed: int = 7, rows: int = 300) -> tuple[Rows, Any]:
    """Two columns of numbers with zeros and missing values, one of 40 codes, one of 5, and a target of both classes."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(rows, 4))
    table[:, 2] = rng.integers(0, 40, rows)
    table[:, 3] = rng.integers(0, 5, rows)
    table[rng.random(table.shape) < 0.1] = np.nan
    table[:, 1][rng.random(rows) < 0.4] = 0.0
    noise = rng.normal(size=rows) / 3
    score = np.nan_to_num(table[:, 0]) + np.sin(np.nan_to_num(table[:, 2])) + (np.nan_to_num(table[:, 1]) == 0) + noise
    return table, (score > np.median(score)).astype(np.int64)
