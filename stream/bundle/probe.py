"""The publish gate: our leaves, margins and probabilities against the owner library's, bit for bit.

Asked on the whole pool, and on pool rows put onto every threshold of every feature, one ulp to each side of it, onto
missing, and onto the numbers that trip code up. One bit of difference anywhere and the bundle is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import xgboost as xgb

from stream.errors import ProbeMismatch
from stream.forest.lightgbm_library import lightgbm
from stream.forest.link import Link
from stream.forest.trees import Floats, Forest
from stream.forest.walk import leaf_ids, leaf_slots, margins

BATCH_ROWS: Final = 8_192
_ZERO_REACH: Final = 1.0000000180025095e-35  # float32(1e-35): nearer to zero than this is zero for LightGBM
_PAST_ZERO: Final = float(np.nextafter(_ZERO_REACH, 1.0))
TRIPPING: Final = (
    *(np.nan, 0.0, -0.0, 1e-36, -1e-36, _ZERO_REACH, -_ZERO_REACH, _PAST_ZERO, -_PAST_ZERO, 5e-324, 0.1),
    *(2.0**24 + 1, -(2.0**24) - 1, 2.0**53, 1e30, -1e30),
)  # 2**24 + 1 is the first whole number that float32 does not hold

Rows: TypeAlias = npt.NDArray[np.float64]
Progress: TypeAlias = Callable[[int, int], None]  # rows done, rows in all


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """What was compared, all of it equal."""

    pool_rows: int
    threshold_rows: int  # on and beside thresholds
    tripping_rows: int  # missing, zeros, and the like
    library: str
    library_version: str  # of the library that was asked, on this machine

    @property
    def rows(self) -> int:
        """Rows in all."""
        return self.pool_rows + self.threshold_rows + self.tripping_rows


@dataclass(frozen=True, slots=True)
class _Probe:
    """Rows of one kind. `feature` is the one that was set; None for the pool's own rows."""

    what: str
    feature: int | None
    rows: Rows


@dataclass(frozen=True, slots=True)
class Answers:
    """What a library gives for rows. Shapes: leaves (n, trees), margins and probabilities (n,)."""

    leaves: npt.NDArray[Any]
    margins: Floats
    probabilities: Floats


class Owner(Protocol):
    """The library itself on the bytes of the model file, using as many trees as the forest, on one thread."""

    version: str

    def ask(self, rows: Rows) -> Answers:
        """What it gives for rows (n, features) float64."""
        ...


def probe(
    forest: Forest, link: Link, model: bytes, pool: Rows, *, progress: Progress = lambda _done, _total: None
) -> ProbeReport:
    """Hold the forest and its link against the owner library.

    Shapes: pool (n, features) float64; `model` is the content of the model file.
    Raises: ProbeMismatch that names the probe, its feature, and the tree or the value that differs.
    """
    owner = owner_of(forest, model)
    counted = {"pool": 0, "threshold": 0, "tripping": 0}
    total, done = _count(forest, pool), 0
    for asked in _probes(forest, pool):
        for start in range(0, len(asked.rows), BATCH_ROWS):
            rows = asked.rows[start : start + BATCH_ROWS]
            _compare(forest, link, owner, asked, start, rows)
            counted[asked.what] += len(rows)
            done += len(rows)
            progress(done, total)
    return ProbeReport(
        pool_rows=counted["pool"],
        threshold_rows=counted["threshold"],
        tripping_rows=counted["tripping"],
        library=forest.library,
        library_version=owner.version,
    )


def owner_of(forest: Forest, model: bytes) -> Owner:
    """The library's own reading of the model file behind `forest`."""
    return _Xgboost(forest, model) if forest.library == "xgboost" else _Lightgbm(forest, model)


def _probes(forest: Forest, pool: Rows) -> Iterator[_Probe]:
    yield _Probe("pool", None, pool)
    for feature in range(len(forest.features)):
        yield _Probe("threshold", feature, _with(pool, feature, _around(forest, feature)))
        yield _Probe("tripping", feature, _with(pool, feature, np.array(TRIPPING)))


def _count(forest: Forest, pool: Rows) -> int:
    return len(pool) + sum(len(_around(forest, j)) + len(TRIPPING) for j in range(len(forest.features)))


def _around(forest: Forest, feature: int) -> npt.NDArray[np.float64]:
    """Each threshold of a feature and its neighbours, in the dtype of the comparison and as doubles; finite ones."""
    on = forest.thresholds(feature)
    as_double = on.astype(np.float64)
    with np.errstate(over="ignore"):  # past the largest float lies inf, which no decision holds
        around = [np.nextafter(a, a.dtype.type(end)) for a in (on, as_double) for end in (-np.inf, np.inf)]
    values: Rows = np.unique(np.concatenate([as_double, *(a.astype(np.float64) for a in around)]))
    return values[np.isfinite(values)]


def _with(pool: Rows, feature: int, values: npt.NDArray[np.float64]) -> Rows:
    """Pool rows, a different one for each value, that hold these values in one feature."""
    rows = np.take(pool, np.arange(len(values)) % len(pool), axis=0)
    rows[:, feature] = values
    return rows


def _compare(forest: Forest, link: Link, owner: Owner, asked: _Probe, start: int, rows: Rows) -> None:
    theirs = owner.ask(rows)
    slots = leaf_slots(forest, rows)
    differs = leaf_ids(forest, slots) != theirs.leaves
    if differs.any():
        row, tree = np.argwhere(differs)[0].tolist()
        _refuse(forest, asked, start + row, f"tree {tree} reaches another leaf")
    scored = margins(forest, slots)
    for what, here, there in (
        ("margin", scored, theirs.margins),
        ("probability", link.probabilities(scored), theirs.probabilities),
    ):
        if here.tobytes() != there.tobytes():
            row = next(i for i in range(len(rows)) if here[i].tobytes() != there[i].tobytes())
            _refuse(forest, asked, start + row, f"the {what} is {here[row]!r} here and {there[row]!r} there")


def _refuse(forest: Forest, asked: _Probe, row: int, what: str) -> None:
    at = "" if asked.feature is None else f" of feature {forest.features[asked.feature]!r}"
    message = (
        f"the model is refused: {what}, on {asked.what} probe {row}{at}; what {forest.library} computes for it is not "
        "reproduced exactly, so please report the model file"
    )
    raise ProbeMismatch(message)


class _Xgboost:
    version = xgb.__version__

    def __init__(self, forest: Forest, model: bytes) -> None:
        self._booster = xgb.Booster({"nthread": 1})
        self._booster.load_model(bytearray(model))
        self._names = list(forest.features)
        self._used = (0, forest.trees)

    def ask(self, rows: Rows) -> Answers:
        matrix = xgb.DMatrix(rows, feature_names=self._names, nthread=1)
        leaves, margins, probabilities = (
            np.asarray(self._booster.predict(matrix, iteration_range=self._used, **what))
            for what in ({"pred_leaf": True}, {"output_margin": True}, {})
        )
        return Answers(leaves.reshape(len(rows), -1), margins, probabilities)


class _Lightgbm:
    def __init__(self, forest: Forest, model: bytes) -> None:
        self.version = lightgbm().__version__
        self._booster = lightgbm().Booster(model_str=model.decode())
        self._used = forest.trees

    def ask(self, rows: Rows) -> Answers:
        leaves, margins, probabilities = (
            np.asarray(self._booster.predict(rows, num_iteration=self._used, num_threads=1, **what))
            for what in ({"pred_leaf": True}, {"raw_score": True}, {})
        )
        return Answers(leaves.reshape(len(rows), -1), margins, probabilities)
