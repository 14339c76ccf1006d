"""The parsing canonical form, written from the Avro 1.12 specification and nothing else: an oracle for our schemas."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
KEPT_IN_ORDER = ("name", "type", "fields", "symbols", "items", "values", "size")


def canonical_form(node: Any, namespace: str = "") -> str:
    """Spell a schema node: full names, only what matters for parsing, in the order of the specification, no blanks."""
    if isinstance(node, str):
        return json.dumps(node if node in PRIMITIVES or "." in node else f"{namespace}.{node}")
    if isinstance(node, list):
        return "[" + ",".join(canonical_form(branch, namespace) for branch in node) + "]"
    if set(node) & {"name"} and node["type"] not in ("record", "enum", "fixed"):
        return f'{{"name":{json.dumps(node["name"])},"type":{canonical_form(node["type"], namespace)}}}'  # a field
    if node["type"] in PRIMITIVES:
        return json.dumps(node["type"])
    namespace = node.get("namespace", namespace)
    spelt: dict[str, Callable[[Any], str]] = {
        "name": lambda name: json.dumps(f"{namespace}.{name}"),
        "type": json.dumps,
        "fields": lambda fields: "[" + ",".join(canonical_form(field, namespace) for field in fields) + "]",
        "symbols": lambda symbols: json.dumps(symbols, separators=(",", ":")),
        "items": lambda items: canonical_form(items, namespace),
        "values": lambda values: canonical_form(values, namespace),
        "size": str,
    }
    return "{" + ",".join(f'"{key}":{spelt[key](node[key])}' for key in KEPT_IN_ORDER if key in node) + "}"
