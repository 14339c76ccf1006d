"""In which order decisions become safe to commit: each partition's own, whatever order they were answered in.

Faust's own book is not enough. It commits past one unacked message (`Consumer._new_offset` treats a hole of one as
none), past any hole where nothing was committed yet, and it forgets acks at the start of a rebalance. So an event is
acked here only when all events before it on its partition are finished, and never in another generation of the group
than the one that read it. Read and measured on Faust 0.15.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from stream.runtime.kafka.inbound import Inbound


@dataclass(slots=True, eq=False)
class Entry:
    """One decision between being read and being committed."""

    record: Inbound
    finished: bool = False
    released: bool = False


@dataclass(slots=True)
class CommitOrder:
    """Entries by partition, in the order of their offsets; touched by the event loop's thread alone.

    `ack` marks one decision as safe to commit; `release` lets go of one without that, so that it is read again.
    """

    ack: Callable[[Inbound], None]
    release: Callable[[Inbound], None]
    _partitions: dict[tuple[str, int], deque[Entry]] = field(default_factory=dict)

    def add(self, record: Inbound) -> Entry:
        """Take in a decision just read. Entries of an older generation on its partition are released first."""
        entries = self._partitions.setdefault((record.topic, record.partition), deque())
        if entries and entries[-1].record.generation != record.generation:
            self._release(entries)
        entry = Entry(record)
        entries.append(entry)
        return entry

    def settle(self, finished: Iterable[Entry], generation: int) -> int:
        """Mark entries as finished, and ack each partition's finished head; return how many were acked.

        There is no await in here: a commit in between would see half a batch. Nothing is acked that was read in another
        generation than the group's present one: the group may have handed its partition on.
        """
        for entry in finished:
            entry.finished = True
        acked = 0
        for key, entries in list(self._partitions.items()):
            while entries and entries[0].finished:
                entry = entries.popleft()
                if entry.record.generation == generation:
                    self.ack(entry.record)
                    acked += 1
                else:
                    entry.released = True
                    self.release(entry.record)
            if not entries:
                del self._partitions[key]
        return acked

    def release_partition(self, topic: str, partition: int) -> None:
        """Let go of a partition's entries: it was made anew, and their offsets mean others now."""
        self._release(self._partitions.pop((topic, partition), deque()))

    def release_all(self) -> int:
        """Let go of all entries; they will be read again, here or elsewhere. Return how many."""
        count = len(self)
        for entries in self._partitions.values():
            self._release(entries)
        self._partitions.clear()
        return count

    def __len__(self) -> int:
        return sum(map(len, self._partitions.values()))

    def _release(self, entries: deque[Entry]) -> None:
        while entries:
            entry = entries.popleft()
            entry.released = True
            self.release(entry.record)
