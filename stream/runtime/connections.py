"""How clients are told to reach Kafka and Redis: librdkafka's property names for the one, redis-py's URL for the other."""

from __future__ import annotations

from typing import Any

import redis

from stream.runtime.logs import librdkafka_log
from stream.runtime.settings import Settings
from stream.wire.clients import redis_client
from stream.wire.framing import Framing, SingleObject


def kafka_properties(settings: Settings) -> dict[str, Any]:
    """Give the properties that every confluent-kafka client starts from."""
    properties: dict[str, Any] = {
        "bootstrap.servers": settings.kafka_brokers,
        "client.id": "coach-stream",
        "security.protocol": settings.kafka_security_protocol,
        "logger": librdkafka_log,
        "reconnect.backoff.max.ms": 2_000,
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


def framing_of(settings: Settings) -> Framing:  # noqa: ARG001 - the registry's URL is one of them
    """Give the framing of records on the topics."""
    return SingleObject()
