"""Is a difference between two methods more than chance? The corrected resampled t-test, and Holm's step-down correction.

Source: Nadeau & Bengio 2003, "Inference for the generalization error", section 5; Holm 1979.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats  # type: ignore[import-untyped]

CONFIDENCE: Final = 0.95
LEAST_SPLITS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A paired difference over splits: its mean, the ends of its interval of 95 %, the two-sided p, and how many splits."""

    mean: float
    low: float
    high: float
    p: float
    splits: int


def corrected_t_test(differences: Sequence[float], test_share: float) -> Difference | None:
    """Test whether the mean of paired differences is 0, where splits share training rows.

    `test_share` is the number of test rows by that of training rows: a fold in five gives 1/4. None below two splits.
    The variance of the mean is (1/n + test_share) times the sample variance, in place of 1/n times.
    """
    n = len(differences)
    if n < LEAST_SPLITS:
        return None
    values = np.array(differences, np.float64)
    mean, variance = float(values.mean()), float(values.var(ddof=1))
    error = math.sqrt((1 / n + test_share) * variance)
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)) * error
    # Without any spread the statistic is 0 / 0 or infinite.
    p = 2 * float(stats.t.sf(abs(mean) / error, n - 1)) if error > 0 else float(mean == 0)
    return Difference(mean=mean, low=mean - reach, high=mean + reach, p=p, splits=n)


def holm(p: Sequence[float]) -> list[float]:
    """Correct a family's p values, in the order given: the k-th least times (m - k), never below one before it, at most 1."""
    order = sorted(range(len(p)), key=p.__getitem__)
    corrected = [0.0] * len(p)
    highest = 0.0
    for k, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p) - k) * p[i]))
        corrected[i] = highest
    return corrected
