"""Models of one split as the protocol needs them: the model itself, others on bootstraps, and the setting that rivals see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import lightgbm as lgb
import numpy as np
import xgboost as xgb
from numpy.typing import NDArray

from stream.forest.lightgbm.reader import read_lightgbm
from stream.forest.trees import Forest, Library
from stream.forest.xgboost.reader import read_xgboost
from tests.evaluation.baselines.interface import Rows, Setting
from tests.evaluation.datasets import Dataset

LEARNING_RATE: Final = 0.1
CUTOFF: Final = 0.0  # the margin of a probability of one half
Margins: TypeAlias = Callable[[Rows], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Kind:
    """What kind of model is trained."""

    library: Library
    depth: int
    trees: int

    def settings(self, seed: int) -> dict[str, Any]:
        """The library's own settings, those of the judge on one thread."""
        if self.library == "xgboost":
            own = {"max_depth": self.depth, "eta": LEARNING_RATE, "objective": "binary:logistic"}
            return own | {"nthread": 1, "seed": seed}
        own = {"num_leaves": 2**self.depth, "max_depth": self.depth, "learning_rate": LEARNING_RATE}
        return own | {"objective": "binary", "num_threads": 1, "seed": seed, "verbose": -1, "deterministic": True}


def train(kind: Kind, columns: tuple[str, ...], x: Rows, y: NDArray[np.int64], seed: int) -> Any:
    """Train one booster. Shapes: x (rows, features), y (rows,)."""
    names = list(columns)
    if kind.library == "xgboost":
        matrix = xgb.DMatrix(x, y, feature_names=names, nthread=1)
        return xgb.train(kind.settings(seed), matrix, kind.trees)
    return lgb.train(kind.settings(seed), lgb.Dataset(x, y, feature_name=names), kind.trees)


def margins_by(booster: Any, library: Library, columns: tuple[str, ...]) -> Margins:
    """The margins of the owner library, on one thread. Shape: (n, features) -> (n,) float64."""
    if library == "lightgbm":
        return lambda rows: np.asarray(booster.predict(rows, raw_score=True, num_threads=1), np.float64)
    booster.set_param({"nthread": 1})
    names = list(columns)

    def margins(rows: Rows) -> NDArray[np.float64]:
        matrix = xgb.DMatrix(rows, feature_names=names, nthread=1)
        return np.asarray(booster.predict(matrix, output_margin=True), np.float64)

    return margins


def forest_of(booster: Any, library: Library) -> Forest:
    """The same model as our arrays."""
    if library == "lightgbm":
        return read_lightgbm(booster.model_to_string(), trees=None)
    return read_xgboost(bytes(booster.save_raw("json")), ubj=False, trees=None, missing=None)


def bootstraps(kind: Kind, setting: Setting, count: int, seed: int) -> list[Any]:
    """Train `count` boosters of the same kind, each on as many rows as the training set has, drawn with replacement."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(count):
        drawn = rng.choice(len(setting.x), len(setting.x))
        found.append(train(kind, setting.columns, setting.x[drawn], setting.y[drawn], seed + 1 + i))
    return found


def setting_of(kind: Kind, dataset: Dataset, train_rows: NDArray[np.int64], seed: int) -> Setting:
    """Train the model of one split and say all that a method may know of it. train_rows: indices into the dataset."""
    x, y = dataset.x[train_rows], dataset.y[train_rows]
    booster = train(kind, dataset.columns, x, y, seed)
    return setting_from(booster, kind.library, dataset, x, y, seed)


def setting_from(booster: Any, library: Library, dataset: Dataset, x: Rows, y: NDArray[np.int64], seed: int) -> Setting:
    """The setting of a booster that is trained already. `dataset` says what its features are; x, y its training set."""
    margins = margins_by(booster, library, dataset.columns)
    deviation = np.nanstd(x, axis=0)
    deviation[~(deviation > 0)] = 1.0
    return Setting(
        booster=booster,
        library=library,
        forest=forest_of(booster, library),
        columns=dataset.columns,
        x=x,
        y=y,
        accepted=margins(x) >= CUTOFF,
        margins=margins,
        cutoff=CUTOFF,
        sign=1,
        nominal=dataset.nominal,
        whole=np.array([bool((column == column.round())[~np.isnan(column)].all()) for column in x.T]),
        low=np.nanmin(x, axis=0),
        high=np.nanmax(x, axis=0),
        labels=dataset.labels,
        deviation=deviation,
        seed=seed,
    )
