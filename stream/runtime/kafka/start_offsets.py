"""Where the group begins on partitions that it never read: told by a person, committed before Faust starts.

Faust's `auto_offset_reset` would decide silently, and differently after the offsets of a quiet group expired. So each
partition's offset is looked up first; where there is none, `--start-at` gives it and it is committed as the group's own.
A partition added since is younger than the group: all of it is new, so it is read from its beginning, whatever
`--start-at` says.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from stream.errors import ConfigurationError, DependencyError
from stream.runtime.clients import kafka_errors
from stream.runtime.retry import Retry
from stream.runtime.start_at import StartAt

log = logging.getLogger(__name__)

AGAIN_S: Final = 0.5  # between tries while another worker of the group keeps a commit from outside away


def ensure_start_offsets(
    properties: Mapping[str, Any],
    *,
    group: str,
    topic: str,
    partitions: int,
    start_at: StartAt | None,
    timeout_s: float,
) -> dict[int, int]:
    """See to it that the group has a committed offset on each partition that it knows; return those that were set now.

    Raises: ConfigurationError when one is missing and `start_at` is None; KafkaUnavailable when the brokers do not
    answer, or keep refusing, within `timeout_s`.
    """
    consumer = Consumer({**properties, "group.id": group, "enable.auto.commit": False})

    def once() -> dict[int, int]:
        with kafka_errors(f"reading or setting the offsets of group {group} on {topic}"):
            return _try_once(consumer, topic, partitions, start_at, timeout_s)

    def wait(why: DependencyError, _waited_s: float) -> None:
        log.info("start.offsets_wait", extra={"why": str(why)})

    try:  # a coordinator is loading, or a worker that runs already will commit them
        return Retry(total_s=timeout_s, pause_max_s=AGAIN_S, on_wait=wait, bound="COACH_START_WAIT_S").outlast(once)
    finally:
        consumer.close()


def _try_once(
    consumer: Consumer,
    topic: str,
    partitions: int,
    start_at: StartAt | None,
    timeout_s: float,
) -> dict[int, int]:
    """Return the offsets that were missing and are set now. Raises: ConfigurationError, KafkaException."""
    committed = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], timeout=timeout_s)
    nothing = [one.partition for one in committed if one.offset < 0]
    if len(nothing) < len(committed):  # a group that has read others begins there at the earliest, without a commit
        if nothing:
            log.info("start.partitions_added", extra={"topic": topic, "partitions": nothing})
        return {}
    if start_at is None:
        these = f"partition{'s' * (len(nothing) > 1)} {', '.join(map(str, nothing))}"
        message = (
            f"the group has read nothing of {topic} {these}; say where to begin: --start-at earliest (all decisions still "
            "kept), latest (only new ones), or an RFC 3339 time"
        )
        raise ConfigurationError(message)
    offsets = _offsets(consumer, topic, nothing, start_at, timeout_s)
    asked = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
    written = consumer.commit(offsets=asked, asynchronous=False)
    for one in written or []:
        if one.error is not None:  # the brokers take no offsets from outside while another worker is at work
            raise KafkaException(one.error)
    log.info("start.offsets_set", extra={"topic": topic, "start_at": str(start_at), "offsets": offsets})
    return offsets


def _offsets(
    consumer: Consumer, topic: str, numbers: Sequence[int], start_at: StartAt, timeout_s: float
) -> dict[int, int]:
    marks = {
        number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=timeout_s, cached=False)
        for number in numbers
    }
    if start_at.time_ms is None:
        return {number: low if start_at.kind == "earliest" else high for number, (low, high) in marks.items()}
    asked = [TopicPartition(topic, number, start_at.time_ms) for number in numbers]
    found = consumer.offsets_for_times(asked, timeout=timeout_s)
    return {one.partition: marks[one.partition][1] if one.offset in (-1, OFFSET_END) else one.offset for one in found}
