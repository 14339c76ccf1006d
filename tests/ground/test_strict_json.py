from __future__ import annotations

import json

import pytest

from stream.strict_json import STRICT_JSON, DuplicateKeyError, NonFiniteNumberError


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', '{"b": [{"c": 1, "a": 1, "a": 2}]}'])
def test_a_key_that_comes_twice_is_refused(text: str) -> None:
    """Given an object with a key twice, at any depth and even with equal values, then the key is named."""
    with pytest.raises(DuplicateKeyError, match=r"^'a' occurs twice in one object$"):
        STRICT_JSON.decode(text)


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_of_json_is_refused(name: str) -> None:
    """Given a constant that Python reads and JSON does not have, then it is refused by its name."""
    with pytest.raises(NonFiniteNumberError, match="is no number of JSON") as refused:
        STRICT_JSON.decode(f'{{"a": [{name}]}}')
    assert refused.value.name == name


def test_all_other_json_is_read_as_ever() -> None:
    """Given JSON without either, then it is what Python's own reader gives."""
    text = '{"a": {"b": [1, 2.5, null, true, "x"]}, "b": {}, "c": -0.0}'
    assert STRICT_JSON.decode(text) == json.loads(text)
