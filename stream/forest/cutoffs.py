"""From a threshold to the margin at which a model's decision changes, through the model's own link."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

import numpy as np

from stream.errors import InvalidDecision
from stream.events import ThresholdScale
from stream.forest.trees import Bools, Floats

Approve: TypeAlias = Literal["above", "below"]
LinkRange: TypeAlias = Literal["unit", "positive", "any"]  # of its predictions: within 0 .. 1, above 0, any finite

CUTOFFS_KEPT = 256  # thresholds remembered per link; events rarely bring more than a handful
_GRID = 4096  # margins per round of the search for a cutoff: 3 rounds for float32, 6 for float64


class Link(Protocol):
    """A library's link for one objective. Thread-safe."""

    @property
    def name(self) -> str:
        """Its name in published records."""
        ...

    def probabilities(self, margins: Floats) -> Floats:
        """The library's predictions at these margins. Shapes: (n,) -> (n,), both in the forest's dtype."""
        ...

    def cutoff(self, threshold: float, scale: ThresholdScale, approve: Approve) -> float:
        """The margin at which the model accepts.

        above: the smallest margin m whose prediction (or m itself, on scale margin) is >= threshold; below: the
        largest with <= threshold. The threshold is compared as a double.
        Raises: InvalidDecision where no prediction can be compared with the threshold: on scale probability it must
        lie strictly between 0 and 1 (logistic links), above 0 (exponential ones) or be finite (all others), on scale
        margin it must be finite.
        """
        ...


class Cutoffs:
    """Finds the cutoffs of one link, and remembers them."""

    def __init__(
        self, predict: Callable[[Floats], Floats], dtype: type[np.float32 | np.float64], link_range: LinkRange = "unit"
    ) -> None:
        """`predict`: the link, rising, from margins in `dtype` to predictions in `link_range`."""
        self._predict = predict
        self._dtype = dtype
        self._range: LinkRange = link_range
        self._found: OrderedDict[tuple[float, ThresholdScale, Approve], float] = OrderedDict()

    def find(self, threshold: float, scale: ThresholdScale, approve: Approve) -> float:
        """As `Link.cutoff` says."""
        key = (threshold, scale, approve)
        known = self._found.get(key)
        if known is not None:
            return known
        if scale == "margin":
            cutoff = _cast_margin(threshold, self._dtype, approve)
        else:
            _check(threshold, self._range)
            cutoff = _search(self._predict, threshold, self._dtype, approve)
        self._found[key] = cutoff
        while len(self._found) > CUTOFFS_KEPT:
            try:
                self._found.popitem(last=False)
            except KeyError:  # another thread was faster
                break
        return cutoff


def _check(threshold: float, link_range: LinkRange) -> None:
    """Refuse a threshold on what the model predicts that decides nothing."""
    if link_range == "unit" and not 0.0 < threshold < 1.0:
        message = "a threshold on the probability scale must lie strictly between 0 and 1"
        raise InvalidDecision(message)
    if link_range == "positive" and not 0.0 < threshold < math.inf:
        message = "a threshold on the probability scale must be finite and above 0, as what this model predicts is"
        raise InvalidDecision(message)
    if not math.isfinite(threshold):
        message = "a threshold on the probability scale must be finite, as what this model predicts is"
        raise InvalidDecision(message)


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


def _search(
    predict: Callable[[Floats], Floats], threshold: float, dtype: type[np.float32 | np.float64], approve: Approve
) -> float:
    """Narrow down, over all finite margins in order, where the decision turns; the link rises with the margin."""
    # The ordinal of the greatest margin among all floats of its dtype, zero being 0.
    highest = int(np.finfo(dtype).max.view(np.int32 if dtype is np.float32 else np.int64))
    below, above = -highest - 1, highest + 1  # ordinals outside the finite ones: declined by, accepted by definition
    while above - below > 1:
        step = max(1, (above - below) // _GRID)
        ordinals = range(below + step, above, step)
        predicted = predict(_margins_at(ordinals, dtype)).astype(np.float64)
        past: Bools = predicted >= threshold if approve == "above" else predicted > threshold
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


def _margins_at(ordinals: range | list[int], dtype: type[np.float32 | np.float64]) -> Floats:
    """The inverse for either sign: floats with these ordinals in ascending order, 0 for 0."""
    signed = np.array(ordinals, np.int64)
    magnitudes: Floats = np.abs(signed).astype(np.int32 if dtype is np.float32 else np.int64).view(dtype)
    return np.where(signed < 0, -magnitudes, magnitudes)
