from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.recourse.rules.formulas import (
    Formula,
    digits_of,
    digits_of_text,
    divided,
    exact,
    whole,
    whole_of_text,
    wholes,
)

numbers = st.floats(-1e6, 1e6).map(lambda x: round(x, 3)) | st.sampled_from([0.1, 0.3, -0.7, 1e-5, 1e17, 5e-324, 1e300])
some = numbers.filter(bool)


@given(
    kind=st.sampled_from(["link", "above", "below"]),
    factor=some,
    own=some,
    start=some,
    step=st.none() | st.sampled_from([0.01, 0.3, 1.0, 50.0]),
    origin=st.sampled_from([0.0, 0.25, -3.0]),
    drivers=st.lists(some.map(abs), min_size=1, max_size=4),
)
def test_a_formula_is_exact(
    kind: str, factor: float, own: float, start: float, step: float | None, origin: float, drivers: list[float]
) -> None:
    """Given any numbers, small or beyond 64 bits, a link and a ratio are the doubles nearest to what fractions give, on the step or off any."""
    own = abs(own) if kind == "above" else own
    formula = Formula(
        kind="link" if kind == "link" else "above" if kind == "above" else "below",
        factor=exact(factor),
        own=exact(own),
        start=exact(start),
        origin=exact(origin),
        step=None if step is None else exact(step),
    )
    digits = max([formula.digits, *(digits_of(exact(x)) for x in drivers)])
    found = formula.values(wholes(whole(exact(x), digits) for x in drivers), digits)
    f, a, b, o = (Fraction(repr(n)) for n in (factor, own, start, origin))
    for x, got in zip((Fraction(repr(x)) for x in drivers), found.tolist(), strict=True):
        y = a + f * (x - b) if kind == "link" else f * x / a if kind == "above" else f * a / x
        if step is not None:
            t = Fraction(repr(step))
            y = o + t * math.floor((y - o) / t + Fraction(1, 2))
        assert got == nearest(y)


def nearest(y: Fraction) -> float:
    try:
        return float(y)
    except OverflowError:
        return math.inf if y > 0 else -math.inf


@given(x=numbers, more=st.integers(0, 3))
def test_a_number_and_its_text_are_the_same_whole_units(x: float, more: int) -> None:
    """Given a number, its text has as many digits after the point and is as many units as its decimal."""
    assert digits_of_text(repr(x)) == digits_of(exact(x))
    digits = digits_of(exact(x)) + more
    assert whole_of_text(repr(x), digits) == whole(exact(x), digits) == Fraction(repr(x)) * 10**digits


@pytest.mark.parametrize("numbers", [[], [1, -2], [2**60, 1]])
def test_whole_numbers_are_divided_exactly(numbers: list[int]) -> None:
    """Given whole numbers of any size, or none, and a divisor beyond 64 bits, each quotient is the nearest double."""
    for below in (3, 10**30):
        assert divided(wholes(numbers), below).tolist() == [n / below for n in numbers]
    assert divided(np.array([10**400, -(10**400)], object), 3).tolist() == [math.inf, -math.inf]
