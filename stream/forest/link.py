"""The link of a forest: from its margins to what its library predicts, and from a threshold back to a margin.

Predictions are published to the last bit, so they must be what the library's `predict` gives. Neither NumPy's exp nor a
formula on paper promises that. Each link is the library itself, fed with margins instead of rows; a compiled formula
stands in for it only after agreeing with the library on this very machine.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stream.errors import ModelRefused
from stream.forest.cutoffs import Link
from stream.forest.libraries import LIBRARIES
from stream.forest.trees import Forest

ROUNDING: Final = 1e-3  # of the sum of all magnitudes: beyond what adding thousands of float32 can be off by


def link_of(forest: Forest) -> Link:
    """The link of the forest's objective, shared by all forests of the same one."""
    return LIBRARIES[forest.library].link(forest)


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
