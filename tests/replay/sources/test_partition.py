"""Reading a partition proves itself: what holds no record is told from what was lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from stream.errors import ConfigurationError, CorruptionError, KafkaUnavailable, StreamError
from stream.replay.report.report import check_sums
from stream.replay.report.tally import ReplayTally
from stream.replay.sources import partition
from stream.replay.sources.partition import Consumes, ProvenReader
from stream.replay.sources.source import ReadChunk, Snapshot, chunks_of

EOF: int = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka's name for it
GONE: int = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 - likewise


class Told:
    """As much of a message as reading looks at: a record, or an error."""

    def __init__(self, offset: int, code: int | None = None) -> None:
        self._offset, self._code = offset, code

    def topic(self) -> str:
        """Where."""
        return "audit"

    def partition(self) -> int:
        """Where."""
        return 0

    def offset(self) -> int:
        """Where."""
        return self._offset

    def error(self) -> KafkaError | None:
        """What is wrong."""
        return None if self._code is None else KafkaError(self._code)

    def key(self) -> None:
        """None."""
        return

    def value(self) -> bytes:
        """Its offset."""
        return b"%d" % self._offset

    def headers(self) -> None:
        """None."""
        return

    def timestamp(self) -> tuple[int, int]:
        """None."""
        return (0, 0)


class FakeConsumer:
    """Gives what a partition holds from a place on, `size` at a time, and the word of its end."""

    def __init__(self, held: list[Told], size: int) -> None:
        self._held, self._size, self._left = held, size, list[Told]()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Begin there."""
        [place] = partitions
        self._left = [one for one in self._held if one.offset() >= place.offset]

    def consume(self, num_messages: int, timeout: float) -> Sequence[Message]:
        """Give the next."""
        del timeout
        given, self._left = self._left[: min(self._size, num_messages)], self._left[min(self._size, num_messages) :]
        return cast("list[Message]", given)


def opening(*readings: list[Told], size: int = 7) -> Callable[[], AbstractContextManager[Consumes]]:
    """Open a consumer of the first reading, then of the second."""
    left = list(readings)

    @contextmanager
    def open_one() -> Iterator[Consumes]:
        yield FakeConsumer(left.pop(0), size)

    return open_one


def read(open_one: Any, end: int, chunk: int) -> list[ReadChunk]:
    with ProvenReader(open_one, topic="audit", part=0, brokers="nowhere") as reader:
        return [reader.read(one) for one in chunks_of({0: (0, end)}, chunk)]


def records(offsets: Sequence[int], end: int) -> list[Told]:
    """What a partition that ends at `end` gives."""
    return [*map(Told, offsets), Told(end, EOF)]


logs = st.integers(1, 60).flatmap(lambda end: st.tuples(st.just(end), st.sets(st.integers(0, end - 1)).map(sorted)))


@given(log=logs, chunk=st.integers(1, 25), size=st.integers(1, 30), compacted=st.sets(st.integers(0, 59)))
def test_each_offset_is_a_record_or_proven_to_hold_none(
    log: tuple[int, list[int]], chunk: int, size: int, compacted: set[int]
) -> None:
    """Given any partition with holes, of transactions or compaction, which may take more while it is read, when it is read in any chunks, then each record comes once, in its chunk, and records and proven holes add up to all offsets."""
    end, held = log
    again = records([one for one in held if one not in compacted], end)
    found = read(opening(records(held, end), again, size=size), end, chunk)
    assert [raw.inbound.offset for one in found for raw in one.raws] == held
    assert sum(one.without_record for one in found) == end - len(held)
    for one in found:
        assert len(one.raws) + one.without_record == one.chunk.end - one.chunk.first


@given(log=logs.filter(lambda log: bool(log[1])), chunk=st.integers(1, 25), size=st.integers(1, 30), data=st.data())
def test_a_record_that_a_consumer_drops_stops_the_run(
    log: tuple[int, list[int]], chunk: int, size: int, data: st.DataObject
) -> None:
    """Given a consumer that drops any record, first, last or between holes, when the partition is read, then the run is refused with the place."""
    end, held = log
    dropped = data.draw(st.sampled_from(held))
    first = records([one for one in held if one != dropped], end)
    with pytest.raises(CorruptionError, match=rf"audit partition 0: 1 records from offset {dropped} "):
        read(opening(first, records(held, end), size=size), end, chunk)


@pytest.mark.parametrize(
    ("told", "error", "match"),
    [
        ([Told(0), Told(1), Told(1)], CorruptionError, "offset 1 came after 1"),
        ([Told(0), Told(2), Told(1)], CorruptionError, "offset 1 came after 2"),
        ([Told(0), Told(1, GONE)], ConfigurationError, "retention has deleted"),
        ([Told(0), Told(1, KafkaError.TOPIC_AUTHORIZATION_FAILED)], KafkaUnavailable, "failed"),
        ([Told(0), Told(1)], KafkaUnavailable, "silent"),
        ([Told(0), Told(1), Told(2, EOF)], KafkaUnavailable, "silent"),
    ],
)
def test_an_end_is_never_taken_for_granted(
    told: list[Told], error: type[StreamError], match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a consumer that repeats or goes back, whose place is gone, that fails, or ends before the range does, when it is read, then no chunk is given, and the error says which."""
    monkeypatch.setattr(partition, "SILENCE_MAX_S", 0.01)
    with pytest.raises(error, match=match):
        read(opening(told), 4, 4)


def test_a_report_with_an_unproven_offset_is_refused() -> None:
    """Given a source of ten offsets of which nine are told as records or proven holes, when the report is made, then it is refused."""
    source = Snapshot(kind="kafka", says={"topic": "audit"}, ranges={0: (0, 10)}, records=10)
    check_sums("reproduce", source, ReplayTally(without_record=10))
    with pytest.raises(CorruptionError, match="proven"):
        check_sums("reproduce", source, ReplayTally(without_record=9))
