from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any

import avro.schema
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from fastavro import parse_schema
from hypothesis import given
from hypothesis import strategies as st

from stream.wire.registry.schema_differences import differences, same_meaning
from stream.wire.schema_files import RECORDS, current_schemas, published_schemas, schema_fingerprint

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
DECISION: dict[str, Any] = dict(current_schemas()["Decision"].document)
Change = Callable[[dict[str, Any]], object]


def changed(change: Change) -> dict[str, Any]:
    """The decision's schema with a change."""
    document = copy.deepcopy(DECISION)
    change(document)
    return document


def field(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in document["fields"] if one["name"] == name)
    return found


class _Drawn:
    """Draws schemas; names count up, so that two documents share them."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._count = 0

    def record(self, depth: int) -> dict[str, Any]:
        fields: list[dict[str, Any]] = []
        name = self._name("R")
        for title in self._draw(st.lists(st.sampled_from("xyz"), min_size=1, unique=True)):
            fields.append({"name": title, "type": self._node(depth)})
            if fields[-1]["type"] == "int" and self._draw(st.booleans()):
                fields[-1]["default"] = 0
        return {"type": "record", "name": name, "fields": fields}

    def _node(self, depth: int) -> Any:
        complex_kinds: dict[str, Callable[[], Any]] = {
            "enum": lambda: {"type": "enum", "name": self._name("E"), "symbols": self._some("abc")},
            "fixed": lambda: {"type": "fixed", "name": self._name("F"), "size": self._draw(st.integers(1, 2))},
        }
        if depth:
            complex_kinds |= {
                "array": lambda: {"type": "array", "items": self._node(depth - 1)},
                "map": lambda: {"type": "map", "values": self._node(depth - 1)},
                "record": lambda: self.record(depth - 1),
                "union": lambda: self._some(PRIMITIVES),
            }
        kind = self._draw(st.sampled_from([*PRIMITIVES, *complex_kinds]))
        return complex_kinds[kind]() if kind in complex_kinds else kind

    def _some(self, words: Sequence[str]) -> list[str]:
        return self._draw(st.lists(st.sampled_from(words), min_size=1, max_size=3, unique=True))

    def _name(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"


@st.composite
def documents(draw: st.DrawFn) -> Any:
    """A record of a few fields of any type."""
    return _Drawn(draw).record(2)


def by_avro(reader: Any, writer: Any) -> bool:
    """Whether Avro's own checker says that `reader` reads what `writer` wrote."""
    checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]
    verdict = checker.get_compatibility(avro.schema.parse(json.dumps(reader)), avro.schema.parse(json.dumps(writer)))
    return bool(verdict.compatibility is SchemaCompatibilityType.compatible)


@given(documents(), documents())
def test_what_cannot_be_read_is_what_avro_says(reader: Any, writer: Any) -> None:
    """Given any two schemas without marks, then we find a difference exactly where Avro's own checker finds one."""
    assert (not differences(reader, writer)) == by_avro(reader, writer)


@given(documents())
def test_layout_and_texts_have_no_meaning(document: Any) -> None:
    """Given a schema as fastavro lays it out anew, with full names and texts added, then it means the same and reads the same."""
    parsed: Any = parse_schema({**document, "namespace": "n", "doc": "why"})
    laid_out = json.loads(json.dumps(parsed))
    laid_out = {key: value for key, value in laid_out.items() if not key.startswith("__")}
    assert same_meaning({**document, "namespace": "n"}, laid_out)
    assert differences(document, laid_out) == []


@given(documents(), documents())
def test_what_means_the_same_has_one_fingerprint(one: Any, other: Any) -> None:
    """Given two schemas of which we say that they mean the same, then they write the same bytes: their canonical forms are equal."""
    if same_meaning(one, other):
        assert schema_fingerprint(one) == schema_fingerprint(other)


@pytest.mark.parametrize("record", RECORDS)
def test_todays_schema_reads_every_published_one(record: Any) -> None:
    """Given every version that was ever published, then the present one reads it, and means the same as itself only."""
    present = current_schemas()[record].document
    assert [differences(present, one.document) for one in published_schemas(record)] == [[]] * len(
        published_schemas(record)
    )
    assert same_meaning(present, json.loads(json.dumps(present, sort_keys=True, indent=2)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d["fields"].pop(0), "field decision_id is missing there, and has no default here"),
        (
            lambda d: field(d, "event_time")["type"].update(logicalType="timestamp-micros"),
            "field event_time is long (timestamp-micros) there and long (timestamp-millis) here",
        ),
        (
            lambda d: field(d, "event_time").update(type="long"),
            "field event_time is long there and long (timestamp-millis)",
        ),
        (lambda d: field(d, "event_time").update(type="string"), "field event_time is string there and long"),
        (
            lambda d: field(d, "outcome")["type"]["symbols"].append("referred"),
            "field outcome has the words referred there",
        ),
        (
            lambda d: field(d, "features")["type"].update(values=["null", "double", "string", "boolean"]),
            "field features{} is boolean there and null or double or string here",
        ),
        (
            lambda d: field(d, "features")["type"].update(
                values={"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
            ),
            "field features{} is bytes (decimal) there",
        ),
        (lambda d: d.update(name="Loan"), "the record is named Loan there and Decision here"),
    ],
)
def test_a_difference_names_its_field(change: Change, told: str) -> None:
    """Given a producer's schema that ours cannot read, then the one difference names the field and both sides."""
    (found,) = differences(DECISION, changed(change))
    assert found.startswith(told)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(namespace="com.bank.events"),
        lambda d: d["fields"].insert(0, {"name": "branch", "type": {"type": "fixed", "name": "B", "size": 4}}),
        lambda d: d["fields"].append(
            {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4}}
        ),
        lambda d: field(d, "features")["type"].update(values=["null", "int", "float"]),
        lambda d: d["fields"].remove(field(d, "product")),
    ],
)
def test_producers_may_add_fields_and_be_narrower(change: Change) -> None:
    """Given a producer's schema with more fields, another namespace or narrower types, then ours reads it, and it means something else."""
    document = changed(change)
    assert differences(DECISION, document) == []
    assert not same_meaning(DECISION, document)
