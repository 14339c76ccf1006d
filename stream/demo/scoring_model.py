"""The demo's lender: trains a scoring model on past applications, and approves or declines new ones by it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import xgboost
from numpy.typing import NDArray

from stream.bundle.advice.pool_rank import area_under_curve
from stream.demo.credit_data import CreditData

ROUNDS: Final = 150
PARAMETERS: Final = {
    "objective": "binary:logistic",
    "eta": 0.1,
    "max_depth": 4,
    "min_child_weight": 4,
    "nthread": 1,  # the same bits on every machine
    "seed": 0,
}
POOL_TARGET: Final = "outcome"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scores:
    """What the model says of each application: margin and probability (rows,) float32, of the favourable outcome."""

    margins: NDArray[np.float32]
    probabilities: NDArray[np.float32]
    held_out_auc: float  # of the rows that the model did not learn from: 0.5 is guessing, 1 is perfect


def train(data: CreditData, model_file: Path, pool_file: Path) -> Scores:
    """Train on the training rows; write the model (XGBoost JSON) and its training pool (Parquet, words as words)."""
    training = data.training_rows()
    names = list(data.rules.names)
    labels = data.favourable[training].astype(np.float32)
    booster = xgboost.train(
        PARAMETERS, xgboost.DMatrix(data.matrix[training], labels, feature_names=names), num_boost_round=ROUNDS
    )
    booster.save_model(model_file)
    _write_pool(data, training, pool_file)
    return _scores(data, booster)


def scores_of(data: CreditData, model_file: Path) -> Scores:
    """Score by a model that was trained before."""
    return _scores(data, xgboost.Booster(model_file=model_file))


def _scores(data: CreditData, booster: xgboost.Booster) -> Scores:
    everyone = xgboost.DMatrix(data.matrix, feature_names=list(data.rules.names))
    probabilities = booster.predict(everyone)
    held_out = np.setdiff1d(np.arange(len(data.matrix)), data.training_rows())
    return Scores(
        margins=booster.predict(everyone, output_margin=True),
        probabilities=probabilities,
        held_out_auc=area_under_curve(probabilities[held_out], data.favourable[held_out]),
    )


def _write_pool(data: CreditData, training: NDArray[np.int64], pool_file: Path) -> None:
    columns: dict[str, list[object]] = {
        name: [data.applications[i][name] for i in training.tolist()] for name in data.rules.names
    }
    columns[POOL_TARGET] = [int(data.favourable[i]) for i in training.tolist()]
    pa.parquet.write_table(pa.table(columns), pool_file)
