"""The examples beside the schemas: how a good one and a bad one are read.

A good example is `<name>.json`, the record's JSON shape (bytes as base64), with `<name>.hex` beside it: the same in
single-object encoding. A bad one is `<name>.bad`: a first line `<error class>: <what is wrong>`, then the bytes, as
text or as `hex ...`.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stream.wire.schema_files import RecordName, current_schemas

EXAMPLES = Path(__file__).resolve().parents[2] / "schemas" / "examples"


@dataclass(frozen=True, slots=True, kw_only=True)
class BadExample:
    """Bytes that must be refused, and by which class of error."""

    error: str
    what: str
    data: bytes


def good_examples(record: RecordName) -> list[Path]:
    """The .json files of a record."""
    return sorted((EXAMPLES / record).glob("*.json"))


def bad_examples(record: RecordName) -> list[Path]:
    """The .bad files of a record."""
    return sorted((EXAMPLES / record).glob("*.bad"))


def read_good(record: RecordName, path: Path) -> dict[str, Any]:
    """Read a good example into the record's JSON shape."""
    shaped: dict[str, Any] = with_bytes(current_schemas()[record].document, json.loads(path.read_text("utf-8")))
    return shaped


def read_bad(path: Path) -> BadExample:
    """Read a bad example."""
    head, _, body = path.read_bytes().partition(b"\n")
    error, _, what = head.decode().partition(": ")
    body = body.removesuffix(b"\n")
    return BadExample(error=error, what=what, data=bytes.fromhex(body[4:].decode()) if body[:4] == b"hex " else body)


def with_bytes(node: Any, value: Any) -> Any:
    """Turn base64 into bytes wherever the schema has bytes that are no exact integer."""
    if isinstance(node, list):
        return value if value is None else with_bytes(node[-1], value)
    if node == "bytes" or (isinstance(node, dict) and node["type"] == "bytes" and "coachType" not in node):
        return base64.b64decode(value, validate=True)
    if isinstance(node, dict) and node["type"] == "record" and isinstance(value, dict):
        types = {field["name"]: field["type"] for field in node["fields"]}
        return {name: with_bytes(types[name], item) if name in types else item for name, item in value.items()}
    if isinstance(node, dict) and node["type"] == "array":
        return [with_bytes(node["items"], item) for item in value]
    return value
