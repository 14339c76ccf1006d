"""A record as it stood on the topic -> a row of an archive's file, and back."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow.parquet as pq
from pyarrow import ArrowException

from stream.audit.archive.columns import columns_of, kafka_time
from stream.audit.archive.layout import Range, records_path, unreadable_path
from stream.audit.archive.range_spool import SpoolRow
from stream.errors import ArchiveDamaged, PoisonError
from stream.runtime.kafka.inbound import Inbound
from stream.wire.framing import Framing

RECORD: Final = "AuditRecord"
OF_KAFKA: Final = ("kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp_ms", "kafka_key", "kafka_headers")
HEADER: Final = "kafka_headers."  # before the number of a header, whose value is a blob
LONG: Final = 16  # digits; 2^53 has as many
LONG_NUMBER: Final = re.compile(rb"[:,\[]-?[0-9]{16}")
OF_RECORD: Final = ("decision_id", "envelope", "body_sha256", "body")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRow:
    """A row read back. `record` is an AuditRecord's JSON shape, or why it is none; `body` is the text as it is kept."""

    stored: Inbound
    record: Mapping[str, Any] | str
    body: bytes = b""


def row_of(stored: Inbound, of: Range, framing: Framing) -> tuple[SpoolRow, str]:
    """Make the row of a record: its file, columns and bytes. Returns it, and why it is no audit record, or "".

    Raises: DependencyError where the framing asks a registry that is away.
    """
    try:
        if stored.value is None:
            return _unreadable(stored, of, "has no value")
        name, record = framing.decode(stored.value, topic=stored.topic)
        if name != RECORD:
            return _unreadable(stored, of, f"is a {name}, not an audit record")
    except PoisonError as refused:
        return _unreadable(stored, of, f"cannot be decoded: {refused}")
    return row_from(record, stored, of)


def row_from(record: Mapping[str, Any], stored: Inbound, of: Range) -> tuple[SpoolRow, str]:
    """Make the row of a decoded record, as `row_of`."""
    try:
        columns, body = columns_of(record)
        path = records_path(of, columns["event_time"], columns["model_id"], columns["model_version"])
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        return _unreadable(stored, of, f"does not have the shape of an audit record ({type(error).__name__})")
    key, headers = _blobs(stored)
    row = SpoolRow(
        path=path,
        decision_id=columns["decision_id"],
        offset=stored.offset,
        columns=columns | _kafka_columns(stored),
        blobs={"body": body, "kafka_key": key} | headers,
    )
    return row, ""


def suspect(row: SpoolRow) -> bool:
    """Whether a record's own hash is not that of its body: kept as it is, and told."""
    body = row.blobs.get("body")
    return body is not None and row.columns["body_sha256"] != hashlib.sha256(body).hexdigest()


def _unreadable(stored: Inbound, of: Range, why: str) -> tuple[SpoolRow, str]:
    key, headers = _blobs(stored)
    row = SpoolRow(
        path=unreadable_path(of),
        decision_id="",
        offset=stored.offset,
        columns={"why": why} | _kafka_columns(stored),
        blobs={"kafka_value": stored.value, "kafka_key": key} | headers,
    )
    return row, why


def _kafka_columns(stored: Inbound) -> dict[str, Any]:
    return {
        "kafka_topic": stored.topic,
        "kafka_partition": stored.partition,
        "kafka_offset": stored.offset,
        "kafka_timestamp": kafka_time(stored.timestamp_ms),
        "kafka_timestamp_ms": stored.timestamp_ms,
        "kafka_headers": [name for name, _ in stored.headers],  # their values are among the blobs
    }


def _blobs(stored: Inbound) -> tuple[bytes | None, dict[str, bytes | None]]:
    return stored.key, {f"{HEADER}{number}": value for number, (_, value) in enumerate(stored.headers)}


def cells_of(row: SpoolRow) -> dict[str, Any]:
    """Give a row's cells by column, as pyarrow takes them."""
    names = row.columns["kafka_headers"]
    headers = [{"key": name, "value": row.blobs[f"{HEADER}{number}"]} for number, name in enumerate(names)]
    blobs = {name: blob for name, blob in row.blobs.items() if not name.startswith(HEADER)}
    return {**row.columns, **blobs, "kafka_headers": headers}


def read_rows(file: Path, path: str) -> Iterator[ReadRow]:
    """Read the rows of an archive's file, a row group at a time, whatever columns it has besides those of format 1.

    Raises: ArchiveDamaged for a file that is none of ours.
    """
    try:
        with pq.ParquetFile(file) as parquet:
            records = "body" in parquet.schema_arrow.names
            wanted = [*OF_KAFKA, *(OF_RECORD if records else ("kafka_value", "why"))]
            for number in range(parquet.num_row_groups):
                for cells in parquet.read_row_group(number, columns=wanted).to_pylist():
                    yield _read_row(cells, records=records)
    except (ArrowException, OSError, KeyError, ValueError, TypeError) as error:
        message = f"{path} of the archive cannot be read as one of its files ({type(error).__name__})"
        raise ArchiveDamaged(message) from error


def _read_row(cells: Mapping[str, Any], *, records: bool) -> ReadRow:
    stored = Inbound(
        topic=cells["kafka_topic"],
        partition=cells["kafka_partition"],
        offset=cells["kafka_offset"],
        timestamp_ms=cells["kafka_timestamp_ms"],
        key=cells["kafka_key"],
        headers=tuple((one["key"], one["value"]) for one in cells["kafka_headers"]),
        value=None if records else cells["kafka_value"],
    )
    if not records:
        if cells["why"] is None:
            raise TypeError  # every row of such a file says why
        return ReadRow(stored=stored, record=cells["why"])
    record = {
        "decision_id": cells["decision_id"],
        "body": read_canonical(cells["body"].encode()),
        "body_sha256": cells["body_sha256"],
        "envelope": read_canonical(cells["envelope"].encode()),
    }
    return ReadRow(stored=stored, record=record, body=cells["body"].encode())


def read_canonical(text: bytes) -> Any:  # noqa: ANN401 - a JSON value of any shape
    """Read canonical JSON, which spells a double past 2^53 without a point, unlike an integer. Raises: ValueError."""
    if LONG_NUMBER.search(text) is None:
        return orjson.loads(text)
    return json.loads(text, parse_int=lambda digits: float(digits) if len(digits) >= LONG else int(digits))


def spooled(read: ReadRow) -> SpoolRow:
    """Make a row of a spool of what was read, to put it in another order."""
    key, headers = _blobs(read.stored)
    if isinstance(read.record, str):
        columns_of_record: dict[str, Any] = {"why": read.record}
    else:
        columns_of_record = {"record": {name: read.record[name] for name in ("decision_id", "body_sha256", "envelope")}}
    return SpoolRow(
        path="",
        decision_id="",
        offset=read.stored.offset,
        columns=columns_of_record | _kafka_columns(read.stored),
        blobs={"body": read.body, "kafka_value": read.stored.value, "kafka_key": key} | headers,
    )


def unspooled(row: SpoolRow) -> ReadRow:
    """Make what was read of a spool's row."""
    columns, blobs = row.columns, row.blobs
    stored = Inbound(
        topic=columns["kafka_topic"],
        partition=columns["kafka_partition"],
        offset=row.offset,
        timestamp_ms=columns["kafka_timestamp_ms"],
        key=blobs["kafka_key"],
        headers=tuple((name, blobs[f"{HEADER}{number}"]) for number, name in enumerate(columns["kafka_headers"])),
        value=blobs["kafka_value"],
    )
    body = blobs["body"] or b""
    record = columns["why"] if "why" in columns else {**columns["record"], "body": read_canonical(body)}
    return ReadRow(stored=stored, record=record, body=body)
