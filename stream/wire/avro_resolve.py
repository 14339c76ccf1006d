"""A record that an older schema wrote, as the current schema has it.

In the JSON shape there is little to do. A number is a number whatever its width, a union does not show, a word stays a
word: so a field that was dropped goes, and a field that came gets its default. Schemas that would need more than
that are refused when the resolution is compiled, and a test holds every published schema against the current one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from stream.errors import ConfigurationError
from stream.wire.schema_files import SchemaNode

Resolve: TypeAlias = Callable[[Any], Any]

_T = TypeVar("_T")
_PROMOTIONS: Final = frozenset({("int", "long"), ("int", "double"), ("long", "double")})  # Avro 1.12, Schema Resolution


def compile_resolution(written: SchemaNode, current: SchemaNode) -> Resolve:
    """Make the step from the JSON shape of one schema to that of a newer one.

    Raises: ConfigurationError when the newer schema cannot read the older one.
    """
    return _Compiler().node(written, current, "")


class _Compiler:
    """Walks two schemas side by side. `where` is the path, for messages."""

    def __init__(self) -> None:
        self._written: dict[str, Mapping[str, Any]] = {}
        self._current: dict[str, Mapping[str, Any]] = {}

    def node(self, written: SchemaNode, current: SchemaNode, where: str) -> Resolve:
        """Give the step for one pair of nodes."""
        written, current = _named(written, self._written), _named(current, self._current)
        if isinstance(written, list) or isinstance(current, list):
            return self._union(_branches(written), _branches(current), where)
        kind = _kind(written)
        if not _promotes(kind, _kind(current)):
            msg = f"schemas/: {where or 'the record'} was {kind} and is {_kind(current)}; old records become unreadable"
            raise ConfigurationError(msg)
        match kind:
            case "record":
                return self._record(written, current, where)
            case "array":
                item = self.node(written["items"], current["items"], f"{where}[]")
                return lambda values: [item(value) for value in values]
            case "map":
                inner = self.node(written["values"], current["values"], f"{where}{{}}")
                return lambda values: {key: inner(value) for key, value in values.items()}
            case "enum" if not set(written["symbols"]) <= set(current["symbols"]):
                msg = f"schemas/: {where} lost a symbol; old records become unreadable"
                raise ConfigurationError(msg)
            case _:
                return _same

    def _record(self, written: Mapping[str, Any], current: Mapping[str, Any], where: str) -> Resolve:
        before = {field["name"]: field for field in written["fields"]}
        kept: dict[str, Resolve] = {}
        added: dict[str, Any] = {}
        for field in current["fields"]:
            name, path = field["name"], f"{where}.{field['name']}".removeprefix(".")
            if name in before:
                kept[name] = self.node(before[name]["type"], field["type"], path)
            elif "default" in field:
                added[name] = field["default"]
                self.node(field["type"], field["type"], path)  # learns the names that the new field defines
            else:
                msg = f"schemas/: {path} is new and has no default; old records become unreadable"
                raise ConfigurationError(msg)

        def resolve(value: dict[str, Any]) -> dict[str, Any]:
            return {name: step(value[name]) for name, step in kept.items()} | copy.deepcopy(added)

        return resolve

    def _union(self, written: list[SchemaNode], current: list[SchemaNode], where: str) -> Resolve:
        """Each branch that was must still be. Which one a value took matters only where its type is a container."""
        steps: dict[type, Resolve] = {}
        for branch in written:
            old = _named(branch, self._written)
            matching = [new for new in current if _promotes(_kind(old), _kind(_named(new, self._current)))]
            if not matching:
                msg = f"schemas/: {where} lost the branch {_kind(old)} of its union; old records become unreadable"
                raise ConfigurationError(msg)
            container = {"record": dict, "map": dict, "array": list}.get(_kind(old))
            if container is not None:
                steps[container] = self.node(old, matching[0], where)
        if not steps:
            return _same
        return lambda value: steps.get(type(value), _same)(value)


def _same(value: _T) -> _T:
    return value


def _named(node: SchemaNode, names: dict[str, Mapping[str, Any]]) -> SchemaNode:
    """Look up a named type, or remember one that is defined here."""
    if isinstance(node, str):
        return names.get(node, node)
    if isinstance(node, dict) and node["type"] in ("record", "enum"):
        names[node["name"]] = node
    return node


def _branches(node: SchemaNode) -> list[SchemaNode]:
    return node if isinstance(node, list) else [node]


def _kind(node: SchemaNode) -> str:
    """Name what a node is in the JSON shape: its Avro type, or what a mark makes of it."""
    if isinstance(node, str):
        return node
    return str(node.get("coachType") or node.get("logicalType") or node["type"])


def _promotes(written: str, current: str) -> bool:
    return written == current or (written, current) in _PROMOTIONS
