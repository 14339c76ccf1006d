"""Leaf values as integers, so that sums are exact.

Every finite float is an integer times a power of two. With one power for a whole forest, the smallest that any of its
leaves needs, leaf values, their differences and their sums are integers, and adding them up loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from stream.errors import CorruptionError
from stream.forest.trees import Forest, Int32s

_INT64_BITS = 63


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeafUnits:
    """A forest's leaves and base margin in integer units of 2**unit_log2, exactly.

    Shape: leaf (slots,), int64 where `sum_bits` is at most 63, else Python ints (dtype object).
    `sum_bits` is the bit length of the largest sum over all trees in magnitude, base margin included.
    """

    unit_log2: int
    leaf: npt.NDArray[Any]
    base: int
    sum_bits: int


def leaf_units(forest: Forest) -> LeafUnits:
    """Express `forest` in the coarsest unit that every leaf and the base margin is a whole multiple of."""
    weights = [float(weight) for weight in forest.weight]
    base = float(forest.base_margin)
    lowest_bits = [_lowest_bit(*value.as_integer_ratio()) for value in (*weights, base) if value]
    unit_log2 = min(lowest_bits, default=0)  # each value is a whole multiple of 2**unit_log2
    leaf = [_multiple(weight, unit_log2) for weight in weights]
    base_units = _multiple(base, unit_log2)
    first_leaf = forest.first_leaf.tolist()
    largest = (max(map(abs, leaf[a:b])) for a, b in pairwise(first_leaf))
    sum_bits = (abs(base_units) + sum(largest)).bit_length()
    array = np.array(leaf, np.int64 if sum_bits <= _INT64_BITS else object)
    array.setflags(write=False)
    return LeafUnits(unit_log2=unit_log2, leaf=array, base=base_units, sum_bits=sum_bits)


def exact_sums(units: LeafUnits, slots: Int32s) -> list[int]:
    """Base margin plus the leaves each row reaches, in units. Shapes: slots (rows, trees) -> rows Python ints."""
    sums: list[int] = units.leaf[slots].sum(axis=1).tolist()
    return [units.base + total for total in sums]


def in_units(units: LeafUnits, value: float) -> int:
    """A float as a whole number of units. Every margin of the forest is one: rounding a sum only drops low bits.

    Raises: CorruptionError where the value is no whole number of units, so is no margin of this forest.
    """
    try:
        exact = Fraction(float(value)) / Fraction(2) ** units.unit_log2
    except (ValueError, OverflowError) as error:
        message = "a margin is not finite, so it has no exact value"
        raise CorruptionError(message) from error
    if exact.denominator != 1:
        message = f"a margin is not a whole number of units of 2^{units.unit_log2}: it belongs to another model"
        raise CorruptionError(message)
    return exact.numerator


def _lowest_bit(numerator: int, denominator: int) -> int:
    """The exponent of the lowest bit set in a dyadic rational in lowest terms."""
    if denominator > 1:
        return 1 - denominator.bit_length()
    return (numerator & -numerator).bit_length() - 1


def _multiple(value: float, unit_log2: int) -> int:
    numerator, denominator = value.as_integer_ratio()
    shift = -unit_log2 - (denominator.bit_length() - 1)
    return numerator << shift if shift >= 0 else numerator >> -shift
