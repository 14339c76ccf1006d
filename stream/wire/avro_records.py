"""Records to bytes and back: Avro single-object encoding, which is C3 01, the schema's fingerprint, and the body.

Values are JSON-shaped dictionaries, the TypedDicts of stream/events.py. Between them and Avro two things differ: an
exact integer is a decimal string in JSON and two's complement bytes in Avro, and a time is RFC 3339 in JSON and
milliseconds since 1970 in Avro. A framing for a schema registry goes around the same `encode_body` and `decode_body`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from stream.errors import MalformedRecord, UnknownSchema
from stream.wire.avro_read import ReadRecord, compile_reader
from stream.wire.avro_resolve import compile_resolution
from stream.wire.avro_write import Write, compile_writer
from stream.wire.schema_files import FINGERPRINT_BYTES, RecordName, RecordSchema, current_schemas, known_schemas

SINGLE_OBJECT_MARK: Final = b"\xc3\x01"
REGISTRY_MARK: Final = b"\x00"
HEADER_BYTES: Final = len(SINGLE_OBJECT_MARK) + FINGERPRINT_BYTES


def encode(record: RecordName, value: Mapping[str, Any]) -> bytes:
    """Write a JSON-shaped record in single-object encoding. Equal values give equal bytes.

    Raises: CorruptionError, which names the field, when the value does not fit the schema: a fault of ours.
    """
    return SINGLE_OBJECT_MARK + current_schemas()[record].fingerprint + encode_body(record, value)


def decode(data: bytes) -> tuple[RecordName, dict[str, Any]]:
    """Read a record in single-object encoding, by any schema that was ever published: (its name, its JSON shape).

    Raises: MalformedRecord, UnknownSchema.
    """
    schema = schema_of(data)
    return schema.record, decode_body(schema, data, HEADER_BYTES)


def encode_body(record: RecordName, value: Mapping[str, Any]) -> bytes:
    """Write the Avro body alone, by the record's current schema.

    Raises: CorruptionError, which names the field, when the value does not fit.
    """
    return _writer(record)(value)


def decode_body(schema: RecordSchema, data: bytes, start: int) -> dict[str, Any]:
    """Read the Avro body that `schema` wrote and that begins at byte `start`, as the current schema has it.

    Raises: MalformedRecord.
    """
    return _reader(schema.fingerprint)(data, start)


def schema_of(data: bytes) -> RecordSchema:
    """Tell by the frame which schema a record in single-object encoding was written with.

    Raises: MalformedRecord when there is no such frame, UnknownSchema when `schemas/` does not hold it.
    """
    if not data.startswith(SINGLE_OBJECT_MARK) or len(data) < HEADER_BYTES:
        if data.startswith(REGISTRY_MARK):
            msg = "the record is framed for a schema registry (it begins with 00); expected single-object encoding"
            raise UnknownSchema(msg)
        msg = f"{len(data)} bytes that do not begin with C3 01 and a schema fingerprint are no Avro record"
        raise MalformedRecord(msg)
    fingerprint = data[len(SINGLE_OBJECT_MARK) : HEADER_BYTES]
    schema = known_schemas().get(fingerprint)
    if schema is None:
        msg = f"no schema of ours has the fingerprint {fingerprint.hex()}; write with a schema of schemas/"
        raise UnknownSchema(msg)
    return schema


@cache
def _writer(record: RecordName) -> Write:
    return compile_writer(current_schemas()[record])


@cache
def _reader(fingerprint: bytes) -> ReadRecord:
    written = known_schemas()[fingerprint]
    return reader_between(written, current_schemas()[written.record])


def reader_between(written: RecordSchema, current: RecordSchema) -> ReadRecord:
    """Make the reader of bodies that one version of a schema wrote, into the shape of another version.

    Raises: ConfigurationError when the current version cannot read what the other one wrote.
    """
    read = compile_reader(written, numbers="any" if written.record == "Decision" else "finite")
    if written.fingerprint == current.fingerprint:
        return read
    resolve = compile_resolution(written.document, current.document)
    return lambda data, start: resolve(read(data, start))
