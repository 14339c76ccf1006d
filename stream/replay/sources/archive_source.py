"""The sink's archive as a source: what it held when the run began, by partition and offset."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import Any, TypeAlias

from stream.audit.archive.layout import day_in, range_of
from stream.audit.archive.markers import partitions_in, ranges_in
from stream.audit.archive.read import Wanted, marker_of, opened, read_archive
from stream.audit.archive.rows import ReadRow
from stream.audit.archive.target import Target
from stream.bundle.uris import without_secrets
from stream.errors import ConfigurationError
from stream.replay.sources.records import Raw, Window
from stream.replay.sources.source import Chunk, ReadChunk, Snapshot
from stream.runtime.kafka.inbound import Inbound
from stream.wire.framing import Framing

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Reads: TypeAlias = Callable[..., Iterator[ReadRow]]


def held_in(uri: str) -> dict[str, Any]:
    """Count the records of an archive, and name its first and last day, by its markers alone.

    Raises: ConfigurationError for what is no archive, ArchiveDamaged, DependencyError.
    """
    target = Target(uri)
    identity = opened(target)
    records, days = 0, set[str]()
    for partition in partitions_in(target, identity.topic):
        for start in ranges_in(target, identity.topic, partition, identity.range_offsets):
            marker = marker_of(target, range_of(identity.topic, partition, start, identity.range_offsets))
            if marker is not None:
                records += marker.rows
                days |= {str(day) for entry in marker.files if (day := day_in(entry.path)) is not None}
    return {"records": records, "first": min(days, default=None), "last": max(days, default=None)}


class ArchivedRecords:
    """The audit records of an archive; `window` bounds the days that are looked at."""

    def __init__(
        self,
        uri: str,
        *,
        window: Window,
        framing: Framing,
        reads: Reads = read_archive,
        holds: Callable[[str], dict[str, Any]] = held_in,
    ) -> None:
        self._uri = uri
        self._reads, self._holds = reads, holds
        self._framing = framing
        self._wanted = Wanted(
            since=None if window.from_ms is None else _day(window.from_ms),
            until=None if window.to_ms is None else _day(window.to_ms - 1),
        )

    def snapshot(self) -> Snapshot:
        """See `ReadsRecords`. Reads the whole archive once, to count its records."""
        ranges: dict[int, tuple[int, int]] = {}
        counts: dict[int, int] = {}
        topics: set[str] = set()
        for one in self._reads(self._uri, self._wanted, framing=self._framing):
            partition, offset = one.stored.partition, one.stored.offset
            topics.add(one.stored.topic)
            first, end = ranges.get(partition, (offset, offset))
            ranges[partition] = (min(first, offset), max(end, offset + 1))
            counts[partition] = counts.get(partition, 0) + 1
        if len(topics) > 1:
            message = f"--archive {without_secrets(self._uri)}: holds records of several topics ({', '.join(sorted(topics))}); name the folder of one"
            raise ConfigurationError(message)
        says: dict[str, Any] = {"topic": next(iter(topics), None)}
        if not self._wanted.all and not counts and (left_out := self._holds(self._uri))["records"]:
            says["left_out"] = left_out
        return Snapshot(kind="archive", says=says, ranges=ranges, records=sum(counts.values()))

    def check(self, kept: Snapshot) -> None:
        """See `ReadsRecords`: an archive only grows, and what came later lies past the ranges that are kept."""

    def read(self, chunks: Sequence[Chunk]) -> Iterator[ReadChunk]:
        """See `ReadsRecords`."""
        wanted: dict[int, list[Chunk]] = {}
        for chunk in chunks:
            wanted.setdefault(chunk.part, []).append(chunk)
        left = list(chunks)
        found = (
            one for one in self._reads(self._uri, self._wanted, framing=self._framing) if one.stored.partition in wanted
        )
        for (part, first), records in groupby(
            found, key=lambda one: (one.stored.partition, _start(wanted, one.stored))
        ):
            if first is None:
                continue
            while left and (left[0].part, left[0].first) != (part, first):  # a chunk in which no record lies
                yield ReadChunk(chunk=left.pop(0), raws=())
            yield ReadChunk(chunk=left.pop(0), raws=[_raw(one) for one in records])
        for chunk in left:
            yield ReadChunk(chunk=chunk, raws=())


def _start(wanted: dict[int, list[Chunk]], one: Inbound) -> int | None:
    """The first offset of the chunk that a record is in, None for none; records come in order, so heads are dropped."""
    chunks = wanted[one.partition]
    while chunks and chunks[0].end <= one.offset:
        chunks.pop(0)
    return chunks[0].first if chunks and chunks[0].first <= one.offset else None


def _raw(one: ReadRow) -> Raw:
    # A dead letter writes the record down again, where one is needed.
    now_ms = time.time_ns() // 1_000_000
    inbound = replace(one.stored, key=None, value=None, headers=(), first_seen_ms=now_ms)
    return Raw(where=inbound.where, inbound=inbound, content=one.record)


def _day(moment_ms: int) -> date:
    return (EPOCH + timedelta(milliseconds=moment_ms)).date()
