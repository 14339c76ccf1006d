"""Each Avro type alone, by schemas made up for it: what is written, what is read, and what is neither."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from stream.errors import ConfigurationError, CorruptionError, MalformedRecord
from stream.wire.avro_records import reader_between, writer_of
from stream.wire.avro_shapes import EXACT_INTEGER_BYTES_MAX
from stream.wire.schema_files import RecordName, RecordSchema, schema_fingerprint
from tests.wire.varints import varint

EXACT = {"type": "bytes", "coachType": "exact-integer"}
TIME = {"type": "long", "logicalType": "timestamp-millis"}
WORD = {"type": "enum", "name": "Word", "symbols": ["a", "b"]}


def _schema(
    *types: Any,
    names: str = "a",
    defaults: Mapping[str, Any] = MappingProxyType({}),
    record: RecordName = "ModelPublished",
) -> RecordSchema:
    default_of = {name: {"default": default} for name, default in defaults.items()}
    fields = [{"name": n, "type": node} | default_of.get(n, {}) for n, node in zip(names, types, strict=True)]
    document = {"type": "record", "name": "Sample", "namespace": "coach", "fields": fields}
    return RecordSchema(
        record=record, document=document, fingerprint=schema_fingerprint(document), where="a made-up schema"
    )


def _read(schema: RecordSchema, data: bytes, start: int) -> dict[str, Any]:
    return reader_between(schema, schema)(data, start)


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _list_of(*items: bytes) -> bytes:
    return varint(len(items)) + b"".join(items) + b"\x00"


def _double(number: float) -> bytes:
    return struct.pack("<d", number)


@pytest.mark.parametrize(
    ("node", "value", "raw"),
    [
        ("null", None, b""),
        ("boolean", True, b"\x01"),
        ("int", -1, b"\x01"),
        ("int", 2**31 - 1, b"\xfe\xff\xff\xff\x0f"),
        ("long", -(2**63), b"\xff" * 9 + b"\x01"),
        ("double", -0.0, b"\x00" * 7 + b"\x80"),
        ("string", "é", b"\x04\xc3\xa9"),
        ("bytes", b"\xff\x00", b"\x04\xff\x00"),
        (WORD, "b", b"\x02"),
        (TIME, "1970-01-01T00:00:00.001Z", b"\x02"),
        (EXACT, "-1", b"\x02\xff"),
        (EXACT, "0", b"\x02\x00"),
        (EXACT, "127", b"\x02\x7f"),
        (EXACT, "128", b"\x04\x00\x80"),
        (EXACT, "-128", b"\x02\x80"),
        (EXACT, "-129", b"\x04\xff\x7f"),
        (EXACT, str(2**63), b"\x12\x00\x80" + b"\x00" * 7),
        (["null", "string"], None, b"\x00"),
        (["null", "string"], "x", b"\x02\x02x"),
        (["null", WORD], "a", b"\x02\x00"),
        (["null", "double", "string"], 1.0, b"\x02" + struct.pack("<d", 1.0)),
        (_array("string"), [], b"\x00"),
        (_array("string"), ["x", "y", "x"], b"\x06\x02x\x02y\x02x\x00"),
        (_array("boolean"), [True, False], b"\x04\x01\x00\x00"),
        (_array("double"), [0.5], b"\x02" + struct.pack("<d", 0.5) + b"\x00"),
        (_array("int"), [1, 300], b"\x04\x02\xd8\x04\x00"),
        (_array("int"), [1, 2**20], b"\x04\x02\x80\x80\x80\x01\x00"),
        (_array(EXACT), ["7"], b"\x02\x02\x07\x00"),
        ({"type": "map", "values": "int"}, {"k": 3}, b"\x02\x02k\x06\x00"),
    ],
)
def test_a_type_has_these_bytes(node: Any, value: object, raw: bytes) -> None:
    """Given a value of a type, when it is written, then the bytes are the specification's, and they read as the value."""
    schema = _schema(node)
    assert writer_of(schema)({"a": value}) == raw
    assert repr(_read(schema, b"#" + raw, 1)) == repr({"a": value})


@pytest.mark.parametrize(
    ("node", "raw", "said"),
    [
        ("boolean", b"\x02", "in two ways"),
        ("int", varint(2**31), "does not fit its type"),
        ("int", varint(-(2**31) - 1), "does not fit its type"),
        ("long", b"\xff" * 9 + b"\x03", "InvalidAvroBinaryEncoding"),  # 65 bits
        ("long", b"\x81" * 10 + b"\x01", "InvalidAvroBinaryEncoding"),
        ("double", _double(math.nan), "NaN or infinite"),
        ("double", b"\x00" * 7, "end in the middle"),
        ("string", b"\x04\xc3", "end in the middle"),
        (EXACT, b"\x00", "an exact integer of 0 bytes"),
        (EXACT, varint(EXACT_INTEGER_BYTES_MAX + 1) + bytes(EXACT_INTEGER_BYTES_MAX + 1), "an exact integer of 513"),
        (TIME, varint(2**60), "before the year 1 or after 9999"),
        (_array("boolean"), _list_of(b"\x01", b"\x02"), "in two ways"),
        (_array("double"), _list_of(_double(1.0), _double(math.inf)), r"a\[\] is NaN or infinite"),
        (_array("int"), _list_of(b"\x02", varint(2**40)), r"a\[\] is a number that does not fit"),
        (_array(EXACT), _list_of(b"\x10" + b"\x00" * 8, b"\x00"), r"a\[\] is an exact integer of 0"),
        (_array("int"), varint(2) + b"\x02", "end in the middle"),
        (_array("double"), varint(2) + b"\x02" * 9, "end in the middle"),
    ],
)
def test_bytes_that_are_no_value_of_the_type_are_malformed(node: Any, raw: bytes, said: str) -> None:
    """Given bytes that are no value of a type, alone or in a list, when they are read, then the fault is named."""
    with pytest.raises(MalformedRecord, match=said):
        _read(_schema(node), raw, 0)


def test_numbers_that_are_not_finite_are_read_where_they_are_asked_for() -> None:
    """Given NaN in a record whose reader has a better name for it, when it is read, then it comes through."""
    assert math.isnan(_read(_schema("double", record="Decision"), _double(math.nan), 0)["a"])
    assert math.isnan(_read(_schema(_array("double"), record="Decision"), _list_of(_double(math.nan)), 0)["a"][0])


@pytest.mark.parametrize(
    ("node", "value"),
    [
        ("boolean", 1), ("int", True), ("int", 1.0), ("long", 2**63), ("double", math.inf), ("double", True),
        ("double", "1"), ("string", b"x"), ("string", "\udc00"), ("bytes", "x"), (WORD, "c"), (WORD, 1), (TIME, 0),
        (EXACT, 1), (EXACT, "x"), (["null", "string"], 1), (["null", "double", "string"], math.nan),
        (["null", "double"], True), (_array("boolean"), [True, 1]), (_array("double"), [1.0, math.nan]),
        (_array("double"), [1.0, "x"]), (_array("int"), [2**31]), (_array("int"), (1,)),
        (_array("string"), ["x", 1]), (_array("string"), ["\udc00"]), (_array(EXACT), ["1", "01"]), (_array(EXACT), [1]),
        (_array(EXACT), ["1,2"]), ({"type": "map", "values": "int"}, {1: 1}), ({"type": "map", "values": "int"}, [1]),
        ({"type": "map", "values": "int"}, {"k": None}),
    ],
)  # fmt: skip
def test_a_value_that_is_not_of_the_type_is_not_written(node: Any, value: object) -> None:
    """Given a value of another type, alone or in a list, when it is written, then the fault names the field."""
    with pytest.raises(CorruptionError, match=r"Sample\.a|ModelPublished\.a|text that is not Unicode"):
        writer_of(_schema(node))({"a": value})


@pytest.mark.parametrize("value", [{}, {"a": 1, "b": 2}, {"b": 1}, [], None, {"a": 1, "b": 2, "c": 3}])
def test_a_record_has_its_fields_and_no_others(value: Any) -> None:
    """Given a record with a field too few or too many, when it is written, then the fault names the record."""
    with pytest.raises(CorruptionError, match="ModelPublished"):
        writer_of(_schema("int"))(value)


def test_a_whole_double_in_a_list_of_numbers_is_written() -> None:
    """Given integers where doubles are wanted, when they are written, then they are those doubles."""
    assert writer_of(_schema(_array("double")))({"a": [1, 0.5]}) == _list_of(_double(1.0), _double(0.5))


def test_a_union_that_json_cannot_tell_apart_is_no_schema_of_ours() -> None:
    """Given a union of two branches with one JSON type, when its writer is made, then that is refused."""
    with pytest.raises(TypeError, match="two branches"):
        writer_of(_schema(["string", EXACT]))


def test_an_exact_integer_of_any_length_is_read() -> None:
    """Given an exact integer in more bytes than it needs, as other writers may have it, when it is read, then it is the same."""
    assert _read(_schema(EXACT), b"\x10" + b"\xff" * 8, 0) == {"a": "-1"}
    assert _read(_schema(EXACT), b"\x06\x00\x00\x07", 0) == {"a": "7"}


def test_an_older_record_is_read_as_todays() -> None:
    """Given bytes of an older schema, when they are read, then the record has today's fields, and the bytes are checked as strictly."""
    older = _schema("int", "string", names="xy")
    current = _schema("long", {"type": "map", "values": "string"}, names="xz", defaults={"z": {}})
    read = reader_between(older, current)
    raw = writer_of(older)({"x": 7, "y": "gone"})
    assert read(raw, 0) == {"x": 7, "z": {}}
    assert read(raw, 0)["z"] is not read(raw, 0)["z"]
    with pytest.raises(MalformedRecord, match="unknown bytes follow"):
        read(raw + b"\x00", 0)
    with pytest.raises(ConfigurationError, match="cannot read what"):
        reader_between(current, older)
