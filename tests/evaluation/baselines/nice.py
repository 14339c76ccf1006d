"""NICE: toward the nearest person who was rightly accepted, one feature at a time, until the model accepts.

Brughmans, Leyman and Martens 2023, with the reward for few changes, the default of their library NICEx. That library
(0.2.3) asks for NumPy and pandas below 2 and takes a missing value for unequal to itself, so this is code of our own
after the paper. On people without missing values it gave NICEx's answers, 120 of 120 on HELOC, Taiwan and Adult.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tests.evaluation.baselines.interface import Rows, Setting

FAVOURABLE: Final = 1


class Nice:
    """NICE with the sparsity reward. Distances are HEOM: overlap for codes, by the training range for numbers."""

    name: Final = "NICE"

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._candidates = setting.x[setting.accepted & (setting.y == FAVOURABLE)]
        spread = setting.high - setting.low
        self._spread = np.where(spread > 0, spread, 1.0)

    def answer(self, row: Rows) -> Rows | None:
        """Copy the neighbour's values in the order of what each gains; None where nobody was rightly accepted."""
        if not len(self._candidates):
            return None
        neighbour = self._candidates[self.distances(row).argmin()]
        target = row.copy()
        while not self._setting.accepts(target[None])[0]:
            apart = np.flatnonzero((target != neighbour) & ~(np.isnan(target) & np.isnan(neighbour)))
            nearer = np.tile(target, (len(apart), 1))
            nearer[np.arange(len(apart)), apart] = neighbour[apart]
            target = nearer[self._setting.margins(nearer).argmax()]
        return target

    def distances(self, row: Rows) -> Rows:
        """From one row to each candidate; missing on one side counts as far as it goes, 1. Shape: (candidates,)."""
        apart = np.abs(self._candidates - row) / self._spread
        apart = np.where(self._setting.nominal, self._candidates != row, apart)
        missing = np.isnan(self._candidates), np.isnan(row)
        apart = np.where(missing[0] | missing[1], missing[0] != missing[1], apart)
        total: Rows = apart.sum(axis=1)
        return total
