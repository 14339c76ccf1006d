"""Reads the `notices` topic into the local index, from the index's end to the topic's present end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from stream.errors import ConfigurationError, KafkaUnavailable, PoisonError
from stream.notify.notices.notice_index import NoticeIndex
from stream.runtime.clients import groupless_consumer
from stream.runtime.kafka.topics import TopicKeeper
from stream.wire.framing import Framing

log = logging.getLogger(__name__)

MESSAGES_A_CALL: Final = 500
ANSWER_MAX_S: Final = 10.0
SILENCE_MAX_S: Final = 30.0  # without a message before the end is reached


def cluster_topic(properties: Mapping[str, Any], topic: str, timeout_s: float) -> str:
    """Name the topic with its cluster, which tells indexes of different clusters apart.

    Raises: KafkaUnavailable, ConfigurationError when there is no such topic.
    """
    if topic not in TopicKeeper(properties, timeout_s=timeout_s).partitions():
        message = f"there is no topic {topic}, which keeps what was sent; create it with `coach topics apply`"
        raise ConfigurationError(message)
    consumer = groupless_consumer(properties)
    try:
        return f"{consumer.cluster_id(timeout=timeout_s)}/{topic}"
    except KafkaException as error:
        message = f"the brokers do not say which cluster they are: {error.args[0].str()}"
        raise KafkaUnavailable(message) from error
    finally:
        consumer.close()


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
            return self._read(consumer, keep_alive)
        except KafkaException as error:
            message = f"reading {self._topic} failed: {error.args[0].str()}"
            raise KafkaUnavailable(message) from error
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, keep_alive: Callable[[], None]) -> int:
        starts, ends = self._range(consumer)
        consumer.assign([TopicPartition(self._topic, number, at) for number, at in starts.items()])
        left = {number for number, at in starts.items() if at < ends[number]}
        last_message_s, count = time.monotonic(), 0
        while left:
            messages = consumer.consume(MESSAGES_A_CALL, timeout=0.5)
            count += self._add([one for one in messages if self._holds(one)])
            last_message_s = time.monotonic() if messages else last_message_s
            if time.monotonic() - last_message_s > SILENCE_MAX_S:
                message = f"{self._topic} was silent for {SILENCE_MAX_S:g} s before its end"
                raise KafkaUnavailable(message)
            keep_alive()
            for at in consumer.position([TopicPartition(self._topic, number) for number in left]):
                if at.offset >= ends[at.partition]:
                    left.discard(at.partition)
        self._index.add([], ends)
        return count

    def _range(self, consumer: Consumer) -> tuple[dict[int, int], dict[int, int]]:
        """From where to where to read, by partition."""
        known = self._index.read_to()
        described = consumer.list_topics(self._topic, timeout=ANSWER_MAX_S).topics[self._topic]
        marks = {
            number: consumer.get_watermark_offsets(
                TopicPartition(self._topic, number), timeout=ANSWER_MAX_S, cached=False
            )
            for number in described.partitions
        }
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

    @staticmethod
    def _holds(message: Message) -> bool:
        error = message.error()
        if error is not None and not error.retriable():
            raise KafkaException(error)
        return error is None
