"""Where audit records come from: the JSONL of `coach recommend`, or all of the audit topic."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from stream.errors import ConfigurationError, KafkaUnavailable, PoisonError
from stream.wire.avro_records import decode
from stream.wire.clients import groupless_consumer

MESSAGES_A_CALL: Final = 200
SILENCE_MAX_S: Final = 30.0  # without a message before the end of the topic is reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One record as it was found. `record` is an AuditRecord's JSON shape, or why it is none."""

    where: str
    record: Mapping[str, Any] | str
    recommendation: Mapping[str, Any] | None = None


def from_jsonl(path: Path) -> Iterator[Found]:
    """Read a file that has an answer of `coach recommend`, or an audit record, on each line.

    Raises: ConfigurationError for a file that cannot be read.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _from_line(f"line {number}", line)
    except (OSError, UnicodeError) as error:
        msg = f"cannot read {path}: {error}"
        raise ConfigurationError(msg) from error


def _from_line(where: str, line: str) -> Found:
    try:
        value = json.loads(line)
        record = value.get("audit", value)
        body = record["body"]
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
        return Found(where=where, record="is neither an audit record nor an answer in JSON")
    if not isinstance(body, dict):
        return Found(where=where, record="has a body that is no JSON object")
    return Found(where=where, record=record, recommendation=value.get("recommendation"))


def from_topic(configuration: Mapping[str, Any], topic: str) -> Iterator[Found]:
    """Read all that the topic holds now, partition by partition as it comes, without a consumer group.

    Raises: KafkaUnavailable when no broker answers, or the topic falls silent before its end;
    ConfigurationError for a topic that does not exist.
    """
    consumer = groupless_consumer({**configuration, "enable.partition.eof": False})
    try:
        ends = _ends(consumer, topic)
        consumer.assign([TopicPartition(topic, partition, low) for partition, (low, _) in ends.items()])
        left = {partition for partition, (low, high) in ends.items() if low < high}
        heard = time.monotonic()
        while left:
            messages = consumer.consume(MESSAGES_A_CALL, timeout=0.5)
            heard = time.monotonic() if messages else heard
            if time.monotonic() - heard > SILENCE_MAX_S:
                msg = f"topic {topic} was silent for {SILENCE_MAX_S:g} s before its end; try again"
                raise KafkaUnavailable(msg)
            for message in messages:
                found = _from_message(message, ends)
                if found is not None:
                    yield found
            for at in consumer.position([TopicPartition(topic, partition) for partition in left]):
                if at.offset >= ends[at.partition][1]:
                    left.discard(at.partition)
    except KafkaException as error:
        msg = f"reading topic {topic} failed: {error.args[0]}"
        raise KafkaUnavailable(msg) from error
    finally:
        consumer.close()


def _ends(consumer: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    described = consumer.list_topics(topic, timeout=10).topics[topic]
    if described.error is not None:
        msg = f"topic {topic} cannot be read: {described.error.str()}"
        raise ConfigurationError(msg)
    ends = {}
    for partition in described.partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
        ends[partition] = (low, high)
    return ends


def _from_message(message: Message, ends: Mapping[int, tuple[int, int]]) -> Found | None:
    error = message.error()
    if error is not None:
        if error.code() == KafkaError._PARTITION_EOF or error.retriable():  # noqa: SLF001  (librdkafka's name for it)
            return None
        raise KafkaException(error)
    partition, offset = message.partition(), message.offset()
    if partition is None or offset is None or offset >= ends[partition][1]:
        return None
    where = f"{message.topic()}[{partition}]@{offset}"
    try:
        name, record = decode(message.value() or b"")
    except PoisonError as refused:
        return Found(where=where, record=f"cannot be decoded: {refused}")
    if name != "AuditRecord":
        return Found(where=where, record=f"is a {name}, not an audit record")
    if message.key() != str(record["decision_id"]).encode():
        return Found(where=where, record="has another key than its decision_id")
    return Found(where=where, record=record)
