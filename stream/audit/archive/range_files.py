"""Writes rows as a Parquet file: the same rows, the same bytes, whenever and by whomever it is written.

Rows come by decision_id, in small row groups with statistics, so that a reader who looks for one decision passes over
all groups but the one that may hold it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from stream.audit.archive import layout
from stream.audit.archive.columns import DICTIONARY, RECORDS, STATISTICS, UNREADABLE
from stream.audit.archive.markers import RangeFile
from stream.audit.archive.range_spool import SpoolRow
from stream.audit.archive.rows import cells_of
from stream.errors import DiskUnavailable

GROUP_ROWS: Final = 100
GROUP_BYTES: Final = 16 << 20  # of a group's bodies and other bytes, past which the next row begins a new one
READ_BYTES: Final = 1 << 20
OPTIONS: Final[dict[str, Any]] = {  # all that could make another file of the same rows is said here
    "version": "2.6",
    "compression": "zstd",
    "compression_level": 3,
    "use_dictionary": list(DICTIONARY),
    "write_statistics": list(STATISTICS),
    "data_page_version": "1.0",
    "data_page_size": 1 << 20,
    "write_batch_size": 1024,
    "store_schema": True,
    "write_page_index": False,
}
OPTIONS_UNREADABLE: Final = {"use_dictionary": ["kafka_topic"], "write_statistics": ["kafka_offset"]}


def write_rows(rows: Iterable[SpoolRow], draft: Path, path: str) -> RangeFile:
    """Write a file of records, or of what is no audit record, as `path` says; return what it is. Raises: DiskUnavailable."""
    schema, options = RECORDS, OPTIONS
    if path.startswith(layout.UNREADABLE):
        schema, options = UNREADABLE, OPTIONS | OPTIONS_UNREADABLE
    count = 0
    try:
        with pq.ParquetWriter(draft, schema, **options) as writer:
            for group in _groups(rows):
                writer.write_table(table_of(group, schema), row_group_size=len(group))
                count += len(group)
        size, digest = size_and_sha256(draft)
    except OSError as error:
        message = f"{path} cannot be written on this host at {draft.parent}: {error.strerror or error}"
        raise DiskUnavailable(message) from error
    return RangeFile(path=path, rows=count, bytes=size, sha256=digest)


def table_of(rows: Iterable[SpoolRow], schema: pa.Schema) -> pa.Table:
    """Make a table of rows with every column of the schema; a row without one has null there."""
    cells = [cells_of(row) for row in rows]
    return pa.Table.from_arrays(
        [pa.array([one.get(field.name) for one in cells], field.type) for field in schema], schema=schema
    )


def size_and_sha256(file: Path) -> tuple[int, str]:
    """Measure and hash a local file. Raises: OSError."""
    digest, size = hashlib.sha256(), 0
    with file.open("rb") as content:
        while piece := content.read(READ_BYTES):
            digest.update(piece)
            size += len(piece)
    return size, digest.hexdigest()


def _groups(rows: Iterable[SpoolRow]) -> Iterator[list[SpoolRow]]:
    group: list[SpoolRow] = []
    held = 0
    for row in rows:
        size = sum(len(blob) for blob in row.blobs.values() if blob is not None)
        if group and (len(group) == GROUP_ROWS or held + size > GROUP_BYTES):
            yield group
            group, held = [], 0
        group.append(row)
        held += size
    if group:
        yield group
