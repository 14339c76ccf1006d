"""LIME for tables: a linear model of the decision around one person, fitted on made-up people near them.

Ribeiro, Singh and Guestrin 2016, as their library does it for tables: each feature is cut at its quartiles (a code is
its own bin), people are drawn feature by feature from the training data, and a ridge regression on "same bin as the
person" is fitted to the model's probability, weighted by nearness. The library (lime 0.2.0.1) brings an image toolkit,
has no wheel and cannot take missing values, so this is code of our own; missing is a bin here.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tests.evaluation.baselines.greedy import Greedy
from tests.evaluation.baselines.interface import Rows, Setting

NAME: Final = "greedy by LIME"
SAMPLES: Final = 1000
KERNEL_WIDTH: Final = 0.75  # times the root of the number of features, the library's default
RIDGE: Final = 1.0  # the library's default too
QUARTILES: Final = (0.25, 0.5, 0.75)
MISSING: Final = -1


class Lime:
    """Weights of "stays in its bin" on the probability that the model accepts."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._cuts = [np.unique(np.nanquantile(column, QUARTILES)) for column in setting.x.T]

    def of(self, row: Rows) -> Rows:
        """Give the weight of each feature; the draw depends on the row and the setting's seed alone. Shape: as SHAP."""
        drawn = self._drawn(row)
        same = np.column_stack([self._bin(j, drawn[:, j]) == self._bin(j, row[j : j + 1]) for j in range(len(row))])
        away = (~same).sum(axis=1)
        nearness = np.exp(-away / (2 * KERNEL_WIDTH**2 * len(row)))  # the root of exp(-d^2 / width^2), d^2 = `away`
        gap = self._setting.margins(drawn) - self._setting.cutoff
        with np.errstate(over="ignore"):  # a probability of 0
            probability = 1 / (1 + np.exp(-gap))
        return ridge(same.astype(np.float64), probability, nearness)

    def _drawn(self, row: Rows) -> Rows:
        """People whose features come each from another training row; the first is the one explained."""
        seed = np.frombuffer(hashlib.sha256(row.tobytes()).digest(), np.uint32)
        chance = np.random.default_rng([self._setting.seed, *seed.tolist()])
        picked = chance.integers(len(self._setting.x), size=(SAMPLES, len(row)))
        drawn: Rows = np.take_along_axis(self._setting.x, picked, axis=0)
        drawn[0] = row
        return drawn

    def _bin(self, j: int, values: Rows) -> NDArray[Any]:
        if self._setting.nominal[j]:
            return np.where(np.isnan(values), MISSING, values)
        return np.where(np.isnan(values), MISSING, np.searchsorted(self._cuts[j], values))


def ridge(x: Rows, y: Rows, weight: Rows) -> Rows:
    """Weighted ridge regression with a free intercept. Shapes: (n, features), (n,), (n,) -> (features,)."""
    share = weight / weight.sum()
    inside = x - share @ x
    weighted = inside.T * weight
    found: Rows = np.linalg.solve(weighted @ inside + RIDGE * np.eye(x.shape[1]), weighted @ (y - share @ y))
    return found


def greedy_by_lime(setting: Setting) -> Greedy:
    """Make the greedy walk in the order of LIME's weights."""
    return Greedy(setting, NAME, Lime(setting))
