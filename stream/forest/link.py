"""From margins to probabilities by the owner library's own link, and from a probability threshold to a margin.

A probability is published to the last bit, so it must be what the library's `predict` gives. Neither NumPy's exp nor a
formula on paper promises that. Each link here is the library itself, fed with margins instead of rows; where a compiled
formula stands in for it, it had to agree with the library on this very machine first.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from functools import lru_cache
from typing import Literal, Protocol, TypeAlias

import numba
import numpy as np
import xgboost as xgb

from stream.errors import CorruptionError, InvalidDecision
from stream.events import ThresholdScale
from stream.forest.lightgbm_library import lightgbm
from stream.forest.trees import Bools, Floats, Forest

Approve: TypeAlias = Literal["above", "below"]

CUTOFFS_KEPT = 256  # thresholds remembered per link; events rarely bring more than a handful
LINKS_KEPT = 16
_GRID = 4096  # margins asked at once while a cutoff is searched for: 3 rounds for float32, 6 for float64


class Link(Protocol):
    """The library's link of one kind of model. Safe to share among threads."""

    @property
    def name(self) -> str:
        """What published records call it."""
        ...

    def probabilities(self, margins: Floats) -> Floats:
        """What the library predicts for rows of these margins. Shapes: (n,) -> (n,), both in the forest's dtype."""
        ...

    def cutoff(self, threshold: float, scale: ThresholdScale, approve: Approve) -> float:
        """The margin at which the model accepts.

        above: the smallest margin m whose probability (or m itself, on scale margin) is >= threshold; below: the
        largest with <= threshold. The threshold is compared as the double that it is.
        Raises: InvalidDecision where the threshold is not strictly between 0 and 1, or is not finite on scale margin.
        """
        ...


def link_of(forest: Forest) -> Link:
    """The link of the forest's objective; links are shared between forests of the same one."""
    if forest.library == "xgboost":
        return _xgboost_link(forest.objective)
    return _lightgbm_link(forest.sigmoid)


class _Cutoffs:
    """Finds cutoffs by asking the link, and remembers them."""

    def __init__(self, dtype: type[np.float32 | np.float64]) -> None:
        self._dtype = dtype
        self._found: OrderedDict[tuple[float, ThresholdScale, Approve], float] = OrderedDict()

    def find(self, link: Link, threshold: float, scale: ThresholdScale, approve: Approve) -> float:
        key = (threshold, scale, approve)
        known = self._found.get(key)
        if known is not None:
            return known
        if scale == "margin":
            cutoff = _cast_margin(threshold, self._dtype, approve)
        else:
            if not 0.0 < threshold < 1.0:
                message = "a threshold on the probability scale must lie strictly between 0 and 1"
                raise InvalidDecision(message)
            cutoff = _search(link, threshold, self._dtype, approve)
        self._found[key] = cutoff
        while len(self._found) > CUTOFFS_KEPT:
            try:
                self._found.popitem(last=False)
            except KeyError:  # another thread was faster
                break
        return cutoff


def _cast_margin(threshold: float, dtype: type[np.float32 | np.float64], approve: Approve) -> float:
    """The threshold in the margin's dtype, rounded to the side on which no margin changes its decision."""
    if not math.isfinite(threshold):
        message = "a threshold on the margin scale must be finite"
        raise InvalidDecision(message)
    largest = float(np.finfo(dtype).max)
    if abs(threshold) > largest:
        message = f"a threshold on the margin scale must lie within {largest:.3g}, the range of the model's margins"
        raise InvalidDecision(message)
    cast = dtype(threshold)
    if approve == "above" and float(cast) < threshold:
        cast = np.nextafter(cast, dtype(np.inf))
    if approve == "below" and float(cast) > threshold:
        cast = np.nextafter(cast, dtype(-np.inf))
    return float(cast)


def _search(link: Link, threshold: float, dtype: type[np.float32 | np.float64], approve: Approve) -> float:
    """Narrow down, over all finite margins in order, where the decision turns; the link rises with the margin."""
    highest = _ordinal_of(np.finfo(dtype).max, dtype)
    below, above = -highest - 1, highest + 1  # ordinals outside the finite ones: declined by, accepted by definition
    while above - below > 1:
        step = max(1, (above - below) // _GRID)
        ordinals = range(below + step, above, step)
        probabilities = link.probabilities(_margins_at(ordinals, dtype)).astype(np.float64)
        past: Bools = probabilities >= threshold if approve == "above" else probabilities > threshold
        first = int(past.argmax()) if past.any() else len(past)
        if first < len(past):
            above = ordinals[first]
        if first > 0:
            below = ordinals[first - 1]
    turn = above if approve == "above" else below
    if abs(turn) > highest:
        message = "no margin of this model reaches that threshold"
        raise InvalidDecision(message)
    return float(_margins_at([turn], dtype)[0])


def _ordinal_of(margin: np.floating, dtype: type[np.float32 | np.float64]) -> int:
    """The place of a positive float among all floats of its dtype, zero being 0."""
    return int(margin.view(np.int32 if dtype is np.float32 else np.int64))


def _margins_at(ordinals: range | list[int], dtype: type[np.float32 | np.float64]) -> Floats:
    """The inverse for either sign: floats at these places in ascending order, 0 for 0."""
    places = np.array(ordinals, np.int64)
    magnitudes: Floats = np.abs(places).astype(np.int32 if dtype is np.float32 else np.int64).view(dtype)
    return np.where(places < 0, -magnitudes, magnitudes)


# --- XGBoost -------------------------------------------------------------------------------------------------------


class XgboostBooster:
    """A booster without a tree, so that what goes in as base margin comes out as probability: slow, but the owner."""

    def __init__(self, objective: str) -> None:
        parameters = {"objective": objective, "base_score": 0.5, "nthread": 1, "verbosity": 0}
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


class XgboostLogistic:
    """XGBoost's logistic link in float32.

    Asking a booster costs half a millisecond. Its formula with the C library's expf, the one that it calls itself,
    costs a microsecond and gave the same bits for all finite float32 (glibc 2.36, XGBoost 3.2.0). Another machine may
    differ, so the formula is compared on `PROOFS` margins first, and where one bit differs the booster serves.
    """

    name = "logistic"
    PROOFS = 1 << 16

    def __init__(self, objective: str) -> None:
        self.owner = XgboostBooster(objective)
        self._cutoffs = _Cutoffs(np.float32)
        everywhere = np.arange(0, 1 << 32, (1 << 32) // (self.PROOFS // 2), dtype=np.uint64).astype(np.uint32)
        spread = everywhere.view(np.float32)
        usual = np.linspace(-16, 16, self.PROOFS // 2, dtype=np.float32)
        proofs = np.concatenate([spread[np.isfinite(spread)], usual])
        self.compiled = _logistic(proofs).tobytes() == self.owner.probabilities(proofs).tobytes()

    def probabilities(self, margins: Floats) -> Floats:
        """As `Link` says."""
        return _logistic(margins) if self.compiled else self.owner.probabilities(margins)

    def cutoff(self, threshold: float, scale: ThresholdScale, approve: Approve) -> float:
        """As `Link` says."""
        return self._cutoffs.find(self, threshold, scale, approve)


@lru_cache(maxsize=LINKS_KEPT)
def _xgboost_link(objective: str) -> Link:
    return XgboostLogistic(objective)


def _logistic(margins: Floats) -> Floats:
    probabilities = np.empty(len(margins), np.float32)
    _logistic_float32(margins, probabilities)
    return probabilities


@numba.njit(cache=True, nogil=True)
def _logistic_float32(margins: Floats, probabilities: Floats) -> None:
    # Source: xgboost src/common/math.h, Sigmoid; its 1e-16 in the denominator vanishes in float32.
    one, exponent_max = np.float32(1), np.float32(88.7)
    for i in range(margins.shape[0]):
        probabilities[i] = one / (np.float32(math.exp(min(-margins[i], exponent_max))) + one)


# --- LightGBM ------------------------------------------------------------------------------------------------------

# One linear tree whose both leaves give back the only feature, so that a row is its own margin.
_IDENTITY_TREE = """Tree=0
num_leaves=2
num_cat=0
split_feature=0
split_gain=1
threshold=0
decision_type=2
left_child=-1
right_child=-2
leaf_value=0 0
leaf_weight=1 1
leaf_count=1 1
internal_value=0
internal_weight=2
internal_count=2
is_linear=1
leaf_const=0 0
num_features=1 1
leaf_features=0  0\x20
leaf_coeff=1  1\x20
shrinkage=1


"""
_IDENTITY_MODEL = """tree
version=v4
num_class=1
num_tree_per_iteration=1
label_index=0
max_feature_idx=0
objective=binary sigmoid:{sigmoid!r}
feature_names=margin
feature_infos=[-1:1]
tree_sizes={size}

{tree}end of trees
"""


class LightgbmLogistic:
    """LightGBM's logistic link in float64, asked of a model that LightGBM itself evaluates (about 80 us a call)."""

    name = "logistic"

    def __init__(self, sigmoid: float) -> None:
        text = _IDENTITY_MODEL.format(sigmoid=sigmoid, size=len(_IDENTITY_TREE), tree=_IDENTITY_TREE)
        lgb = lightgbm()
        self._booster = lgb.Booster(model_str=text)
        self._cutoffs = _Cutoffs(np.float64)
        # Nearer to zero than 1e-35 LightGBM takes any value for zero, where the link is flat.
        asked = np.array([-745.5, -1.0, -0.1, -1e-34, 0.0, 1e-34, 1e-9, 0.1, 3.0, 745.5])
        given_back = np.asarray(self._booster.predict(asked[:, None], raw_score=True, num_threads=1))
        if given_back.tobytes() != asked.tobytes():
            message = f"LightGBM {lgb.__version__} does not give back the margins it is asked to link"
            raise CorruptionError(message)

    def probabilities(self, margins: Floats) -> Floats:
        """As `Link` says."""
        if not len(margins):
            return np.empty(0, np.float64)
        return np.asarray(self._booster.predict(margins[:, None], num_threads=1))

    def cutoff(self, threshold: float, scale: ThresholdScale, approve: Approve) -> float:
        """As `Link` says."""
        return self._cutoffs.find(self, threshold, scale, approve)


@lru_cache(maxsize=LINKS_KEPT)
def _lightgbm_link(sigmoid: float) -> Link:
    return LightgbmLogistic(sigmoid)
