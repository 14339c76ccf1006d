"""One person during a search: which values of a feature are permitted beside the others that move with it, and their effort."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream.forest.cells import Cells
from stream.recourse.comparators.leaf_matrix import LeafMatrix
from stream.recourse.rules.effort import efforts, is_own
from stream.recourse.rules.feature_rule import FeatureRule, Mutability
from stream.recourse.rules.features import FeatureRules
from stream.recourse.space.target_values import sentinels_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Applicant:
    """One person's row, and where each feature could go alone.

    Shapes: row (features,) float64; cells (features,) int32; mutability (features,) int8; target_value (cells of the
    model,) float64: the value in each cell of a feature that moves alone, NaN where it cannot.
    """

    row: NDArray[np.float64]
    cells: NDArray[np.int32]
    mutability: NDArray[np.int8]
    target_value: NDArray[np.float64]

    def label(self, j: int) -> Mutability:
        """The mutability of feature j, tightened by the decision's overrides."""
        return Mutability(int(self.mutability[j]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnitMember:
    """A feature j that moves with others, for every person. sentinels: its "no record" values as the model reads them."""

    j: int
    rule: FeatureRule
    cells: Cells
    scale: float
    sentinels: NDArray[Any]

    def permits(self, values: NDArray[np.float64], own: float, label: Mutability) -> NDArray[np.bool_]:
        """Whether each value is the person's own, or in range, no sentinel, and in a permitted direction. Shape: (n,) -> (n,)."""
        with np.errstate(over="ignore"):
            read = values.astype(self.cells.dtype)
        permitted: NDArray[np.bool_] = np.isfinite(read) & (self.rule.min <= values) & (values <= self.rule.max)
        for sentinel in self.sentinels:
            permitted &= read != sentinel
        if label == Mutability.IMMUTABLE or (label != Mutability.MUTABLE and self.rule.is_unrecorded(own)):
            permitted[:] = False
        elif label == Mutability.INCREASE_ONLY:
            permitted &= values > own
        elif label == Mutability.DECREASE_ONLY:
            permitted &= values < own
        return permitted | is_own(values, own)

    def efforts(self, values: NDArray[np.float64], own: float) -> NDArray[np.float64]:
        """Price a move to each value as `effort.efforts` does. Shape: (n,) -> (n,)."""
        unordered = self.rule.is_unordered_from(own)
        return efforts(values, own, cost=self.rule.cost, scale=self.scale, unordered=unordered)


def unit_member(rules: FeatureRules, cells: Cells, matrix: LeafMatrix, j: int) -> UnitMember:
    """Prepare feature j for every person."""
    rule = rules.rules[j]
    sentinels = np.array(sentinels_of(rule, cells), cells.dtype)
    return UnitMember(j=j, rule=rule, cells=cells, scale=float(matrix.scales[j]), sentinels=sentinels)
