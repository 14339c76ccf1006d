"""The value of a dead letter's record: from the letter, or, where the letter had to leave it out, from where it was read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from stream.errors import KafkaUnavailable
from stream.events import DeadLetter
from stream.runtime.clients import groupless_consumer, kafka_errors
from stream.runtime.kafka.dead_letters import LEFT_OUT

ANSWER_MAX_S: Final = 10.0


class OriginalGone(Exception):
    """The value cannot be had any more; the text says why, without the place."""


class Originals:
    """Reads original values; makes a consumer on first use."""

    def __init__(self, configuration: Mapping[str, Any]) -> None:
        """`configuration` is that of a confluent-kafka client."""
        self._configuration = configuration
        self._consumer: Consumer | None = None
        self._partitions: dict[str, Collection[int]] = {}

    def value_of(self, letter: DeadLetter) -> bytes:
        """Give the value, byte for byte. Raises: OriginalGone; KafkaUnavailable when the brokers do not answer."""
        if letter["value"] is not None:
            return letter["value"]
        left_out = re.match(LEFT_OUT, letter["message"])
        if left_out is None:
            message = "never had a value"
            raise OriginalGone(message)
        value = self._read(letter["topic"], letter["partition"], letter["offset"])
        if value is None or hashlib.sha256(value).hexdigest() != left_out["sha256"]:
            message = "its value was left out, and does not lie where it was read any more"
            raise OriginalGone(message)
        return value

    def close(self) -> None:
        """Close the connection to the brokers."""
        if self._consumer is not None:
            self._consumer.close()

    def _read(self, topic: str, partition: int, offset: int) -> bytes | None:
        if self._consumer is None:
            self._consumer = groupless_consumer({**self._configuration, "auto.offset.reset": "error"})
        with kafka_errors(f"reading {topic}[{partition}]@{offset}"):
            if topic not in self._partitions:
                self._partitions[topic] = (
                    self._consumer.list_topics(topic, timeout=ANSWER_MAX_S).topics[topic].partitions
                )
            if partition not in self._partitions[topic]:
                return None
            self._consumer.assign([TopicPartition(topic, partition, offset)])
            record = self._consumer.poll(ANSWER_MAX_S)
            if record is None:
                message = f"reading {topic}[{partition}]@{offset}: no answer within {ANSWER_MAX_S:g} s"
                raise KafkaUnavailable(message)
            refused = record.error()
            if refused is not None and refused.retriable():
                raise KafkaException(refused)
        return record.value() if refused is None and record.offset() == offset else None
