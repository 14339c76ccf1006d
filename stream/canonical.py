"""Canonical JSON (RFC 8785): the one spelling of a record, so that equal content has equal bytes and one SHA-256."""

from __future__ import annotations

import hashlib
from typing import Any, cast

import orjson
import rfc8785

# Within these bounds the shortest digits that orjson writes are ECMAScript's too (RFC 8785, 3.2.2.3).
PLAIN_FROM, PLAIN_BELOW = 1e-5, 2.0**52
SAME = frozenset({str, bool, type(None)})  # the types that orjson spells alike


def canonical_json(value: object) -> bytes:
    """Spell a JSON value as RFC 8785 does. Raises: ValueError for NaN, inf, integers beyond 2^53, lone surrogates."""
    try:
        return orjson.dumps(_plain(value), option=orjson.OPT_SORT_KEYS)
    except _Unusual:
        return rfc8785.dumps(cast("Any", value))
    except TypeError as error:
        message = f"not a JSON value: {error}"
        raise ValueError(message) from error


def sha256(value: object) -> str:
    """Hash a value's canonical JSON, as hex."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


class _Unusual(Exception):
    """Something that orjson would spell otherwise than RFC 8785."""


def _plain(value: object) -> object:
    """Copy a value as orjson must see it: whole floats as integers; anything unusual is for the slow, general way."""
    if isinstance(value, dict):
        if not all(map(str.isascii, value)):
            raise _Unusual  # RFC 8785 sorts keys by UTF-16 code units, orjson by code points
        return {key: item if type(item) in SAME else _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return _plain_list(value)
    if isinstance(value, float):
        return _plain_float(value)
    if value is None or isinstance(value, str | bool):
        return value
    return _plain_ints([cast("int", value)])[0]


def _plain_list(values: list[Any]) -> list[Any]:
    kinds = set(map(type, values))
    if kinds <= SAME:
        return values
    if kinds == {int}:
        return _plain_ints(values)
    return list(map(_plain_float if kinds == {float} else _plain, values))


def _plain_ints(values: list[int]) -> list[int]:
    if max(values) >= 2**53 or min(values) <= -(2**53):
        raise _Unusual
    return values


def _plain_float(value: float) -> float | int | orjson.Fragment:
    size = abs(value)
    if value.is_integer() and size < PLAIN_BELOW:
        return int(value)
    if PLAIN_FROM <= size < PLAIN_BELOW:
        return value
    return orjson.Fragment(rfc8785.dumps(value))
