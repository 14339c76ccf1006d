"""Reads an archive back, range by range, in the order of the topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from stream.audit.archive.layout import ARCHIVE, DAY, RANGES, UNREADABLE, Range, day_in, quoted, range_of
from stream.audit.archive.markers import Identity, Marker, partitions_in, ranges_in, read_identity, read_marker
from stream.audit.archive.range_spool import RangeSpool
from stream.audit.archive.rows import RECORD, ReadRow, read_rows, spooled, unspooled
from stream.audit.archive.target import Target
from stream.errors import ArchiveDamaged, ConfigurationError, PoisonError
from stream.wire.framing import SINGLE_OBJECT, Framing


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which records are asked for: days of event_time in UTC, both included; a model; None: whichever."""

    since: date | None = None
    until: date | None = None
    model_id: str | None = None
    model_version: str | None = None

    @property
    def all(self) -> bool:
        """Whether all records are meant: no day and no model leaves any out."""
        return (self.since, self.until, self.model_id, self.model_version) == (None, None, None, None)

    def may_hold(self, path: str) -> bool:
        """Whether a file of records may hold some of them, by its folders."""
        if not self._of_the_days(day_in(path)):
            return False
        _, model, version, _ = path.split("/")
        named = ((self.model_id, model, "model="), (self.model_version, version, "version="))
        return all(one is None or folder == prefix + quoted(one) for one, folder, prefix in named)

    def holds(self, record: Mapping[str, Any]) -> bool:
        """Whether a record is one of them: its folder's name may have been cut."""
        decision = record["body"]["decision"]
        named = ((self.model_id, "model_id"), (self.model_version, "model_version"))
        return all(one is None or decision[name] == one for one, name in named)

    def _of_the_days(self, day: date | None) -> bool:
        if day is None:
            return self.since is None and self.until is None
        return (self.since is None or self.since <= day) and (self.until is None or day <= self.until)


EVERYTHING: Final = Wanted()


def read_archive(uri: str, wanted: Wanted = EVERYTHING, *, framing: Framing = SINGLE_OBJECT) -> Iterator[ReadRow]:
    """Read an archive's records in the order (partition, offset), each once, also while a sink writes to it.

    A record without an event_time is left out as soon as a day is wanted. What is no audit record comes, with the reason,
    only when everything is. Nothing is verified here, which is what `coach audit verify` is for; `framing` is how the
    topic's records are framed, to try once more what an earlier version could not decode.
    Raises: ConfigurationError for what is no archive, ArchiveDamaged (a CorruptionError) for one that lacks a file,
    DependencyError.
    """
    target = Target(uri)
    identity = opened(target)
    for partition in partitions_in(target, identity.topic):
        for start in ranges_in(target, identity.topic, partition, identity.range_offsets):
            of = range_of(identity.topic, partition, start, identity.range_offsets)
            yield from read_range(target, of, wanted, framing)


def opened(target: Target) -> Identity:
    """Say what an archive is of.

    Raises: ConfigurationError for what is no archive; ArchiveDamaged for one that lost its name; as `read_identity`.
    """
    identity = read_identity(target)
    if identity is None:
        if any(name == RANGES or name.startswith(DAY) for name in target.names("")):
            message = f"the archive at {target.shown} has lost its {ARCHIVE}: put that back from a copy of the archive"
            raise ArchiveDamaged(message)
        message = f"there is no archive at {target.shown}; `coach audit sink --to` makes one"
        raise ConfigurationError(message)
    return identity


def marker_of(target: Target, of: Range) -> Marker | None:
    """Read what a range holds now, whole or not. Raises: ArchiveDamaged, DependencyError."""
    whole = read_marker(target, of, whole=True)
    if whole is not None:
        return whole
    tail = read_marker(target, of, whole=False)
    return tail if tail is not None else read_marker(target, of, whole=True)  # it may have become whole in between


def read_range(target: Target, of: Range, wanted: Wanted, framing: Framing) -> Iterator[ReadRow]:
    """Read a range's rows by offset. A file holds them by decision, so they go by way of this host's disk."""
    marker = marker_of(target, of)
    if marker is None:
        return
    with RangeSpool() as spool:
        for entry in marker.all_files:
            unreadable = entry.path.startswith(UNREADABLE)
            if not wanted.all if unreadable else not wanted.may_hold(entry.path):
                continue
            with target.local_copy(entry.path) as file:
                for read in read_rows(file, entry.path):
                    if isinstance(read.record, str) or wanted.holds(read.record):
                        spool.add(spooled(read))
        for row in spool.by_offset():
            yield _once_more(unspooled(row), framing)


def _once_more(read: ReadRow, framing: Framing) -> ReadRow:
    """Decode what an earlier version could not, where this one can."""
    if not isinstance(read.record, str) or read.stored.value is None:
        return read
    try:
        name, record = framing.decode(read.stored.value, topic=read.stored.topic)
    except PoisonError:
        return read
    return ReadRow(stored=read.stored, record=record) if name == RECORD else read
