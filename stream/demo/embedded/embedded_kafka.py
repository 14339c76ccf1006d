"""A Kafka that needs no installation: librdkafka's mock cluster in a process of its own, with control over its faults.

It speaks the real protocol over real sockets to any client on this machine, and keeps everything in memory. What it
leaves out is said in `mock_cluster.py`; who writes much to one partition has to read along and to check, as
`lost_records` does, that nothing was dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self, cast

from confluent_kafka import Consumer, TopicPartition

from stream.demo.embedded.line_process import LineProcess
from stream.errors import KafkaUnavailable

WATERMARK_TIMEOUT_S: Final = 10.0


class EmbeddedKafka:
    """A mock cluster of `brokers` brokers (numbered from 1), from `__enter__` to `__exit__`."""

    def __init__(
        self, topics: Mapping[str, int] | None = None, *, brokers: int = 1, rebalance_delay_ms: int = 200
    ) -> None:
        """Prepare; `topics` maps names to partition counts, made at the start.

        `rebalance_delay_ms` is how long a new consumer group waits for further members.
        """
        self._topics = dict(topics or {})
        self._brokers = brokers
        self._rebalance_delay_ms = rebalance_delay_ms
        self._process: LineProcess | None = None

    def __enter__(self) -> Self:
        """Start the process and make the topics."""
        self._process = LineProcess(
            "stream.demo.embedded.mock_cluster",
            str(self._brokers),
            str(self._rebalance_delay_ms),
            name="the embedded Kafka",
            gone=KafkaUnavailable,
        )
        try:
            for name, partitions in self._topics.items():
                self.create_topic(name, partitions)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """`host:port,...` as clients take it in `bootstrap.servers`."""
        return self._running().first_line

    @property
    def pid(self) -> int:
        """The process id of the running cluster."""
        return self._running().pid

    def stop(self) -> None:
        """End the cluster and all that it holds. Calling it again does nothing."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()

    def create_topic(self, name: str, partitions: int) -> None:
        """Make a topic; the mock has no CreateTopics request."""
        self._running().tell(f"topic {name} {partitions}")

    def down(self, broker: int = 1) -> None:
        """Close all connections of a broker and refuse new ones; what it holds is kept."""
        self._running().tell(f"down {broker}")

    def up(self, broker: int = 1) -> None:
        """Let a broker that was down answer again."""
        self._running().tell(f"up {broker}")

    def err(self, api_key: int, error_code: int, count: int = 1) -> None:
        """Let the next `count` requests of a kind fail with a protocol error (Produce is 0, Fetch 1, OffsetCommit 8)."""
        self._running().tell(f"err {api_key} {error_code} {count}")

    def _running(self) -> LineProcess:
        if self._process is None:
            message = "the embedded Kafka is not running: use it inside its `with` block"
            raise KafkaUnavailable(message)
        return self._process


def lost_records(bootstrap: str, read_up_to: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """Say which partitions dropped records before they were read.

    Args: `read_up_to` maps (topic, partition) to the next offset that the reader would read.
    Returns: for each partition whose oldest kept record lies beyond that, how many were lost; empty is good.
    """
    lost: dict[tuple[str, int], int] = {}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "coach-watermarks", "log_level": 2})
    try:
        for (topic, partition), next_offset in read_up_to.items():
            watermarks = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=WATERMARK_TIMEOUT_S)
            marks = cast("tuple[int, int] | None", watermarks)  # the stubs leave out the None of a time-out
            if marks is None:
                message = (
                    f"the embedded Kafka did not say in {WATERMARK_TIMEOUT_S:.0f} s what {topic}[{partition}] holds"
                )
                raise KafkaUnavailable(message)
            if marks[0] > next_offset:
                lost[topic, partition] = marks[0] - next_offset
    finally:
        consumer.close()
    return lost
