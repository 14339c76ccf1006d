"""One range while it fills, and how it comes to lie in the archive.

The order of the steps is what makes each moment safe to die in:

1. each file, whole, over the shorter one that a tail left there (the names are the same);
2. files that a tail had and the range no longer has are removed;
3. the range file, which says with digests what is there;
4. of a whole range: the tail's range file is removed.

Only then may its offsets be committed. Whoever dies before 3 leaves a range that is not whole: it is read again from
its start, and the same bytes are written over whatever there is.
"""

from __future__ import annotations

import logging

from stream.audit.archive.layout import UNREADABLE, Range, marker_path
from stream.audit.archive.markers import Marker, RangeFile, read_marker, write_marker
from stream.audit.archive.range_files import size_and_sha256, write_rows
from stream.audit.archive.range_spool import RangeSpool, SpoolRow
from stream.audit.archive.rows import read_rows, row_from, row_of
from stream.audit.archive.target import Target
from stream.errors import ArchiveDamaged
from stream.wire.framing import Framing

log = logging.getLogger(__name__)


class OpenRange:
    """A range of which `until` (exclusive) is known so far. `first` is the first offset that the topic had of it."""

    def __init__(self, target: Target, of: Range, *, first: int, tail: Marker | None) -> None:
        """`tail` is what an earlier sink left of it. Raises: DiskUnavailable."""
        self.of = of
        self.first = first
        self.until = first
        self.rows = 0  # beside those of `lost`
        self.lost: list[tuple[int, int]] = [] if tail is None else list(tail.lost)
        self._target = target
        self._tail = tail
        self._spool = RangeSpool()
        self._entries: dict[str, RangeFile] = {}  # as they lie in the archive, written by this object
        self._kept_until: int | None = None

    @property
    def full(self) -> bool:
        """Whether all offsets of the range were read, so that it can be kept as whole."""
        return self.until >= self.of.end

    @property
    def ahead(self) -> bool:
        """Whether there is something that the archive does not show yet, and nothing that it would show no more."""
        shown = self.first if self._tail is None else self._tail.until
        return self.until > (self._kept_until if self._kept_until is not None else shown)

    def add(self, row: SpoolRow) -> None:
        """Take the row of the next offset. Raises: DiskUnavailable."""
        self._spool.add(row)
        self.rows += 1
        self.until = row.offset + 1

    def reached(self, until: int) -> None:
        """Take notice that there are no more records below an offset; past the range's end it counts as the end."""
        self.until = max(self.until, min(until, self.of.end))

    def lose(self, until: int) -> None:
        """Write down that all up to an offset was deleted from the topic, which a person accepted."""
        until = min(until, self.of.end)
        if until > self.until:
            self.lost.append((self.until, until))
            self.until = until

    def restore(self, framing: Framing, tail: Marker) -> None:
        """Take back a tail that the topic no longer has. Raises: ArchiveDamaged for a changed file; DependencyError."""
        for entry in tail.all_files:
            with self._target.local_copy(entry.path) as file:
                if size_and_sha256(file) != (entry.bytes, entry.sha256):
                    message = f"the archive at {self._target.shown}: {entry.path} is not what its range file says"
                    raise ArchiveDamaged(message)
                for read in read_rows(file, entry.path):
                    if isinstance(read.record, str):  # perhaps this version reads what the earlier one could not
                        row, _ = row_of(read.stored, self.of, framing)
                    else:
                        row, _ = row_from(read.record, read.stored, self.of)
                    self._spool.add(row)
                    self.rows += 1
        self.until = max(self.until, tail.until)

    def keep(self) -> Marker | None:
        """Keep the range, whole if full; None when another sink is ahead. Raises: DependencyError; may be called again."""
        whole = self.full
        if not whole and self._overtaken():
            return None
        marker = Marker(
            of=self.of,
            first=self.first,
            until=self.until,
            whole=whole,
            files=tuple(self._write(path) for path in self._spool.paths if not path.startswith(UNREADABLE)),
            unreadable=next((self._write(path) for path in self._spool.paths if path.startswith(UNREADABLE)), None),
            lost=tuple(self.lost),
        )
        if self._tail is not None:
            for path in {one.path for one in self._tail.all_files} - {one.path for one in marker.all_files}:
                self._target.remove(path)
        if not whole and self._overtaken():
            self._give_way(marker)
            return None
        write_marker(self._target, marker)
        if whole:
            self._target.remove(marker_path(self.of, whole=False))
        self._kept_until, self._tail = self.until, marker
        return marker

    def close(self) -> None:
        """Let go of what it holds on this host."""
        self._spool.close()

    def _write(self, path: str) -> RangeFile:
        known = self._entries.get(path)
        if known is not None and known.rows == self._spool.paths[path]:
            return known
        with self._target.draft() as draft:
            entry = write_rows(self._spool.rows_of(path), draft, path)
            self._target.keep(draft, path)
        self._entries[path] = entry
        return entry

    def _overtaken(self) -> bool:
        """Whether another sink has kept more of this range: one that took over while this one was asleep."""
        if read_marker(self._target, self.of, whole=True) is not None:
            return True
        tail = read_marker(self._target, self.of, whole=False)
        return tail is not None and tail.until > self.until

    def _give_way(self, written: Marker) -> None:
        """Undo the harm of a tail that was written over a whole range's files: without its range file it is read again."""
        whole = read_marker(self._target, self.of, whole=True)
        if whole is None:
            return
        theirs = {one.path: one for one in whole.all_files}
        spoilt = [one.path for one in written.all_files if one.path not in theirs or theirs[one.path] != one]
        if spoilt:
            self._target.remove(marker_path(self.of, whole=True))
            log.error(
                "sink.range_spoilt",
                extra={"range": self.of.where, "files": len(spoilt), "why": "another sink is ahead in this range"},
            )
