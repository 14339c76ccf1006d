"""The columns of a record, lists of one primitive type, written and read at once instead of item by item.

Most of an audit record is such lists. Each way here takes the ordinary list only and raises one of `ODD` for any
other, right or wrong; the general ways of avro_write.py and avro_read.py then judge it item by item.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from itertools import chain, repeat
from math import isfinite
from typing import Any, Final, TypeAlias

from stream.wire.avro_numbers import DOUBLE_BYTES, EXACT_INTEGER_BYTES_USUAL, MORE, SMALL, varint
from stream.wire.schema_files import SchemaNode

WriteColumn: TypeAlias = Callable[[list[Any]], bytes]  # the items of one block
ReadColumn: TypeAlias = Callable[[bytes, int, int], tuple[list[Any], int]]  # (data, start, count) -> (items, end)

ODD: Final = (ValueError, TypeError, KeyError, IndexError, struct.error)
_DECIMALS: Final = re.compile(r"(?:(?:0|-?[1-9][0-9]{0,18}),)*")
_EXACT_LENGTH: Final = 2 * EXACT_INTEGER_BYTES_USUAL  # zigzag
_EXACT_STRIDE: Final = 1 + EXACT_INTEGER_BYTES_USUAL
_UNZIGZAG: Final = tuple((raw >> 1) ^ -(raw & 1) for raw in range(MORE))


def column_writer(items: SchemaNode) -> WriteColumn | None:
    """Give the fast way to write a list of these items, or None where there is none."""
    ways = {"int": _write_ints, "double": _write_doubles, "boolean": _write_booleans, "string": _write_texts}
    return _write_exact if _is_exact(items) else ways.get(items) if isinstance(items, str) else None


def column_reader(items: SchemaNode) -> ReadColumn | None:
    """Give the fast way to read a list of these items, or None where there is none."""
    ways = {"int": _read_ints, "double": _read_doubles, "boolean": _read_booleans}
    return _read_exact if _is_exact(items) else ways.get(items) if isinstance(items, str) else None


def _is_exact(items: SchemaNode) -> bool:
    return isinstance(items, dict) and items.get("coachType") == "exact-integer"


def _only(python_type: type, values: list[Any]) -> None:
    if set(map(type, values)) != {python_type}:
        raise TypeError


def _write_ints(values: list[Any]) -> bytes:
    _only(int, values)
    return b"".join(map(SMALL.__getitem__, values))


def _write_doubles(values: list[Any]) -> bytes:
    _only(float, values)
    if not all(map(isfinite, values)):
        raise ValueError
    return struct.pack(f"<{len(values)}d", *values)


def _write_booleans(values: list[Any]) -> bytes:
    _only(bool, values)
    return bytes(values)


def _write_texts(values: list[Any]) -> bytes:
    _only(str, values)
    raws = ((value, value.encode()) for value in set(values))  # few words, many times
    once = {value: varint(len(raw)) + raw for value, raw in raws}
    return b"".join(map(once.__getitem__, values))


def _write_exact(values: list[Any]) -> bytes:
    if not _DECIMALS.fullmatch(",".join(values) + ","):
        raise ValueError
    with_length = chain.from_iterable(zip(repeat(_EXACT_LENGTH), map(int, values), strict=False))
    return struct.pack(">" + "Bq" * len(values), *with_length)


def _read_ints(data: bytes, start: int, count: int) -> tuple[list[Any], int]:
    raw = data[start : start + count]
    return list(map(_UNZIGZAG.__getitem__, raw)), start + len(raw)  # an IndexError where one takes two bytes


def _read_doubles(data: bytes, start: int, count: int) -> tuple[list[Any], int]:
    values = struct.unpack_from(f"<{count}d", data, start)
    if not all(map(isfinite, values)):
        raise ValueError
    return list(values), start + DOUBLE_BYTES * count


def _read_booleans(data: bytes, start: int, count: int) -> tuple[list[Any], int]:
    raw = data[start : start + count]
    if max(raw) > 1:
        raise ValueError
    return list(map(bool, raw)), start + count


def _read_exact(data: bytes, start: int, count: int) -> tuple[list[Any], int]:
    end = start + _EXACT_STRIDE * count
    if data[start:end:_EXACT_STRIDE] != bytes([_EXACT_LENGTH]) * count:
        raise ValueError
    return list(map(str, struct.unpack_from(">" + "xq" * count, data, start))), end
