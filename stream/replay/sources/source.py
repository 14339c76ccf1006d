"""Sources of a replay: frozen at the start of a run, cut into fixed chunks, read chunk by chunk."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from stream.errors import ConfigurationError
from stream.replay.sources.records import Raw
from stream.runtime.kafka.inbound import Inbound

LINE_BYTES_MAX: Final = 64 << 20  # an audit record in JSON takes about twice its 16 MiB on a topic
READ_BYTES: Final = 1 << 20

Ranges: TypeAlias = Mapping[int, tuple[int, int]]  # part -> first, end (excluded)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Chunk:
    """A fixed range of one part of the source: offsets of a partition, or lines of a file. `end` is excluded."""

    part: int
    first: int
    end: int

    @property
    def name(self) -> str:
        """A file's name; names sort as the chunks do."""
        return f"{self.part:05d}-{self.first:016d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a source held when the run began. `records` is how many there are at most; `says` identifies the content."""

    kind: str
    says: Mapping[str, Any]
    ranges: Ranges
    records: int

    def to_json(self) -> dict[str, Any]:
        """The snapshot as run.json keeps it; `snapshot_of` reads it back."""
        ranges = {str(part): [first, end] for part, (first, end) in sorted(self.ranges.items())}
        return {"kind": self.kind, "says": dict(self.says), "ranges": ranges, "records": self.records}


def snapshot_of(kept: Mapping[str, Any]) -> Snapshot:
    """Read back what `Snapshot.to_json` wrote."""
    ranges = {int(part): (int(first), int(end)) for part, (first, end) in kept["ranges"].items()}
    return Snapshot(kind=kept["kind"], says=kept["says"], ranges=ranges, records=kept["records"])


def chunks_of(ranges: Ranges, size: int) -> list[Chunk]:
    """Cut ranges at multiples of `size`, so that the same records always fall into the same chunk."""
    found = []
    for part, (first, end) in sorted(ranges.items()):
        at = first
        while at < end:
            until = min(end, (at // size + 1) * size)
            found.append(Chunk(part=part, first=at, end=until))
            at = until
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadChunk:
    """A chunk with its records, in order.

    `without_record`: of a topic, its offsets that were proven to hold none (compacted, or of transactions); of other
    sources, which count their records when they are frozen, 0.
    """

    chunk: Chunk
    raws: Sequence[Raw]
    without_record: int = 0


class ReadsRecords(Protocol):
    """A source of records: what it held when the run began, read in chunks."""

    def snapshot(self) -> Snapshot:
        """Freeze the present content. Raises: ConfigurationError, DependencyError."""

    def check(self, kept: Snapshot) -> None:
        """Check that the frozen content is still there. Raises: ConfigurationError, DependencyError."""

    def read(self, chunks: Sequence[Chunk]) -> Iterator[ReadChunk]:
        """Read each chunk, in order. Raises: ConfigurationError, DependencyError, CorruptionError."""


class JsonlSource:
    """A file with a decision, an answer of `coach recommend`, or an audit record on each line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def snapshot(self) -> Snapshot:
        """See `ReadsRecords`."""
        digest, lines, records = hashlib.sha256(), 0, 0
        for _, line, raw in self._lines():
            digest.update(raw)
            lines += 1
            records += line is None or bool(line.strip())
        return Snapshot(
            kind="jsonl", says={"sha256": digest.hexdigest(), "lines": lines}, ranges={0: (0, lines)}, records=records
        )

    def check(self, kept: Snapshot) -> None:
        """See `ReadsRecords`."""
        if self.snapshot().says != kept.says:
            message = f"--input {self._path}: is no longer the file that this run began with; choose another --run-id"
            raise ConfigurationError(message)

    def read(self, chunks: Sequence[Chunk]) -> Iterator[ReadChunk]:
        """See `ReadsRecords`."""
        wanted = iter(chunks)
        chunk = next(wanted, None)
        found: list[Raw] = []
        for number, line, _ in self._lines():
            if chunk is None:
                return
            if number >= chunk.first and (line is None or line.strip()):
                found.append(self._raw(number, line))
            if number + 1 == chunk.end:
                yield ReadChunk(chunk=chunk, raws=found)
                chunk, found = next(wanted, None), []

    def _raw(self, number: int, line: bytes | None) -> Raw:
        where = f"line {number + 1}"
        inbound = Inbound(
            key=None,
            value=line,
            topic=f"file.{self._path.name}",
            partition=0,
            offset=number,
            timestamp_ms=None,
            first_seen_ms=time.time_ns() // 1_000_000,
        )
        content = f"{where} is longer than {LINE_BYTES_MAX >> 20} MiB" if line is None else line
        return Raw(where=where, inbound=inbound, content=content, is_line=True)

    def _lines(self) -> Iterator[tuple[int, bytes | None, bytes]]:
        """Read each line: its number from 0, the line or None if it is too long, and the bytes to digest."""
        try:
            with self._path.open("rb") as file:
                number = 0
                while line := file.readline(LINE_BYTES_MAX):
                    if len(line) < LINE_BYTES_MAX or line.endswith(b"\n"):
                        yield number, line, line
                    else:
                        rest = hashlib.sha256(line)
                        while not line.endswith(b"\n") and (line := file.readline(READ_BYTES)):
                            rest.update(line)
                        yield number, None, rest.digest()
                    number += 1
        except OSError as error:
            message = f"--input {self._path}: cannot be read: {error.strerror or type(error).__name__}"
            raise ConfigurationError(message) from error
