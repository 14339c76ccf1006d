"""The rule of one feature: what a person may change of it, by how much, and how we call it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, TypeAlias

import numpy as np

from stream.forest.trees import Word

FeatureType: TypeAlias = Literal["number", "integer", "category"]
TYPES: tuple[FeatureType, ...] = ("number", "integer", "category")


class Mutability(IntEnum):
    """What a person can do with a feature (paper, section Feasibility). The values are what the compiled code sees."""

    MUTABLE = 0
    INCREASE_ONLY = 1
    DECREASE_ONLY = 2
    IMMUTABLE = 3


LABELS = {m.name.lower(): m for m in Mutability}
UNORDERED = (Mutability.MUTABLE, Mutability.IMMUTABLE)  # the labels that need no order of the values


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonTexts:
    """The code and the sentences that name this feature as a reason for a decline."""

    code: str
    too_low: str
    too_high: str
    missing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRule:
    """One table of features.toml, checked."""

    name: str
    type: FeatureType
    mutability: Mutability
    min: float = -math.inf
    max: float = math.inf
    step: float | None = None  # the grid of targets, counted from `min` where there is one, else from 0
    no_record: tuple[float, ...] = ()
    categories: tuple[Word, ...] | None = None  # all words or all numbers, in the order of the codes 0, 1, 2, ...
    unit: str | None = None
    label: str
    reason: ReasonTexts
    cost: float = 1.0  # of one scale unit
    group: str | None = None  # its features take only combinations that people have; in one, some may stay
    follows: str | None = None  # the feature without which this one never moves, and to whose moves it is held
    factor: float = 0.0  # how far it then moves for each 1 of the other
    ratio_of: tuple[str, str] | None = None  # the features of which it is the first over the second
    ratio_factor: float = 1.0  # times this
    moves: str | None = None  # the one of the two that moves
    is_category: bool = False  # whether the model takes it for a category, so that its codes have no order
    missing: float | None = None  # the number that stands for missing in the model, which reads float32

    def is_unrecorded(self, value: float) -> bool:
        """Whether a value says that there is none: missing, by the model's sentinel too, or one for "no record"."""
        return math.isnan(value) or value in self.no_record or self.is_sentinel(value)

    def is_unordered_from(self, own: float) -> bool:
        """Whether a move from this value has no length: among categories, and from no value."""
        return self.type == "category" or self.is_unrecorded(own)

    @property
    def is_immutable(self) -> bool:
        """Whether nobody can change it, whatever a decision overrides."""
        return self.mutability == Mutability.IMMUTABLE

    def is_sentinel(self, value: float) -> bool:
        """Whether the model takes a number for missing."""
        if self.missing is None:
            return False
        with np.errstate(over="ignore"):
            return float(np.float32(value)) == self.missing

    def has_word(self, code: float) -> bool:
        """Whether a decision can say a code: where there are no words, any, but of the model's categories a whole one."""
        if self.categories is None:
            return not self.is_category or (code.is_integer() and code >= 0)
        return code.is_integer() and 0 <= code < len(self.categories)
