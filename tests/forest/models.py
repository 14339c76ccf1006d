"""Models of the owner libraries for the tests of this room, and those libraries as the oracle of what they give."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

import lightgbm as lgb
import numpy as np
import numpy.typing as npt
import xgboost as xgb
from hypothesis import strategies as st

from stream.forest.lightgbm.reader import read_lightgbm
from stream.forest.trees import Forest
from stream.forest.xgboost.reader import read_xgboost

ZERO_REACH = 1.0000000180025095e-35  # LightGBM takes what is nearer to zero for zero
Rows = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to make up data and a model of it."""

    seed: int
    rows: int
    features: int
    trees: int
    depth: int
    missing: float  # share of the cells
    whole: bool  # values are whole numbers, so many are equal
    constant: bool  # the last column holds one value only
    signal: bool  # False: the target is chance, and with a strong penalty many trees are one leaf
    categories: int = 0  # how many of the columns, from the first on, hold codes of categories
    cardinality: int = 5  # of each of those
    zeros: float = 0.0  # share of the cells that are zero
    sentinel: float | None = None  # stands for missing where XGBoost is told so
    doubled: bool = False  # every row stands there twice, and the last column is the one before it again

    @property
    def names(self) -> list[str]:
        """Names of the features."""
        return [f"f{i}" for i in range(self.features)]

    @property
    def types(self) -> list[str]:
        """Feature types as XGBoost calls them."""
        return ["c" if i < self.categories else "q" for i in range(self.features)]

    def data(self) -> tuple[Rows, npt.NDArray[np.int64]]:
        """Rows and a target of both classes."""
        rng = np.random.default_rng(self.seed)
        rows = rng.normal(size=(self.rows, self.features)) * 10.0 ** rng.integers(-3, 6, self.features)
        if self.whole:
            rows = np.round(rows)
        if self.categories:
            rows[:, : self.categories] = rng.integers(0, self.cardinality, (self.rows, self.categories))
        if self.constant:
            rows[:, -1] = 7.0
        noise = rng.normal(size=self.rows)
        first = np.sin(rows[:, 0] * 2) if self.categories else rows[:, 0]
        score = first / (np.abs(first).max() + 1) + 0.3 * noise if self.signal else noise
        if self.zeros:
            rows[rng.random(rows.shape) < self.zeros] = 0.0
        rows[rng.random(rows.shape) < self.missing] = np.nan if self.sentinel is None else self.sentinel
        target = (score > 0).astype(np.int64)
        target[:2] = 0, 1
        if self.doubled and self.features - self.categories > 1:
            rows[:, -1] = rows[:, -2]
        if self.doubled:
            rows, target = np.repeat(rows, 2, axis=0), np.repeat(target, 2)
        return rows, target


recipes = st.builds(
    Recipe,
    seed=st.integers(0, 2**32 - 1),
    rows=st.sampled_from([2, 30, 200]),
    features=st.integers(1, 6),
    trees=st.sampled_from([1, 2, 7, 25]),
    depth=st.sampled_from([1, 2, 4, 9]),
    missing=st.sampled_from([0.0, 0.2, 0.9]),
    whole=st.booleans(),
    constant=st.booleans(),
    signal=st.booleans(),
)

USUAL = Recipe(seed=1, rows=400, features=4, trees=20, depth=3, missing=0.1, whole=False, constant=False, signal=True)


def xgboost_matrix(rows: Rows, recipe: Recipe, target: npt.NDArray[Any] | None = None) -> xgb.DMatrix:
    """The rows as XGBoost is given them for training and for scoring."""
    return _matrix(rows, recipe.names, recipe.types, recipe.sentinel, target)


def _matrix(
    rows: Rows,
    names: list[str],
    types: list[str] | None,
    missing: float | None,
    target: npt.NDArray[Any] | None = None,
) -> xgb.DMatrix:
    return xgb.DMatrix(
        rows,
        target,
        feature_names=names,
        feature_types=types,
        enable_categorical=True,
        missing=np.nan if missing is None else missing,
        nthread=1,
    )


def xgboost_model(recipe: Recipe, **parameters: Any) -> xgb.Booster:
    rows, target = recipe.data()
    settings = {"objective": "binary:logistic", "max_depth": recipe.depth, "nthread": 1, "seed": 0, "verbosity": 0}
    return xgb.train({**settings, **parameters}, xgboost_matrix(rows, recipe, target), recipe.trees)


def lightgbm_model(recipe: Recipe, **parameters: Any) -> lgb.Booster:
    rows, target = recipe.data()
    settings = {"objective": "binary", "max_depth": recipe.depth, "num_leaves": 2**recipe.depth, "verbose": -1}
    settings |= {"num_threads": 1, "deterministic": True, "min_data_in_leaf": 2, "min_data_in_bin": 1}
    categories = list(range(recipe.categories))
    data = lgb.Dataset(rows, target, feature_name=recipe.names, categorical_feature=categories)
    return lgb.train({**settings, **parameters}, data, recipe.trees)


@dataclass(frozen=True, slots=True)
class Owner:
    """What the library itself says of rows. `trees` limits how many are used; an iteration may grow `parallel` of them."""

    booster: Any
    names: list[str]
    trees: int
    types: list[str] | None = None
    missing: float | None = None
    parallel: int = 1

    def ask(self, rows: Rows, what: Literal["margin", "probability", "leaf"]) -> npt.NDArray[Any]:
        """What `predict` gives for these rows."""
        raw, leaf = what == "margin", what == "leaf"
        if isinstance(self.booster, lgb.Booster):
            return np.asarray(
                self.booster.predict(rows, num_iteration=self.trees, raw_score=raw, pred_leaf=leaf, num_threads=1)
            )
        matrix = _matrix(rows, self.names, self.types, self.missing)
        used = (0, self.trees // self.parallel)
        return np.asarray(self.booster.predict(matrix, output_margin=raw, pred_leaf=leaf, iteration_range=used))

    def leaves(self, rows: Rows) -> npt.NDArray[np.int64]:
        """Leaf ids, (rows, trees), also of a single tree, for which XGBoost gives one dimension."""
        return self.ask(rows, "leaf").astype(np.int64).reshape(len(rows), self.trees)


def forest_of(booster: Any, *, missing: float | None = None) -> Forest:
    if isinstance(booster, lgb.Booster):
        return read_lightgbm(booster.model_to_string(), trees=None)
    return read_xgboost(bytes(booster.save_raw("json")), ubj=False, trees=None, missing=missing)


def owner_of(booster: Any, forest: Forest) -> Owner:
    parallel = 1
    if isinstance(booster, xgb.Booster):
        grown = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]
        parallel = grown.get("gbtree", grown)["model"]["iteration_indptr"][1]
    types = ["c" if category else "q" for category in forest.is_category]
    return Owner(booster, list(forest.features), forest.trees, types, forest.missing, parallel)


CODES_ASKED = 70
BASES, STRIDE = 2, 7  # rows that each value is put onto, and how far apart they lie
# Codes that no training saw, that are none, and that float32 or an int32 cannot hold.
STRANGE_CODES = (-1.0, -0.5, 0.5, 3.7, 31.0, 32.0, 2.0**24, 2.0**24 + 1, 2.0**31, -(2.0**31) - 1, 1e30, -1e30, np.nan)


def probes(forest: Forest, rows: Rows) -> Rows:
    """The rows themselves, and others of them put onto every threshold and beside it, onto missing, and onto what trips code.

    Of each value, on `BASES` different rows: one alone may never come to the node that it is meant for.
    """
    extremes = [
        *(
            0.0,
            -0.0,
            1e-36,
            -1e-36,
            ZERO_REACH,
            -ZERO_REACH,
            math.nextafter(ZERO_REACH, 1),
            math.nextafter(-ZERO_REACH, -1),
        ),
        *(5e-324, 2.0**24 + 1, 2.0**53 + 1, -1e30, 1e30, np.nan),
    ]
    made = [rows]
    for feature in range(len(forest.features)):
        on = forest.thresholds(feature)
        with np.errstate(over="ignore"):
            around = [np.nextafter(a, a.dtype.type(end)) for a in _in_both(on) for end in (-np.inf, np.inf)]
        values = np.concatenate([on.astype(np.float64), *(a.astype(np.float64) for a in around), extremes])
        values = values[~np.isinf(values)]
        if forest.is_category[feature]:
            values = np.array([*range(CODES_ASKED), *STRANGE_CODES])
        if forest.missing is not None:
            beside = [np.nextafter(forest.missing, end) for end in (-np.inf, np.inf)]
            beside += [float(np.nextafter(np.float32(forest.missing), np.float32(end))) for end in (-np.inf, np.inf)]
            values = np.concatenate([values, [forest.missing, *beside]])
        values = np.tile(values, BASES)
        probe = rows[(np.arange(len(values)) * STRIDE + feature) % len(rows)].copy()
        probe[:, feature] = values
        made.append(probe)
    return np.concatenate(made)


def _in_both(thresholds: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float32], Rows]:
    return thresholds.astype(np.float32), thresholds.astype(np.float64)
