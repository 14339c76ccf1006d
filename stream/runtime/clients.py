"""Redis and Kafka clients from plain parameters. Failures are typed errors that name the unavailable dependency."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import redis
from confluent_kafka import Consumer, KafkaError, KafkaException
from redis.backoff import ExponentialBackoff
from redis.retry import Retry as RedisRetry

from stream.errors import ConfigurationError, KafkaUnavailable, RedisRefused, RedisUnavailable

REDIS_RETRIES: Final = 3  # within one call; what outlasts them is the caller's outage to wait out
REDIS_BACKOFF_BASE_S: Final = 0.05
REDIS_BACKOFF_MAX_S: Final = 0.5
REDIS_PASSING: Final = (  # answers of a server that is being replaced
    redis.exceptions.ReadOnlyError, redis.exceptions.ClusterDownError, redis.exceptions.MasterDownError, redis.exceptions.TryAgainError,
)  # fmt: skip
GROUPLESS: Final = "coach-without-a-group"  # librdkafka wants a name; nothing is joined or committed under it


def redis_client(url: str, *, timeout_s: float, tls_ca_file: str | None = None) -> redis.Redis:
    """Make a client that speaks bytes. It connects on first use.

    `url`: redis://, rediss:// (TLS) or unix://, with user and password in it. `timeout_s` bounds connecting and each
    answer. Raises: ConfigurationError for a URL that redis-py does not take.
    """
    options: dict[str, Any] = {"ssl_ca_certs": tls_ca_file} if tls_ca_file and url.startswith("rediss://") else {}
    try:
        return redis.Redis.from_url(
            url,
            decode_responses=False,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=RedisRetry(ExponentialBackoff(cap=REDIS_BACKOFF_MAX_S, base=REDIS_BACKOFF_BASE_S), REDIS_RETRIES),
            **options,
        )
    except (ValueError, TypeError) as error:
        message = "the Redis URL is unusable; expected redis://host:port/number, rediss:// or unix://"
        raise ConfigurationError(message) from error


def is_refusal(error: Exception) -> bool:
    """Whether Redis answered, and its answer does not depend on when it is asked."""
    return isinstance(error, redis.ResponseError) and not isinstance(error, REDIS_PASSING)


@contextmanager
def redis_errors(doing: str) -> Iterator[None]:
    """Turn each failure of redis-py within the block into one of ours, with what was being done and no secret.

    Raises: RedisUnavailable; RedisRefused, a kind of it, where Redis answered and waiting will not change its answer.
    """
    try:
        yield
    except redis.RedisError as error:
        refused = is_refusal(error)
        message = f"Redis {'refused' if refused else 'failed'} while {doing}: {type(error).__name__}: {error}"
        raise (RedisRefused if refused else RedisUnavailable)(message) from error


def reach_redis(client: redis.Redis) -> None:
    """Ask Redis for a sign of life. Raises: RedisUnavailable."""
    with redis_errors("saying hello"):
        client.ping()


def redis_address(url: str) -> str:
    """Name the server of a URL for messages, without user and password."""
    parts = urlsplit(url)
    return parts.path if parts.scheme == "unix" else f"{parts.hostname or 'localhost'}:{parts.port or 6379}"


@contextmanager
def kafka_errors(doing: str) -> Iterator[None]:
    """Turn each failure of Kafka's client within the block into KafkaUnavailable, with what was being done."""
    try:
        yield
    except KafkaException as error:
        first = error.args[0]
        message = f"{doing} failed: {first.str() if isinstance(first, KafkaError) else first}"
        raise KafkaUnavailable(message) from error


def cluster_of(properties: Mapping[str, Any], timeout_s: float) -> str:
    """Ask the brokers which cluster they are. Raises: KafkaUnavailable."""
    consumer = groupless_consumer(properties)
    try:
        with kafka_errors("asking the brokers which cluster they are"):
            return str(consumer.cluster_id(timeout=timeout_s))
    finally:
        consumer.close()


def groupless_consumer(configuration: Mapping[str, Any]) -> Consumer:
    """Make a consumer that is assigned partitions by hand, joins no group, and commits nothing.

    `configuration`: librdkafka's own properties: bootstrap.servers and those of security. Raises: ConfigurationError
    for a property that librdkafka refuses.
    """
    return kafka_consumer(
        {
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            **configuration,
            "group.id": GROUPLESS,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        }
    )


def kafka_consumer(configuration: dict[str, Any]) -> Consumer:
    """Make a consumer. Raises: ConfigurationError for a property that librdkafka refuses."""
    try:
        return Consumer(configuration)
    except (KafkaException, ValueError, TypeError) as error:
        message = f"librdkafka refuses the Kafka settings: {error}"
        raise ConfigurationError(message) from error
