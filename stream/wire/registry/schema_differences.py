"""Compares two Avro schemas: whether they mean the same, and what one cannot read of the other's records.

The rules are Avro's schema resolution plus one: a mark (`logicalType`, `coachType`) of the reader must be the writer's as
well, because microseconds read as milliseconds are a wrong time, not an error. A property test compares the rules with
`avro`'s own checker, which names no fields.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from stream.wire.schema_files import SchemaNode

_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_PRIMITIVE: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_MARKS: Final = ("logicalType", "coachType")
# Attributes that change the meaning of bytes or how they are read, unlike `doc`, `order` and additions of tools.
_MEANINGFUL: Final = frozenset({"symbols", "size", "default", "precision", "scale", *_MARKS})
_PROMOTED: Final[Mapping[str, frozenset[str]]] = {  # writer types that a reader's type accepts besides its own
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}


def same_meaning(one: SchemaNode, other: SchemaNode) -> bool:
    """Whether two schemas write and read the same bytes, regardless of documentation and layout."""
    return _text(one) == _text(other)


def differences(reader: SchemaNode, writer: SchemaNode) -> list[str]:
    """What `reader` cannot read of the records of `writer`, each with the path of its field; empty when it reads all."""
    return list(_Comparison(_normal(reader, ""), _normal(writer, "")).all())


def _text(document: SchemaNode) -> str:
    return json.dumps(_normal(document, ""), sort_keys=True)


def _normal(node: SchemaNode, space: str) -> SchemaNode:
    """A schema with full names and meaningful attributes only. Raises: KeyError, TypeError for a non-schema."""
    if isinstance(node, str):
        return node if node in _PRIMITIVE else _full_name(node, space)
    if isinstance(node, list):
        return [_normal(branch, space) for branch in node]
    kind = node["type"]
    if isinstance(kind, list | dict):
        return _normal(kind, space)
    plain = {key: node[key] for key in sorted(_MEANINGFUL & node.keys())} | {"type": kind}
    if kind in _NAMED:
        name = _full_name(node["name"], node.get("namespace") or space)
        plain |= {"name": name}
        space = name.rpartition(".")[0]
    if "fields" in node:
        plain["fields"] = [
            {name: field[name] for name in ("name", "default") if name in field}
            | {"type": _normal(field["type"], space)}
            for field in node["fields"]
        ]
    for part in ("items", "values"):
        if part in node:
            plain[part] = _normal(node[part], space)
    if plain.keys() == {"type"}:
        return _normal(kind, space)
    return plain


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


class _Comparison:
    """One reader against one writer, both in normal form."""

    def __init__(self, reader: SchemaNode, writer: SchemaNode) -> None:
        self._reader, self._writer = reader, writer
        self._reader_names = dict(_named(reader))
        self._writer_names = dict(_named(writer))
        self._under_way: set[tuple[str, str]] = set()  # records within themselves

    def all(self) -> Iterator[str]:
        """All differences between the two schemas, from their top down."""
        return self._differ(self._reader, self._writer, "")

    def _differ(self, reader: SchemaNode, writer: SchemaNode, where: str) -> Iterator[str]:
        reader, writer = _known(reader, self._reader_names), _known(writer, self._writer_names)
        if isinstance(writer, list):
            for branch in writer:
                yield from self._differ(reader, branch, where)
        elif isinstance(reader, list):
            yield from self._against_union(reader, writer, where)
        elif _kind(reader) != _kind(writer):
            if _kind(writer) not in _PROMOTED.get(_kind(reader), ()) or _marks_differ(reader, writer):
                yield f"{_named_field(where)} is {_shown(writer)} there and {_shown(reader)} here"
        else:
            yield from self._same_kind(reader, writer, where)

    def _against_union(self, branches: list[SchemaNode], writer: SchemaNode, where: str) -> Iterator[str]:
        tried = [list(self._differ(branch, writer, where)) for branch in branches]
        if all(tried):
            alike = [
                found
                for branch, found in zip(branches, tried, strict=True)
                if _kind(_known(branch, self._reader_names)) == _kind(writer)
            ]
            if alike:
                yield from alike[0]
            else:
                here = " or ".join(_shown(_known(branch, self._reader_names)) for branch in branches)
                yield f"{_named_field(where)} is {_shown(writer)} there and {here} here"

    def _same_kind(self, reader: SchemaNode, writer: SchemaNode, where: str) -> Iterator[str]:
        kind = _kind(reader)
        if kind in _NAMED and _last(reader["name"]) != _last(writer["name"]):
            yield f"{_named_field(where)} is named {_last(writer['name'])} there and {_last(reader['name'])} here"
        elif kind in ("record", "error"):
            yield from self._records(reader, writer, where)
        elif kind == "enum":
            unknown = [] if "default" in reader else [one for one in writer["symbols"] if one not in reader["symbols"]]
            if unknown:
                yield f"{_named_field(where)} has the words {', '.join(unknown)} there, which it does not have here"
        elif kind == "array":
            yield from self._differ(reader["items"], writer["items"], f"{where}[]")
        elif kind == "map":
            yield from self._differ(reader["values"], writer["values"], f"{where}{{}}")
        elif _marks_differ(reader, writer) or (kind == "fixed" and reader["size"] != writer["size"]):
            yield f"{_named_field(where)} is {_shown(writer)} there and {_shown(reader)} here"

    def _records(self, reader: SchemaNode, writer: SchemaNode, where: str) -> Iterator[str]:
        pair = reader["name"], writer["name"]
        if pair in self._under_way:
            return
        self._under_way.add(pair)
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            path = f"{where}.{field['name']}" if where else field["name"]
            if field["name"] in written:
                yield from self._differ(field["type"], written[field["name"]]["type"], path)
            elif "default" not in field:
                yield f"{_named_field(path)} is missing there, and has no default here"
        self._under_way.discard(pair)


def _named(node: SchemaNode) -> Iterator[tuple[str, SchemaNode]]:
    if isinstance(node, list):
        for branch in node:
            yield from _named(branch)
    elif isinstance(node, dict):
        if node["type"] in _NAMED:
            yield node["name"], node
        for field in node.get("fields", ()):
            yield from _named(field["type"])
        for part in ("items", "values"):
            yield from _named(node.get(part))


def _known(node: SchemaNode, names: Mapping[str, SchemaNode]) -> SchemaNode:
    return names.get(node, node) if isinstance(node, str) else node


def _kind(node: SchemaNode) -> str:
    if isinstance(node, list):
        return "union"
    return str(node if isinstance(node, str) else node["type"])


def _mark(node: SchemaNode) -> tuple[object, ...]:
    return tuple(node.get(mark) for mark in _MARKS) if isinstance(node, dict) else (None, None)


def _marks_differ(reader: SchemaNode, writer: SchemaNode) -> bool:
    """Whether the reader would misinterpret the writer's bytes. A decimal is the one that must not be ignored."""
    matters = any(_mark(reader)) or _mark(writer)[0] in ("decimal", "big-decimal")
    return matters and _mark(reader) != _mark(writer)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _named_field(where: str) -> str:
    return f"field {where}" if where else "the record"


def _shown(node: SchemaNode) -> str:
    marks = [str(mark) for mark in _mark(node) if mark]
    name = f" {_last(node['name'])}" if isinstance(node, dict) and "name" in node else ""
    return f"{_kind(node)}{name}{f' ({marks[0]})' if marks else ''}"
