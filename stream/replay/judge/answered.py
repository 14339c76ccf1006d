"""Which decisions have an answer: read from the audit topic, the archive, or a file of answers."""

from __future__ import annotations

from collections.abc import Iterable

from stream.errors import PoisonError
from stream.replay.judge.modes import decision_digest
from stream.replay.sources.records import Stored, read_raw
from stream.replay.sources.source import ReadsRecords, Snapshot, chunks_of
from stream.wire.framing import Framing

CHUNK_RECORDS = 1_000


def answered_in(sources: Iterable[tuple[ReadsRecords, Snapshot]], framing: Framing) -> set[bytes]:
    """Collect the digests of all decisions that a stored answer is about; replays' answers do not count.

    About 100 bytes of memory a decision. Raises: ConfigurationError, DependencyError, CorruptionError.
    """
    found: set[bytes] = set()
    for source, snapshot in sources:
        for read in source.read(chunks_of(snapshot.ranges, CHUNK_RECORDS)):
            for raw in read.raws:
                try:
                    record = read_raw(raw, framing, decision_bytes_max=0)
                except PoisonError:
                    continue  # a record that nobody can read answers nothing
                if isinstance(record, Stored) and not record.replay:
                    found.add(decision_digest(record.decision))
    return found
