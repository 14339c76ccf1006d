"""Where a person may land, by trying every value there is: all finite numbers of a small float type, or a whole grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from stream.recourse.rules.feature_rule import FeatureRule

Numbers = npt.NDArray[np.float64]


def cell_of(values: Any, thresholds: Sequence[Any], dtype: Any, operator: str) -> Any:
    """Count the thresholds that send each value right."""
    with np.errstate(over="ignore"):
        x = np.asarray(values).astype(dtype)
    return sum(~(x < t if operator == "<" else x <= t) for t in np.array(thresholds, dtype)) + np.zeros(x.shape, int)


@cache
def every_number(dtype: Any) -> Numbers:
    """All finite numbers of a 16-bit float, each as the shortest decimal that reads as it, ascending."""
    numbers = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    return np.array([float(str(x)) for x in np.unique(numbers[np.isfinite(numbers)])])


def permitted(rule: FeatureRule, candidates: Numbers, dtype: Any) -> npt.NDArray[np.bool_]:
    """Which candidates features.toml permits as a target; what the model reads as a sentinel is one."""
    in_range = (rule.min <= candidates) & (candidates <= rule.max)
    return in_range & ~np.isin(candidates.astype(dtype), np.array(rule.no_record, dtype))


def nearest(own: float, held: Numbers) -> float:
    """The one next to the person's own value; NaN where there is none."""
    return float(held[np.abs(held - own).argmin()]) if len(held) else math.nan
