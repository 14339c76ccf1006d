"""The scale of a feature: the distance that counts as one in efforts and in the ranking.

The paper measures in standard deviations. A few wild values make those useless to people: one utilisation of 50,000
among thousands between 0 and 1 makes a move from nothing to everything look like no effort at all. Percentiles do not
see such values. Yet where tails are no more than long, they would make each move along them dear for no better reason
than the choice of two percentiles. So by default the standard deviation is kept as long as it is within `GUARD` times
what percentiles say, and percentiles speak where it is not.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

Scale: TypeAlias = Literal["guarded", "deviation", "percentile"]
SCALES: tuple[Scale, ...] = get_args(Scale)

TAIL = 10.0  # per cent on either side that a percentile scale does not look at
NORMAL_WIDTH = 2.5631031310892007  # of the rest, in standard deviations of a normal distribution
# A log-normal amount comes to this where its logarithm has a standard deviation of 2, so that one person in ten has 13
# times the median. Ordinary amounts stay well below (at most 5.4 in HELOC, Taiwan, Adult and German credit).
GUARD = 10.0


def scale_of(column: NDArray[np.float64], scale: Scale) -> float:
    """Measure the distance that counts as one: always a finite number above 0, and 1 where nothing can be measured.

    Shapes: column (n,) float64, NaN where nothing is recorded. "deviation" is the standard deviation, "percentile" the
    width between the 10th and the 90th percentile, put so that both agree on a normal distribution, and "guarded" the
    former unless it is more than `GUARD` times the latter. Where nearly all have one value that width is 0: then it is
    the median distance from it of those who have another one.
    Source: Luzio 2026, eq. 3, for the standard deviation.
    """
    seen = column[~np.isnan(column)]
    if not len(seen):
        return 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        deviation = float(np.std(seen))
        if scale == "deviation":
            return deviation if _measures(deviation) else 1.0
        width = _width(seen)
    if not _measures(width):
        return deviation if _measures(deviation) else 1.0
    within = _measures(deviation) and deviation / GUARD <= width
    return deviation if scale == "guarded" and within else width


def _width(seen: NDArray[np.float64]) -> float:
    low, middle, high = np.percentile(seen, [TAIL, 50.0, 100.0 - TAIL]).tolist()
    if low < high:
        return float((high - low) / NORMAL_WIDTH)
    elsewhere = seen[seen != middle]
    return float(np.median(np.abs(elsewhere - middle))) if len(elsewhere) else 0.0


def _measures(scale: float) -> bool:
    return math.isfinite(scale) and scale > 0
