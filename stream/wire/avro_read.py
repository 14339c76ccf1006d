"""Avro bodies to JSON-shaped records, strictly, by functions compiled from the schema.

Why not fastavro: it trusts its input. A union branch or an enum symbol with a negative number is taken from the end
of the list, of two equal keys the last one stays, a boolean byte of 7 is false, and bytes after the record
are ignored. Here each of these is a MalformedRecord. A length or a count is held against the bytes that are left before
anything is built, and nothing recurses deeper than the schema, so a record costs memory in proportion to its bytes.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from types import MappingProxyType
from typing import Any, Final, Literal, NoReturn, TypeAlias

from stream.errors import MalformedRecord
from stream.wire.avro_columns import ODD, ReadColumn, column_reader
from stream.wire.avro_numbers import (
    DOUBLE_BYTES,
    EXACT_INTEGER_BYTES_MAX,
    INT_LIMIT,
    LONG_LIMIT,
    MORE,
    exact_integer_text,
    read_varint,
)
from stream.wire.schema_files import RecordSchema, SchemaNode
from stream.wire.times import rfc3339

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]  # (the bytes, where it starts) -> (the value, where it ends)
ReadRecord: TypeAlias = Callable[[bytes, int], dict[str, Any]]  # (the bytes, where the body starts) -> the JSON shape
Numbers: TypeAlias = Literal["any", "finite"]

_DOUBLE: Final = struct.Struct("<d")


def compile_reader(schema: RecordSchema, *, numbers: Numbers) -> ReadRecord:
    """Make the reader of one schema: from the bytes and where the body starts to the record's JSON shape.

    The record must end where the bytes end. `numbers`: whether NaN and inf pass, for a caller that has a better name
    for the fault. The reader raises MalformedRecord, which names the field and never repeats a value.
    """
    read = _Compiler(numbers).node(schema.document, schema.record)
    record = schema.record

    def read_record(data: bytes, start: int) -> dict[str, Any]:
        try:
            value, end = read(data, start)
        except (IndexError, struct.error):
            msg = f"{record}: the {len(data)} bytes end in the middle of the record"
            raise MalformedRecord(msg) from None
        if end != len(data):
            msg = f"{record}: {len(data) - end} unknown bytes follow the record, which ends at byte {end}"
            raise MalformedRecord(msg)
        return value  # type: ignore[no-any-return]

    return read_record


class _Compiler:
    """Turns schema nodes into readers. `where` is the path of the node in the record: naming it needs no data."""

    def __init__(self, numbers: Numbers) -> None:
        self._named: dict[str, Mapping[str, Any]] = {}
        self._primitives = {**_PRIMITIVES, "double": _any_double if numbers == "any" else _finite_double}

    def node(self, node: SchemaNode, where: str) -> Read:
        """Give the reader of any schema node."""
        if isinstance(node, list):
            return _union([self.node(branch, where) for branch in node], where)
        if isinstance(node, str):
            return self._complex(self._named[node], where) if node in self._named else self._primitives[node](where)
        if node["type"] in ("record", "enum"):
            self._named[node["name"]] = node
        return self._complex(node, where)

    def _complex(self, node: Mapping[str, Any], where: str) -> Read:
        mark = node.get("coachType") or node.get("logicalType")
        if mark is not None:
            return _MARKED[mark](where)
        match node["type"]:
            case "record":
                return _record([(f["name"], self.node(f["type"], f"{where}.{f['name']}")) for f in node["fields"]])
            case "enum":
                return _enum(node["symbols"], where)
            case "array":
                return _array(self.node(node["items"], f"{where}[]"), column_reader(node["items"]), where)
            case "map":
                return _map(self.node(node["values"], f"{where}{{}}"), where)
            case inner:
                return self.node(inner, where)


def _refuse(where: str, what: str) -> NoReturn:
    msg = f"{where}: {what}"
    raise MalformedRecord(msg)


def _content(data: bytes, at: int, where: str) -> tuple[bytes, int]:
    """Read a length and as many bytes: (the bytes, where they end)."""
    size = data[at]
    if size < MORE and not size & 1:
        start, size = at + 1, size >> 1
    else:
        size, start = read_varint(data, at, where)
    end = start + size
    if size < 0 or end > len(data):
        _refuse(where, f"a length claims {size} bytes where {len(data) - start} are left")
    return data[start:end], end


def _text(raw: bytes, where: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        _refuse(where, "a text is not UTF-8")


def _boolean(where: str) -> Read:
    def read(data: bytes, at: int) -> tuple[bool, int]:
        if data[at] > 1:
            _refuse(where, "a boolean is neither 0 nor 1")
        return data[at] == 1, at + 1

    return read


def _integer(limit: int, where: str) -> Read:
    def read(data: bytes, at: int) -> tuple[int, int]:
        byte = data[at]
        if byte < MORE:
            return (byte >> 1) ^ -(byte & 1), at + 1
        value, at = read_varint(data, at, where)
        if not -limit <= value < limit:
            _refuse(where, "a number does not fit its type")
        return value, at

    return read


def _null(_where: str) -> Read:
    return lambda _data, at: (None, at)


def _any_double(_where: str) -> Read:
    return lambda data, at: (_DOUBLE.unpack_from(data, at)[0], at + DOUBLE_BYTES)


def _finite_double(where: str) -> Read:
    def read(data: bytes, at: int) -> tuple[float, int]:
        value: float = _DOUBLE.unpack_from(data, at)[0]
        if not isfinite(value):
            _refuse(where, "a number is NaN or infinite")
        return value, at + DOUBLE_BYTES

    return read


def _bytes(where: str) -> Read:
    return lambda data, at: _content(data, at, where)


def _string(where: str) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        raw, at = _content(data, at, where)
        return _text(raw, where), at

    return read


def _exact_integer(where: str) -> Read:
    """Read two's complement, big-endian, as a decimal string."""

    def read(data: bytes, at: int) -> tuple[str, int]:
        raw, at = _content(data, at, where)
        if not 1 <= len(raw) <= EXACT_INTEGER_BYTES_MAX:
            _refuse(where, f"an exact integer has {len(raw)} bytes; 1 to {EXACT_INTEGER_BYTES_MAX} are allowed")
        return exact_integer_text(raw), at

    return read


def _time(where: str) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        value, at = read_varint(data, at, where)
        try:
            return rfc3339(value), at
        except ValueError as error:
            _refuse(where, str(error))

    return read


def _enum(symbols: Sequence[str], where: str) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        index, at = read_varint(data, at, where)
        if not 0 <= index < len(symbols):
            _refuse(where, f"symbol {index} of {len(symbols)} does not exist")
        return symbols[index], at

    return read


def _union(branches: list[Read], where: str) -> Read:
    by_byte = {2 * index: branch for index, branch in enumerate(branches[:64])}  # zigzag, in one byte

    def read(data: bytes, at: int) -> tuple[Any, int]:
        branch = by_byte.get(data[at])
        if branch is not None:
            return branch(data, at + 1)
        index, at = read_varint(data, at, where)
        if not 0 <= index < len(branches):
            _refuse(where, f"branch {index} of {len(branches)} does not exist")
        return branches[index](data, at)

    return read


def _record(fields: list[tuple[str, Read]]) -> Read:
    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        value = {}
        for name, read_field in fields:
            value[name], at = read_field(data, at)
        return value, at

    return read


def _block(data: bytes, at: int, where: str) -> tuple[int, int, int | None]:
    """Read the head of a block: (items, where they start, where they must end if the block says so).

    Each item of our schemas takes one byte at least, so the bytes that are left bound the count.
    """
    count, at = read_varint(data, at, where)
    end = None
    if count < 0:  # the block's size in bytes follows, for readers that would skip it
        count = -count
        size, at = read_varint(data, at, where)
        end = at + size
    if count > len(data) - at:
        _refuse(where, f"a count claims {count} items where {len(data) - at} bytes are left")
    return count, at, end


def _array(read_item: Read, in_bulk: ReadColumn | None, where: str) -> Read:
    def read_items(data: bytes, at: int, count: int) -> tuple[list[Any], int]:
        if in_bulk:
            with contextlib.suppress(*ODD):
                return in_bulk(data, at, count)
        items = []
        for _ in range(count):
            item, at = read_item(data, at)
            items.append(item)
        return items, at

    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        values: list[Any] = []
        while True:
            count, at, end = _block(data, at, where)
            if not count:
                return values, at
            items, at = read_items(data, at, count)
            values += items
            if end not in (None, at):
                _refuse(where, "a block has another size than it says")

    return read


def _map(read_value: Read, where: str) -> Read:
    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        values: dict[str, Any] = {}
        entries = 0
        while True:
            count, at, end = _block(data, at, where)
            if not count:
                return values, at
            for _ in range(count):
                raw, at = _content(data, at, where)
                values[_text(raw, where)], at = read_value(data, at)
            entries += count
            if len(values) != entries:
                _refuse(where, "a key comes twice")
            if end not in (None, at):
                _refuse(where, "a block has another size than it says")

    return read


_PRIMITIVES: Final[Mapping[str, Callable[[str], Read]]] = MappingProxyType(
    {
        "null": _null,
        "boolean": _boolean,
        "int": lambda where: _integer(INT_LIMIT, where),
        "long": lambda where: _integer(LONG_LIMIT, where),
        "string": _string,
        "bytes": _bytes,
    }
)
_MARKED: Final[Mapping[str, Callable[[str], Read]]] = MappingProxyType(
    {"exact-integer": _exact_integer, "timestamp-millis": _time}
)
