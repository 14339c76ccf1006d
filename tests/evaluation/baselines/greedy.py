"""Greedy recourse by attribution: what counts against a person most is moved first, then the next, until it is enough.

An attribution says how much each feature counts for or against one person, and nothing of where to move it. So each
feature in its order tries values that accepted people hold: the nearest that is enough, else the one that gains most.
Features that count in the person's favour stay. To take the median of the accepted instead, without asking the model,
is the weaker reading: in Adult it leaves capital gains, of which most accepted people have none, where they are.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np

from tests.evaluation.baselines.interface import Rows, Setting

TRIED: Final = np.linspace(0.05, 0.95, 19)  # quantiles of the accepted; of codes, all


class Attribution(Protocol):
    """Per feature, how much it counts for a row (above 0) or against it."""

    def of(self, row: Rows) -> Rows:
        """Shape: (features,) -> (features,)."""
        ...


class Greedy:
    """The walk, by any attribution."""

    def __init__(self, setting: Setting, name: str, attribution: Attribution) -> None:
        self.name: Final = name
        self._setting = setting
        self._attribution = attribution
        self._held = held_by_accepted(setting)

    def answer(self, row: Rows) -> Rows | None:
        """Move features in the attribution's order until the model accepts; None where all of them are not enough."""
        counts = self._attribution.of(row)
        against = [j for j in np.argsort(counts, kind="stable").tolist() if counts[j] < 0 and len(self._held[j])]
        reached, target = self._setting.margins(row[None])[0], row
        for j in against:
            tried = np.tile(target, (len(self._held[j]), 1))
            tried[:, j] = self._held[j]
            margins = self._setting.margins(tried)
            enough = margins >= self._setting.cutoff
            if enough.any():
                jump = np.isnan(row[j]) or self._setting.nominal[j]
                far = np.zeros(len(tried)) if jump else np.abs(self._held[j] - row[j])
                nearest: Rows = tried[np.lexsort((-margins, np.where(enough, far, np.inf), ~enough))[0]]
                return nearest
            if margins.max() > reached:
                reached, target = margins.max(), tried[margins.argmax()]
        return None


def held_by_accepted(setting: Setting) -> list[Rows]:
    """Per feature, ascending, the values of accepted people at the quantiles tried; all their codes. Shapes: (values,)."""
    held = []
    for column, nominal in zip(setting.x[setting.accepted].T, setting.nominal, strict=True):
        values = column[~np.isnan(column)]
        if len(values) and not nominal:
            values = np.quantile(values, TRIED, method="nearest")
        held.append(np.unique(values))
    return held
