"""aiokafka's fetcher, made to survive what lies in a log, and to say what is no longer there.

aiokafka offers no way to change how it reads records, so two of its names are replaced when the worker is composed:
- MemoryRecords by `FetchedBatches`: aiokafka ends at a header name that is no UTF-8, and unpacks batches of any size.
- Fetcher by `WatchfulFetcher`: aiokafka passes silently over decisions that retention deleted before they were read, and
  nobody commits past the markers that end a transaction, which shows as lag for ever.
Read and measured on aiokafka 0.14.0.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import aiokafka.consumer.consumer
import aiokafka.consumer.fetcher
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import Fetcher, FetchResult, PartitionRecords
from aiokafka.consumer.subscription_state import Assignment
from aiokafka.record.legacy_records import LegacyRecordBatch

from stream.runtime.kafka.record_batches import LogBatch, whole_batches

METADATA_AGAIN_S: Final = 0.5
MAGIC_AT: Final = 16  # of a batch's bytes
MAGIC: Final = 2  # the batches of Kafka 0.11 and later

OnGap: TypeAlias = Callable[[TopicPartition, int, int], None]


@dataclass(slots=True)
class EmptyRanges:
    """Ranges of offsets in which no consumer is given anything: markers, aborted records, what compaction removed.

    Written by the consumer's thread, read by the event loop's; each touches single entries of a dictionary.
    """

    _next: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)

    def add(self, partition: TopicPartition, first: int, after: int) -> None:
        """Take in that nothing is to be had from offset `first` until just before `after`."""
        self._next.setdefault(partition, {})[first] = after

    def past(self, partition: TopicPartition, offset: int) -> int:
        """Return the first offset from `offset` on that is not known to be empty, and forget the ranges before it."""
        ranges = self._next.get(partition, {})
        while offset in ranges:
            offset = ranges[offset]
        for first in [one for one in list(ranges) if one < offset]:
            ranges.pop(first, None)
        return offset

    def forget(self, partition: TopicPartition) -> None:
        """Forget a partition that was made anew."""
        self._next.pop(partition, None)


class FetchedBatches:
    """What a fetch brought of one partition, in the shape of aiokafka's MemoryRecords."""

    def __init__(self, content: bytes) -> None:
        """Take the bytes of a fetch's answer."""
        self._content = content
        self._batches = deque(whole_batches(content))

    def size_in_bytes(self) -> int:
        """How much was fetched, a cut batch included."""
        return len(self._content)

    def has_next(self) -> bool:
        """Whether a whole batch is left."""
        return bool(self._batches)

    def next_batch(self) -> LogBatch | LegacyRecordBatch:
        """Return the next batch. Those of before Kafka 0.11 have neither headers nor a bound to miss: aiokafka reads them."""
        content = self._batches.popleft()
        magic = content[MAGIC_AT]
        return LogBatch(content) if magic >= MAGIC else LegacyRecordBatch(content, magic)


class ContinuousRecords(PartitionRecords):  # type: ignore[misc]  # aiokafka has no types
    """The records of one partition; tells `empty` where offsets have nothing to read."""

    empty: EmptyRanges | None = None

    def __next__(self) -> Any:  # noqa: ANN401 - aiokafka's ConsumerRecord
        expected = self.next_fetch_offset
        try:
            record = super().__next__()
        except StopIteration:
            self._note(expected, self.next_fetch_offset)
            raise
        self._note(expected, record.offset)
        return record

    def _note(self, expected: int, offset: int) -> None:
        if self.empty is not None and offset > expected:
            self.empty.add(self._tp, expected, offset)


class WatchfulFetcher(Fetcher):  # type: ignore[misc]  # aiokafka has no types
    """Tells `on_gap` where the log no longer holds what was to be read next.

    Whoever seeks while the reset is under way, or is given the partition anew, is told nothing: only a position that
    came from the log's own beginning shows a gap.
    """

    def __init__(self, *given: Any, **more: Any) -> None:  # noqa: ANN401 - aiokafka's own
        self.empty = EmptyRanges()
        self.on_gap: OnGap | None = None
        self._out_of_range: dict[TopicPartition, tuple[Assignment, int]] = {}
        self._log_begins: dict[TopicPartition, int] = {}
        self._metadata_asked_s = -METADATA_AGAIN_S
        super().__init__(*given, **more)

    def _get_actions_per_node(self, assignment: Assignment) -> tuple[Any, ...]:
        """Ask for metadata twice a second where a partition has no leader: aiokafka asks without a pause."""
        fetches, resets, timeout, invalid_metadata, resumed = super()._get_actions_per_node(assignment)
        now_s = time.monotonic()
        if invalid_metadata and now_s - self._metadata_asked_s < METADATA_AGAIN_S:
            invalid_metadata = False
        elif invalid_metadata:
            self._metadata_asked_s = now_s
        return fetches, resets, timeout, invalid_metadata, resumed

    async def _proc_fetch_request(self, assignment: Assignment, node_id: int, request: Any) -> bool:  # noqa: ANN401
        asked = {
            TopicPartition(topic, partition): offset
            for topic, partitions in request.topics
            for partition, offset, _ in partitions
        }
        woken = bool(await super()._proc_fetch_request(assignment, node_id, request))
        for partition, offset in asked.items():
            fetched = self._records.get(partition)
            if isinstance(fetched, FetchResult) and fetched.has_more():
                fetched._partition_records.empty = self.empty  # noqa: SLF001 - aiokafka makes it within the call above
            if assignment.active and assignment.state_value(partition).awaiting_reset:
                self._out_of_range[partition] = assignment, offset
        return woken

    async def _proc_offset_request(self, node_id: int, topic_data: Any) -> Any:  # noqa: ANN401 - aiokafka's own
        found = await super()._proc_offset_request(node_id, topic_data)
        self._log_begins.update({partition: offset for partition, (offset, _) in found.items()})
        return found

    async def _update_fetch_positions(self, assignment: Assignment, node_id: int, tps: list[TopicPartition]) -> bool:
        woken = bool(await super()._update_fetch_positions(assignment, node_id, tps))
        for partition in tps:
            state = assignment.state_value(partition) if assignment.active else None
            if state is not None and state.has_valid_position and partition in self._out_of_range:
                asked_by, expected = self._out_of_range.pop(partition)
                was_reset = asked_by is assignment and state.position == self._log_begins.get(partition)
                if self.on_gap is not None and was_reset and state.position != expected:
                    self.on_gap(partition, expected, state.position)
        return woken


def replace_fetcher() -> None:
    """Let aiokafka read with the classes of this module, in this process."""
    aiokafka.consumer.fetcher.MemoryRecords = FetchedBatches
    aiokafka.consumer.fetcher.PartitionRecords = ContinuousRecords
    aiokafka.consumer.consumer.Fetcher = WatchfulFetcher
