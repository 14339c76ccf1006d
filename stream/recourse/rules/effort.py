"""The effort of a move from one value to another: the one place where it is computed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

EFFORT_MAX = 1e300  # of one move: a sum of such stays finite, whatever an applicant's numbers are

Doubles = NDArray[np.float64] | float
Truths = NDArray[np.bool_] | bool


def efforts(
    values: NDArray[np.float64], own: Doubles, *, cost: Doubles, scale: Doubles, unordered: Truths
) -> NDArray[np.float64]:
    """Price moves: cost times |move| in scales, at most `EFFORT_MAX`; where `unordered`, one scale whatever the move.

    Shapes: values and what all five broadcast to, (n,) or (n, features) -> the same. Nothing is asked where a value is
    the own one: the effort is 0, and where both are NaN too. `cost`, `scale`: finite and above 0. `unordered`: the
    feature is a category, or the own value says that there is none. The effort is NaN where an ordered value is.
    """
    with np.errstate(over="ignore"):
        scales = np.where(unordered, 1.0, np.abs(values - own) / scale)
        dear = np.minimum(cost * scales, EFFORT_MAX)
    return np.where(is_own(values, own), 0.0, dear)


def is_own(values: NDArray[np.float64], own: Doubles) -> NDArray[np.bool_]:
    """Whether each value is the person's own, so that nothing moves; of two missing ones too. Shapes: as `efforts`."""
    found: NDArray[np.bool_] = (values == own) | (np.isnan(values) & np.isnan(own))
    return found
