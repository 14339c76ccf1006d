"""The datasets of the shared folder as models take them: read as the judge reads them, and what it knows of their features."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from numpy.typing import NDArray

from tests.evaluation.baselines.interface import Label, Rows

FOLDER: Final = Path(os.environ.get("COACH_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
NOMINAL: Final = {  # whole-number codes without an order
    "taiwan_default": ("SEX", "MARRIAGE"),
    "adult": ("workclass", "marital-status", "occupation", "relationship", "race", "sex", "native-country"),
}
NOT_USED: Final = {"adult": ("fnlwgt", "education")}  # a weight of the census, and education-num in words


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """One dataset. x (rows, features) float64, NaN where missing; y (rows,) int64, 1 is the favourable outcome."""

    name: str
    columns: tuple[str, ...]
    x: Rows
    y: NDArray[np.int64]
    labels: tuple[Label, ...]

    @property
    def nominal(self) -> NDArray[np.bool_]:
        """Which features are codes without an order. Shape: (features,)."""
        return np.isin(self.columns, NOMINAL.get(self.name, ()))


def read_dataset(name: str, folder: Path = FOLDER) -> Dataset:
    """Read one dataset with its mutability labels; a feature without a label is mutable."""
    frame = pd.read_csv(folder / f"{name}.csv.gz", na_values=["NA"])
    y = frame.pop("target").to_numpy(np.int64)
    frame = frame.drop(columns=list(NOT_USED.get(name, ())))
    for column in frame:
        if not pd.api.types.is_numeric_dtype(frame[column]):
            codes = pd.Categorical(frame[column]).codes.astype(float)
            frame[column] = np.where(codes < 0, np.nan, codes)
    if name == "heloc":
        frame = frame.mask(frame < 0)  # -9, -8, -7 say that there is no record
    columns = tuple(map(str, frame.columns))
    said: dict[str, Any] = json.loads((folder / "mutability.json").read_text("utf-8")).get(name, {})
    labels: list[Label] = [said.get(column, {}).get("label", "mutable") for column in columns]
    return Dataset(name=name, columns=columns, x=frame.to_numpy(np.float64), y=y, labels=tuple(labels))


def features_toml(
    columns: tuple[str, ...], labels: tuple[Label, ...], x: Rows, nominal: NDArray[np.bool_], whole: NDArray[np.bool_]
) -> str:
    """Write features.toml as the judge does: whole numbers in steps of 1, within what training saw. x (rows, features)."""
    lines = []
    for j, column in enumerate(columns):
        kind = "category" if nominal[j] else "integer" if whole[j] else "number"
        lines += [f"[{json.dumps(column)}]", f'type = "{kind}"', f'mutability = "{labels[j]}"']
        if kind != "category":
            low, high = float(np.nanmin(x[:, j])), float(np.nanmax(x[:, j]))
            lines += [f"{end} = {int(v) if whole[j] else repr(v)}" for end, v in (("min", low), ("max", high))]
        lines += ["step = 1"] if kind == "integer" else []
    return "\n".join([*lines, ""])
