"""Builds Kafka, Redis and schema registry clients from the settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import redis

from stream.runtime.clients import redis_client
from stream.runtime.logs import librdkafka_log
from stream.runtime.retry import Retry
from stream.runtime.settings import Settings
from stream.runtime.topic_specs import topic_specs
from stream.wire.framing import SINGLE_OBJECT, Framing

if TYPE_CHECKING:
    from stream.wire.registry.client import RegistryClient

Result = TypeVar("Result")
AGAIN_S: Final = 0.25  # before what did not answer at a start is asked again
LOOKUP_ANSWERS_MAX: Final = 4


def kafka_properties(settings: Settings) -> dict[str, Any]:
    """Give the properties that every confluent-kafka client starts from."""
    properties: dict[str, Any] = {
        "bootstrap.servers": settings.kafka_brokers,
        "client.id": "coach-stream",
        "security.protocol": settings.kafka_security_protocol,
        "logger": librdkafka_log,
        "reconnect.backoff.max.ms": 2_000,
        "topic.metadata.refresh.interval.ms": 5_000,  # until new partitions, and a topic made anew, are seen
    }
    if "SASL" in settings.kafka_security_protocol:
        properties["sasl.mechanism"] = settings.kafka_sasl_mechanism
        properties["sasl.username"] = settings.kafka_sasl_username
        properties["sasl.password"] = settings.kafka_sasl_password
    if settings.kafka_security_protocol.endswith("SSL"):
        files = {
            "ssl.ca.location": settings.kafka_ca_file,
            "ssl.certificate.location": settings.kafka_certificate_file,
            "ssl.key.location": settings.kafka_key_file,
            "ssl.key.password": settings.kafka_key_password,
        }
        properties |= {name: value for name, value in files.items() if value}
    return properties


def connect_redis(settings: Settings) -> redis.Redis:
    """Make the Redis client; it connects on first use."""
    ca_file = settings.redis_ca_file or None
    return redis_client(settings.redis_url, timeout_s=settings.redis_timeout_s, tls_ca_file=ca_file)


def framing_of(settings: Settings, *, lookup_wait_s: float | None = None) -> Framing:
    """Give the framing of records on the topics; it connects on first use.

    `lookup_wait_s`: how long reading a record may wait for the registry to tell of its schema; without it, as long as
    `LOOKUP_ANSWERS_MAX` answers may take: the client bounds the silence within an answer, not the answer. The look-up
    goes on behind, and a later try finds what it brought.
    """
    if not settings.schema_registry_url:
        return SINGLE_OBJECT
    # Its client takes half a second to import, for those who have a registry.
    from stream.wire.registry.framing import RegistryFraming  # noqa: PLC0415

    return RegistryFraming(
        connect_registry(settings),
        register=settings.schema_registry_register == "auto",
        records={spec.name: spec.record for spec in topic_specs(settings)},
        lookup_wait_s=LOOKUP_ANSWERS_MAX * settings.schema_registry_timeout_s
        if lookup_wait_s is None
        else lookup_wait_s,
    )


def connect_registry(settings: Settings) -> RegistryClient:
    """Make the schema registry's client; it connects on first use. Raises: ConfigurationError for a bad CA file."""
    from stream.wire.registry.client import RegistryClient  # noqa: PLC0415 - as above

    return RegistryClient(
        settings.schema_registry_url,
        username=settings.schema_registry_username,
        password=settings.schema_registry_password,
        ca_file=settings.schema_registry_ca_file,
        timeout_s=settings.schema_registry_timeout_s,
    )


def once_answered(doing: Callable[[], Result], settings: Settings) -> Result:
    """Do something at a start, and again while Redis or the schema registry is away.

    Raises: RedisUnavailable or RegistryUnavailable after `start_wait_s`; whatever else `doing` raises.
    """
    return Retry(total_s=settings.start_wait_s, pause_max_s=AGAIN_S, bound="COACH_START_WAIT_S").outlast(doing)
