from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.errors import CorruptionError
from stream.forest.ledger import LeafUnits, exact_sums, in_units, leaf_units
from stream.forest.trees import Kind, SavedNode, build_forest
from stream.forest.walk import leaf_slots, margins
from tests.examples import examples
from tests.forest.models import USUAL, forest_of, lightgbm_model, xgboost_model

LIBRARIES = [xgboost_model, lightgbm_model]


def fraction(units: LeafUnits, count: int) -> Fraction:
    return count * Fraction(2) ** units.unit_log2


@pytest.mark.parametrize("model", LIBRARIES)
def test_every_leaf_is_its_integer_times_the_unit(model: Any) -> None:
    """Given a real forest, leaves and base margin are exactly their integers in units of 2^unit_log2."""
    forest = forest_of(model(USUAL))
    units = leaf_units(forest)
    assert [fraction(units, int(n)) for n in units.leaf] == [Fraction(float(w)) for w in forest.weight]
    assert fraction(units, units.base) == Fraction(float(forest.base_margin))


@pytest.mark.parametrize("model", LIBRARIES)
def test_sums_are_exact(model: Any) -> None:
    """Given rows' leaves, the sum in units equals the sum of fractions, and stays within `sum_bits`."""
    forest = forest_of(model(USUAL))
    units = leaf_units(forest)
    slots = leaf_slots(forest, USUAL.data()[0][:50])
    for row, total in zip(slots, exact_sums(units, slots), strict=True):
        terms = [Fraction(float(forest.base_margin)), *(Fraction(float(w)) for w in forest.weight[row])]
        assert fraction(units, total) == sum(terms)
        assert total.bit_length() <= units.sum_bits


@pytest.mark.parametrize("model", LIBRARIES)
def test_native_margins_are_whole_numbers_of_units(model: Any) -> None:
    """Given the library's own margins, rounded as they are, each converts to units without a remainder."""
    forest = forest_of(model(USUAL))
    units = leaf_units(forest)
    for margin in margins(forest, leaf_slots(forest, USUAL.data()[0])):
        assert fraction(units, in_units(units, margin)) == Fraction(float(margin))


@settings(max_examples=examples(60))
@given(
    weights=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=8),
    base=st.floats(allow_nan=False, allow_infinity=False),
)
def test_any_finite_leaves_have_an_exact_unit(weights: list[float], base: float) -> None:
    """Given leaves from subnormal to the largest double, integers hold them; int64 only where no sum can overflow."""
    kind = Kind(
        library="lightgbm",
        library_version="",
        objective="binary",
        link_line="binary sigmoid:1",
        features=("a",),
        is_category=(False,),
        words=(None,),
        base_margin=base,
    )
    forest = build_forest([[SavedNode(number=0, value=weight)] for weight in weights], kind)
    units = leaf_units(forest)
    slots = np.arange(len(weights), dtype=np.int32)[None]
    assert fraction(units, exact_sums(units, slots)[0]) == sum(map(Fraction, weights), Fraction(base))
    assert (units.leaf.dtype == np.int64) == (units.sum_bits <= 63)
    assert any(n % 2 for n in [units.base, *units.leaf.tolist()]) or not any([base, *weights])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_margin_that_is_not_finite_has_no_units(value: float) -> None:
    """Given NaN or inf, in_units() raises instead of inventing a number."""
    with pytest.raises(CorruptionError, match="not finite"):
        in_units(leaf_units(forest_of(xgboost_model(USUAL))), value)


def test_a_margin_of_another_model_has_no_units() -> None:
    """Given a number finer than the unit, in_units() raises."""
    units = leaf_units(forest_of(xgboost_model(USUAL)))
    with pytest.raises(CorruptionError, match="another model"):
        in_units(units, 2.0 ** (units.unit_log2 - 1))
