"""The schema files themselves: documented, fingerprinted, the same as the types in stream/events.py, and readable for ever."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

import avro.schema
import fastavro
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from hypothesis import given
from hypothesis import strategies as st

from stream import events
from stream.errors import ConfigurationError
from stream.notify.notices import notice as notice_record
from stream.wire.avro_records import reader_between, writer_of
from stream.wire.schema_files import (
    RECORDS,
    RecordName,
    RecordSchema,
    current_schemas,
    known_schemas,
    published_schemas,
    schema_directory,
    schema_fingerprint,
)
from tests.schemas.canonical_form import canonical_form
from tests.schemas.crc64 import crc64_avro

# Schema -> CRC-64-AVRO as a number, from the Avro project's own interoperability data (share/test/data/schema-tests.txt).
AVRO_PROJECT_VECTORS = {
    '"null"': 7195948357588979594,
    '"boolean"': -6970731678124411036,
    '"int"': 8247732601305521295,
    '"long"': -3434872931120570953,
    '"double"': -8181574048448539266,
    '"bytes"': 5746618253357095269,
    '"string"': -8142146995180207161,
}


@pytest.mark.parametrize(("schema", "number"), AVRO_PROJECT_VECTORS.items())
def test_the_oracle_of_fingerprints_agrees_with_the_avro_project(schema: str, number: int) -> None:
    """Given the Avro project's own test data, when our ten-line reference fingerprints it, then the numbers are theirs."""
    assert crc64_avro(schema.encode()) == number.to_bytes(8, "little", signed=True)


@pytest.mark.parametrize("record", RECORDS)
def test_a_fingerprint_is_the_crc_of_the_canonical_form(record: RecordName) -> None:
    """Given a schema, when both are written anew from the specification, then the frame carries that fingerprint."""
    schema = current_schemas()[record]
    assert schema.fingerprint == crc64_avro(canonical_form(schema.document).encode())


def test_the_fingerprints_are_those_that_the_vectors_publish() -> None:
    """Given schemas/fingerprints.json, which others test against, then it holds every schema's fingerprint, in hex."""
    published = json.loads((schema_directory() / "fingerprints.json").read_text(encoding="utf-8"))
    assert published["current"] == {record: current_schemas()[record].fingerprint.hex() for record in RECORDS}, (
        "a schema changed: put its new fingerprint into schemas/fingerprints.json (schemas/README.md says what else)"
    )
    for schema, fingerprint in published["vectors"].items():
        assert crc64_avro(schema.encode()).hex() == fingerprint
        assert schema_fingerprint(json.loads(schema)).hex() == fingerprint


def test_a_logical_type_does_not_change_a_fingerprint() -> None:
    """Given a time, when it is fingerprinted with and without its logical type, then both are the same (avro's differ)."""
    marked = {"type": "long", "logicalType": "timestamp-millis"}
    assert schema_fingerprint(marked) == schema_fingerprint("long") == crc64_avro(b'"long"')


def _nodes(node: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every object of a schema, with its path."""
    if isinstance(node, list):
        for part in node:
            yield from _nodes(part, path)
    elif isinstance(node, dict):
        here = f"{path}.{node['name']}" if "name" in node else path
        yield here, node
        for key in ("type", "fields", "items", "values"):
            yield from _nodes(node.get(key), here)


@pytest.mark.parametrize("record", RECORDS)
def test_every_record_field_and_word_list_is_documented(record: RecordName) -> None:
    """Given a schema, then whatever has a name says in words what it is."""
    undocumented = [
        path for path, node in _nodes(current_schemas()[record].document, "") if "name" in node and not node.get("doc")
    ]
    assert undocumented == []


def test_a_name_means_the_same_in_every_schema() -> None:
    """Given a named type that several schemas define, then they define it alike, so that generated classes are one."""
    seen: dict[str, str] = {}
    for record in RECORDS:
        for _, node in _nodes(current_schemas()[record].document, ""):
            if node.get("type") in ("record", "enum"):
                assert seen.setdefault(node["name"], canonical_form(node, "coach")) == canonical_form(node, "coach")


@cache
def _named(record: RecordName) -> dict[str, Mapping[str, Any]]:
    document = current_schemas()[record].document
    return {node["name"]: node for _, node in _nodes(document, "") if node.get("type") in ("record", "enum")}


KINDS: Mapping[Any, tuple[str, ...]] = {
    str: ("string", "exact-integer", "timestamp-millis"),
    int: ("int", "long"),
    float: ("double",),
    bool: ("boolean",),
    bytes: ("bytes",),
    type(None): ("null",),
}


def _fits(hint: Any, node: Any, named: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a type of stream/events.py and a schema node have the same JSON shape."""
    node = named.get(node, node) if isinstance(node, str) else node
    origin, inner = get_origin(hint), get_args(hint)
    if origin is NotRequired:
        return _fits(inner[0], node, named)
    if isinstance(node, list):
        is_union = origin in (types.UnionType, typing.Union) and len(inner) == len(node)
        return is_union and all(any(_fits(option, branch, named) for branch in node) for option in inner)
    node = {"type": node} if isinstance(node, str) else node
    kind = node.get("coachType") or node.get("logicalType") or node["type"]
    if is_typeddict(hint):
        return bool(kind == "record" and node["name"] == hint.__name__)  # its fields are compared on their own
    if origin is Literal:
        return bool(node.get("symbols") == list(inner))
    if origin in (list, dict):
        part = "items" if origin is list else "values"
        return part in node and _fits(inner[-1], node[part], named)
    return kind in KINDS.get(hint, ())


@pytest.mark.parametrize("record", [record for record in RECORDS if record != "Decision"])
def test_the_schema_has_the_shape_of_the_type(record: RecordName) -> None:
    """Given a record's TypedDict in stream/events.py, or the notice's in stream/notify/notices/record.py, then its schema has the same fields with the same types."""
    named = _named(record)
    for name, node in named.items():
        if node["type"] == "record":
            hints = get_type_hints(getattr(notice_record if record == "Notice" else events, name), include_extras=True)
            assert list(hints) == [field["name"] for field in node["fields"]], f"{name}: other fields, or another order"
            wrong = [f["name"] for f in node["fields"] if not _fits(hints[f["name"]], f["type"], named)]
            assert wrong == [], f"{name}: other types in stream/events.py than in the schema"


def test_the_decision_by_value_is_the_decision_without_its_trace_context() -> None:
    """Given the decision's schema, then the audit record keeps all of its fields but the one that is transport."""
    decision = [field["name"] for field in current_schemas()["Decision"].document["fields"]]
    by_value = [field["name"] for field in _named("AuditRecord")["DecisionByValue"]["fields"]]
    assert by_value == [name for name in decision if name != "traceparent"]


@pytest.mark.parametrize("record", RECORDS)
def test_a_schema_is_valid_for_both_avro_libraries(record: RecordName) -> None:
    """Given a schema, then `avro` and fastavro parse it."""
    text = json.dumps(current_schemas()[record].document)
    assert avro.schema.parse(text).fullname == f"coach.{record}"  # type: ignore[attr-defined]
    fastavro.parse_schema(json.loads(text))


@pytest.mark.parametrize("record", RECORDS)
def test_the_current_schema_is_the_last_one_published(record: RecordName) -> None:
    """Given a schema that changed, then it was published under the next number, or old records would lose their schema."""
    published = published_schemas(record)
    assert published
    assert published[-1].document == current_schemas()[record].document, (
        f"{published[-1].where} differs from {current_schemas()[record].where}; schemas/README.md says how to publish"
    )
    assert all(version.fingerprint in known_schemas() for version in published)


@pytest.mark.parametrize("record", RECORDS)
def test_the_current_schema_reads_whatever_an_older_one_wrote(record: RecordName) -> None:
    """Given every version ever published, then `avro` says that the current schema can read its records."""
    current = avro.schema.parse(json.dumps(current_schemas()[record].document))
    for version in published_schemas(record):
        written = avro.schema.parse(json.dumps(version.document))
        verdict = ReaderWriterCompatibilityChecker().get_compatibility(current, written)  # type: ignore[no-untyped-call]
        assert verdict.compatibility is SchemaCompatibilityType.compatible, f"{version.where}: {verdict.messages}"
        reader_between(version, current_schemas()[record])


@pytest.mark.parametrize("record", RECORDS)
def test_a_mark_is_never_added_or_taken_from_a_published_field(record: RecordName) -> None:
    """Given every version ever published, then no field changed between a number and a time, or bytes and an exact integer."""
    today = _marks(current_schemas()[record].document)
    for version in published_schemas(record):
        before = _marks(version.document)
        assert {path: today[path] for path in before.keys() & today.keys()} == {
            path: before[path] for path in before.keys() & today.keys()
        }, version.where


def _marks(document: Any) -> dict[str, set[str]]:
    marks: dict[str, set[str]] = {}
    for path, node in _nodes(document, ""):
        marks.setdefault(path, set()).update(node[key] for key in ("coachType", "logicalType") if key in node)
    return marks


@pytest.mark.parametrize("record", RECORDS)
def test_an_exact_integer_has_no_default(record: RecordName) -> None:
    """Given a schema, then no exact integer has a default: Avro spells that of bytes as a text (null in a union is fine)."""
    for path, node in _nodes(current_schemas()[record].document, ""):
        if isinstance(node.get("type"), dict) and "coachType" in node["type"]:
            assert "default" not in node, path


@pytest.mark.parametrize("record", RECORDS)
def test_no_item_of_a_list_takes_no_bytes(record: RecordName) -> None:
    """Given a schema, then each item of a list takes a byte or more, so that no count costs memory without bytes."""
    named = _named(record)
    for path, node in _nodes(current_schemas()[record].document, ""):
        if "items" in node:
            assert _takes_a_byte(node["items"], named), path


def _takes_a_byte(node: Any, named: Mapping[str, Mapping[str, Any]]) -> bool:
    node = named.get(node, node) if isinstance(node, str) else node
    if isinstance(node, dict) and node["type"] == "record":
        return any(_takes_a_byte(field["type"], named) for field in node["fields"])
    return bool(node != "null")


def _record(*fields: Mapping[str, Any]) -> RecordSchema:
    document = {"type": "record", "name": "Sample", "namespace": "coach", "doc": "A sample.", "fields": list(fields)}
    return RecordSchema(
        record="ModelPublished", document=document, fingerprint=schema_fingerprint(document), where="a made-up schema"
    )


INNER = {"type": "record", "name": "Inner", "fields": [{"name": "kept", "type": "int"}]}
WIDER_INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "added", "type": ["null", "string"], "default": None}, {"name": "kept", "type": "long"}],
}


def test_an_added_field_gets_its_default_and_a_dropped_one_goes() -> None:
    """Given a newer schema, when an older record is read, then it has the newer shape at every depth."""
    written = _record(
        {"name": "dropped", "type": "string"},
        {"name": "one", "type": INNER},
        {"name": "many", "type": {"type": "array", "items": "Inner"}},
        {"name": "by_name", "type": {"type": "map", "values": ["null", "Inner"]}},
    )
    current = _record(
        {"name": "one", "type": WIDER_INNER},
        {"name": "many", "type": {"type": "array", "items": "Inner"}},
        {"name": "by_name", "type": {"type": "map", "values": ["null", "Inner", "double"]}},
        {"name": "texts", "type": {"type": "map", "values": "string"}, "default": {}},
    )
    value = {"dropped": "x", "one": {"kept": 1}, "many": [{"kept": 2}], "by_name": {"a": {"kept": 3}, "b": None}}
    assert reader_between(written, current)(writer_of(written)(value), 0) == {
        "one": {"added": None, "kept": 1},
        "many": [{"added": None, "kept": 2}],
        "by_name": {"a": {"added": None, "kept": 3}, "b": None},
        "texts": {},
    }


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("string", "int", "reader type: int not compatible with writer type: string"),
        ("long", "int", "reader type: int not compatible with writer type: long"),
        (["null", "string"], "string", "reader type: string not compatible with writer type: null"),
        (
            {"type": "enum", "name": "E", "symbols": ["a", "b"]},
            {"type": "enum", "name": "E", "symbols": ["a"]},
            "b",
        ),
    ],
)
def test_a_schema_that_cannot_read_older_records_is_refused(before: Any, after: Any, said: str) -> None:
    """Given a change that breaks old records, when the reader is made, then it says what breaks them."""
    with pytest.raises(ConfigurationError, match=rf"cannot read what a made-up schema wrote: .*{said}"):
        reader_between(_record({"name": "field", "type": before}), _record({"name": "field", "type": after}))


def test_a_new_field_without_a_default_is_refused() -> None:
    """Given a new field without a default, when the reader is made, then it says which field."""
    with pytest.raises(ConfigurationError, match=r"cannot read what a made-up schema wrote: .*field"):
        reader_between(_record(), _record({"name": "field", "type": "int"}))


@given(data=st.binary(max_size=64))
def test_the_oracle_and_fastavro_give_one_crc(data: bytes) -> None:
    """Given any text, when fastavro and the reference fingerprint it, then they agree."""
    text = data.hex()
    assert fastavro.schema.fingerprint(text, "CRC-64-AVRO") == crc64_avro(text.encode()).hex()
