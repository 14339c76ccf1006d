"""All that a topic holds at this moment, read once from its beginning, for whoever looks without working on it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from stream.errors import ConfigurationError, KafkaUnavailable
from stream.runtime.clients import groupless_consumer

MESSAGES_A_CALL: Final = 200
ANSWER_MAX_S: Final = 10.0  # for the brokers to say what they hold
SILENCE_MAX_S: Final = 30.0  # without a message before the end of the topic is reached

_silent: Final = logging.getLogger("coach.librdkafka.silent")  # what librdkafka says of itself; errors are raised here
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


def scan_topic(configuration: Mapping[str, Any], topic: str) -> Iterator[Message]:
    """Read all that the topic holds now, partition by partition as it comes, without a consumer group.

    Raises: KafkaUnavailable when no broker answers, or the topic falls silent before its end;
    ConfigurationError for a topic that does not exist.
    """
    brokers = configuration["bootstrap.servers"]
    consumer = groupless_consumer({**configuration, "enable.partition.eof": False, "logger": _silent})
    try:
        ends = _ends(consumer, topic, brokers)
        consumer.assign([TopicPartition(topic, partition, low) for partition, (low, _) in ends.items()])
        left = {partition for partition, (low, high) in ends.items() if low < high}
        heard = time.monotonic()
        while left:
            messages = consumer.consume(MESSAGES_A_CALL, timeout=0.5)
            heard = time.monotonic() if messages else heard
            if time.monotonic() - heard > SILENCE_MAX_S:
                msg = f"topic {topic} at {brokers} was silent for {SILENCE_MAX_S:g} s before its end; try again"
                raise KafkaUnavailable(msg)
            for message in messages:
                if _holds(message, ends):
                    yield message
            for at in consumer.position([TopicPartition(topic, partition) for partition in left]):
                if at.offset >= ends[at.partition][1]:
                    left.discard(at.partition)
    except KafkaException as error:
        msg = f"reading topic {topic} from the brokers at {brokers} failed: {_said(error)}"
        raise KafkaUnavailable(msg) from error
    finally:
        consumer.close()


def _ends(consumer: Consumer, topic: str, brokers: str) -> dict[int, tuple[int, int]]:
    described = consumer.list_topics(topic, timeout=ANSWER_MAX_S).topics[topic]
    if described.error is not None:
        if described.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            message = f"the brokers at {brokers} have no topic {topic}; create it with `coach topics apply`"
            raise ConfigurationError(message)
        if described.error.retriable():
            raise KafkaException(described.error)
        message = f"topic {topic} cannot be read from the brokers at {brokers}: {described.error.str()}"
        raise ConfigurationError(message)
    ends = {}
    for partition in described.partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_MAX_S)
        ends[partition] = (low, high)
    return ends


def _said(error: KafkaException) -> str:
    first = error.args[0]
    return str(first.str() if isinstance(first, KafkaError) else first)


def _holds(message: Message, ends: Mapping[int, tuple[int, int]]) -> bool:
    """Whether this is a record from before the end, and not word of an error.

    Raises: KafkaException for an error that will not pass by itself.
    """
    error = message.error()
    if error is not None:
        if error.retriable():
            return False
        raise KafkaException(error)
    partition, offset = message.partition(), message.offset()
    return partition is not None and offset is not None and offset < ends[partition][1]
