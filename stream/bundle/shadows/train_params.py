"""train.json: how the lender trained the model, for training shadows alike; no model file holds all of it.

    {"params": {"objective": "binary:logistic", "max_depth": 4, "eta": 0.1}, "rounds": 300}

`params` is what xgboost.train or lightgbm.train was given by this name, `rounds` what it was given as num_boost_round.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from stream.errors import ConfigurationError, shown
from stream.strict_json import finite_numbers, unique_keys

KEYS: Final = ("params", "rounds")
ROUNDS_MAX: Final = 100_000
TRAIN_BYTES_MAX: Final = 1 << 20
EXAMPLE: Final = '{"params": {"objective": "binary:logistic", "max_depth": 4, "eta": 0.1}, "rounds": 300}'


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainParams:
    """train.json, parsed, and its bytes. Nulls in `params` are dropped: they mean the library's default."""

    path: Path
    content: bytes
    params: Mapping[str, Any]
    rounds: int


def read_train_params(path: Path) -> TrainParams:
    """Read train.json. Raises: ConfigurationError that names the file and what is wrong in it."""
    try:
        with path.open("rb") as file:
            content = file.read(TRAIN_BYTES_MAX + 1)
    except OSError as error:
        _refuse(path, f"cannot be read: {error.strerror or error}")
    if len(content) > TRAIN_BYTES_MAX:
        _refuse(path, f"has more than {TRAIN_BYTES_MAX} bytes; give {EXAMPLE}")
    try:
        parsed = json.loads(content, object_pairs_hook=unique_keys, parse_constant=finite_numbers)
    except (ValueError, RecursionError) as error:
        _refuse(path, f"is not JSON ({shown(str(error))}); give {EXAMPLE}")
    if not isinstance(parsed, dict) or set(parsed) != set(KEYS):
        _refuse(path, f"must be an object of params and rounds and nothing else, as {EXAMPLE}")
    params, rounds = parsed["params"], parsed["rounds"]
    if not isinstance(params, dict):
        _refuse(path, f"`params` must be an object: what the library's train() was given by this name, as in {EXAMPLE}")
    if type(rounds) is not int or not 1 <= rounds <= ROUNDS_MAX:
        _refuse(
            path, f"`rounds` must be a whole number from 1 to {ROUNDS_MAX}: the rounds that the model was trained for"
        )
    given = {name: value for name, value in params.items() if value is not None}
    return TrainParams(path=path, content=content, params=given, rounds=rounds)


def _refuse(path: Path, what: str) -> NoReturn:
    message = f"--train-params {path} {what}"
    raise ConfigurationError(message)
