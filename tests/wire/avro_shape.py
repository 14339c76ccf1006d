"""A record's JSON shape as the Avro libraries take it: exact integers as bytes, times as milliseconds. For oracles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stream.times import time_ms


def avro_shape(document: Mapping[str, Any], value: Any) -> Any:
    """Convert a value by its schema, written apart from the codec."""
    named: dict[str, Mapping[str, Any]] = {}
    _learn(document, named)
    return _shaped(document, value, named)


def _learn(node: Any, named: dict[str, Mapping[str, Any]]) -> None:
    """Collect the named types."""
    if isinstance(node, list):
        for branch in node:
            _learn(branch, named)
    if isinstance(node, dict):
        if node["type"] in ("record", "enum"):
            named[node["name"]] = node
        _learn([field["type"] for field in node.get("fields", ())], named)
        _learn([node.get("items"), node.get("values")], named)


def _shaped(node: Any, value: Any, named: Mapping[str, Mapping[str, Any]]) -> Any:
    if isinstance(node, list):
        inner = [branch for branch in node if branch != "null"]
        return value if value is None or len(inner) > 1 else _shaped(inner[0], value, named)
    node = named.get(node, {"type": node}) if isinstance(node, str) else node
    match node.get("coachType") or node.get("logicalType") or node["type"]:
        case "record":
            whole = {field["name"]: field.get("default") for field in node["fields"]} | value
            return {field["name"]: _shaped(field["type"], whole[field["name"]], named) for field in node["fields"]}
        case "array":
            return [_shaped(node["items"], item, named) for item in value]
        case "map":
            return {key: _shaped(node["values"], item, named) for key, item in value.items()}
        case kind:
            return {"exact-integer": _twos_complement, "timestamp-millis": time_ms}.get(kind, _same)(value)


def _same(value: Any) -> Any:
    return value


def _twos_complement(text: str) -> bytes:
    number, size = int(text), 1
    while not -(1 << (8 * size - 1)) <= number < 1 << (8 * size - 1):
        size += 1
    return number.to_bytes(size, "big", signed=True)


def without_logical_types(node: Any) -> Any:
    """Give the schema as the libraries must see it, so that they leave times as numbers."""
    if isinstance(node, list):
        return [without_logical_types(part) for part in node]
    if isinstance(node, dict):
        return {key: without_logical_types(part) for key, part in node.items() if key != "logicalType"}
    return node
