"""The Avro schemas of `schemas/`: located, parsed once, keyed by fingerprint.

The directory holds the current `<record>.avsc` of each record and, under `published/<record>/`, every version ever
released, so that old records stay readable. The wheel carries the directory inside the package; a checkout has it beside
the package.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from fastavro.schema import fingerprint, to_parsing_canonical_form

from stream.errors import ConfigurationError

RecordName: TypeAlias = Literal["Decision", "ModelPublished", "Recommendation", "AuditRecord", "DeadLetter", "Notice"]
SchemaNode: TypeAlias = Any  # a JSON document: a name, a union as a list, or an object

RECORDS: Final[tuple[RecordName, ...]] = get_args(RecordName)
FINGERPRINT_BYTES: Final = 8
# The file of AuditRecord is audit_record.
_FILES: Final = {record: re.sub(r"(?<!^)(?=[A-Z])", "_", record).lower() for record in RECORDS}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordSchema:
    """One version of one record's schema. `document` is the .avsc as parsed JSON; `where` is its path, for messages."""

    record: RecordName
    document: Mapping[str, Any]
    fingerprint: bytes  # CRC-64-AVRO of the parsing canonical form, little-endian as single-object encoding has it
    where: str


def schema_directory() -> Traversable:
    """Find `schemas/` in the installed package, or beside it in a checkout. Raises: ConfigurationError for neither."""
    package = files("stream")
    beside = Path(str(package)).parent / "schemas"
    for folder in (package / "schemas", beside):
        if folder.joinpath("decision.avsc").is_file():
            return folder
    message = f"the Avro schemas are neither in {package / 'schemas'} nor in {beside}; install coach-stream again"
    raise ConfigurationError(message)


@cache
def current_schemas() -> Mapping[RecordName, RecordSchema]:
    """The schema that each record is written with."""
    directory = schema_directory()
    return MappingProxyType({record: _read(record, directory / f"{_FILES[record]}.avsc") for record in RECORDS})


@cache
def known_schemas() -> Mapping[bytes, RecordSchema]:
    """Every schema that a record may have been written with, by fingerprint: current and published."""
    every = (*chain.from_iterable(map(published_schemas, RECORDS)), *current_schemas().values())
    return MappingProxyType({schema.fingerprint: schema for schema in every})


def published_schemas(record: RecordName) -> tuple[RecordSchema, ...]:
    """The released versions of one record's schema, oldest first."""
    versions = schema_directory() / "published" / _FILES[record]
    if not versions.is_dir():
        return ()
    numbered = sorted((int(file.name.removesuffix(".avsc")), file) for file in versions.iterdir())
    return tuple(_read(record, file) for _, file in numbered)


def schema_fingerprint(document: SchemaNode) -> bytes:
    """The fingerprint of single-object encoding: CRC-64-AVRO of the parsing canonical form, little-endian.

    Uses fastavro, whose canonical form follows the specification; `avro` keeps logicalType.
    """
    canonical = to_parsing_canonical_form(cast("dict[str, Any]", document))
    return bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))


def _read(record: RecordName, file: Traversable) -> RecordSchema:
    document = json.loads(file.read_text(encoding="utf-8"))
    return RecordSchema(
        record=record, document=document, fingerprint=schema_fingerprint(document), where=f"schemas/{file.name}"
    )
