"""Converts records between their JSON shape and fastavro's, by functions compiled once per schema.

An exact integer is a decimal string in JSON and bytes (two's complement, big-endian) in Avro; a time is RFC 3339 in JSON
and milliseconds since 1970 in Avro; a record in a union is paired with its name, as fastavro marks branches. A field marked
`coachAbsent` is absent from JSON at its default: bodies were hashed without it before it existed. Values that fastavro
would let pass are refused here: an unknown field, 1.5 for an integer, a number that is not finite or out of its type's
range, a non-boolean for a boolean, a text for a list.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from types import MappingProxyType, NoneType
from typing import Any, Final, NoReturn, TypeAlias

from stream.errors import CorruptionError, MalformedRecord
from stream.times import rfc3339, time_ms
from stream.wire.schema_files import SchemaNode

Step: TypeAlias = Callable[[Any], Any]  # a value, from one shape to the other
Leaf: TypeAlias = Callable[[str, Any], Any]  # likewise, with the path of the value

EXACT_INTEGER_BYTES_MAX: Final = 512  # 2^-1074 to 2^1024 takes 263 bytes; the rest is room for sums
_MARKS: Final = frozenset({"coachType", "logicalType"})
_INT: Final = ("i", 1 << 31)  # type code of `array`, and its limit
_LONG: Final = ("q", 1 << 63)


def to_avro(document: SchemaNode, record: str) -> Step:
    """Compile a schema into the step from the JSON shape to fastavro's. Its input is not modified.

    The step raises CorruptionError, which names the field and not the value: a misfit is a bug.
    """
    return _Compiler(_TO_AVRO).step(document, record) or _same


def to_json(document: SchemaNode, record: str, *, finite: bool) -> Step:
    """Compile a schema into the step from fastavro's shape (read with `return_record_name`) to JSON's, in place.

    `finite`: whether NaN and inf are refused, or left to a caller with a better error.
    The step raises MalformedRecord, which names the field and not the value.
    """
    return _Compiler(_TO_JSON if finite else _TO_JSON_ANY_NUMBER).step(document, record) or _same


def plain_schema(node: SchemaNode) -> SchemaNode:
    """A schema without marks: the libraries then keep times as numbers, which is exact and faster."""
    if isinstance(node, list):
        return [plain_schema(part) for part in node]
    if isinstance(node, dict):
        if node.get("type") == "fixed":  # its name and size are its type
            return {key: part for key, part in node.items() if key not in _MARKS}
        return node["type"] if _MARKS & node.keys() else {key: plain_schema(part) for key, part in node.items()}
    return node


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """The steps of one direction. A kind is an Avro type, or its `coachType` or `logicalType`."""

    leaves: Mapping[str, Leaf]  # by kind; what is absent stays as it is
    columns: Mapping[str, Leaf]  # for a whole list of one kind: most of an audit record is such lists
    python_types: Mapping[str, tuple[type, ...]]  # of the values of a kind, to tell the branches of a union apart
    record: Callable[[Mapping[str, Any], dict[str, Step], str], Step | None]  # (its schema, fields' steps, where)
    branch: Callable[[str, Step], Step]  # (full name, step) of a record in a union
    refuse: Callable[[str, str], NoReturn]  # (where, what)


class _Compiler:
    """Walks a schema once. `where`: the path of a node in the record; None: the step of unchanged values."""

    def __init__(self, way: _Way) -> None:
        self._way = way
        self._named: dict[str, Mapping[str, Any]] = {}
        self._namespace = ""

    def step(self, node: SchemaNode, where: str) -> Step | None:
        """The step of any schema node."""
        node, kind = self._known(node)
        match kind:
            case "union":
                return self._union(node, where)
            case "record":
                steps = {
                    field["name"]: self.step(field["type"], f"{where}.{field['name']}") for field in node["fields"]
                }
                return self._way.record(node, {name: step for name, step in steps.items() if step is not None}, where)
            case "array":
                return self._array(node["items"], where)
            case "map":
                return self._map(self.step(node["values"], f"{where}{{}}"), where)
        leaf = self._way.leaves.get(kind)
        return None if leaf is None else partial(leaf, where)

    def _known(self, node: SchemaNode) -> tuple[SchemaNode, str]:
        """Look a node up if it is a name: (its definition, its kind)."""
        if isinstance(node, list):
            return node, "union"
        node = self._named.get(node, {"type": node}) if isinstance(node, str) else node
        if "name" in node:
            self._named[node["name"]] = node
            self._namespace = node.get("namespace", self._namespace)
        return node, str(node.get("coachType") or node.get("logicalType") or node["type"])

    def _array(self, items: SchemaNode, where: str) -> Step:
        column = self._way.columns.get(self._known(items)[1])
        item = partial(column, f"{where}[]") if column else self.step(items, f"{where}[]")

        def convert(values: object) -> Any:  # noqa: ANN401  (a list, or an array of numbers)
            if not isinstance(values, list):
                self._way.refuse(where, "is no list")
            if item is None:
                return values
            return item(values) if column else [item(value) for value in values]

        return convert

    def _map(self, value_of: Step | None, where: str) -> Step:
        def convert(values: object) -> dict[str, Any]:
            if not isinstance(values, dict):
                self._way.refuse(where, "is no object")
            return values if value_of is None else {key: value_of(value) for key, value in values.items()}

        return convert

    def _union(self, branches: list[SchemaNode], where: str) -> Step:
        steps: dict[type, Step] = {}
        for branch in branches:
            node, kind = self._known(branch)
            step = self.step(branch, where) or _same
            if kind == "record":
                step = self._way.branch(f"{self._namespace}.{node['name']}", step)
            for python_type in self._way.python_types[kind]:
                if steps.setdefault(python_type, step) is not step:
                    message = f"{where}: two branches of the union have the JSON type {python_type.__name__}"
                    raise TypeError(message)

        def convert(value: object) -> Any:  # noqa: ANN401  (as the branch has it)
            try:
                step = steps[type(value)]
            except KeyError:
                self._way.refuse(where, f"is of type {type(value).__name__}, which no branch of its union takes")
            return step(value)

        return convert


def _same(value: Any) -> Any:  # noqa: ANN401  (whatever is given)
    return value


def _unfit(where: str, what: str) -> NoReturn:
    message = f"a record of ours does not fit its schema: {where} {what}"
    raise CorruptionError(message)


def _malformed(where: str, what: str) -> NoReturn:
    message = f"{where} {what}"
    raise MalformedRecord(message)


def _write_record(schema: Mapping[str, Any], steps: dict[str, Step], where: str) -> Step:
    fields = {field["name"]: "default" in field for field in schema["fields"]}

    def write(value: object) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            _unfit(where, "is no record")
        if value.keys() != fields.keys():
            if unknown := value.keys() - fields.keys():
                _unfit(where, f"has the unknown field {min(unknown)!r}")
            if missing := [name for name, has_default in fields.items() if name not in value and not has_default]:
                _unfit(where, f"lacks the field {missing[0]!r}")
        shaped = dict(value)
        for name, step in steps.items():
            if name in shaped:
                shaped[name] = step(shaped[name])
        return shaped

    return write


def _read_record(schema: Mapping[str, Any], steps: dict[str, Step], _where: str) -> Step | None:
    absent = [(field["name"], field["default"]) for field in schema["fields"] if field.get("coachAbsent")]

    def read(value: dict[str, Any]) -> dict[str, Any]:
        for name, step in steps.items():
            value[name] = step(value[name])
        for name, default in absent:
            if value[name] == default:
                del value[name]
        return value

    return read if steps or absent else None


def _write_boolean(where: str, value: object) -> bool:
    return value if isinstance(value, bool) else _unfit(where, "is no boolean")


def _write_booleans(where: str, values: list[Any]) -> list[bool]:
    return values if set(map(type, values)) <= {bool} else _unfit(where, "is no boolean")


def _write_integer(of: tuple[str, int], where: str, value: object) -> int:
    return value if type(value) is int and -of[1] <= value < of[1] else _unfit(where, "is no integer of its size")


def _write_integers(of: tuple[str, int], where: str, values: list[Any]) -> array[int]:
    try:
        return array(of[0], values)  # checked in C, and what fastavro writes fastest
    except (TypeError, OverflowError):
        _unfit(where, "is no integer of its size")


def _write_double(where: str, value: object) -> float:
    if type(value) is float and isfinite(value):
        return value
    try:
        if type(value) is int and float(value) == value:
            return float(value)
    except OverflowError:
        pass
    _unfit(where, "is no finite number, or an integer that a double cannot hold")


def _write_doubles(where: str, values: list[Any]) -> array[float]:
    if set(map(type, values)) <= {float} and all(map(isfinite, values)):
        return array("d", values)
    return array("d", [_write_double(where, value) for value in values])


def _write_exact(where: str, text: object) -> bytes:
    """Encode the canonical decimal form of an integer in as few bytes as possible."""
    try:
        if type(text) is str and str(number := int(text)) == text:
            size = ((number if number >= 0 else ~number).bit_length() >> 3) + 1
            if size <= EXACT_INTEGER_BYTES_MAX:
                return number.to_bytes(size, "big", signed=True)
    except ValueError:
        pass
    _unfit(where, f"is not the one decimal form of an integer of at most {EXACT_INTEGER_BYTES_MAX} bytes")


def _write_time(where: str, text: object) -> int:
    try:
        return time_ms(text if isinstance(text, str) else "")
    except ValueError as error:
        _unfit(where, f"is no time: {error}")


def _read_integer(of: tuple[str, int], where: str, value: int) -> int:
    return value if -of[1] <= value < of[1] else _malformed(where, "is a number that does not fit its type")


def _read_integers(of: tuple[str, int], where: str, values: list[int]) -> list[int]:
    try:
        array(of[0], values)
    except OverflowError:
        _malformed(where, "is a number that does not fit its type")
    return values


def _read_double(where: str, value: float) -> float:
    return value if isfinite(value) else _malformed(where, "is NaN or infinite")


def _read_doubles(where: str, values: list[float]) -> list[float]:
    return values if all(map(isfinite, values)) else _malformed(where, "is NaN or infinite")


def _read_exact(where: str, raw: bytes) -> str:
    if not 1 <= len(raw) <= EXACT_INTEGER_BYTES_MAX:
        _malformed(where, f"is an exact integer of {len(raw)} bytes; 1 to {EXACT_INTEGER_BYTES_MAX} are allowed")
    return str(int.from_bytes(raw, "big", signed=True))


def _read_time(where: str, value: int) -> str:
    try:
        return rfc3339(value)
    except ValueError as error:
        _malformed(where, f"is no time: {error}")


_SHARED_TYPES: Final[Mapping[str, tuple[type, ...]]] = MappingProxyType(
    {
        "null": (NoneType,), "boolean": (bool,), "int": (int,), "long": (int,), "double": (float,), "string": (str,),
        "bytes": (bytes,), "enum": (str,), "array": (list,), "map": (dict,),
    }
)  # fmt: skip
_TO_AVRO: Final = _Way(
    leaves={
        "boolean": _write_boolean,
        "int": partial(_write_integer, _INT),
        "long": partial(_write_integer, _LONG),
        "double": _write_double,
        "exact-integer": _write_exact,
        "timestamp-millis": _write_time,
    },
    columns={
        "boolean": _write_booleans,
        "int": partial(_write_integers, _INT),
        "long": partial(_write_integers, _LONG),
        "double": _write_doubles,
    },
    python_types={
        **_SHARED_TYPES, "double": (float, int), "exact-integer": (str,), "timestamp-millis": (str,), "record": (dict,),
    },
    record=_write_record,
    branch=lambda name, step: lambda value: (name, step(value)),
    refuse=_unfit,
)  # fmt: skip
_TO_JSON_ANY_NUMBER: Final = _Way(
    leaves={"int": partial(_read_integer, _INT), "exact-integer": _read_exact, "timestamp-millis": _read_time},
    columns={"int": partial(_read_integers, _INT)},
    python_types={
        **_SHARED_TYPES, "exact-integer": (bytes,), "timestamp-millis": (int,), "record": (tuple,),
    },
    record=_read_record,
    branch=lambda _, step: lambda named: step(named[1]),
    refuse=_malformed,
)  # fmt: skip
_TO_JSON: Final = replace(
    _TO_JSON_ANY_NUMBER,
    leaves={**_TO_JSON_ANY_NUMBER.leaves, "double": _read_double},
    columns={**_TO_JSON_ANY_NUMBER.columns, "double": _read_doubles},
)
