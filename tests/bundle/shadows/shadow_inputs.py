"""Inputs of builds with shadow models: a model, its pool with outcomes, and the train.json that says how it was trained."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import xgboost as xgb

from stream.bundle.build import BuiltBundle, build_bundle
from stream.bundle.shadows.training import BOOTSTRAP_SEED
from tests.bundle.kinds import NAMES, TREES, Made, target

XGBOOST_PARAMS: Mapping[str, Any] = {"objective": "binary:logistic", "max_depth": 3}
LIGHTGBM_PARAMS: Mapping[str, Any] = {
    "objective": "binary", "max_depth": 3, "min_data_in_leaf": 2, "min_data_per_group": 1, "cat_smooth": 1.0,
    "max_cat_to_onehot": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ShadowInputs:
    """A folder with what a build needs, and what it was made of."""

    folder: Path
    made: Made
    params: Mapping[str, Any]

    @property
    def is_xgboost(self) -> bool:
        """Of which library the model is."""
        return self.made.suffix != ".txt"

    def train_json(self, rounds: int = TREES, **params: Any) -> Path:
        """Write train.json with these parameters beside the model's own."""
        path = self.folder / "train.json"
        path.write_text(json.dumps({"params": {**self.params, **params}, "rounds": rounds}))
        return path

    def write_pool(self, outcomes: Sequence[Any] | Any = None, name: str = "pool.csv") -> None:
        """Write the pool, with these outcomes instead of those that the model learnt."""
        pool = self.made.pool.assign(outcome=target() if outcomes is None else outcomes)
        path = self.folder / name
        pool.to_parquet(path) if path.suffix == ".parquet" else pool.to_csv(path, index=False)

    def build(self, out: str = "bundle", **changes: Any) -> BuiltBundle:
        """Build a bundle that turns at margin 0."""
        given: dict[str, Any] = {
            "model_path": self.folder / f"model{self.made.suffix}",
            "pool_path": self.folder / "pool.csv",
            "features_path": self.folder / "features.toml",
            "threshold": 0.0,
            "threshold_scale": "margin",
            "target_column": "outcome",
            "out_dir": self.folder / out,
            **self.made.flags,
        }
        return build_bundle(**(given | changes))

    def train(self, count: int, out: str = "bundle", train_json: Path | None = None, **changes: Any) -> BuiltBundle:
        """Build with so many trained shadows, by the model's own parameters where no file is named."""
        return self.build(out, shadows=count, train_params_path=train_json or self.train_json(), **changes)

    def coded(self) -> Any:
        """The pool as the model takes it, its words as their codes. Shape: (rows, features) float64."""
        pool = self.made.pool.copy()
        if isinstance(pool["city"].dtype, pd.CategoricalDtype):
            codes = pool["city"].cat.codes.to_numpy(np.float64)
            pool["city"] = np.where(codes < 0, np.nan, codes)
        return pool[list(NAMES)].to_numpy(np.float64)

    def retrained(self, number: int) -> Any:
        """Shadow `number`, trained here by hand: the oracle of what the build should have trained."""
        rows, outcomes = self.coded(), target()
        drawn = np.random.default_rng((BOOTSTRAP_SEED, number)).integers(0, len(rows), len(rows))
        if self.is_xgboost:
            params = {**self.params, "nthread": 1, "seed": number}
            return xgb.train(params, self.matrix(rows[drawn], outcomes[drawn]), TREES)
        params = {**self.params, "num_threads": 1, "seed": number, "verbose": -1, "deterministic": True}
        data = lgb.Dataset(
            rows[drawn],
            outcomes[drawn],
            feature_name=list(NAMES),
            categorical_feature=[2] if self.made.categories else [],
        )
        return lgb.train({**params, "force_row_wise": True}, data, TREES)

    def matrix(self, rows: Any, label: Any = None) -> xgb.DMatrix:
        """Rows as XGBoost takes them."""
        return xgb.DMatrix(
            rows,
            label,
            feature_names=list(NAMES),
            feature_types=["float", "float", "c" if self.made.categories else "float"],
            enable_categorical=True,
            missing=self.made.flags.get("missing", np.nan),
            nthread=1,
        )

    def margins(self, booster: Any) -> Any:
        """What the library gives for the pool. Shape: (rows,)."""
        if self.is_xgboost:
            return booster.predict(self.matrix(self.coded()), output_margin=True)
        return booster.predict(self.coded(), raw_score=True)


def shadow_inputs(folder: Path, made: Made, **params: Any) -> ShadowInputs:
    """Lay the files down; `params` are what the model was trained with beside the usual."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"model{made.suffix}").write_bytes(made.content)
    types = dict.fromkeys(NAMES, "number") | ({"city": "category"} if made.categories else {})
    tables = "".join(f'[{name}]\ntype = "{kind}"\nmutability = "mutable"\n' for name, kind in types.items())
    listed = "" if made.listed is None else f"categories = {json.dumps(made.listed, ensure_ascii=False)}\n"
    (folder / "features.toml").write_text(tables + listed, "utf-8")
    usual = LIGHTGBM_PARAMS if made.suffix == ".txt" else XGBOOST_PARAMS
    given = ShadowInputs(folder, made, {**usual, **params})
    given.write_pool()
    return given
