from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from stream.errors import KafkaUnavailable
from stream.runtime.kafka.delivery import KafkaDelivery, Output
from stream.runtime.retry import Retry
from tests.kafka.faulty_kafka import FaultyKafka

PRODUCE = 0  # the protocol's api key
INVALID_RECORD, NOT_ENOUGH_REPLICAS, MSG_SIZE_TOO_LARGE = 87, 19, 10  # the protocol's error codes


@pytest.fixture(scope="module")
def kafka() -> Iterator[FaultyKafka]:
    """One mock cluster for the module."""
    with FaultyKafka({"out": 1, "dlq": 1}) as running:
        yield running


def delivery(kafka: FaultyKafka, *, bytes_max: int = 100_000, delivery_timeout_s: float = 5.0) -> KafkaDelivery:
    return KafkaDelivery(
        {"bootstrap.servers": kafka.bootstrap}, delivery_timeout_s=delivery_timeout_s, bytes_max=bytes_max
    )


def outputs(name: str, count: int) -> list[Output]:
    return [Output(topic="out", key=f"{name}{number}".encode(), value=b"v" * 10) for number in range(count)]


def retry(total_s: float = 10.0) -> Retry:
    return Retry(total_s=total_s, pause_max_s=0.2)


def keys(kafka: FaultyKafka, prefix: str) -> list[str]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": prefix, "enable.auto.commit": False})
    try:
        _, high = consumer.get_watermark_offsets(TopicPartition("out", 0), timeout=5, cached=False)
        consumer.assign([TopicPartition("out", 0, 0)])
        found: list[Message] = []
        while len(found) < high:
            found += consumer.consume(high, 1.0)
    finally:
        consumer.close()
    names = [bytes(one.key() or b"").decode() for one in found]
    return [name for name in names if name.startswith(prefix)]


def test_all_outputs_are_acknowledged_before_it_returns(kafka: FaultyKafka) -> None:
    """Given outputs, when delivered, then all are in the topic, in their order, when the call returns."""
    assert delivery(kafka).deliver(outputs("a", 50), retry()) == []
    assert keys(kafka, "a") == [f"a{number}" for number in range(50)]


def test_an_output_over_the_size_limit_comes_back_and_the_others_go(kafka: FaultyKafka) -> None:
    """Given one output larger than the producer takes, when a batch is delivered, then that one comes back with a reason, and the rest is delivered."""
    large = Output(topic="out", key=b"large", value=b"v" * 10_000)
    refused = delivery(kafka, bytes_max=5_000).deliver([*outputs("b", 3), large, *outputs("c", 3)], retry())
    assert [one.output for one in refused] == [large]
    assert "too large" in refused[0].reason.lower()
    assert len(keys(kafka, "b") + keys(kafka, "c")) == 6


def test_a_batch_that_the_broker_refuses_is_sent_again_one_by_one(kafka: FaultyKafka) -> None:
    """Given a broker that refuses a whole batch for one record, when it is delivered, then each output is tried alone, and all that it takes are delivered."""
    kafka.err(PRODUCE, MSG_SIZE_TOO_LARGE, 1)
    assert delivery(kafka).deliver(outputs("d", 4), retry()) == []
    assert set(keys(kafka, "d")) == {"d0", "d1", "d2", "d3"}


def test_what_may_heal_is_sent_again(kafka: FaultyKafka) -> None:
    """Given a broker that is away for a while, when outputs are delivered, then the call returns once it is back and has them."""
    here = delivery(kafka, delivery_timeout_s=1.0)
    here.deliver(outputs("warm", 1), retry())
    kafka.down()
    back = threading.Event()

    def come_back() -> None:
        back.set()
        kafka.up()

    timer = threading.Timer(2.0, come_back)
    timer.start()
    assert here.deliver(outputs("e", 3), retry(30.0)) == []
    assert back.is_set()
    timer.join()
    assert set(keys(kafka, "e")) == {"e0", "e1", "e2"}


def test_an_outage_past_the_bound_is_kafka_unavailable(kafka: FaultyKafka) -> None:
    """Given a broker that stays away, when retry ends, then KafkaUnavailable says how many outputs are not acknowledged."""
    here = delivery(kafka, delivery_timeout_s=1.0)
    kafka.down()
    try:
        with pytest.raises(KafkaUnavailable, match="2 outputs are not acknowledged"):
            here.deliver(outputs("f", 2), retry(0.5))
    finally:
        kafka.up()
