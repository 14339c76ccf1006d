"""A lender for tests: a model trained by its owner library on real or made rows, its bundle, and decisions as it sends them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson
import pandas as pd  # type: ignore[import-untyped]
import xgboost as xgb

from stream.bundle.build import build_bundle

THRESHOLD: Final = 0.5
EVENT_TIME: Final = "2026-11-27T10:15:00.250Z"
EFFECTIVE_FROM: Final = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, kw_only=True)
class Lender:
    """`rows` (n, features) float64 with NaN for missing; margin and probability as the owner library gives them."""

    name: str
    features: tuple[str, ...]
    rows: npt.NDArray[np.float64]
    margins: npt.NDArray[np.float32]
    probabilities: npt.NDArray[np.float32]
    bundle: Path
    version: str = "2026-10"

    def approved(self, number: int) -> bool:
        """Whether the model accepts a row."""
        return bool(self.probabilities[number] >= THRESHOLD)

    def decision(self, number: int, **changes: Any) -> dict[str, Any]:
        """The decision on a row, in JSON's shape; `changes` replace fields, and None takes one out."""
        values = (None if np.isnan(value) else float(value) for value in self.rows[number])
        decision: dict[str, Any] = {
            "decision_id": f"{self.name}-{number}",
            "event_time": EVENT_TIME,
            "model_id": self.name,
            "model_version": self.version,
            "features": dict(zip(self.features, values, strict=True)),
            "outcome": "approved" if self.approved(number) else "declined",
            "margin": float(self.margins[number]),
            "probability": float(self.probabilities[number]),
            "threshold": THRESHOLD,
            "threshold_scale": "probability",
        }
        decision |= changes
        return {name: value for name, value in decision.items() if name not in changes or value is not None}

    def declined(self, count: int, *, skip: int = 0) -> list[int]:
        """The first `count` rows that the model declines, after `skip` of them."""
        numbers = [number for number in range(len(self.rows)) if not self.approved(number)]
        return numbers[skip : skip + count]


def record(decision: dict[str, Any]) -> tuple[bytes, bytes]:
    """Key and value of a decision as JSON."""
    return str(decision["decision_id"]).encode(), orjson.dumps(decision)


def records(lender: Lender, numbers: Sequence[int]) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of decisions."""
    return (record(lender.decision(number)) for number in numbers)


def toy_lender(folder: Path, *, version: str = "2026-10", seed: int = 7) -> Lender:
    """Six features and 20 small trees: answers in well under a millisecond, for tests of what is around the method."""
    random = np.random.default_rng(seed)
    rows = np.round(random.normal(size=(900, 6)), 2)
    target = (rows[:, 0] + rows[:, 1] * 0.5 - rows[:, 2] > random.normal(size=900) * 0.5).astype(int)
    frame = pd.DataFrame(rows, columns=[f"f{number}" for number in range(6)])
    return _build(folder, "toy", frame, target, version=version, trees=20, depth=3)


def revised(lender: Lender, revision: int, *, policy: str) -> Lender:
    """The same model with another policy, as a further revision of its version."""
    folder = lender.bundle.parent
    (folder / f"policy-{revision}.toml").write_text(policy)
    build_bundle(
        model_path=folder / "model.json",
        pool_path=folder / "pool.csv",
        features_path=folder / "features.toml",
        policy_path=folder / f"policy-{revision}.toml",
        threshold=THRESHOLD,
        out_dir=folder / f"bundle-{revision}",
        target_column="target",
        model_id=lender.name,
        model_version=lender.version,
        revision=revision,
    )
    return dataclasses.replace(lender, bundle=folder / f"bundle-{revision}")


def heloc_lender(folder: Path, datasets: Path, *, trees: int = 60) -> Lender:
    """The HELOC applicants with a model of `trees` trees of depth 4."""
    frame = pd.read_csv(datasets / "heloc.csv.gz")
    target = frame.pop("target").to_numpy()
    frame = frame.mask(frame < 0).astype(float)  # -9, -8, -7 are "no record"
    return _build(folder, "heloc", frame, target, version="2026-10", trees=trees, depth=4)


def _build(
    folder: Path,
    name: str,
    frame: pd.DataFrame,
    target: npt.NDArray[Any],
    *,
    version: str,
    trees: int,
    depth: int,
) -> Lender:
    folder.mkdir(parents=True, exist_ok=True)
    matrix = xgb.DMatrix(frame, target)
    booster = xgb.train(
        {"max_depth": depth, "eta": 0.1, "objective": "binary:logistic", "nthread": 2, "seed": 1}, matrix, trees
    )
    booster.save_model(folder / "model.json")
    frame.assign(target=target).to_csv(folder / "pool.csv", index=False)
    immutable = frame.columns[-1]
    rules = [
        f'["{column}"]\ntype = "number"\nmutability = "{"immutable" if column == immutable else "mutable"}"\n'
        for column in frame
    ]
    (folder / "features.toml").write_text("\n".join(rules))
    build_bundle(
        model_path=folder / "model.json",
        pool_path=folder / "pool.csv",
        features_path=folder / "features.toml",
        threshold=THRESHOLD,
        out_dir=folder / "bundle",
        target_column="target",
        model_id=name,
        model_version=version,
    )
    return Lender(
        name=name,
        features=tuple(frame.columns),
        rows=frame.to_numpy(np.float64),
        margins=booster.predict(matrix, output_margin=True),
        probabilities=booster.predict(matrix),
        bundle=folder / "bundle",
        version=version,
    )
