from __future__ import annotations

import pytest
import redis
from confluent_kafka import Producer, TopicPartition

from stream.demo.embedded.embedded_kafka import EmbeddedKafka
from stream.errors import ConfigurationError, RedisUnavailable
from stream.runtime.clients import groupless_consumer, reach_redis, redis_address, redis_client


def test_a_redis_that_answers_is_reached(client: redis.Redis) -> None:
    """Given a Redis, when it is asked for a sign of life, then nothing is raised, and values are bytes."""
    reach_redis(client)
    client.set("key", b"\xff")
    assert client.get("key") == b"\xff"


def test_a_redis_that_is_away_says_so(no_redis: redis.Redis) -> None:
    """Given no Redis, when it is asked for a sign of life, then the error names what was tried and no password."""
    with pytest.raises(RedisUnavailable, match="saying hello") as away:
        reach_redis(no_redis)
    assert "s3cr3t" not in str(away.value)


@pytest.mark.parametrize("url", ["", "http://host", "redis//host", "redis://host:port/0", "host:6379"])
def test_a_url_that_is_none_is_a_configuration_error(url: str) -> None:
    """Given a URL that redis-py does not take, when a client is made, then the setting is to blame."""
    with pytest.raises(ConfigurationError, match="the Redis URL is unusable"):
        redis_client(url, timeout_s=1.0)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://user:s3cr3t@cache.example:6380/1", "cache.example:6380"),
        ("rediss://cache.example", "cache.example:6379"),
        ("unix:///run/redis.sock?db=1", "/run/redis.sock"),
    ],
)
def test_an_address_has_no_password(url: str, address: str) -> None:
    """Given a URL with credentials, when the server is named, then they are left out."""
    assert redis_address(url) == address


def test_a_consumer_without_a_group_reads_and_commits_nothing() -> None:
    """Given a broker, when a groupless consumer reads a partition, then it reads from the start and no offset is stored."""
    with EmbeddedKafka({"models": 1}) as kafka:
        consumer = groupless_consumer({"bootstrap.servers": kafka.bootstrap})
        try:
            producer = Producer({"bootstrap.servers": kafka.bootstrap})
            producer.produce("models", key=b"m/1/1", value=b"published")
            assert producer.flush(10) == 0
            consumer.assign([TopicPartition("models", 0, 0)])
            message = consumer.poll(10)
            assert message is not None
            assert message.error() is None
            assert message.value() == b"published"
            assert consumer.committed([TopicPartition("models", 0)], timeout=10)[0].offset < 0
        finally:
            consumer.close()


def test_a_property_that_librdkafka_refuses_is_a_configuration_error() -> None:
    """Given an unknown Kafka property, when a consumer is made, then the setting is to blame."""
    with pytest.raises(ConfigurationError, match=r"no\.such\.property"):
        groupless_consumer({"bootstrap.servers": "127.0.0.1:9", "no.such.property": "1"})
