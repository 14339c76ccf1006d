"""Lenders whose models split on categories: with words, with numbers for words, and with bare codes.

XGBoost's is told that -1 stands for missing, LightGBM's takes zero for missing.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import lightgbm as lgb
import numpy as np
import numpy.typing as npt
import xgboost as xgb

from stream.forest.trees import Forest
from tests.forest.models import forest_of
from tests.recourse.lenders import Approve, Lender, Library, Rows, lender_of

FEATURES = ("income", "purpose", "region", "year", "debts", "age")
PURPOSES = ("boat", "bücher", "car", "furniture", "house", "land", "motor", "radio", "study", "travel", "never seen")
YEARS = (2001.0, 2004.0, 2007.0, 2010.5)
REGIONS = 40
SENTINEL = -1.0
TYPES = ("q", "c", "c", "c", "q", "q")
RULES = """
[income]
type = "number"
mutability = "mutable"
min = 0

[purpose]
type = "category"
mutability = "mutable"
categories = [
    "boat", "bücher", "car", "furniture", "house", "land", "motor", "radio", "study", "travel", "never seen",
]
reason = { code = "P", too_high = "the purpose of the loan" }

[region]
type = "category"
mutability = "mutable"

[year]
type = "category"
mutability = "mutable"

[debts]
type = "integer"
mutability = "decrease_only"
min = 0

[age]
type = "integer"
mutability = "immutable"
"""


def applicants(seed: int, rows: int, library: Library) -> tuple[Rows, npt.NDArray[np.int64]]:
    """Made-up applicants and whether they paid back (1)."""
    rng = np.random.default_rng(seed)
    table = np.column_stack(
        [
            rng.lognormal(8, 0.5, rows),
            rng.integers(0, 10, rows),
            rng.integers(0, REGIONS, rows),
            rng.integers(0, len(YEARS), rows),
            rng.integers(0, 9, rows),
            rng.integers(18, 80, rows),
        ]
    ).astype(np.float64)
    if library == "lightgbm":
        table[rng.random(rows) < 0.2, 5] = 0.0  # and those of no age pay back like the oldest
    good = (
        np.log(table[:, 0])
        - 8
        + np.isin(table[:, 1], [1, 4, 8])
        - 0.7 * np.isin(table[:, 1], [0, 9])
        + 0.6 * (table[:, 2] % 3 == 1)
        + 0.5 * np.isin(table[:, 3], [0, 3])
        - 0.15 * table[:, 4]
        + 0.5 * ((table[:, 5] == 0) | (table[:, 5] > 60))
        + rng.normal(0, 0.5, rows)
    )
    for j in (0, 1, 2, 4):
        nothing = SENTINEL if library == "xgboost" and j in (0, 4) else np.nan
        table[rng.random(rows) < 0.06, j] = nothing
    return table, (good > np.quantile(good, 0.55)).astype(np.int64)


def as_year(forest: Forest) -> Forest:
    """The same model with the words that a DataFrame of these years leaves in the file."""
    words = tuple(YEARS if name == "year" else None for name in forest.features)
    return dataclasses.replace(forest, words=words)


@cache
def category_lender(
    library: Library, approve: Approve = "above", *, seed: int = 0, rows: int = 600, trees: int = 14
) -> Lender:
    """Train a small model on made-up applicants and publish it. Cached."""
    pool, target = applicants(seed, rows, library)
    booster = _train(library, pool, target if approve == "above" else 1 - target, trees)
    forest = as_year(forest_of(booster, missing=SENTINEL if library == "xgboost" else None))
    return lender_of(booster, pool, approve, forest=forest, features_toml=RULES)


def _train(library: Library, pool: Rows, target: npt.NDArray[np.int64], trees: int) -> Any:
    names = list(FEATURES)
    if library == "xgboost":
        settings = {"objective": "binary:logistic", "max_depth": 4, "eta": 0.3, "nthread": 1, "seed": 0}
        settings |= {"max_cat_to_onehot": 3, "verbosity": 0}
        matrix = xgb.DMatrix(
            pool,
            target,
            feature_names=names,
            feature_types=list(TYPES),
            enable_categorical=True,
            missing=SENTINEL,
            nthread=1,
        )
        return xgb.train(settings, matrix, trees)
    settings = {"objective": "binary", "num_leaves": 12, "learning_rate": 0.3, "verbose": -1, "num_threads": 1}
    settings |= {"deterministic": True, "min_data_in_leaf": 5, "seed": 0, "zero_as_missing": True}
    settings |= {"min_data_per_group": 5, "cat_smooth": 1.0, "cat_l2": 0.0, "max_cat_to_onehot": 3}
    categories = [name for name, kind in zip(names, TYPES, strict=True) if kind == "c"]
    return lgb.train(settings, lgb.Dataset(pool, target, feature_name=names, categorical_feature=categories), trees)
