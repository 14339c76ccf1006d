"""Shadow models: what the model might have been, or was. A target that they accept too is likely to outlive the next retrain."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream.forest.trees import Forest

SEARCHED_SHARE: Final = Fraction(7, 10)  # of all shadows; the others only judge what the search found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shadows:
    """The shadows of a model, of its features and its link. A model may have none.

    The search asks some of them, so what these accept is no evidence; the share that is published is of the others, which
    are held out. They stand in a ring, and each applicant's begins elsewhere: no one shadow judges everybody, and over many
    applicants the share is that of all.
    """

    forests: tuple[Forest, ...] = ()

    @property
    def searched(self) -> int:
        """How many are searched for one applicant: `SEARCHED_SHARE` of all, rounded down."""
        return int(SEARCHED_SHARE * len(self.forests))

    @property
    def held_out(self) -> int:
        """How many are held out."""
        return len(self.forests) - self.searched

    def ring(self, row: NDArray[np.float64]) -> list[int]:
        """Give the numbers of all shadows as an applicant asks them: first those searched, then those held out.

        Shape: row (features,). Equal rows have equal rings: -0.0 is 0.0, and every NaN the same.
        """
        if not self.forests:
            return []
        same = np.where(np.isnan(row), np.nan, row + 0.0).astype("<f8")
        first = zlib.crc32(same.tobytes()) % len(self.forests)
        return [(first + k) % len(self.forests) for k in range(len(self.forests))]


NO_SHADOWS: Final = Shadows()
