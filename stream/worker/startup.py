"""Checks brokers, topics, size limits, Redis and the registry before the worker starts. Every wait is bounded."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

import redis

from stream.errors import ConfigurationError, DependencyError, RedisUnavailable
from stream.runtime.clients import reach_redis, redis_address
from stream.runtime.connections import once_answered
from stream.runtime.kafka.topics import TopicKeeper
from stream.runtime.settings import DEAD_LETTER_MARGIN_BYTES, Settings
from stream.wire.framing import Framing
from stream.wire.schema_files import RecordName

log = logging.getLogger(__name__)

WAIT_MIN_S: Final = 1.0  # librdkafka needs this long to say no


def check_kafka(settings: Settings, keeper: TopicKeeper) -> int:
    """Check that the brokers answer and hold the topics as the settings have them; return the decisions' partitions.

    Raises: KafkaUnavailable; ConfigurationError that names what is missing or too small.
    """
    present = keeper.partitions()
    needed = [
        settings.topic_decisions,
        settings.topic_models,
        settings.topic_recommendations,
        settings.topic_audit,
        settings.topic_dlq,
    ]
    missing = [name for name in needed if name not in present]
    if missing:
        message = f"the brokers at {settings.kafka_brokers} have no topic {', '.join(missing)}; create with `coach topics apply`"
        raise ConfigurationError(message)
    if present[settings.topic_models] != 1:
        message = f"topic {settings.topic_models} has {present[settings.topic_models]} partitions; it must have one, for its offset is the epoch"
        raise ConfigurationError(message)
    _check_limits(settings, _limits(keeper, needed))
    return present[settings.topic_decisions]


def check_redis(client: redis.Redis, settings: Settings) -> None:
    """Wait until Redis answers. Raises: RedisUnavailable after `start_wait_s`."""
    try:
        once_answered(lambda: reach_redis(client), settings)
    except RedisUnavailable as away:
        message = f"Redis at {redis_address(settings.redis_url)} did not answer: {away}"
        raise RedisUnavailable(message) from away


def check_registry(framing: Framing, settings: Settings) -> None:
    """Wait until the schema registry, if there is one, gave the ids of what is written and the schemas of what is read.

    Raises: RegistryUnavailable after `start_wait_s`; ConfigurationError that says which schema it refuses, and why.
    """
    writes: dict[str, RecordName] = {
        settings.topic_audit: "AuditRecord",
        settings.topic_recommendations: "Recommendation",
        settings.topic_dlq: "DeadLetter",
    }
    reads = (settings.topic_decisions, settings.topic_models)
    once_answered(lambda: framing.prepare(writes=writes, reads=reads), settings)


def _limits(keeper: TopicKeeper, names: list[str]) -> dict[str, int]:
    """The largest record of each topic, or nothing where the brokers do not tell."""
    try:
        found = keeper.configurations(names)
    except (ConfigurationError, DependencyError) as unknown:
        log.info("start.limits_unknown", extra={"why": str(unknown)})
        return {}
    return {
        name: int(configuration["max.message.bytes"])
        for name, configuration in found.items()
        if "max.message.bytes" in configuration
    }


def _check_limits(settings: Settings, limits: Mapping[str, int]) -> None:
    wrong = []
    for topic, setting, wanted in (
        (settings.topic_audit, "COACH_AUDIT_BYTES_MAX", settings.audit_bytes_max),
        (settings.topic_recommendations, "COACH_RECOMMENDATION_BYTES_MAX", settings.recommendation_bytes_max),
        (settings.topic_dlq, "COACH_DEAD_LETTER_BYTES_MAX", settings.dead_letter_bytes_max),
    ):
        if limits.get(topic, wanted) < wanted:
            wrong.append(f"{setting}={wanted}, but topic {topic} takes {limits[topic]} bytes (max.message.bytes)")
    decisions, dead = limits.get(settings.topic_decisions), limits.get(settings.topic_dlq)
    if decisions is not None and dead is not None and dead < decisions + DEAD_LETTER_MARGIN_BYTES:
        wrong.append(
            f"topic {settings.topic_decisions} takes decisions of {decisions} bytes, and topic {settings.topic_dlq} must hold "
            f"any of them with {DEAD_LETTER_MARGIN_BYTES} bytes more, but takes {dead}"
        )
    if wrong:
        raise ConfigurationError("; ".join(wrong) + "; mend with `coach topics apply`")
