"""Shadow models: resampled or previous versions of the model. A target they accept too is likely to outlive a retrain."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.forest.trees import Forest

SEARCHED_SHARE: Final = Fraction(
    7, 10
)  # of all shadows; the others judge what was found. By judgement, see docs/shadows.md


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shadows:
    """The shadows of a model, with its features and its link. A model may have none.

    The search uses some of them, so their verdict is no evidence; the published share is of the others, which are held
    out. They form a ring that starts elsewhere for each applicant, so that over many applicants every shadow judges.
    """

    forests: tuple[Forest, ...] = ()

    @property
    def searched(self) -> int:
        """How many are searched for one applicant: `SEARCHED_SHARE` of all, rounded down."""
        return int(SEARCHED_SHARE * len(self.forests))

    @property
    def held_out(self) -> int:
        """How many are held out of one applicant's search, to measure its advice."""
        return len(self.forests) - self.searched

    def ring(self, row: NDArray[np.float64]) -> list[int]:
        """Give the numbers of all shadows in an applicant's order: first those searched, then those held out.

        Shape: row (features,). Equal rows have equal rings: -0.0 is 0.0, and every NaN the same.
        """
        if not self.forests:
            return []
        same = np.where(np.isnan(row), np.nan, row + 0.0).astype("<f8")
        first = zlib.crc32(same.tobytes()) % len(self.forests)
        return [(first + k) % len(self.forests) for k in range(len(self.forests))]


NO_SHADOWS: Final = Shadows()
