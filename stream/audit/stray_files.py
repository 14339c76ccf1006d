"""Every file below an archive that nothing in it names: what a reader's glob would count, or somebody put there.

All files are listed before the range files are read, so that what a sink at work adds meanwhile is none of them; a file that
is left is looked at once more, for a sink may have named it or taken it away since. Memory does not grow with the archive.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from stream.audit.archive.layout import (
    ARCHIVE,
    DAY,
    DRAFT_NAME,
    DRAFTS,
    PARQUET,
    RANGES,
    TAIL,
    UNREADABLE,
    Range,
    marker_path,
    range_of,
)
from stream.audit.archive.markers import Identity, Marker
from stream.audit.archive.read import marker_of
from stream.audit.archive.target import Target
from stream.errors import ArchiveDamaged

SETTLE_TRIES: Final = 10  # for a sink that writes a range just now to say what it wrote
SETTLE_S: Final = 0.5
FILE_NAME: Final = re.compile(r".*-([0-9]{5,9})-([0-9]{16,19})(?:-[0-9a-f]{8})?\.parquet", re.DOTALL)
STRAY: Final = "is a file that no range of the archive names: readers would count what it holds"


@dataclass(frozen=True, slots=True)
class ArchiveFault:
    """A broken promise of the archive: where, and what is wrong."""

    where: str
    fault: str


class StrayFiles:
    """The files that are there, less those that are named. For `contextlib.closing`."""

    def __init__(self, target: Target, identity: Identity, sleep: Callable[[float], object]) -> None:
        """List the archive's files. Raises: DependencyError."""
        self._target, self._identity, self._sleep = target, identity, sleep
        self._tries = SETTLE_TRIES  # of all files together: a sink at work has had its time after that
        self._database = sqlite3.connect("")
        self._database.execute("CREATE TABLE there (path BLOB PRIMARY KEY) WITHOUT ROWID")
        for path in target.walk():
            folder, _, name = path.partition("/")
            if path != ARCHIVE and not (folder == DRAFTS and DRAFT_NAME.fullmatch(name)):
                self._database.execute("INSERT OR IGNORE INTO there VALUES (?)", (_key(path),))

    def close(self) -> None:
        """Close the index, which frees its disk space."""
        self._database.close()

    def named(self, path: str) -> None:
        """Something in the archive names this file."""
        self._database.execute("DELETE FROM there WHERE path = ?", (_key(path),))

    def left(self) -> Iterator[ArchiveFault]:
        """Name those that nothing named. Raises: DependencyError."""
        for (key,) in self._database.execute("SELECT path FROM there ORDER BY path"):
            path = key.decode(errors="surrogateescape")
            fault = self._fault(path)
            if fault is not None:
                yield ArchiveFault(path if path.isprintable() else ascii(path)[1:-1], fault)

    def _fault(self, path: str) -> str | None:
        """What is wrong with a file that nothing named; None where something does now, or it is gone."""
        found, identity = FILE_NAME.fullmatch(path), self._identity
        of = found and range_of(identity.topic, int(found[1]), int(found[2]), identity.range_offsets)
        a_tail = path.startswith(f"{RANGES}/") and path.endswith(TAIL)
        folder, _, name = path.rpartition("/")
        while True:
            marker, damaged = self._marker(of)
            named = marker is not None and path in [one.path for one in marker.all_files]
            if named or name not in self._target.names(folder):
                return None
            begun = of is not None and not damaged and (marker is None or not marker.whole)
            if not self._tries or not (a_tail or begun):
                break
            self._tries -= 1
            self._sleep(SETTLE_S)
        if path.endswith(PARQUET) and path.startswith((DAY, f"{UNREADABLE}/")):
            return f"{STRAY}; {self._mending(of, marker)}"
        if a_tail:
            return "is no range file of this archive, or one that a killed sink left beside the whole range's, which the next removes"
        return "is none of the archive's files; move it to another place"

    def _marker(self, of: Range | None) -> tuple[Marker | None, bool]:
        """The range file of a file's name, and whether it is damaged."""
        try:
            return (None if of is None else marker_of(self._target, of)), False
        except ArchiveDamaged:
            return None, True

    @staticmethod
    def _mending(of: Range | None, marker: Marker | None) -> str:
        if of is None or (marker is not None and not marker.lost):
            return "move it out of the archive, and keep it"
        own = marker_path(of, whole=True)
        if marker is not None:
            return (
                f"its range file {own} says that offsets of it are lost: if it is what holds them, put an older copy of the range "
                "file in that place; else move this file out of the archive, and keep it"
            )
        return (
            f"its range file {own} is missing or damaged: put that back from a copy of the archive, or remove it and start a sink "
            f"while the topic has offsets {of.start} to {of.end - 1}; else move this file out of the archive, and keep it"
        )


def _key(path: str) -> bytes:
    """Names on a disk are bytes, and need not be UTF-8."""
    return path.encode(errors="surrogateescape")
