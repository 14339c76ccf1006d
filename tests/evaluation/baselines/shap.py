"""SHAP values by the library that trained the model: both have TreeSHAP (Lundberg and Lee 2017; Lundberg et al. 2020)."""

from __future__ import annotations

from typing import Final

import numpy as np
import xgboost as xgb

from tests.evaluation.baselines.greedy import Greedy
from tests.evaluation.baselines.interface import Rows, Setting

NAME: Final = "greedy by SHAP"


class TreeShap:
    """Contributions to the margin, turned so that more is better for the applicant."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    def of(self, row: Rows) -> Rows:
        """Give the contribution of each feature. Shape: (features,) -> (features,)."""
        return self.with_expectation(row)[:-1]

    def with_expectation(self, row: Rows) -> Rows:
        """Give the contributions, and last the mean margin they count from: their sum is the row's margin."""
        booster = self._setting.booster
        if self._setting.library == "xgboost":
            asked = xgb.DMatrix(row[None], feature_names=booster.feature_names, nthread=1)
            found = booster.predict(asked, pred_contribs=True)
        else:
            found = booster.predict(row[None], pred_contrib=True, num_threads=1)
        contributions: Rows = np.asarray(found[0], np.float64) * self._setting.sign
        return contributions


def greedy_by_shap(setting: Setting) -> Greedy:
    """Make the greedy walk in the order of SHAP values."""
    return Greedy(setting, NAME, TreeShap(setting))
