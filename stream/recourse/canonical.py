"""Canonical JSON (RFC 8785): the one spelling of a record, so that equal content has equal bytes and one SHA-256."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson
import rfc8785

# Within these bounds the shortest digits that orjson writes are ECMAScript's too (RFC 8785, 3.2.2.3).
PLAIN_FROM, PLAIN_BELOW = 1e-5, 2.0**52


def canonical_json(value: Any) -> bytes:
    """Spell a JSON value as RFC 8785 does.

    Raises: ValueError for what JSON or I-JSON cannot hold (inf, NaN, integers beyond 2^53, lone surrogates).
    """
    try:
        return orjson.dumps(_plain(value), option=orjson.OPT_SORT_KEYS)
    except _Unusual:
        return rfc8785.dumps(value)
    except TypeError as error:
        msg = f"not a JSON value: {error}"
        raise ValueError(msg) from error


def sha256(value: Any) -> str:
    """Hash a value's canonical JSON, as hex."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


class _Unusual(Exception):  # noqa: N818  (a signal within this module, not an error)
    """Something that orjson would spell otherwise than RFC 8785."""


def _plain(value: Any) -> Any:
    """Copy a value as orjson must see it: whole floats as integers; anything unusual is for the slow, general way."""
    kind = type(value)
    if kind is dict:
        if not all(map(str.isascii, value)):
            raise _Unusual  # RFC 8785 sorts keys by UTF-16 code units, orjson by code points
        return {key: _plain(item) for key, item in value.items()}
    if kind is list:
        if value and type(value[0]) in (int, str) and len(set(map(type, value))) == 1:
            return value if type(value[0]) is str else _plain_ints(value)
        return [_plain(item) for item in value]
    if kind is float:
        return _plain_float(value)
    if kind is int:
        return _plain_ints([value])[0]
    if kind is str or value is None or kind is bool:
        return value
    raise _Unusual


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
