"""Inputs of a small build, written to a folder as a user would have them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from stream.bundle.build import BuiltBundle, build_bundle
from tests.forest.models import USUAL, Rows, lightgbm_model, xgboost_model

FEATURES = "".join(
    f'[{name}]\ntype = "number"\nmutability = "{label}"\n'
    for name, label in zip(USUAL.names, ("mutable", "increase_only", "immutable", "mutable"), strict=True)
)
ModelForm = Literal["json", "ubj", "txt"]


@dataclass(frozen=True, slots=True)
class Inputs:
    """A folder with model, pool and features.toml, and what was trained."""

    folder: Path
    model: Path
    booster: Any
    rows: Rows

    def build(self, out: str = "bundle", **changes: Any) -> BuiltBundle:
        """Build a bundle of these inputs at `out` in the same folder."""
        settings: dict[str, Any] = {
            "model_path": self.model,
            "pool_path": self.folder / "pool.csv",
            "features_path": self.folder / "features.toml",
            "threshold": 0.5,
            "target_column": "target",
            "out_dir": self.folder / out,
        }
        return build_bundle(**(settings | changes))


def inputs(folder: Path, form: ModelForm = "json", **parameters: Any) -> Inputs:
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / f"model.{form}"
    booster = (lightgbm_model if form == "txt" else xgboost_model)(USUAL, **parameters)
    booster.save_model(model)
    rows, target = USUAL.data()
    write_pool(folder / "pool.csv", rows, target)
    (folder / "features.toml").write_text(FEATURES)
    return Inputs(folder, model, booster, rows)


def write_pool(path: Path, rows: Rows, target: Any) -> None:
    columns = {name: pa.array(rows[:, i], from_pandas=True) for i, name in enumerate(USUAL.names)}
    write_table(path, pa.table({**columns, "target": pa.array(target)}))


def write_table(path: Path, table: pa.Table) -> None:
    if path.suffix == ".parquet":
        pa_parquet.write_table(table, path)
    elif path.suffix == ".gz":
        with pa.CompressedOutputStream(str(path), "gzip") as out:
            pa_csv.write_csv(table, out)
    else:
        pa_csv.write_csv(table, path)


def content_of(folder: Path) -> dict[str, bytes]:
    """Every file of a folder by its path in it."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def row(*values: float) -> Rows:
    return np.array([values], np.float64)
