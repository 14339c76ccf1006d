"""How records are framed on a topic: Avro single-object encoding here, a schema registry's in registry/framing.py."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

from stream.wire.avro_records import decode, encode
from stream.wire.schema_files import RecordName

NOTHING: Final[Mapping[str, RecordName]] = MappingProxyType({})


class Framing(Protocol):
    """One way of framing. Thread-safe."""

    def prepare(self, *, writes: Mapping[str, RecordName] = NOTHING, reads: Collection[str] = ()) -> None:
        """Fetch the schemas for writing records to topics and for reading topics, ahead of the first record.

        `writes`: topic -> the record written to it. Optional and idempotent: without it, the first record triggers the
        same work and the same errors.
        Raises: ConfigurationError when a schema registry refuses one of our schemas, or lacks it and must not be given
        it; RegistryUnavailable.
        """

    def encode(self, record: RecordName, value: Mapping[str, Any], *, topic: str) -> bytes:
        """Write a record for a topic, by the record's current schema.

        Raises: CorruptionError, which names the field, when the value does not fit; for a topic that was not prepared,
        whatever `prepare` raises.
        """

    def decode(self, data: bytes, *, topic: str) -> tuple[RecordName, dict[str, Any]]:
        """Read a record from a topic by the schema that wrote it: (its name, its JSON shape).

        Raises: MalformedRecord, UnknownSchema; RegistryUnavailable when only a schema registry knows the schema and it
        does not answer: the record may be fine and must be retried.
        """


class SingleObject:
    """Avro single-object encoding: C3 01, the schema's fingerprint, the body. The topic does not matter."""

    def prepare(self, *, writes: Mapping[str, RecordName] = NOTHING, reads: Collection[str] = ()) -> None:
        """Nothing to fetch: all schemas ship with the package."""

    def encode(self, record: RecordName, value: Mapping[str, Any], *, topic: str) -> bytes:  # noqa: ARG002 - as above
        """Write a record. Raises: CorruptionError."""
        return encode(record, value)

    def decode(self, data: bytes, *, topic: str) -> tuple[RecordName, dict[str, Any]]:  # noqa: ARG002 - as above
        """Read a record. Raises: MalformedRecord, UnknownSchema."""
        return decode(data)


SINGLE_OBJECT: Final[Framing] = SingleObject()
