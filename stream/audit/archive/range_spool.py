"""The rows of one range while it fills, in an unnamed temporary SQLite database: in memory up to its cache, then on disk.

So a range takes little memory however large its records are, and is sorted whenever it is written.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Self

import orjson

from stream.runtime.scratch_index import scratch_database, scratch_errors

CACHE_KIB: Final = 8 * 1024
LEVEL: Final = 1  # of the bodies' compression: they are a hundred times the rest, and full of repetition


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolRow:
    """One row of a file. `columns` are JSON values, except `blobs`: what is bytes, and the long texts."""

    path: str
    decision_id: str
    offset: int
    columns: Mapping[str, Any]
    blobs: Mapping[str, bytes | None]


class RangeSpool:
    """Rows by (path, decision_id, offset). An offset that comes again is passed over: it is the same record."""

    def __init__(self) -> None:
        """Nothing yet. Raises: DiskUnavailable, as all methods do, when SQLite's temporary folder is full."""
        self._rows_in: dict[str, int] = {}
        with _disk_errors():
            self._database = scratch_database(CACHE_KIB)
            self._database.execute(
                "CREATE TABLE kept (place INTEGER PRIMARY KEY, path TEXT, decision_id TEXT, columns BLOB, blobs BLOB)"
            )
            self._database.execute("CREATE INDEX by_file ON kept (path, decision_id, place)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_how: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database, which frees its disk space."""
        self._database.close()

    def add(self, row: SpoolRow) -> None:
        """Keep a row, unless one of its offset is kept. Raises: DiskUnavailable."""
        names = list(row.blobs)
        sizes = [-1 if (blob := row.blobs[name]) is None else len(blob) for name in names]
        packed = zlib.compress(b"".join(blob for blob in row.blobs.values() if blob is not None), LEVEL)
        head = orjson.dumps([row.columns, names, sizes])
        with _disk_errors():
            cursor = self._database.execute(
                "INSERT OR IGNORE INTO kept VALUES (?, ?, ?, ?, ?)",
                (row.offset, row.path, row.decision_id, head, packed),
            )
        if cursor.rowcount:
            self._rows_in[row.path] = self._rows_in.get(row.path, 0) + 1

    @property
    def paths(self) -> dict[str, int]:
        """How many rows each file has, by its path."""
        return dict(sorted(self._rows_in.items()))

    def rows_of(self, path: str) -> Iterator[SpoolRow]:
        """The rows of a file, by decision_id and offset."""
        return self._select(
            "SELECT path, decision_id, place, columns, blobs FROM kept WHERE path = ? ORDER BY decision_id, place", path
        )

    def by_offset(self) -> Iterator[SpoolRow]:
        """All rows, in the order of their offsets."""
        return self._select("SELECT path, decision_id, place, columns, blobs FROM kept ORDER BY place")

    def _select(self, statement: str, *values: str) -> Iterator[SpoolRow]:
        with _disk_errors():
            cursor = self._database.execute(statement, values)
        while True:
            with _disk_errors():
                found = cursor.fetchone()
            if found is None:
                return
            columns, names, sizes = orjson.loads(found[3])
            joined, at, blobs = zlib.decompress(found[4]), 0, {}
            for name, size in zip(names, sizes, strict=True):
                blobs[name] = None if size < 0 else joined[at : at + size]
                at += max(size, 0)
            yield SpoolRow(path=found[0], decision_id=found[1], offset=found[2], columns=columns, blobs=blobs)


def _disk_errors() -> AbstractContextManager[None]:
    return scratch_errors("this host's temporary folder (TMPDIR) cannot hold a range of the archive: {error}")
