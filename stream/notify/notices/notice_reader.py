"""Reads the `notices` topic into the local index, from the index's end to the topic's present end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, Message

from stream.errors import ConfigurationError, PoisonError
from stream.notify.notices.notice_index import NoticeIndex
from stream.runtime.clients import cluster_of, groupless_consumer, kafka_errors
from stream.runtime.kafka.topic_scan import read_to_end, watermarks
from stream.runtime.kafka.topics import TopicKeeper
from stream.wire.framing import Framing

log = logging.getLogger(__name__)


def cluster_topic(properties: Mapping[str, Any], topic: str, timeout_s: float) -> str:
    """Name the topic with its cluster, which tells indexes of different clusters apart.

    Raises: KafkaUnavailable, ConfigurationError when there is no such topic.
    """
    if topic not in TopicKeeper(properties, timeout_s=timeout_s).partitions():
        message = f"there is no topic {topic}, which keeps what was sent; create it with `coach topics apply`"
        raise ConfigurationError(message)
    return f"{cluster_of(properties, timeout_s)}/{topic}"


class NoticeReader:
    """Brings the index up to the topic's end, after each assignment of partitions."""

    def __init__(self, properties: Mapping[str, Any], *, topic: str, framing: Framing, index: NoticeIndex) -> None:
        self._properties = properties
        self._topic = topic
        self._framing = framing
        self._index = index

    def catch_up(self, keep_alive: Callable[[], None]) -> int:
        """Read to the topic's present end; return the number of notices. `keep_alive` is called between batches.

        Raises: KafkaUnavailable.
        """
        consumer = groupless_consumer({**self._properties, "enable.partition.eof": False})
        try:
            with kafka_errors(f"reading {self._topic}"):
                return self._read(consumer, keep_alive)
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, keep_alive: Callable[[], None]) -> int:
        brokers = self._properties["bootstrap.servers"]
        starts, ends = self._range(consumer, brokers)
        count = 0
        for messages in read_to_end(consumer, self._topic, starts, ends, brokers=brokers):
            count += self._add(messages)
            keep_alive()
        self._index.add([], ends)
        return count

    def _range(self, consumer: Consumer, brokers: str) -> tuple[dict[int, int], dict[int, int]]:
        known = self._index.read_to()
        marks = watermarks(consumer, self._topic, brokers)
        if any(known.get(number, 0) > high for number, (_, high) in marks.items()):
            log.warning("notify.notices_made_anew", extra={"what_next": "the local index is built anew"})
            self._index.clear()
            known = {}
        starts = {number: max(low, known.get(number, 0)) for number, (low, _) in marks.items()}
        return starts, {number: high for number, (_, high) in marks.items()}

    def _add(self, messages: list[Message]) -> int:
        notices, read_to = [], {}
        for message in messages:
            partition, offset = int(message.partition() or 0), int(message.offset() or 0)
            read_to[partition] = offset + 1
            try:
                name, record = self._framing.decode(bytes(message.value() or b""), topic=self._topic)
            except PoisonError as refused:
                where = {"partition": partition, "offset": offset}
                log.error("notify.notice_unreadable", extra={**where, "why": str(refused)})  # noqa: TRY400 - as above
                continue
            if name == "Notice":
                notices.append(record)
        self._index.add(notices, read_to)
        return len(notices)
