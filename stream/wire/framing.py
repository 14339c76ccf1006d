"""How a record is framed on a topic: as Avro single-object encoding, or for a schema registry.

Whoever writes to or reads from a topic is given a `Framing` and asks no further. registry_framing.py has the other one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

from stream.wire.avro_records import decode, encode
from stream.wire.schema_files import RecordName

NOTHING: Final[Mapping[str, RecordName]] = MappingProxyType({})


class Framing(Protocol):
    """One way of framing; methods may be called from any thread."""

    def prepare(self, *, writes: Mapping[str, RecordName] = NOTHING, reads: Collection[str] = ()) -> None:
        """Fetch now what will be needed for writing records to topics, and for reading what stands on topics.

        `writes`: topic -> the record that is written to it. Calling it is optional, and again costs little: whoever
        does not call it has the same done, and may meet the same errors, at the first record.
        Raises: ConfigurationError when a schema registry refuses a schema of ours, or does not hold one and may not be
        given it; RegistryUnavailable.
        """

    def encode(self, record: RecordName, value: Mapping[str, Any], *, topic: str) -> bytes:
        """Write a record for a topic, by the record's current schema.

        Raises: CorruptionError, which names the field, when the value does not fit; what `prepare` raises, for a topic
        that it was not told of.
        """

    def decode(self, data: bytes, *, topic: str) -> tuple[RecordName, dict[str, Any]]:
        """Read a record that stood on a topic, by the schema that wrote it: (its name, its JSON shape).

        Raises: MalformedRecord, UnknownSchema; RegistryUnavailable when only a schema registry knows the schema, and it
        does not answer: this says nothing about the record, which must be kept and tried again.
        """


class SingleObject:
    """Avro single-object encoding: C3 01, the schema's fingerprint, the body. The topic plays no part."""

    def prepare(self, *, writes: Mapping[str, RecordName] = NOTHING, reads: Collection[str] = ()) -> None:
        """Do nothing: all schemas are at hand."""

    def encode(self, record: RecordName, value: Mapping[str, Any], *, topic: str) -> bytes:  # noqa: ARG002 - as above
        """Write a record. Raises: CorruptionError."""
        return encode(record, value)

    def decode(self, data: bytes, *, topic: str) -> tuple[RecordName, dict[str, Any]]:  # noqa: ARG002 - as above
        """Read a record. Raises: MalformedRecord, UnknownSchema."""
        return decode(data)


SINGLE_OBJECT: Final[Framing] = SingleObject()
