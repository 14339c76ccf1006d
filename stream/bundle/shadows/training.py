"""Shadow models trained by the library itself: as train.json says, each on a bootstrap of the pool.

No model file holds all that a model was trained with, so the lender says it in train.json:

    {"params": {"objective": "binary:logistic", "max_depth": 4, "eta": 0.1}, "rounds": 300}

`params` is what xgboost.train or lightgbm.train was given by this name, `rounds` what it was given as num_boost_round.

Rows, names, categories and what stands for missing are those of the model. A bootstrap is as many rows as the pool has
with an outcome, drawn with replacement (Efron 1979). One thread and fixed seeds: the same inputs give the same models.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xgboost as xgb

from stream.bundle.pool import NO_VALUE, Pool, Rows
from stream.errors import ConfigurationError, shown
from stream.forest.lightgbm.library import captured_warnings, lightgbm
from stream.forest.link import link_of
from stream.forest.trees import Forest, Library
from stream.forest.xgboost.model_file import xgboost_error_text
from stream.strict_json import finite_numbers, unique_keys

KEYS: Final = ("params", "rounds")
ROUNDS_MAX: Final = 100_000
TRAIN_BYTES_MAX: Final = 1 << 20
EXAMPLE: Final = '{"params": {"objective": "binary:logistic", "max_depth": 4, "eta": 0.1}, "rounds": 300}'
BOOTSTRAP_SEED: Final = (
    20_061  # of the rows that are drawn; shadow i draws by (BOOTSTRAP_SEED, i) and trains with seed i
)
LINKS_OF_SHARES: Final = frozenset({"logistic", "hinge"})  # whose models learn from outcomes of 0 to 1
ERROR_CHARACTERS_MAX: Final = 200
# Parameters of train.json that the build overrides, by all their aliases in the libraries.
XGBOOST_OVERRIDDEN: Final = frozenset(
    {"nthread", "n_jobs", "seed", "random_state", "verbosity", "device", "validate_parameters"}
)
LIGHTGBM_OVERRIDDEN: Final = frozenset(
    {
        *("num_threads", "num_thread", "nthread", "nthreads", "n_jobs", "seed", "random_seed", "random_state"),
        *("verbosity", "verbose", "device_type", "device", "deterministic", "force_row_wise", "force_col_wise"),
        *("categorical_feature", "cat_feature", "categorical_column", "cat_column", "categorical_features"),
    }
)
LIGHTGBM_ROUNDS: Final = frozenset(
    {
        *("num_iterations", "num_iteration", "n_iter", "num_tree", "num_trees", "num_round", "num_rounds", "nrounds"),
        *("num_boost_round", "n_estimators", "max_iter"),
    }
)

Labels = npt.NDArray[np.float64]


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
        _refuse_params(path, f"cannot be read: {error.strerror or error}")
    if len(content) > TRAIN_BYTES_MAX:
        _refuse_params(path, f"has more than {TRAIN_BYTES_MAX} bytes; give {EXAMPLE}")
    try:
        parsed = json.loads(content, object_pairs_hook=unique_keys, parse_constant=finite_numbers)
    except (ValueError, RecursionError) as error:
        _refuse_params(path, f"is not JSON ({shown(str(error))}); give {EXAMPLE}")
    if not isinstance(parsed, dict) or set(parsed) != set(KEYS):
        _refuse_params(path, f"must be an object of params and rounds and nothing else, as {EXAMPLE}")
    params, rounds = parsed["params"], parsed["rounds"]
    if not isinstance(params, dict):
        _refuse_params(
            path, f"`params` must be an object: what the library's train() was given by this name, as in {EXAMPLE}"
        )
    if type(rounds) is not int or not 1 <= rounds <= ROUNDS_MAX:
        _refuse_params(
            path, f"`rounds` must be a whole number from 1 to {ROUNDS_MAX}: the rounds that the model was trained for"
        )
    given = {name: value for name, value in params.items() if value is not None}
    return TrainParams(path=path, content=content, params=given, rounds=rounds)


def labels_of(forest: Forest, pool: Pool, column: str) -> Labels:
    """The outcomes of the target column, NaN where a row has none. Shape: (rows,) float64.

    Raises: ConfigurationError where it holds words, inf, no outcome, or what the model's objective cannot learn from.
    """
    target = pool.target
    if pa.types.is_string(target.type) or pa.types.is_large_string(target.type):
        nothing = pc.is_in(target, value_set=pa.array(NO_VALUE, target.type))
        target = pc.if_else(nothing, pa.scalar(None, target.type), target)
    try:
        labels: Labels = target.cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64)
    except pa.ArrowException:  # which repeats the cell
        _refuse_target(
            column,
            f"is of type {pool.target.type} and does not hold numbers alone; write what the model was trained on",
        )
    known = labels[~np.isnan(labels)]
    if not len(known):
        _refuse_target(column, "holds no outcome in any row")
    if np.isinf(known).any():
        _refuse_target(column, "holds inf; correct it, or leave the cell empty")
    whole = forest.objective.startswith("binary")
    wanted = "0 and 1 alone" if whole else "numbers from 0 to 1"
    fits = np.isin(known, (0.0, 1.0)).all() if whole else ((known >= 0) & (known <= 1)).all()
    if link_of(forest).name in LINKS_OF_SHARES and not fits:
        _refuse_target(column, f"must hold {wanted}, for the model's objective is {forest.objective}")
    return labels


def train_shadow(forest: Forest, rows: Rows, labels: Labels, given: TrainParams, number: int) -> bytes:
    """Train shadow `number` of a model; return the content of its file, in the library's `trained_suffix` form.

    Shapes: rows (n, features) float64, labels (n,) float64 with NaN where a row has no outcome.
    Raises: ConfigurationError with the library's message where training fails or a parameter is unknown.
    """
    known = np.flatnonzero(~np.isnan(labels))
    drawn = known[np.random.default_rng((BOOTSTRAP_SEED, number)).integers(0, len(known), len(known))]
    return TRAINERS[forest.library](forest, rows[drawn], labels[drawn], given, number)


def _train_xgboost(forest: Forest, rows: Rows, labels: Labels, given: TrainParams, seed: int) -> bytes:
    fixed = {"nthread": 1, "seed": seed, "verbosity": 1, "device": "cpu", "validate_parameters": True}
    params = _without(given.params, XGBOOST_OVERRIDDEN) | fixed
    try:
        # XGBoost warns about unused parameters, and only at verbosity 1 or more.
        with warnings.catch_warnings(record=True) as heard, xgb.config_context(verbosity=1):
            warnings.simplefilter("always")
            matrix = xgb.DMatrix(
                rows,
                labels,
                feature_names=list(forest.features),
                feature_types=["c" if category else "float" for category in forest.is_category],
                enable_categorical=True,
                missing=np.nan if forest.missing is None else forest.missing,
                nthread=1,
            )
            booster = xgb.train(params, matrix, given.rounds)
    except (xgb.core.XGBoostError, TypeError, ValueError) as error:
        _refuse_training(given, forest, xgboost_error_text(error))
    for warning in heard:
        if "are not used" in (text := str(warning.message)):
            _refuse_training(given, forest, text[text.find("Parameters:") :].strip())
    return bytes(booster.save_raw("ubj"))


def _train_lightgbm(forest: Forest, rows: Rows, labels: Labels, given: TrainParams, seed: int) -> bytes:
    if repeated := sorted(LIGHTGBM_ROUNDS & given.params.keys()):
        _refuse_training(given, forest, f"`params` holds {repeated[0]}; say it as `rounds`, and only there")
    fixed = {
        "num_threads": 1,
        "seed": seed,
        "verbosity": 0,
        "device_type": "cpu",
        "deterministic": True,
        "force_row_wise": True,
    }
    params = _without(given.params, LIGHTGBM_OVERRIDDEN) | fixed
    library = lightgbm()
    try:
        with warnings.catch_warnings(), captured_warnings() as lines:
            warnings.simplefilter("ignore")
            data = library.Dataset(
                rows,
                labels,
                feature_name=list(forest.features),
                categorical_feature=[j for j, category in enumerate(forest.is_category) if category],
                params=params,
            )
            booster = library.train(params, data, given.rounds)
    except (library.basic.LightGBMError, TypeError, ValueError, KeyError) as error:
        _refuse_training(given, forest, str(error).partition("\n")[0])
    for line in lines:
        if "Unknown parameter" in line:
            _refuse_training(given, forest, line.strip().removeprefix("[LightGBM] [Warning] "))
    return str(booster.model_to_string(num_iteration=-1)).encode()


TRAINERS: Final[dict[Library, Callable[[Forest, Rows, Labels, TrainParams, int], bytes]]] = {
    "xgboost": _train_xgboost,
    "lightgbm": _train_lightgbm,
}


def _without(params: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if name not in names}


def _refuse_params(path: Path, what: str) -> NoReturn:
    message = f"--train-params {path} {what}"
    raise ConfigurationError(message)


def _refuse_target(column: str, what: str) -> NoReturn:
    message = f"shadows cannot be trained: the pool's column {shown(column)!r}, which --target-column names, {what}"
    raise ConfigurationError(message)


def _refuse_training(given: TrainParams, forest: Forest, error: str) -> NoReturn:
    message = (
        f"--train-params {given.path}: {forest.library} does not train shadows so: {shown(error.rstrip(' .;'), ERROR_CHARACTERS_MAX)}; give the "
        "parameters that the model was trained with"
    )
    raise ConfigurationError(message)
