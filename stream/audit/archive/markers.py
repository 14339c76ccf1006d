"""What an archive says of itself: which topic it holds and how long a range is; and of each range, what lies in it.

Nothing in these files depends on the clock or on how the work was cut: the same topic gives the same bytes. What lies on
the disk is canonical JSON, sealed: `seal` is the SHA-256 of all else in it, so that no changed byte goes unseen.

Which partitions there are is written apart from their ranges, so that a partition whose folder is gone is missed: one file
before its first range, when a sink takes the partition up, and one more before the first file of records is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from stream.audit.archive.layout import (
    ARCHIVE,
    FORMAT,
    PARTITIONS,
    WHOLE,
    Range,
    begins_path,
    known_path,
    marked,
    marker_path,
    numbered,
    ranges_folder,
)
from stream.audit.archive.target import Target
from stream.canonical import canonical_json, sha256
from stream.errors import ArchiveDamaged, ConfigurationError

# What there is of a range. Both: whole, and a sink died before it removed what it had said of the tail.
Holding: TypeAlias = Literal["whole", "tail", "both"]
RANGE_OFFSETS: Final = 5_000  # of a new archive: some 30 MB in a file where a record has 30 kB of JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What an archive is of. `topic_id` and `cluster_id` are the brokers' own names, empty where they tell none."""

    topic: str
    range_offsets: int
    topic_id: str = ""
    cluster_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeFile:
    """A Parquet file of a range: its path in the archive, rows, size in bytes and SHA-256."""

    path: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """What a range holds: of all offsets from `first` up to but not `until`, each is a row, or there is none.

    `first` is the range's start, except where the topic's first offset was already later. `whole`: no more will come.
    `lost`: spans [from, to) that were deleted from the topic unread, which a person accepted.
    """

    of: Range
    first: int
    until: int
    whole: bool
    files: tuple[RangeFile, ...]  # of records, by path
    unreadable: RangeFile | None = None
    lost: tuple[tuple[int, int], ...] = ()

    @property
    def rows(self) -> int:
        """How many rows the files of the range hold, unreadable records included."""
        return sum(one.rows for one in self.files) + (self.unreadable.rows if self.unreadable else 0)

    @property
    def all_files(self) -> tuple[RangeFile, ...]:
        """Those of records, and that of what is none."""
        return self.files + ((self.unreadable,) if self.unreadable else ())


def read_identity(target: Target) -> Identity | None:
    """Say what the archive is of, if anything. Raises: ConfigurationError for a later format; as `read_beginning`."""
    content = target.read(ARCHIVE)
    if content is None:
        return None
    fields = _object(content, ARCHIVE, target)
    if fields.get("format") != FORMAT:
        message = f"the archive at {target.shown} has format {fields.get('format')!r}; this version reads {FORMAT}"
        raise ConfigurationError(message)
    try:
        identity = Identity(**{name: fields[name] for name in ("topic", "range_offsets", "topic_id", "cluster_id")})
        if identity.topic and identity.range_offsets > 0 and content == _as_bytes(identity):
            return identity
    except (KeyError, TypeError, ValueError) as error:
        raise _no_such_shape(ARCHIVE, target) from error
    raise _no_such_shape(ARCHIVE, target)


def write_identity(target: Target, identity: Identity) -> None:
    """Make an archive. Raises: DependencyError."""
    target.write(ARCHIVE, _as_bytes(identity))


def read_beginning(target: Target, topic: str, partition: int) -> int | None:
    """The partition's first offset in the archive; None: nothing, or lost. Raises: ArchiveDamaged, DependencyError."""
    path = begins_path(topic, partition)
    content = target.read(path)
    if content is None:
        return None
    first = _object(content, path, target).get("first")
    if not isinstance(first, int) or content != _beginning(topic, partition, first):
        raise _no_such_shape(path, target)
    return first


def write_beginning(target: Target, topic: str, partition: int, first: int) -> None:
    """Say with which offset of a partition the archive begins. Raises: DependencyError."""
    target.write(begins_path(topic, partition), _beginning(topic, partition, first))


def write_marker(target: Target, marker: Marker) -> None:
    """Say what a range holds, once its files are there. Raises: DependencyError."""
    target.write(marker_path(marker.of, whole=marker.whole), sealed(_as_json(marker)))


def read_marker(target: Target, of: Range, *, whole: bool) -> Marker | None:
    """Read what a range holds; None where nothing says so. Raises: ArchiveDamaged, DependencyError."""
    path = marker_path(of, whole=whole)
    content = target.read(path)
    if content is None:
        return None
    fields = _object(content, path, target)
    try:
        marker = Marker(
            of=Range(topic=fields["topic"], partition=fields["partition"], start=fields["start"], end=fields["end"]),
            first=fields["first"],
            until=fields["until"],
            whole=fields["whole"],
            files=tuple(RangeFile(**one) for one in fields["files"]),
            unreadable=None if fields["unreadable"] is None else RangeFile(**fields["unreadable"]),
            lost=tuple((one[0], one[1]) for one in fields["lost"]),
        )
        sound = marker.of == of and marker.whole is whole and of.start <= marker.first <= marker.until <= of.end
        if sound and (not whole or marker.until == of.end) and sealed(_as_json(marker)) == content:
            return marker
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise _no_such_shape(path, target) from error
    raise _no_such_shape(path, target)


def ranges_in(
    target: Target, topic: str, partition: int, length: int, *, passing_over: bool = False
) -> dict[int, Holding]:
    """List the ranges of a partition that there is something of, by start.

    Raises: ArchiveDamaged for the name of an offset at which no range starts, unless they are passed over; DependencyError.
    """
    found: dict[int, Holding] = {}
    for start, whole in marked(target.names(ranges_folder(topic, partition))):
        if start % length:
            if passing_over:
                continue
            misplaced = f"{ranges_folder(topic, partition)}/{start:016d}"
            raise _no_such_shape(misplaced, target)
        found[start] = "both" if start in found else "whole" if whole else "tail"
    return dict(sorted(found.items()))


def partitions_in(target: Target, topic: str) -> list[int]:
    """List the partitions that there is something of, or was. Raises: DependencyError."""
    ranges = target.names(ranges_folder(topic, 0).rpartition("/")[0])
    return sorted({*numbered(ranges), *numbered(target.names(f"{PARTITIONS}/{topic}"), WHOLE)})


def write_known(target: Target, topic: str, partition: int, *, held: bool) -> None:
    """Say, once, that there is a partition, or that something of it is kept. Raises: DependencyError."""
    path, content = known_path(topic, partition, held=held), _known(topic, partition)
    if target.read(path) != content:
        target.write(path, content)


def is_known(target: Target, topic: str, partition: int, *, held: bool) -> bool:
    """Whether the archive says so. Raises: ArchiveDamaged for a file of another content; DependencyError."""
    path = known_path(topic, partition, held=held)
    content = target.read(path)
    if content not in (None, _known(topic, partition)):
        raise _no_such_shape(path, target)
    return content is not None


def sealed(fields: Mapping[str, Any]) -> bytes:
    """Give the bytes of one of these files."""
    return canonical_json({**fields, "seal": sha256(fields)})


def _known(topic: str, partition: int) -> bytes:
    return sealed({"topic": topic, "partition": partition})


def _as_bytes(identity: Identity) -> bytes:
    return sealed({"format": FORMAT, **asdict(identity)})


def _beginning(topic: str, partition: int, first: int) -> bytes:
    return sealed({"topic": topic, "partition": partition, "first": first})


def _as_json(marker: Marker) -> dict[str, Any]:
    fields = asdict(marker)
    return {**fields.pop("of"), **fields, "files": list(fields["files"]), "lost": list(map(list, fields["lost"]))}


def _object(content: bytes, path: str, target: Target) -> Mapping[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _no_such_shape(path, target) from error
    if not isinstance(found, dict):
        raise _no_such_shape(path, target)
    return found


def _no_such_shape(path: str, target: Target) -> ArchiveDamaged:
    message = f"the archive at {target.shown}: {path} is not what this software writes there; was it changed?"
    return ArchiveDamaged(message)
