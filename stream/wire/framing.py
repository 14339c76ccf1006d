"""How a record is framed on a topic: as Avro single-object encoding, or for a schema registry.

Whoever writes to or reads from a topic is given a `Framing` and asks no further.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from stream.wire.avro_records import decode, encode
from stream.wire.schema_files import RecordName


class Framing(Protocol):
    """One way of framing; methods may be called from any thread."""

    def encode(self, record: RecordName, value: Mapping[str, Any], *, topic: str) -> bytes:
        """Write a record for a topic, by the record's current schema.

        Raises: CorruptionError, which names the field, when the value does not fit.
        """

    def decode(self, data: bytes, *, topic: str) -> tuple[RecordName, dict[str, Any]]:
        """Read a record that stood on a topic, by the schema that wrote it: (its name, its JSON shape).

        Raises: MalformedRecord, UnknownSchema.
        """


class SingleObject:
    """Avro single-object encoding: C3 01, the schema's fingerprint, the body. The topic plays no part."""

    def encode(self, record: RecordName, value: Mapping[str, Any], *, topic: str) -> bytes:  # noqa: ARG002 - as above
        """Write a record. Raises: CorruptionError."""
        return encode(record, value)

    def decode(self, data: bytes, *, topic: str) -> tuple[RecordName, dict[str, Any]]:  # noqa: ARG002 - as above
        """Read a record. Raises: MalformedRecord, UnknownSchema."""
        return decode(data)
