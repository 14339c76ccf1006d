"""All that a topic holds at this moment, read once to its present end, for whoever looks without working on it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from stream.errors import ConfigurationError, KafkaUnavailable
from stream.runtime.clients import groupless_consumer, kafka_errors

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
    consumer = groupless_consumer({**configuration, "logger": _silent})
    try:
        with kafka_errors(f"reading topic {topic} from the brokers at {brokers}"):
            marks = watermarks(consumer, topic, brokers)
            starts = {partition: low for partition, (low, _) in marks.items()}
            ends = {partition: high for partition, (_, high) in marks.items()}
            for messages in read_to_end(consumer, topic, starts, ends, brokers=brokers):
                yield from (one for one in messages if (one.offset() or 0) < ends[one.partition() or 0])
    finally:
        consumer.close()


def watermarks(consumer: Consumer, topic: str, brokers: str) -> dict[int, tuple[int, int]]:
    """Ask from where to where each partition holds records.

    Raises: KafkaUnavailable, KafkaException when the brokers do not answer; ConfigurationError for a topic that does not
    exist.
    """
    metadata = consumer.list_topics(topic, timeout=ANSWER_MAX_S).topics[topic]
    check_readable(topic, metadata.error, brokers)
    return {
        partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_MAX_S, cached=False)
        for partition in metadata.partitions
    }


def check_readable(topic: str, error: KafkaError | None, brokers: str) -> None:
    """Refuse a topic that the brokers describe with an error. Raises: KafkaUnavailable, ConfigurationError."""
    if error is None:
        return
    if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        message = f"the brokers at {brokers} have no topic {topic}; create it with `coach topics apply`"
        raise ConfigurationError(message)
    message = f"topic {topic} cannot be read from the brokers at {brokers}: {error.str()}"
    raise (KafkaUnavailable if error.retriable() else ConfigurationError)(message)


def read_to_end(
    consumer: Consumer, topic: str, starts: Mapping[int, int], ends: Mapping[int, int], *, brokers: str
) -> Iterator[list[Message]]:
    """Read each partition from its start until it is past its end, a batch at a time; a batch may be empty.

    The consumer tells the end of a partition (enable.partition.eof), for nobody is given the marker of a transaction there.
    Raises: KafkaUnavailable when the topic falls silent before its end; KafkaException for an error that will not pass.
    """
    consumer.assign([TopicPartition(topic, partition, at) for partition, at in starts.items()])
    left = {partition for partition, at in starts.items() if at < ends[partition]}
    heard_s = time.monotonic()
    while left:
        messages = consumer.consume(MESSAGES_A_CALL, timeout=0.5)
        heard_s = time.monotonic() if messages else heard_s
        if time.monotonic() - heard_s > SILENCE_MAX_S:
            message = f"topic {topic} at {brokers} was silent for {SILENCE_MAX_S:g} s before its end; try again"
            raise KafkaUnavailable(message)
        for one in messages:
            error = one.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
                left.discard(one.partition() or 0)
            elif error is not None and not error.retriable():
                raise KafkaException(error)
        yield [one for one in messages if one.error() is None]
        for at in consumer.position([TopicPartition(topic, partition) for partition in left]):
            if at.offset >= ends[at.partition]:
                left.discard(at.partition)
