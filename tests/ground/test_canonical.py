from __future__ import annotations

import hashlib
import math
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.canonical import canonical_json, sha256
from tests.examples import examples
from tests.recourse.lenders import lender
from tests.strategies import json_numbers, json_values


@settings(max_examples=examples(200))
@given(value=json_values)
def test_it_is_rfc_8785(value: Any) -> None:
    """Given any JSON value, when spelt, then the bytes are those of the rfc8785 package."""
    assert canonical_json(value) == rfc8785.dumps(value)


@settings(max_examples=examples(200))
@given(numbers=st.lists(json_numbers, min_size=1, max_size=30), sign=st.sampled_from([1, -1]))
def test_numbers_of_every_size_are_spelt_as_ecmascript_does(numbers: list[float], sign: int) -> None:
    """Given numbers from the least to the largest, whole and broken, when spelt, then the bytes are those of rfc8785."""
    signed = [sign * n for n in numbers]
    assert canonical_json(signed) == rfc8785.dumps(signed)


@pytest.mark.parametrize("exponent", range(-8, 23))
def test_numbers_beside_each_power_of_ten(exponent: int) -> None:
    """Given a power of ten, the doubles beside it, and digits after it, where spellings switch, then bytes are those of rfc8785."""
    power = float(f"1e{exponent}")
    beside = [
        power,
        math.nextafter(power, 0),
        math.nextafter(power, math.inf),
        power * 1.5,
        float(f"1.2345e{exponent}"),
    ]
    assert canonical_json(beside) == rfc8785.dumps(beside)


@pytest.mark.parametrize("value", [2.0**52, 2.0**53 - 1, 2.0**53, 2.0**52 + 0.5, 2.0**51 + 0.5, 2**53 - 1, 1 - 2**53])
def test_numbers_about_the_end_of_the_whole_ones(value: float) -> None:
    """Given numbers about 2^52 and 2^53, alone or listed, when spelt, then bytes are those of rfc8785."""
    assert canonical_json([value]) == rfc8785.dumps([value])
    assert canonical_json({"a": value}) == rfc8785.dumps({"a": value})


def test_keys_are_ordered_by_utf16() -> None:
    """Given keys beyond the BMP and in its last block, when spelt, then they stand by UTF-16 code units, not by code points."""
    keys = ["\U00010000", "\uff5a", "é", "z", "Z", "", "a", "aa", "\x7f"]
    assert canonical_json(dict.fromkeys(keys, 0)) == rfc8785.dumps(dict.fromkeys(keys, 0))
    assert canonical_json({"\uff5a": 1, "\U00010000": 2}).decode() == '{"\U00010000":2,"\uff5a":1}'


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, 2**53, -(2**53), 2**64, "\ud800", {"\ud800": 1}, {1: 1}, {"a": {1, 2}}, b"a", 1j],
    ids=repr,
)
def test_what_json_cannot_hold_is_an_error(value: object) -> None:
    """Given what I-JSON has no spelling for, alone, in a list or an object, when spelt, then it raises ValueError and invents none."""
    for wrapped in (value, [value], [1, value], ["a", value], {"a": value}, {"é": value}):
        with pytest.raises(ValueError, match=r".+"):
            canonical_json(wrapped)


@given(value=json_values)
def test_a_hash_is_of_the_canonical_bytes(value: Any) -> None:
    """Given any value, its hash is the SHA-256 of its canonical bytes, in hex."""
    assert sha256(value) == hashlib.sha256(rfc8785.dumps(value)).hexdigest()


def test_real_bodies_are_spelt_right() -> None:
    """Given real audit bodies and recommendations, when spelt, then the bytes are those of rfc8785."""
    for library in ("xgboost", "lightgbm"):
        for answered in lender(library).answers(3):
            record: Any = [answered.body, answered.recommendation]
            assert canonical_json(record) == rfc8785.dumps(record)
