"""The topics of a run: made when they are not there, and refused when what is on them is not this run's."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from confluent_kafka import Consumer, Message, TopicPartition

from stream.errors import ConfigurationError, KafkaUnavailable, PoisonError
from stream.replay.fence import RUN_HEADER, ReplayTopic, ReplayTopics
from stream.replay.settings import ReplaySettings
from stream.runtime.clients import groupless_consumer, kafka_errors
from stream.runtime.connections import kafka_properties
from stream.runtime.kafka.inbound import headers_of
from stream.runtime.kafka.topics import TopicKeeper
from stream.runtime.settings import DEAD_LETTER_MARGIN_BYTES, Settings
from stream.runtime.topic_specs import DAY_MS, TopicSpec
from stream.wire.framing import Framing
from stream.wire.schema_files import RecordName

ANSWER_MAX_S: Final = 10.0
EDGE_MAX_S: Final = 20.0  # for the first and the last record of one partition to come
POLL_S: Final = 0.2
WAIT_MIN_S: Final = 1.0


def prepare_topics(
    settings: Settings, replay: ReplaySettings, topics: ReplayTopics, framing: Framing, *, goes_on: bool
) -> None:
    """Make the topics of a run, or check them; `goes_on` is whether the run has begun before.

    Raises: ConfigurationError when one of them holds anything but records of this run, or anything at all at the
    beginning of a run; KafkaUnavailable.
    """
    properties = kafka_properties(settings)
    keeper = TopicKeeper(properties, timeout_s=max(settings.start_wait_s, WAIT_MIN_S))
    present = keeper.partitions()
    for topic in topics.all:
        if topic.name in present:
            _check(properties, topic, present[topic.name], framing, goes_on=goes_on)
    keeper.apply(topic_specs(settings, replay, topics), replication=None, dry_run=False)


def topic_specs(settings: Settings, replay: ReplaySettings, topics: ReplayTopics) -> list[TopicSpec]:
    """What each of them must be. Its dead letters may be audit records, not only decisions."""
    dead_letter_max = max(settings.dead_letter_bytes_max, settings.audit_bytes_max + DEAD_LETTER_MARGIN_BYTES)
    written: tuple[tuple[ReplayTopic, RecordName, int], ...] = (
        (topics.audit, "AuditRecord", settings.audit_bytes_max),
        (topics.recommendations, "Recommendation", settings.recommendation_bytes_max),
        (topics.dlq, "DeadLetter", dead_letter_max),
    )
    return [
        TopicSpec(
            name=topic.name,
            record=record,
            partitions=replay.replay_partitions,
            configuration={
                "cleanup.policy": "delete",
                "max.message.bytes": str(bytes_max),
                "retention.ms": str(replay.replay_retention_days * DAY_MS),
            },
        )
        for topic, record, bytes_max in written
    ]


def _check(
    properties: Mapping[str, Any], topic: ReplayTopic, partitions: int, framing: Framing, *, goes_on: bool
) -> None:
    consumer = groupless_consumer(properties)
    with closing(consumer), kafka_errors(f"looking into topic {topic.name}"):
        for partition in range(partitions):
            for record in _edges(consumer, topic.name, partition):
                why = _foreign(record, topic, framing)
                where = f"--run-id {topic.run_id}: topic {topic.name} holds, at partition {partition} offset {record.offset()},"
                if why is not None:
                    message = f"{where} {why}; a replay writes only where nobody else does: choose another --run-id"
                    raise ConfigurationError(message)
                if not goes_on:
                    message = (
                        f"{where} a record of a run of this id, whose state is not in this --state; give the folder that the run "
                        "has its state in, or choose another --run-id"
                    )
                    raise ConfigurationError(message)


def _edges(consumer: Consumer, topic: str, partition: int) -> Sequence[Message]:
    """The first and the last record of a partition, none where it is empty."""
    marks: tuple[int, int] | None = consumer.get_watermark_offsets(
        TopicPartition(topic, partition), timeout=ANSWER_MAX_S, cached=False
    )
    if marks is None:
        message = f"the brokers did not say within {ANSWER_MAX_S:g} s what topic {topic} holds"
        raise KafkaUnavailable(message)
    low, high = marks
    return [_one(consumer, topic, partition, offset) for offset in sorted({low, high - 1}) if low < high]


def _one(consumer: Consumer, topic: str, partition: int, offset: int) -> Message:
    consumer.assign([TopicPartition(topic, partition, offset)])
    deadline_s = time.monotonic() + EDGE_MAX_S
    while time.monotonic() < deadline_s:
        record = consumer.poll(POLL_S)
        if record is not None and record.error() is None:
            return record
    message = f"topic {topic} partition {partition} did not give its record at {offset} within {EDGE_MAX_S:g} s"
    raise KafkaUnavailable(message)


def _foreign(message: Message, topic: ReplayTopic, framing: Framing) -> str | None:
    """Say why a record is not of this run; None when it is."""
    marks = dict(headers_of(message))
    named = marks.get(RUN_HEADER)
    if named is None:
        return "a record that no replay wrote"
    if named != topic.run_id.encode():
        return "a record of another run"
    try:
        name, record = framing.decode(bytes(message.value() or b""), topic=topic.name)
    except PoisonError:
        return "a record that is not one of ours"
    if name == "DeadLetter":
        return None
    marked = record["envelope"] if name == "AuditRecord" else record
    if marked.get("replay") is not True or marked.get("run_id") != topic.run_id:
        return "a record that is not marked as one of this run"
    return None
