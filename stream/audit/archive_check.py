"""Reads an archive back to be verified: each record as it was found, and whatever breaks a promise of the archive itself.

The promises: ranges follow each other without a hole, and all but the last are whole; each file is there, byte for byte
what its range file says, and no other file is, whatever it is called; rows are of their range, in their file, in order, and none comes twice;
each column says what the record says; and nothing on the topic was lost or unreadable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from stream.audit.archive.columns import RECORDS
from stream.audit.archive.layout import (
    UNREADABLE,
    Range,
    begins_path,
    known_path,
    marker_path,
    range_of,
    ranges_folder,
    unreadable_path,
)
from stream.audit.archive.markers import (
    Holding,
    Identity,
    Marker,
    RangeFile,
    is_known,
    partitions_in,
    ranges_in,
    read_beginning,
)
from stream.audit.archive.range_files import size_and_sha256, table_of
from stream.audit.archive.read import marker_of, opened
from stream.audit.archive.rows import ReadRow, read_rows, row_from
from stream.audit.archive.target import Target
from stream.audit.sources import Found
from stream.audit.stray_files import SETTLE_S, SETTLE_TRIES, ArchiveFault, StrayFiles
from stream.errors import ArchiveDamaged


@dataclass(slots=True, kw_only=True)
class ArchiveExtent:
    """Counts of what an archive holds."""

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
        self.extent = ArchiveExtent()
        self._target = Target(uri)
        self._identity: Identity = opened(self._target)
        self._sleep = sleep

    def read(self) -> Iterator[Found | ArchiveFault]:
        """Give every record, and every fault. Raises: DependencyError."""
        with closing(StrayFiles(self._target, self._identity, self._sleep)) as files:
            for partition in partitions_in(self._target, self._identity.topic):
                yield from self._partition(partition, files)
            yield from files.left()

    def _partition(self, partition: int, files: StrayFiles) -> Iterator[Found | ArchiveFault]:
        identity = self._identity
        there = self._ranges(partition)
        yield from self._said(partition, there, files)
        path = begins_path(identity.topic, partition)
        files.named(path)
        try:
            first = read_beginning(self._target, identity.topic, partition)
        except ArchiveDamaged as damaged:
            first = None
            yield ArchiveFault(path, str(damaged))
        else:
            if first is None:
                yield ArchiveFault(path, "is missing: nothing says where the archive begins")
        at = min(there, default=0) if first is None else first
        expected = range_of(identity.topic, partition, at, identity.range_offsets).start
        for start, holding in there.items():
            of = range_of(identity.topic, partition, start, identity.range_offsets)
            files.named(marker_path(of, whole=holding != "tail"))
            if start != expected:
                hole = f"{identity.topic}[{partition}]@{expected}..{start - 1}"
                yield ArchiveFault(
                    hole, "nothing says what was there: a range file is missing, or records were never kept"
                )
            expected = of.end
            self.extent.ranges += 1
            try:
                yield from self._range(of, files, first=max(start, at), is_last=start == max(there))
            except ArchiveDamaged as damaged:
                yield ArchiveFault(of.where, str(damaged))

    def _ranges(self, partition: int) -> dict[int, Holding]:
        """The ranges of a partition, once a sink that writes its first one just now has written it."""
        topic, length = self._identity.topic, self._identity.range_offsets
        for tried in range(SETTLE_TRIES):
            if tried:
                self._sleep(SETTLE_S)
            there = ranges_in(self._target, topic, partition, length, passing_over=True)
            if there or self._target.read(known_path(topic, partition, held=True)) is None:
                break
        return there

    def _said(self, partition: int, there: dict[int, Holding], files: StrayFiles) -> Iterator[ArchiveFault]:
        """What the archive says apart from the ranges: that there is this partition, and whether anything of it was kept."""
        topic = self._identity.topic
        for held in (False, True):
            path = known_path(topic, partition, held=held)
            files.named(path)
            try:
                known = is_known(self._target, topic, partition, held=held)
            except ArchiveDamaged as damaged:
                yield ArchiveFault(path, str(damaged))
                continue
            if not known and (there or not held):
                yield ArchiveFault(path, "is missing; the next sink writes it, when the rest is as it was")
            elif known and held and not there:
                fault = "is empty, and records of the partition were kept: its range files are gone; put them back from a copy"
                also = "of the archive, or start a sink while the topic has the records (which also mends what a killed sink began)"
                yield ArchiveFault(ranges_folder(topic, partition), f"{fault} {also}")

    def _range(self, of: Range, files: StrayFiles, *, first: int, is_last: bool) -> Iterator[Found | ArchiveFault]:
        marker = self._settled(of)
        if marker is None:
            yield ArchiveFault(of.where, "its range file vanished while it was read")
            return
        self.extent.whole += marker.whole
        self.extent.until[of.partition] = marker.until
        if not marker.whole and not is_last:
            yield ArchiveFault(
                of.where, f"is not whole, and later ranges are there: records from {marker.until} on are missing"
            )
        if marker.first != first:
            yield ArchiveFault(of.where, f"begins at {marker.first}, and the archive has to have it from {first} on")
        for gone, end in marker.lost:
            self.extent.lost += end - gone
            yield ArchiveFault(
                of.where, f"offsets {gone} to {end - 1} were deleted from the topic before they were kept"
            )
        self.extent.gaps += marker.until - marker.first - marker.rows - sum(end - gone for gone, end in marker.lost)
        offsets: set[int] = set()
        for entry in marker.all_files:
            files.named(entry.path)
            self.extent.files += 1
            yield from self._file(entry, marker, offsets)
        if len(offsets) != marker.rows:
            yield ArchiveFault(
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

    def _as_named(self, entry: RangeFile) -> bool:
        try:
            with self._target.local_copy(entry.path) as file:
                return size_and_sha256(file) == (entry.bytes, entry.sha256)
        except (ArchiveDamaged, OSError):
            return False

    def _file(self, entry: RangeFile, marker: Marker, offsets: set[int]) -> Iterator[Found | ArchiveFault]:
        try:
            with self._target.local_copy(entry.path) as file:
                if size_and_sha256(file) != (entry.bytes, entry.sha256):
                    fault = "is not the file that its range file names by size and SHA-256"
                    mended = "" if marker.whole else "; where a sink was killed there, the next one mends it"
                    yield ArchiveFault(entry.path, f"{fault}{mended}")
                rows = 0
                for found in self._rows(file, entry, marker, offsets):
                    rows += isinstance(found, Found)
                    yield found
                if rows != entry.rows:
                    yield ArchiveFault(entry.path, f"has {rows} rows, and its range file says {entry.rows}")
                if not entry.path.startswith(UNREADABLE):
                    yield from _columns(file, entry.path, marker.of)
        except ArchiveDamaged as damaged:
            yield ArchiveFault(entry.path, str(damaged))
        except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as damaged:
            yield ArchiveFault(entry.path, f"cannot be read as one of the archive's files ({type(damaged).__name__})")

    def _rows(self, file: Path, entry: RangeFile, marker: Marker, offsets: set[int]) -> Iterator[Found | ArchiveFault]:
        before: tuple[str, int] | None = None
        unreadable = entry.path.startswith(UNREADABLE)
        for read in read_rows(file, entry.path):
            stored = read.stored
            yield _found(read)
            self.extent.unreadable += unreadable
            if (stored.topic, stored.partition) != (marker.of.topic, marker.of.partition):
                yield ArchiveFault(entry.path, f"holds a row of {stored.where}")
            elif not marker.first <= stored.offset < marker.until:
                yield ArchiveFault(
                    entry.path, f"holds a row of {stored.where}, which is outside of what its range file says"
                )
            elif stored.offset in offsets:
                yield ArchiveFault(entry.path, f"holds {stored.where}, which is there already")
            offsets.add(stored.offset)
            own = "" if isinstance(read.record, str) else str(read.record["decision_id"])
            if before is not None and (own.encode(), stored.offset) < (before[0].encode(), before[1]):
                yield ArchiveFault(entry.path, f"holds {stored.where} out of order")
            before = (own, stored.offset)
            of = marker.of
            record = read.record
            right_path = unreadable_path(of) if isinstance(record, str) else row_from(record, stored, of)[0].path
            if right_path != entry.path:
                yield ArchiveFault(entry.path, f"holds {stored.where}, which belongs into another file")


def _found(read: ReadRow) -> Found:
    stored = read.stored
    if isinstance(read.record, str):
        return Found(where=stored.where, record=read.record)
    if stored.key != str(read.record["decision_id"]).encode():
        return Found(where=stored.where, record="has another key than its decision_id")
    return Found(where=stored.where, record=read.record, text=read.body)


def _columns(file: Path, path: str, of: Range) -> Iterator[ArchiveFault]:
    """Make every column again from the record, and compare: SQL must not say what the record does not."""
    rows = (
        row_from(read.record, read.stored, of)[0] for read in read_rows(file, path) if not isinstance(read.record, str)
    )
    with pq.ParquetFile(file) as parquet:
        for number in range(parquet.num_row_groups):
            kept = parquet.read_row_group(number)
            made = table_of(list(islice(rows, kept.num_rows)), RECORDS)
            differing = [
                name
                for name in kept.column_names
                if name in made.column_names
                and not kept.column(name).combine_chunks().equals(made.column(name).combine_chunks())
            ]
            if differing:
                yield ArchiveFault(
                    path, f"row group {number} has columns that say other than its records: {', '.join(differing)}"
                )
