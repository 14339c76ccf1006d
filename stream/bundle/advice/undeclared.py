"""What the lender may have forgotten to declare and no model file holds: the build reports it and refuses nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stream.bundle.advice.claims import USUAL_SENTINELS
from stream.bundle.gate.owner import owner_of
from stream.bundle.pool import Pool
from stream.forest.libraries import LIBRARIES
from stream.forest.trees import Forest
from stream.forest.walk import margins_of
from stream.recourse.rules.feature_rule import FeatureRule
from stream.recourse.rules.features import FeatureRules

ROWS_PER_SENTINEL_MAX: Final = 100  # a number in fewer rows than one of these is not called frequent


@dataclass(frozen=True, slots=True, kw_only=True)
class UndeclaredMissing:
    """A number that may stand for missing, and the columns of the pool in which it looks so."""

    number: float
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Undeclared:
    """What nobody declared; always empty for LightGBM, which takes no sentinel and predicts in one way."""

    missing: tuple[UndeclaredMissing, ...] = ()
    in_place_differs: int = 0  # rows of the pool whose bits differ under `inplace_predict`, as with DART


def find_undeclared(forest: Forest, model: bytes, pool: Pool, rules: FeatureRules) -> Undeclared:
    """Look for a forgotten --missing, and for another way of predicting that gives other bits.

    `model` is the content of the model file. Only for pools without claims: equal claims prove that nothing is missing.
    """
    in_place, differs = owner_of(forest, model).in_place(pool.rows), 0
    if in_place is not None:
        bits = f"u{forest.dtype.itemsize}"
        differs = int((in_place.margins.view(bits) != margins_of(forest, pool.rows).view(bits)).sum())
    looks_for_missing = LIBRARIES[forest.library].takes_missing and forest.missing is None
    return Undeclared(missing=_missing(pool, rules) if looks_for_missing else (), in_place_differs=differs)


def _missing(pool: Pool, rules: FeatureRules) -> tuple[UndeclaredMissing, ...]:
    columns: dict[float, list[str]] = {}
    for j, rule in enumerate(rules.rules):
        if rules.codes[j] is None:  # a column of listed categories holds no other number
            for number in _sentinels(pool.rows[:, j], rule):
                columns.setdefault(number, []).append(rule.name)
    return tuple(UndeclaredMissing(number=number, columns=tuple(of)) for number, of in sorted(columns.items()))


def _sentinels(column: npt.NDArray[Any], rule: FeatureRule) -> list[float]:
    """The usual sentinels that are frequent in a column, its least or greatest number, and apart from all others.

    Apart is the only number below zero, or one with a wider gap to its neighbour than any two others have between them.
    What features.toml lists as no_record is declared, so it counts neither as a sentinel nor as another number.
    """
    known = column[~np.isnan(column) & ~np.isin(column, rule.no_record)]
    if known.size == 0:
        return []
    ends = {float(known.min()), float(known.max())}.intersection(USUAL_SENTINELS)
    frequent = [end for end in ends if (known == end).sum() * ROWS_PER_SENTINEL_MAX >= len(column)]
    return [end for end in frequent if _is_apart(end, np.unique(known[known != end]))]


def _is_apart(number: float, others: npt.NDArray[Any]) -> bool:
    """Whether a least or greatest number stands apart from the others, which are sorted and distinct."""
    if others.size == 0:
        return False
    if number < 0 <= others[0]:
        return True
    gap = min(abs(number - others[0]), abs(number - others[-1]))
    return others.size > 1 and bool(gap > np.diff(others).max())
