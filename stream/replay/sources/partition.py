"""One partition, read in order by its offsets: every offset of a range is a record, or is proven to hold none.

A consumer tells only of records. An offset that it passes over is a mark of a transaction, an aborted record or a
compacted one, or a record that was lost on the way; the first reading cannot tell which. So a range with such offsets is
read again by a consumer of its own, and a record in one of them stops the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Final, Protocol, Self, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from stream.errors import ConfigurationError, CorruptionError, KafkaUnavailable
from stream.replay.sources.records import Raw
from stream.replay.sources.source import Chunk, ReadChunk
from stream.runtime.kafka.inbound import inbound_of

SILENCE_MAX_S: Final = 60.0  # without a record before the end of a range is reached
MESSAGES_A_CALL: Final = 500
POLL_S: Final = 0.5
Answer = TypeVar("Answer")


class Consumes(Protocol):
    """As much of a consumer as reading takes."""

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions, each from its offset on."""

    def consume(self, num_messages: int, timeout: float) -> Sequence[Message]:
        """Give what came, in its order."""


class PartitionReader:
    """Reads one partition forwards; how far it came is known by what was delivered alone."""

    def __init__(self, consumer: Consumes, *, topic: str, part: int, brokers: str) -> None:
        """`brokers` is for messages."""
        self._consumer = consumer
        self._topic, self._part, self._brokers = topic, part, brokers
        self._reached = -1  # all below was delivered or holds no record; -1: not begun
        self._ahead: list[Raw] = []

    def records(self, first: int, end: int) -> list[Raw]:
        """Give the records of first <= offset < end; ranges of further calls must lie behind this one.

        It ends when the last offset itself, a later record, or the brokers' word of a later end was delivered.
        Raises: KafkaUnavailable, ConfigurationError where retention deleted records first, CorruptionError.
        """
        if self._reached < 0:
            asked(lambda: self._consumer.assign([TopicPartition(self._topic, self._part, first)]), self._about)
            self._reached = first
        heard_s = time.monotonic()
        while self._reached < end:
            before = self._reached
            for one in asked(lambda: self._consumer.consume(MESSAGES_A_CALL, POLL_S), self._about):
                self._take(one)
            heard_s = time.monotonic() if self._reached > before else heard_s
            if time.monotonic() - heard_s > SILENCE_MAX_S:
                message = (
                    f"{self._partition_name} at {self._brokers} was silent for {SILENCE_MAX_S:g} s before offset {end}; start again "
                    "with the same --run-id to resume"
                )
                raise KafkaUnavailable(message)
        found = [one for one in self._ahead if first <= one.inbound.offset < end]
        self._ahead = [one for one in self._ahead if one.inbound.offset >= end]
        return found

    @property
    def _partition_name(self) -> str:
        return f"topic {self._topic} partition {self._part}"

    @property
    def _about(self) -> str:
        return f"reading {self._partition_name} from the brokers at {self._brokers}"

    def _take(self, record: Message) -> None:
        """Take a record or the word of the end. Raises: what `records` does."""
        offset, error = int(record.offset() or 0), record.error()
        if error is None:
            if offset < self._reached:
                message = (
                    f"{self._partition_name}: offset {offset} came after {self._reached - 1}; start again with the same --run-id, and "
                    "report this if it comes again"
                )
                raise CorruptionError(message)
            self._ahead.append(raw_of(record))
            self._reached = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
            self._reached = max(self._reached, offset)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - likewise
            message = (
                f"{self._partition_name} no longer holds offset {self._reached}, from which this run still needs it: the "
                "topic's retention has deleted those records; choose another --run-id"
            )
            raise ConfigurationError(message)
        elif not error.retriable():
            message = f"{self._about} failed: {error.str()}"
            raise KafkaUnavailable(message)


class ProvenReader:
    """Reads a partition's chunks, and proves that no record in them was skipped."""

    def __init__(
        self, open_consumer: Callable[[], AbstractContextManager[Consumes]], *, topic: str, part: int, brokers: str
    ) -> None:
        """`open_consumer` makes a new consumer for each call; partition ends must be told to it."""
        self._open = open_consumer
        self._named = {"topic": topic, "brokers": brokers}
        self._part = part
        self._stack = ExitStack()
        self._first: PartitionReader | None = None
        self._again: PartitionReader | None = None

    def __enter__(self) -> Self:
        self._first = self._reader()
        return self

    def __exit__(self, *_why: object) -> None:
        self._stack.close()

    def read(self, chunk: Chunk) -> ReadChunk:
        """Read the next chunk. Raises: what `PartitionReader.records` does; CorruptionError where a record was lost."""
        if self._first is None:
            message = "a reader reads within its block"
            raise ValueError(message)
        raws = self._first.records(chunk.first, chunk.end)
        missing = set(range(chunk.first, chunk.end)) - {raw.inbound.offset for raw in raws}
        if missing:
            self._prove(missing)
        return ReadChunk(chunk=chunk, raws=raws, without_record=len(missing))

    def _prove(self, missing: set[int]) -> None:
        """Read again where offsets were passed over. Compaction may have taken more since, but never gives back."""
        if self._again is None:
            self._again = self._reader()
        there = {raw.inbound.offset for raw in self._again.records(min(missing), max(missing) + 1)}
        if lost := sorted(missing & there):
            message = (
                f"topic {self._named['topic']} partition {self._part}: {len(lost)} records from offset {lost[0]} on were lost in "
                "reading, and came when read again; start again with the same --run-id, and report this if it comes again"
            )
            raise CorruptionError(message)

    def _reader(self) -> PartitionReader:
        consumer = self._stack.enter_context(self._open())
        return PartitionReader(consumer, part=self._part, **self._named)


def asked(question: Callable[[], Answer], doing: str) -> Answer:
    """Call a Kafka client. Raises: KafkaUnavailable that says what was being done."""
    try:
        return question()
    except KafkaException as error:
        first = error.args[0]
        said = first.str() if isinstance(first, KafkaError) else str(first)
        message = f"{doing} failed: {said}"
        raise KafkaUnavailable(message) from error


def raw_of(message: Message) -> Raw:
    """A Kafka message as a record of the replay."""
    inbound = inbound_of(message, first_seen_ms=time.time_ns() // 1_000_000)
    content = inbound.value if inbound.value is not None else "the record has no value"
    return Raw(where=inbound.where, inbound=inbound, content=content)
