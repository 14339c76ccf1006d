"""The owner libraries as the gate's oracle: each reads the model file itself and scores rows of codes or a table of words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import xgboost as xgb

from stream.errors import ProbeMismatch
from stream.forest.lightgbm.library import lightgbm
from stream.forest.trees import Floats, Forest, Library

Rows: TypeAlias = npt.NDArray[np.float64]
Table: TypeAlias = Any  # a pandas DataFrame: the one form of a table of words that both libraries take


@dataclass(frozen=True, slots=True)
class OwnerPredictions:
    """A library's results for rows. Shapes: leaves (n, trees), margins and predictions (n,)."""

    leaves: npt.NDArray[Any]
    margins: Floats
    predictions: Floats


class InPlace(NamedTuple):
    """What a second way of predicting gives. Shapes: (n,) both."""

    margins: Floats
    predictions: Floats


def owner_of(forest: Forest, model: bytes) -> Owner:
    """The owner library, loaded with the model file behind `forest`."""
    return OWNERS[forest.library](forest, model)


def library_version(forest: Forest) -> str:
    """The version of the forest's library on this machine."""
    return OWNERS[forest.library].version()


def first_difference(ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> int | None:
    """The first index at which two arrays (n,) differ in a bit, 0 if only their dtypes do; None where they are equal."""
    if ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes():
        return None
    return next((i for i in range(len(ours)) if ours[i].tobytes() != theirs[i].tobytes()), 0)


class XgboostOwner:
    """Booster.predict on a DMatrix, with as many trees as the forest, on one thread.

    It is given what the file may not hold: feature types and the sentinel.
    """

    @staticmethod
    def version() -> str:
        """The version of the library on this machine."""
        return str(xgb.__version__)

    def __init__(self, forest: Forest, model: bytes) -> None:
        self._booster = xgb.Booster({"nthread": 1})
        self._booster.load_model(bytearray(model))
        self._forest = forest
        self._types = ["c" if category else "float" for category in forest.is_category]
        self._missing = np.nan if forest.missing is None else forest.missing
        grown = _trees_of(json.loads(self._booster.save_raw("json")))
        # An iteration may grow several trees (num_parallel_tree).
        self._used = (0, int(grown["iteration_indptr"].index(forest.trees)))
        self._by_tree = self._booster if self._used[1] == forest.trees else _one_tree_each(self._booster)

    def predict(self, rows: Rows) -> OwnerPredictions:
        """Leaves, margins and predictions of rows (n, features) float64."""
        return self._answers(self._matrix(rows), len(rows))

    def predict_table(self, rows: Rows, integers: Sequence[int] = ()) -> OwnerPredictions:
        """Results for the same rows as a table that holds the training categories as the file's words.

        Codes must be whole and have a word, or be NaN, which becomes None. The table declares its categories in another
        order than training did, so that only a library that goes by words gets equal results. The features `integers`
        without words are int64 columns, so their values must be whole.
        """
        if not any(self._forest.words):
            return self._answers(self._matrix(_in_words(self._forest, rows, {}, integers)), len(rows))
        trained = dict(self._booster.get_categories(export_to_arrow=True).to_arrow())
        words = {name: _as_trained(words) for name, words in trained.items()}
        table = _in_words(self._forest, rows, words, integers)
        with _refused_in_words("xgboost", xgb.core.XGBoostError):
            matrix = xgb.DMatrix(table, enable_categorical=True, missing=self._missing, nthread=1)
            return self._answers(matrix, len(rows))

    def tree_margins(self, tree: int, rows: Rows) -> Floats:
        """The margin of one tree alone, from zero. Shapes: rows (n, features) -> (n,)."""
        matrix = self._matrix(rows, base_margin=np.zeros(len(rows), np.float32))
        alone = self._by_tree.predict(matrix, iteration_range=(tree, tree + 1), output_margin=True)
        return np.asarray(alone)

    def _matrix(self, rows: Rows | Table, **more: Any) -> xgb.DMatrix:  # noqa: ANN401 - as DMatrix takes it
        return xgb.DMatrix(
            rows,
            feature_names=list(self._forest.features),
            feature_types=self._types,
            enable_categorical=True,
            missing=self._missing,
            nthread=1,
            **more,
        )

    def in_place(self, rows: Rows) -> InPlace:
        """What `inplace_predict` gives, which XGBClassifier uses and which rounds DART otherwise."""
        margins, predictions = (
            np.asarray(
                self._booster.inplace_predict(
                    rows, iteration_range=self._used, predict_type=what, missing=self._missing, validate_features=False
                )
            )
            for what in ("margin", "value")
        )
        return InPlace(margins, predictions)

    def _answers(self, matrix: xgb.DMatrix, rows: int) -> OwnerPredictions:
        leaves, margins, predictions = (
            np.asarray(self._booster.predict(matrix, iteration_range=self._used, **what))
            for what in ({"pred_leaf": True}, {"output_margin": True}, {})
        )
        return OwnerPredictions(leaves.reshape(rows, -1), margins, predictions)


class LightgbmOwner:
    """Booster.predict on an array, or on a DataFrame for words."""

    @staticmethod
    def version() -> str:
        """As `XgboostOwner` does."""
        return str(lightgbm().__version__)

    def __init__(self, forest: Forest, model: bytes) -> None:
        self._booster = lightgbm().Booster(model_str=model.decode())
        self._forest = forest

    def predict(self, rows: Rows) -> OwnerPredictions:
        """As `XgboostOwner` does."""
        return self._answers(rows, len(rows))

    def predict_table(self, rows: Rows, integers: Sequence[int] = ()) -> OwnerPredictions:
        """As `XgboostOwner` does. Its columns stay in the model's order: LightGBM takes columns by index, not by name."""
        forest = self._forest
        worded = [name for name, words in zip(forest.features, forest.words, strict=True) if words is not None]
        trained = dict(zip(worded, self._booster.pandas_categorical or [], strict=True))
        indexes = {name: _pandas().Index(words) for name, words in trained.items()}
        table = _in_words(forest, rows, indexes, integers)
        with _refused_in_words("lightgbm", (lightgbm().basic.LightGBMError, ValueError)):
            return self._answers(table, len(rows))

    def tree_margins(self, tree: int, rows: Rows) -> Floats:
        """As `XgboostOwner` does."""
        return np.asarray(
            self._booster.predict(rows, start_iteration=tree, num_iteration=1, raw_score=True, num_threads=1)
        )

    def in_place(self, rows: Rows) -> None:
        """None: the library has no second way of predicting."""

    def _answers(self, rows: Rows | Table, count: int) -> OwnerPredictions:
        leaves, margins, predictions = (
            np.asarray(self._booster.predict(rows, num_iteration=self._forest.trees, num_threads=1, **what))
            for what in ({"pred_leaf": True}, {"raw_score": True}, {})
        )
        return OwnerPredictions(leaves.reshape(count, -1), margins, predictions)


Owner: TypeAlias = XgboostOwner | LightgbmOwner  # with the content of the model file
OWNERS: Final[dict[Library, type[Owner]]] = {"xgboost": XgboostOwner, "lightgbm": LightgbmOwner}


@contextmanager
def _refused_in_words(library: str, fault: type[Exception] | tuple[type[Exception], ...]) -> Iterator[None]:
    try:
        yield
    except fault as error:
        message = (
            f"the model is refused: {library} does not score a table of the training categories that its own file names "
            f"({type(error).__name__}); train on codes, or on other words"
        )
        raise ProbeMismatch(message) from error


def _trees_of(saved: dict[str, Any]) -> dict[str, Any]:
    grown = saved["learner"]["gradient_booster"]
    found: dict[str, Any] = grown.get("gbtree", grown)["model"]  # a DART model lies within its trees' weights
    return found


def _one_tree_each(booster: xgb.Booster) -> xgb.Booster:
    """The same trees with one iteration each, as XGBoost predicts no less than an iteration."""
    saved = json.loads(booster.save_raw("json"))
    model = _trees_of(saved)
    model["gbtree_model_param"]["num_parallel_tree"] = "1"
    model["iteration_indptr"] = list(range(len(model["trees"]) + 1))
    singly = xgb.Booster({"nthread": 1})
    singly.load_model(bytearray(json.dumps(saved).encode()))
    return singly


def _pandas() -> Any:  # noqa: ANN401 - imported where a model has words: it takes a third of a second
    return import_module("pandas")


def _as_trained(words: Any) -> Any:  # noqa: ANN401 - pyarrow and pandas have no types
    """The training categories as an index of their own type, without which XGBoost refuses them; None for a number."""
    if words is None:
        return None
    values = words.to_pylist()
    return _pandas().Index(values if str(words.type).endswith("string") else np.array(values, str(words.type)))


def _in_words(forest: Forest, rows: Rows, categories: dict[str, Any], integers: Sequence[int]) -> Table:
    """The rows as a DataFrame; `categories` are the library's own, an index per feature that has words.

    Raises: ProbeMismatch where the library's categories of a feature are not the forest's.
    """
    columns: dict[str, Any] = {}
    for j, (name, words) in enumerate(zip(forest.features, forest.words, strict=True)):
        columns[name] = rows[:, j].astype(np.int64) if j in integers else rows[:, j]
        if words is None:
            continue
        declared = categories[name].take(
            range(len(categories[name]) - 1, -1, -1)
        )  # not a view: XGBoost ignores strides
        index_of = {word: index for index, word in enumerate(declared.tolist())}  # to Python, as to us, True is 1
        indices = np.array([index_of.get(word, -1) for word in words])
        if len(declared) != len(words) or (indices < 0).any():
            message = f"the model is refused: {forest.library} reads other categories of {name!r} than we do; please report the model file"
            raise ProbeMismatch(message)
        codes = np.where(np.isnan(rows[:, j]), -1, rows[:, j]).astype(np.int64)
        said = np.array([*(declared[index] for index in indices), None], object)[codes]  # None is last: where -1 is
        columns[name] = _pandas().Categorical(said, categories=declared)
    return _pandas().DataFrame(columns)
