from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.recourse.comparators.leaf_matrix import build_leaf_matrix
from stream.recourse.rules.scale import GUARD, SCALES, Scale, scale_of
from tests.recourse.lenders import Rows, lender

EVERY = pytest.mark.parametrize("scale", SCALES)


def bulk(rows: int = 10_000) -> Rows:
    """Shares between 0 and 1, all equally likely."""
    return np.random.default_rng(0).random(rows)


def test_one_wild_value_leaves_the_default_sensible() -> None:
    """Given one utilisation of 50,000 among ten thousand between 0 and 1, the default scale is within a third of the bulk's; the standard deviation is hundreds of times larger."""
    column = np.append(bulk(), 50_000.0)
    usual = float(np.std(bulk()))
    assert 2 / 3 * usual < scale_of(column, "guarded") < 4 / 3 * usual
    assert scale_of(column, "guarded") == scale_of(column, "percentile")
    assert scale_of(column, "deviation") > 500 * usual


def test_without_wild_values_the_default_is_the_standard_deviation() -> None:
    """Given numbers without tails, or an amount with the long tail of a log-normal, the default is the paper's standard deviation, to the bit."""
    rng = np.random.default_rng(1)
    for column in (
        bulk(),
        rng.normal(50, 10, 5_000),
        rng.lognormal(8, 1.2, 5_000),
        rng.poisson(2, 5_000).astype(float),
    ):
        assert scale_of(column, "guarded") == scale_of(column, "deviation") == float(np.std(column))


@pytest.mark.parametrize(("share", "wild"), [(0.05, 50_000.0), (0.15, 50_000.0), (0.05, None), (0.15, None)])
def test_a_spike_does_not_hide_those_beside_it(share: float, wild: float | None) -> None:
    """Given 17 or 19 of 20 people at 0 and the rest between 1,000 and 3,000, percentiles say some hundreds to thousands, with a wild value or not; the default follows them only where there is one."""
    rng = np.random.default_rng(2)
    column = np.where(rng.random(10_000) < share, rng.uniform(1_000, 3_000, 10_000), 0.0)
    column = column if wild is None else np.append(column, wild * 1_000)
    assert 300 < scale_of(column, "percentile") < 3_000
    wanted: Scale = "deviation" if wild is None else "percentile"
    assert scale_of(column, "guarded") == scale_of(column, wanted)


def test_on_a_normal_distribution_percentiles_say_what_the_deviation_says() -> None:
    """Given many normal numbers, the percentile scale is the standard deviation within one in fifty."""
    column = np.random.default_rng(3).normal(-7, 3, 100_000)
    assert 0.98 < scale_of(column, "percentile") / scale_of(column, "deviation") < 1.02


@EVERY
@pytest.mark.parametrize(
    "values",
    [[], [math.nan], [4.0], [4.0, 4.0, math.nan], [-1e308, 1e308], [0.0] * 50 + [1e308, -1e308], [0.0, 5e-324]],
    ids=["nobody", "nothing", "one", "a constant", "too wide", "a spike and two ends", "the least there is"],
)
def test_a_scale_is_always_a_number_to_divide_by(scale: Scale, values: list[float]) -> None:
    """Given a column that nothing can be measured of, or whose numbers overflow, the scale is finite and above 0."""
    found = scale_of(np.array(values), scale)
    assert math.isfinite(found)
    assert found > 0
    if len({v for v in values if not math.isnan(v)}) < 2:
        assert found == 1.0


@given(values=st.lists(st.integers(-64, 64).map(lambda k: k / 8), min_size=2, max_size=40), power=st.integers(-8, 8))
def test_scales_grow_with_their_unit_and_forget_where_zero_is(values: list[float], power: int) -> None:
    """Given any column, in another unit (a power of two) each scale is as many times larger, to the bit; missing values change nothing; and the default is one of the two, the smaller by far where it is not the deviation."""
    column, unit = np.array(values), 2.0**power
    for scale in SCALES:
        if column.min() < column.max():
            assert scale_of(column * unit, scale) == scale_of(column, scale) * unit
        assert scale_of(np.append(column, math.nan), scale) == scale_of(column, scale)
    guarded, deviation, percentile = (scale_of(column, scale) for scale in SCALES)
    assert guarded in {deviation, percentile}
    assert guarded == deviation or deviation > GUARD * percentile


@EVERY
def test_the_leaf_matrix_measures_as_it_is_told(scale: Scale) -> None:
    """Given a pool with a wild value and one with "no record", the matrix holds each feature's scale of the kind asked for, of the recorded values alone; without being asked, the guarded one."""
    shop = lender("xgboost")
    pool = shop.pool.copy()
    pool[0, 1] = 1e9
    build = (shop.model.forest, pool, shop.model.rules, "above", b"")
    recorded = [pool[pool[:, j] != -9, j] if j == 3 else pool[:, j] for j in range(pool.shape[1])]
    wanted = [scale_of(column, scale) for column in recorded]
    assert build_leaf_matrix(*build, scale=scale).scales.tolist() == wanted
    assert build_leaf_matrix(*build).scales.tolist() == [scale_of(column, "guarded") for column in recorded]
    assert (wanted[1] > 1e6) == (scale == "deviation")
