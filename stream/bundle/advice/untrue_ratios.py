"""Ratios of features.toml that the pool contradicts: reported by the build, never refused.

The first move of a driver makes a ratio what its parts give. Where it was not that before, because it was taken on
another day or is defined in another way, a tiny move seems to do a lot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stream.recourse.comparators.leaf_matrix import without_no_record
from stream.recourse.rules.feature_rule import FeatureRule
from stream.recourse.rules.features import FeatureRules
from stream.recourse.rules.units import Ratio

ROUNDED: Final = (
    2.0**-21
)  # relative: a ratio in float32 of parts in float32, times a factor, is rounded four times, by 2**-24


@dataclass(frozen=True, slots=True, kw_only=True)
class UntrueRatio:
    """A feature that is not the ratio of its parts in `differ` of the `known` rows in which all three are known."""

    feature: str
    driver: str
    differ: int
    known: int


def untrue_ratios(rows: npt.NDArray[np.float64], rules: FeatureRules) -> tuple[UntrueRatio, ...]:
    """Compare each ratio that can move with its parts, where these have one. Shape: rows (n, features) float64.

    However a ratio was rounded to its step, up, down or to the nearest, it is less than a step away.
    """
    seen = without_no_record(rows, rules)
    found = []
    for driver, one in _ratios(rules):
        rule = rules.rules[one.j]
        above, below = (driver, one.other) if one.driver_above else (one.other, driver)
        known = (seen[:, below] > 0) & ~np.isnan(seen[:, [one.j, above]]).any(axis=1)
        with np.errstate(over="ignore"):
            given = one.factor * seen[known, above] / seen[known, below]
        if differ := int(_differs(seen[known, one.j], given, rule).sum()):
            driven = rules.rules[driver].name
            found.append(UntrueRatio(feature=rule.name, driver=driven, differ=differ, known=int(known.sum())))
    return tuple(found)


def _ratios(rules: FeatureRules) -> Iterator[tuple[int, Ratio]]:
    """Give each ratio and its driver, but none of a unit that nobody can move."""
    for unit in rules.units:
        if unit.driver is not None and not any(rules.rules[j].is_immutable for j in unit.members):
            yield from ((unit.driver, one) for one in unit.dependents if isinstance(one, Ratio))


def _differs(
    values: npt.NDArray[np.float64], given: npt.NDArray[np.float64], rule: FeatureRule
) -> npt.NDArray[np.bool_]:
    """Whether values are apart from what the parts give, by more than numbers in float32 and the step can be."""
    with np.errstate(over="ignore", invalid="ignore"):
        apart = np.abs(values - given)
        within = (apart <= ROUNDED * np.abs(given)) | (apart < (rule.step or 0.0) * (1 - ROUNDED))
    return ~within
