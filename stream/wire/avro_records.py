"""Records to bytes and back: Avro single-object encoding, which is C3 01, the schema's fingerprint, and the body.

Values are JSON-shaped dictionaries, the TypedDicts of stream/events.py; avro_shapes.py converts them to the shape that
fastavro writes, and back. Framing for a schema registry wraps the same `encode_body` and `decode_body`.

fastavro trusts its input: it takes branch -1 of a union for the last one, and keeps the last of two equal keys. So every
record read is written again. If the bytes differ, they are either another valid form of the record (other writers split
lists and maps into blocks) or no record at all: `avro`, the slow and strict reference implementation, decides.
"""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable, Mapping
from functools import cache
from io import BytesIO
from typing import Any, Final, TypeAlias, cast

import avro.schema
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.errors import AvroException
from avro.io import BinaryDecoder, DatumReader
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.read import SchemaResolutionError
from fastavro.validation import ValidationError, validate

from stream.errors import ConfigurationError, CorruptionError, MalformedRecord, UnknownSchema
from stream.wire.avro_shapes import plain_schema, to_avro, to_json
from stream.wire.schema_files import FINGERPRINT_BYTES, RecordName, RecordSchema, current_schemas, known_schemas

WriteRecord: TypeAlias = Callable[[Mapping[str, Any]], bytes]  # the JSON shape -> the body
ReadRecord: TypeAlias = Callable[[bytes, int], dict[str, Any]]  # (the bytes, where the body starts) -> the JSON shape

SINGLE_OBJECT_MARK: Final = b"\xc3\x01"
REGISTRY_MARK: Final = b"\x00"
HEADER_BYTES: Final = len(SINGLE_OBJECT_MARK) + FINGERPRINT_BYTES
# Everything that fastavro and `avro` raise for values or bytes that do not fit the schema.
LIBRARY_FAULTS: Final = (
    EOFError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, MemoryError, RecursionError,
    struct.error, SchemaResolutionError, AvroException,
)  # fmt: skip


def encode(record: RecordName, value: Mapping[str, Any]) -> bytes:
    """Write a JSON-shaped record in single-object encoding. Equal values give equal bytes.

    Raises: CorruptionError, which names the field, when the value does not fit the schema, which is a bug.
    """
    return SINGLE_OBJECT_MARK + current_schemas()[record].fingerprint + encode_body(record, value)


def decode(data: bytes) -> tuple[RecordName, dict[str, Any]]:
    """Read a single-object record by any published schema: (name, shape). Raises: MalformedRecord, UnknownSchema."""
    schema = schema_of(data)
    return schema.record, decode_body(schema, data, HEADER_BYTES)


def encode_body(record: RecordName, value: Mapping[str, Any]) -> bytes:
    """Write the Avro body alone, by the current schema. Raises: CorruptionError that names the misfitting field."""
    return _writer(record)(value)


def decode_body(schema: RecordSchema, data: bytes, start: int) -> dict[str, Any]:
    """Read the body that `schema` wrote, from byte `start`, into the current shape. Raises: MalformedRecord."""
    return _reader(schema.fingerprint)(data, start)


def schema_of(data: bytes) -> RecordSchema:
    """The schema that wrote a record in single-object encoding, by the fingerprint in its header.

    Raises: MalformedRecord when there is no such frame, UnknownSchema when `schemas/` does not hold it.
    """
    if not data.startswith(SINGLE_OBJECT_MARK) or len(data) < HEADER_BYTES:
        if data.startswith(REGISTRY_MARK):
            message = "the record is framed for a schema registry (it begins with 00), and none is set: set COACH_SCHEMA_REGISTRY_URL"
            raise UnknownSchema(message)
        message = f"{len(data)} bytes that do not begin with C3 01 and a schema fingerprint are no Avro record"
        raise MalformedRecord(message)
    fingerprint = data[len(SINGLE_OBJECT_MARK) : HEADER_BYTES]
    schema = known_schemas().get(fingerprint)
    if schema is None:
        message = f"no schema of ours has the fingerprint {fingerprint.hex()}; write with a schema of schemas/"
        raise UnknownSchema(message)
    return schema


@cache
def _writer(record: RecordName) -> WriteRecord:
    return writer_of(current_schemas()[record])


@cache
def _reader(fingerprint: bytes) -> ReadRecord:
    written = known_schemas()[fingerprint]
    return reader_between(written, current_schemas()[written.record])


def writer_of(schema: RecordSchema) -> WriteRecord:
    """A writer of bodies by one version of a schema."""
    shaped, parsed = to_avro(schema.document, schema.record), _parsed(schema)

    def write(value: Mapping[str, Any]) -> bytes:
        record = shaped(value)
        try:
            return _body(parsed, record)
        except LIBRARY_FAULTS:
            message = f"a record of ours does not fit its schema: {schema.record}{_misfit(parsed, record)}"
            raise CorruptionError(message) from None  # the libraries' messages repeat the value

    return write


def reader_between(written: RecordSchema, current: RecordSchema) -> ReadRecord:
    """A reader of bodies that one version of a schema wrote, into the shape of another version.

    Raises: ConfigurationError when the current version cannot read what the other one wrote.
    """
    _check_readable(written, current)
    parsed = _parsed(written)
    resolved = None if written.fingerprint == current.fingerprint else _parsed(current)
    shaped = to_json(current.document, current.record, finite=written.record != "Decision")

    def read(data: bytes, start: int) -> dict[str, Any]:
        body = data[start:]
        record, end = _record(parsed, None, body, written.record)
        if end != len(body):
            unknown = len(body) - end
            message = f"{written.record}: {unknown} unknown bytes follow the record, which ends at byte {start + end}"
            raise MalformedRecord(message)
        again = _body(parsed, record)
        if again != body:
            _read_strictly(written, parsed, body, again)
        if resolved is not None:
            record = copy.deepcopy(_record(parsed, resolved, body, written.record)[0])  # a default is one object
        return shaped(record)  # type: ignore[no-any-return]

    return read


def _parsed(schema: RecordSchema) -> dict[str, Any]:
    return cast("dict[str, Any]", parse_schema(plain_schema(schema.document)))


def _body(parsed: dict[str, Any], record: object) -> bytes:
    file = BytesIO()
    schemaless_writer(file, parsed, record)
    return file.getvalue()


def _record(parsed: dict[str, Any], resolved: dict[str, Any] | None, body: bytes, name: str) -> tuple[Any, int]:
    """Read what `parsed` wrote into the shape of `resolved`: (the record, where it ends).

    A length or count allocates nothing before its bytes arrive, and every item of our schemas takes at least one byte.
    """
    file = BytesIO(body)
    try:
        return schemaless_reader(file, parsed, resolved, return_record_name=True), file.tell()
    except UnicodeDecodeError:
        fault = "a text is not UTF-8"
    except (EOFError, IndexError):
        fault = "they end in the middle of it, or a length, branch or word is impossible"
    except LIBRARY_FAULTS as error:
        fault = type(error).__name__
    raise _no_record(name, body, fault)


def _no_record(name: str, body: bytes, fault: str) -> MalformedRecord:
    return MalformedRecord(f"{name}: the {len(body)} bytes of the body are no record of this schema: {fault}")


@cache
def _reference(schema: RecordSchema) -> avro.schema.Schema:
    return avro.schema.parse(json.dumps(plain_schema(schema.document)))


def _check_readable(written: RecordSchema, current: RecordSchema) -> None:
    if written.fingerprint == current.fingerprint:
        return
    checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]
    verdict = checker.get_compatibility(_reference(current), _reference(written))
    if verdict.compatibility is not SchemaCompatibilityType.compatible:
        message = f"{current.where} cannot read what {written.where} wrote: {'; '.join(sorted(verdict.messages))}"
        raise ConfigurationError(message)


class _Strict(BinaryDecoder):
    """The reference decoder, counting texts: of two equal keys only one would survive."""

    texts = 0

    def read_utf8(self) -> str:
        self.texts += 1
        return super().read_utf8()


def _read_strictly(written: RecordSchema, parsed: dict[str, Any], body: bytes, again: bytes) -> None:
    """Let `avro` judge a body that fastavro would write differently, as `again`.

    Raises: MalformedRecord when `avro` refuses it or reads another record, or when a key is repeated.
    """
    reader = DatumReader(_reference(written))
    found, expected = _Strict(BytesIO(body)), _Strict(BytesIO(again))
    try:
        record = reader.read(found)
        reader.read(expected)
        same = _body(parsed, record) == again
    except LIBRARY_FAULTS as error:
        raise _no_record(written.record, body, type(error).__name__) from None
    if found.texts != expected.texts:
        message = f"{written.record}: a key comes twice in a map"
        raise MalformedRecord(message)
    if not same:
        message = f"{written.record}: the body can be read in two ways"
        raise MalformedRecord(message)


def _misfit(parsed: dict[str, Any], record: object) -> str:
    """Name the field that does not fit, where fastavro knows it; never its value."""
    try:
        validate(record, parsed, strict=True)
    except ValidationError as error:
        return f", in {error.errors[0].field.partition('.')[2] or 'its fields'}"  # without the namespace
    except LIBRARY_FAULTS:
        pass
    return ", in a text that is not Unicode or another value of the right type"
