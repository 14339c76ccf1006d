"""XGBoost's own links: from a margin to what its `predict` gives, in float32.

A call of a booster costs half a millisecond. Its formulas over the C library's expf, which it calls itself, cost a
microsecond and gave the same bits for all finite float32 (glibc 2.36, XGBoost 3.2.0). Another machine may differ, so each
formula is compared on `PROOFS` margins first; if one bit differs, the booster is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, TypeAlias

import numba
import numpy as np
import xgboost as xgb

from stream.events import ThresholdScale
from stream.forest.cutoffs import Approve, Cutoffs, LinkRange
from stream.forest.trees import Floats

LinkName: TypeAlias = Literal["logistic", "identity", "exp", "hinge"]

LINKS_KEPT = 16
PROOFS = 1 << 16
LINK_OF_OBJECTIVE: dict[str, LinkName] = {  # every objective of XGBoost 3.2 that gives one number per row
    "binary:logistic": "logistic",
    "reg:logistic": "logistic",
    "binary:logitraw": "identity",
    "reg:squarederror": "identity",
    "reg:squaredlogerror": "identity",
    "reg:pseudohubererror": "identity",
    "reg:absoluteerror": "identity",
    "reg:quantileerror": "identity",
    "count:poisson": "exp",
    "reg:gamma": "exp",
    "reg:tweedie": "exp",
    "survival:cox": "exp",
    "survival:aft": "exp",
    "binary:hinge": "hinge",
}
_RANGES: dict[LinkName, LinkRange] = {"logistic": "unit", "identity": "any", "exp": "positive", "hinge": "unit"}


class XgboostBooster:
    """A booster without trees, which turns a base margin into its prediction: slow, but the reference."""

    def __init__(self, objective: str) -> None:
        parameters = {"objective": objective, "base_score": 0.5, "nthread": 1, "verbosity": 0}
        if objective == "reg:quantileerror":
            parameters["quantile_alpha"] = 0.5  # the link does not depend on it
        nothing = xgb.DMatrix(np.zeros((1, 1), np.float32), np.zeros(1, np.float32), nthread=1)
        self._booster = xgb.train(parameters, nothing, num_boost_round=0)

    def probabilities(self, margins: Floats) -> Floats:
        """As `Link` says."""
        if not len(margins):
            return np.empty(0, np.float32)
        rows = xgb.DMatrix(np.zeros((len(margins), 1), np.float32), nthread=1)
        rows.set_base_margin(margins)
        predicted: Floats = self._booster.predict(rows)
        return predicted


class XgboostLink:
    """The link of one objective in LINK_OF_OBJECTIVE."""

    def __init__(self, objective: str) -> None:
        self.name = LINK_OF_OBJECTIVE[objective]
        self.owner = XgboostBooster(objective)
        self._formula = _FORMULAS.get(objective) or _FORMULAS[self.name]
        self._cutoffs = Cutoffs(self.probabilities, np.float32, _RANGES[self.name])
        everywhere = np.arange(0, 1 << 32, (1 << 32) // (PROOFS // 2), dtype=np.uint64).astype(np.uint32)
        spread = everywhere.view(np.float32)
        usual = np.linspace(-16, 16, PROOFS // 2, dtype=np.float32)
        proofs = np.concatenate([spread[np.isfinite(spread)], usual])
        self.compiled = self._formula(proofs).tobytes() == self.owner.probabilities(proofs).tobytes()

    def probabilities(self, margins: Floats) -> Floats:
        """As `Link` says."""
        return self._formula(margins) if self.compiled else self.owner.probabilities(margins)

    def cutoff(self, threshold: float, scale: ThresholdScale, approve: Approve) -> float:
        """As `Link` says."""
        return self._cutoffs.find(threshold, scale, approve)


@lru_cache(maxsize=LINKS_KEPT)
def xgboost_link(objective: str) -> XgboostLink:
    """The link of one objective, shared by all forests."""
    return XgboostLink(objective)


def _compiled(kernel: Callable[[Floats, Floats], None]) -> Callable[[Floats], Floats]:
    def formula(margins: Floats) -> Floats:
        predicted = np.empty(len(margins), np.float32)
        kernel(margins, predicted)
        return predicted

    return formula


@numba.njit(cache=True, nogil=True)
def _logistic_float32(margins: Floats, probabilities: Floats) -> None:
    # Source: xgboost src/common/math.h, Sigmoid; its 1e-16 in the denominator vanishes in float32.
    one, exponent_max = np.float32(1), np.float32(88.7)
    for i in range(margins.shape[0]):
        probabilities[i] = one / (np.float32(math.exp(min(-margins[i], exponent_max))) + one)


@numba.njit(cache=True, nogil=True)
def _exp_float32(margins: Floats, predicted: Floats) -> None:
    for i in range(margins.shape[0]):
        predicted[i] = np.float32(math.exp(margins[i]))


@numba.njit(cache=True, nogil=True)
def _exp_float64(margins: Floats, predicted: Floats) -> None:
    for i in range(margins.shape[0]):
        predicted[i] = np.float32(math.exp(np.float64(margins[i])))


_FORMULAS: dict[str, Callable[[Floats], Floats]] = {
    "survival:aft": _compiled(_exp_float64),  # the only one that exponentiates in double
    "logistic": _compiled(_logistic_float32),
    "identity": np.copy,
    "exp": _compiled(_exp_float32),
    "hinge": lambda margins: (margins > 0).astype(np.float32),
}
