"""Opens the archive of a topic, and refuses the archive of another topic."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from stream.audit.archive.layout import ARCHIVE, DAY, RANGES
from stream.audit.archive.markers import RANGE_OFFSETS, Identity, read_identity, write_identity
from stream.audit.archive.target import Target
from stream.errors import ArchiveDamaged, ConfigurationError, KafkaUnavailable
from stream.runtime.kafka.topic_scan import check_readable
from stream.runtime.logs import librdkafka_log

log = logging.getLogger(__name__)
TOPIC_ID_WAIT_S: Final = 10.0


@contextmanager
def librdkafka_log_captured() -> Iterator[list[str]]:
    """Collect librdkafka's log lines instead of logging them, so that the error alone reports them."""
    said: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        said.append(record.getMessage())
        return False

    librdkafka_log.addFilter(keep)
    try:
        yield said
    finally:
        librdkafka_log.removeFilter(keep)


def topic_on_brokers(
    consumer: Consumer, properties: Mapping[str, Any], topic: str, *, timeout_s: float, said: Sequence[str] = ()
) -> Identity:
    """Make sure that the topic is there; return the brokers' own names of it and of their cluster, empty for none.

    `said` is what librdkafka logs meanwhile: why it got no answer, which its error does not tell.
    Raises: KafkaUnavailable, ConfigurationError.
    """
    brokers = properties["bootstrap.servers"]
    try:
        metadata = consumer.list_topics(topic, timeout=timeout_s)
    except KafkaException as error:
        with suppress(KafkaException, RuntimeError):
            consumer.poll(0)  # which is when it hands over what it has to log
        why = said[0].rpartition("bootstrap: ")[2] if said else error.args[0].str()
        message = (
            f"no Kafka broker answered within {timeout_s:g} s at {brokers}: {why}; is one there, and does it speak "
            f"{properties.get('security.protocol', 'PLAINTEXT')} (COACH_KAFKA_SECURITY_PROTOCOL)?"
        )
        raise KafkaUnavailable(message) from error
    check_readable(topic, metadata.topics[topic].error, brokers)
    topic_id = ""
    if metadata.controller_id in metadata.brokers:  # an embedded Kafka has none, and would not answer
        topic_id = _topic_id(properties, topic)
    return Identity(topic=topic, range_offsets=0, topic_id=topic_id, cluster_id=metadata.cluster_id or "")


def _topic_id(properties: Mapping[str, Any], topic: str) -> str:
    """The id that a topic gets anew when it is made anew; empty where the brokers do not tell."""
    admin = AdminClient(dict(properties))
    try:
        futures = admin.describe_topics(TopicCollection([topic]), request_timeout=TOPIC_ID_WAIT_S)
        return str(futures[topic].result(TOPIC_ID_WAIT_S + 1).topic_id)
    except (KafkaException, TimeoutError) as unanswered:
        log.info("sink.topic_id_unknown", extra={"why": str(unanswered)})
        return ""


def open_archive(target: Target, found: Identity, range_offsets: int) -> Identity:
    """Say what the archive is of; make it where there is none. `range_offsets` 0: as the archive has it.

    Raises: ConfigurationError when it is another topic's or has ranges of another length; ArchiveDamaged when its own
    name is lost; DependencyError.
    """
    there = read_identity(target)
    if there is None:
        if any(name == RANGES or name.startswith(DAY) for name in target.names("")):
            message = f"the archive at {target.shown} has lost its {ARCHIVE}; put it back, or name another place"
            raise ArchiveDamaged(message)
        write_identity(target, replace(found, range_offsets=range_offsets or RANGE_OFFSETS))
        there = read_identity(target)  # another sink may have made it at the same moment
        if there is None:
            raise target.missing(ARCHIVE)
    _compare(target, there, found, range_offsets)
    return there


def _compare(target: Target, there: Identity, found: Identity, range_offsets: int) -> None:
    differences = []
    if there.topic != found.topic:
        differences.append(f"it is of topic {there.topic}, not {found.topic}")
    for what, theirs, ours in (
        ("a topic of this name that was since deleted and made anew", there.topic_id, found.topic_id),
        ("the topic on another Kafka cluster", there.cluster_id, found.cluster_id),
    ):
        if theirs and ours and theirs != ours:
            differences.append(f"it is of {what} ({theirs}, and now {ours})")
    if range_offsets and there.range_offsets != range_offsets:
        differences.append(
            f"its ranges have {there.range_offsets} offsets, and COACH_SINK_RANGE_OFFSETS={range_offsets}: leave that unset"
        )
    if differences:
        message = f"the archive at {target.shown} is another one: {'; '.join(differences)}"
        raise ConfigurationError(message)
