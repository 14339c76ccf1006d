"""Reads an archive back to be verified: each record as it was found, and whatever breaks a promise of the archive itself.

The promises: ranges follow each other without a hole, and all but the last are whole; each file is there, byte for byte
what its range file says, and no other file is; rows are of their range, in their file, in order, and none comes twice;
each column says what the record says; and nothing on the topic was lost or unreadable.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from stream.archive.columns import RECORDS
from stream.archive.layout import DAY, UNREADABLE, Range, begins_path, range_of, unreadable_path
from stream.archive.markers import FileEntry, Identity, Marker, partitions_in, ranges_in, read_beginning
from stream.archive.range_files import digest_of, table_of
from stream.archive.read import marker_of, opened
from stream.archive.rows import ReadRow, read_rows, row_from
from stream.archive.sources import Found
from stream.archive.target import Target
from stream.errors import ArchiveDamaged

SETTLE_TRIES: Final = 10  # for a sink that writes a range just now to say what it wrote
SETTLE_S: Final = 0.5
FILE_NAME: Final = re.compile(r".*-([0-9]{5,})-([0-9]{16,})(?:-[0-9a-f]{8})?\.parquet")


@dataclass(frozen=True, slots=True)
class Broken:
    """A promise of the archive that does not hold: where, and what is wrong."""

    where: str
    fault: str


@dataclass(slots=True, kw_only=True)
class Extent:
    """How much archive there was."""

    ranges: int = 0
    whole: int = 0
    files: int = 0
    unreadable: int = 0
    lost: int = 0  # offsets, which the archive itself names as lost
    gaps: int = 0  # offsets that the topic had nothing at: none, unless it is compacted or written in transactions
    until: dict[int, int] = field(default_factory=dict)  # the end of each partition


class ArchiveCheck:
    """One reading of an archive from its beginning to its end. Memory does not grow with the archive."""

    def __init__(self, uri: str, *, sleep: Callable[[float], object] = time.sleep) -> None:
        """`uri` as of the sink. Raises: ConfigurationError, ArchiveDamaged, DependencyError."""
        self.extent = Extent()
        self._target = Target(uri)
        self._identity: Identity = opened(self._target)
        self._sleep = sleep

    def read(self) -> Iterator[Found | Broken]:
        """Give every record, and every fault. Raises: DependencyError."""
        with closing(sqlite3.connect("")) as database:
            database.execute("CREATE TABLE there (path TEXT PRIMARY KEY) WITHOUT ROWID")
            for path in self._files_there():  # before the range files: what comes later is a sink's at work
                database.execute("INSERT INTO there VALUES (?)", (path,))
            for partition in partitions_in(self._target, self._identity.topic):
                for one in self._partition(partition):
                    if isinstance(one, FileEntry):
                        database.execute("DELETE FROM there WHERE path = ?", (one.path,))
                    else:
                        yield one
            for (path,) in database.execute("SELECT path FROM there ORDER BY path"):
                yield from self._unlisted(path)

    def _files_there(self) -> Iterator[str]:
        def below(folder: str, depth: int) -> Iterator[str]:
            for name in self._target.names(folder):
                path = f"{folder}/{name}"
                if depth:
                    yield from below(path, depth - 1)
                else:
                    yield path

        for day in self._target.names(""):
            if day.startswith(DAY):
                yield from below(day, 2)
        yield from below(UNREADABLE, 0)

    def _unlisted(self, path: str) -> Iterator[Broken]:
        """A file that no range file named; perhaps one does now, or the file is gone again."""
        found = FILE_NAME.fullmatch(path)
        if found is not None:
            length = self._identity.range_offsets
            of = range_of(self._identity.topic, int(found[1]), int(found[2]), length)
            for tried in range(SETTLE_TRIES):
                marker = marker_of(self._target, of)
                named = marker is not None and path in [one.path for one in marker.all_files]
                folder, _, name = path.rpartition("/")
                if named or name not in self._target.names(folder):
                    return
                if marker is not None and marker.whole:
                    break
                if tried + 1 < SETTLE_TRIES:
                    self._sleep(SETTLE_S)
        yield Broken(path, "is a file that no range of the archive names: readers would count what it holds")

    def _partition(self, partition: int) -> Iterator[Found | Broken | FileEntry]:
        identity = self._identity
        there = ranges_in(self._target, identity.topic, partition, identity.range_offsets)
        try:
            first = read_beginning(self._target, identity.topic, partition)
        except ArchiveDamaged as damaged:
            first = None
            yield Broken(begins_path(identity.topic, partition), str(damaged))
        else:
            if first is None:
                yield Broken(
                    begins_path(identity.topic, partition), "is missing: nothing says where the archive begins"
                )
        at = min(there, default=0) if first is None else first
        expected = range_of(identity.topic, partition, at, identity.range_offsets).start
        for start in there:
            of = range_of(identity.topic, partition, start, identity.range_offsets)
            if start != expected:
                hole = f"{identity.topic}[{partition}]@{expected}..{start - 1}"
                yield Broken(hole, "nothing says what was there: a range file is missing, or records were never kept")
            expected = of.end
            self.extent.ranges += 1
            try:
                yield from self._range(of, first=max(start, at), is_last=start == max(there))
            except ArchiveDamaged as damaged:
                yield Broken(of.where, str(damaged))

    def _range(self, of: Range, *, first: int, is_last: bool) -> Iterator[Found | Broken | FileEntry]:
        marker = self._settled(of)
        if marker is None:
            yield Broken(of.where, "its range file vanished while it was read")
            return
        self.extent.whole += marker.whole
        self.extent.until[of.partition] = marker.until
        if not marker.whole and not is_last:
            yield Broken(
                of.where, f"is not whole, and later ranges are there: records from {marker.until} on are missing"
            )
        if marker.first != first:
            yield Broken(of.where, f"begins at {marker.first}, and the archive has to have it from {first} on")
        for gone, end in marker.lost:
            self.extent.lost += end - gone
            yield Broken(of.where, f"offsets {gone} to {end - 1} were deleted from the topic before they were kept")
        self.extent.gaps += marker.until - marker.first - marker.rows - sum(end - gone for gone, end in marker.lost)
        offsets: set[int] = set()
        for entry in marker.all_files:
            yield entry
            self.extent.files += 1
            yield from self._file(entry, marker, offsets)
        if len(offsets) != marker.rows:
            yield Broken(
                of.where, f"has {len(offsets)} different offsets in rows, and its range file says {marker.rows}"
            )

    def _settled(self, of: Range) -> Marker | None:
        """The range file, once a sink that writes the range just now has said what it wrote."""
        marker = marker_of(self._target, of)
        for _ in range(SETTLE_TRIES):
            if marker is None or marker.whole or all(self._as_named(one) for one in marker.all_files):
                break
            self._sleep(SETTLE_S)
            marker = marker_of(self._target, of)
        return marker

    def _as_named(self, entry: FileEntry) -> bool:
        try:
            with self._target.local_copy(entry.path) as file:
                return digest_of(file) == (entry.bytes, entry.sha256)
        except (ArchiveDamaged, OSError):
            return False

    def _file(self, entry: FileEntry, marker: Marker, offsets: set[int]) -> Iterator[Found | Broken]:
        try:
            with self._target.local_copy(entry.path) as file:
                if digest_of(file) != (entry.bytes, entry.sha256):
                    yield Broken(entry.path, self._not_as_named(marker))
                rows = 0
                for found in self._rows(file, entry, marker, offsets):
                    rows += isinstance(found, Found)
                    yield found
                if rows != entry.rows:
                    yield Broken(entry.path, f"has {rows} rows, and its range file says {entry.rows}")
                if not entry.path.startswith(UNREADABLE):
                    yield from _columns(file, entry.path, marker.of)
        except (ArchiveDamaged, OSError) as damaged:
            yield Broken(entry.path, str(damaged) or type(damaged).__name__)

    @staticmethod
    def _not_as_named(marker: Marker) -> str:
        fault = "is not the file that its range file names by size and SHA-256"
        return fault if marker.whole else f"{fault}; where a sink was killed there, the next one mends it"

    def _rows(self, file: Path, entry: FileEntry, marker: Marker, offsets: set[int]) -> Iterator[Found | Broken]:
        before: tuple[str, int] | None = None
        unreadable = entry.path.startswith(UNREADABLE)
        for read in read_rows(file, entry.path):
            stored = read.stored
            yield _found(read)
            self.extent.unreadable += unreadable
            if (stored.topic, stored.partition) != (marker.of.topic, marker.of.partition):
                yield Broken(entry.path, f"holds a row of {stored.where}")
            elif not marker.first <= stored.offset < marker.until:
                yield Broken(entry.path, f"holds a row of {stored.where}, which is outside of what its range file says")
            elif stored.offset in offsets:
                yield Broken(entry.path, f"holds {stored.where}, which is there already")
            offsets.add(stored.offset)
            own = "" if read.record is None else str(read.record["decision_id"])
            if before is not None and (own.encode(), stored.offset) < (before[0].encode(), before[1]):
                yield Broken(entry.path, f"holds {stored.where} out of order")
            before = (own, stored.offset)
            if _place_of(read, marker.of) != entry.path:
                yield Broken(entry.path, f"holds {stored.where}, which belongs into another file")


def _place_of(read: ReadRow, of: Range) -> str:
    return unreadable_path(of) if read.record is None else row_from(read.record, read.stored, of)[0].path


def _found(read: ReadRow) -> Found:
    stored = read.stored
    if read.record is None:
        return Found(where=stored.where, record=read.why)
    if stored.key != str(read.record["decision_id"]).encode():
        return Found(where=stored.where, record="has another key than its decision_id")
    return Found(where=stored.where, record=read.record, text=read.body)


def _columns(file: Path, path: str, of: Range) -> Iterator[Broken]:
    """Make every column again from the record, and compare: SQL must not say what the record does not."""
    rows = (row_from(read.record, read.stored, of)[0] for read in read_rows(file, path) if read.record is not None)
    with pq.ParquetFile(file) as parquet:
        for number in range(parquet.num_row_groups):
            kept = parquet.read_row_group(number)
            made = table_of([row for row, _ in zip(rows, range(kept.num_rows), strict=False)], RECORDS)
            differing = [
                name for name in kept.column_names if name in made.column_names and not _same(kept, made, name)
            ]
            if differing:
                yield Broken(
                    path, f"row group {number} has columns that say other than its records: {', '.join(differing)}"
                )


def _same(kept: pa.Table, made: pa.Table, name: str) -> bool:
    return bool(kept.column(name).combine_chunks().equals(made.column(name).combine_chunks()))
