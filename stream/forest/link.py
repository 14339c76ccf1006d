"""From margins to what the model predicts, by the owner library's own link, and from a threshold on it to a margin.

A prediction is published to the last bit, so it must be what the library's `predict` gives. Neither NumPy's exp nor a
formula on paper promises that. Each link here is the library itself, fed with margins instead of rows; where a compiled
formula stands in for it, it had to agree with the library on this very machine first.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np

from stream.errors import ModelRefused
from stream.events import ThresholdScale
from stream.forest.cutoffs import Approve
from stream.forest.lightgbm.link import lightgbm_link
from stream.forest.trees import Floats, Forest
from stream.forest.xgboost.link import xgboost_link

ROUNDING: Final = 1e-3  # of the sum of all magnitudes: beyond what adding thousands of float32 can be off by


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

        above: the smallest margin m whose prediction (or m itself, on scale margin) is >= threshold; below: the
        largest with <= threshold. The threshold is compared as the double that it is.
        Raises: InvalidDecision where no prediction can be compared with the threshold: on scale probability it must
        lie strictly between 0 and 1 (logistic links), above 0 (exponential ones) or be finite (all others), on scale
        margin it must be finite.
        """
        ...


def link_of(forest: Forest) -> Link:
    """The link of the forest's objective; links are shared between forests of the same one."""
    if forest.library == "xgboost":
        return xgboost_link(forest.objective)
    return lightgbm_link(forest.link_line, forest.trees if forest.averages else 1)


def check_predictions(forest: Forest, link: Link) -> None:
    """Refuse a forest that could predict something infinite, which no record can hold: exp overflows at margins of 89.

    Raises: ModelRefused where the largest leaf of every tree, with room for rounding, leads there.
    """
    first = forest.first_leaf[:-1]
    ends = (np.minimum.reduceat(forest.weight, first), np.maximum.reduceat(forest.weight, first))
    base = float(forest.base_margin)
    with np.errstate(over="ignore"):
        reach = [base + float(np.cumsum(end.astype(np.float64))[-1]) for end in ends]
        most = np.cumsum(np.maximum(*map(np.abs, ends)).astype(np.float64))[-1]
        room = ROUNDING * (abs(base) + float(most))
        widest = np.array([reach[0] - room, reach[1] + room]).astype(forest.dtype)
    if not (np.isfinite(widest).all() and np.isfinite(link.probabilities(widest)).all()):
        message = (
            f"{forest.library} model refused: its margins may lie between {reach[0]:.6g} and {reach[1]:.6g}, where "
            f"{forest.objective} predicts something infinite, which no record can hold; train with smaller leaves "
            "(a lower learning rate, more regularisation), or on a target of another unit"
        )
        raise ModelRefused(message)
