"""Any value of a record's JSON shape, drawn from its schema: what `encode` must take and `decode` must give back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from hypothesis import strategies as st

from stream.times import TIME_MS_MAX, TIME_MS_MIN, rfc3339
from stream.wire.schema_files import RecordName, current_schemas

texts_of_json = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
exact_integers = st.one_of(st.integers(-(2**70), 2**70), st.integers(-(2**4000), 2**4000), st.integers(-300, 300)).map(
    str
)
times = st.integers(TIME_MS_MIN, TIME_MS_MAX).map(rfc3339)
COMPLEX = ("record", "enum", "array", "map")
ITEMS_MAX = 2  # of a list or map: an audit record has a hundred of them


@cache
def records(record: RecordName) -> st.SearchStrategy[dict[str, Any]]:
    """Values of one record."""
    strategy: st.SearchStrategy[dict[str, Any]] = _node(current_schemas()[record].document, {})
    return strategy


def _node(node: Any, named: dict[str, Mapping[str, Any]]) -> st.SearchStrategy[Any]:
    if isinstance(node, list):
        return st.one_of([_node(branch, named) for branch in node])
    if isinstance(node, str):
        return _node(named[node], named) if node in named else _primitive(node)
    if node["type"] in ("record", "enum"):
        named[node["name"]] = node
    kind = node.get("coachType") or node.get("logicalType") or node["type"]
    return _complex(kind, node, named) if kind != node["type"] or kind in COMPLEX else _node(kind, named)


def _complex(kind: str, node: Mapping[str, Any], named: dict[str, Mapping[str, Any]]) -> st.SearchStrategy[Any]:
    match kind:
        case "record":
            absent = {field["name"]: field["default"] for field in node["fields"] if field.get("coachAbsent")}
            fields = st.fixed_dictionaries({field["name"]: _node(field["type"], named) for field in node["fields"]})
            return fields.map(lambda value: {k: v for k, v in value.items() if k not in absent or v != absent[k]})
        case "enum":
            return st.sampled_from(node["symbols"])
        case "array":
            return st.lists(_node(node["items"], named), max_size=ITEMS_MAX)
        case "map":
            return st.dictionaries(texts_of_json, _node(node["values"], named), max_size=ITEMS_MAX)
    return {"exact-integer": exact_integers, "timestamp-millis": times}[kind]


def _primitive(name: str) -> st.SearchStrategy[Any]:
    return {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1) | st.integers(-70, 70),
        "long": st.integers(-(2**63), 2**63 - 1),
        "double": st.floats(allow_nan=False, allow_infinity=False),
        "string": texts_of_json,
        "bytes": st.binary(max_size=20),
    }[name]
