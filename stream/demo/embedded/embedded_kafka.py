"""A Kafka that needs no installation: librdkafka's mock cluster in a process of its own.

It speaks the real protocol over real sockets to any client on this machine, and keeps everything in memory. What it
leaves out is said in `mock_cluster.py`; who writes much to one partition has to read along and to check, as
`lost_records` does, that nothing was dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Self, cast

from confluent_kafka import Consumer, TopicPartition

from stream.demo.embedded.line_process import LineProcess
from stream.errors import KafkaUnavailable

WATERMARK_TIMEOUT_S: Final = 10.0


class EmbeddedKafka(LineProcess):
    """A mock cluster of `brokers` brokers (numbered from 1), from `__enter__` to `__exit__`.

    `topics`: partition counts of the topics made at the start, by name. `rebalance_delay_ms`: how long a new consumer
    group waits for further members.
    """

    MODULE: ClassVar[str] = "stream.demo.embedded.mock_cluster"

    def __init__(
        self, topics: Mapping[str, int] | None = None, *, brokers: int = 1, rebalance_delay_ms: int = 200
    ) -> None:
        arguments = str(brokers), str(rebalance_delay_ms)
        name = "the embedded Kafka"
        super().__init__(self.MODULE, *arguments, name=name, gone=KafkaUnavailable)
        self._topics = dict(topics or {})

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            for name, partitions in self._topics.items():
                self.create_topic(name, partitions)
        except BaseException:
            self.stop()
            raise
        return self

    @property
    def bootstrap(self) -> str:
        """`host:port,...` as clients take it in `bootstrap.servers`."""
        return self.first_line

    def create_topic(self, name: str, partitions: int) -> None:
        """Make a topic; the mock has no CreateTopics request."""
        self.command(f"topic {name} {partitions}")


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
