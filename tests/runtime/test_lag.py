"""The lag of a group, as the brokers tell it."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # undeclared re-exports

from stream.demo.embedded.embedded_kafka import EmbeddedKafka
from stream.runtime.kafka import lag
from stream.runtime.kafka.lag import GroupProgress, LagWatch
from tests.kafka.brokers import Brokers, free_ports
from tests.service.room import wait_until
from tests.service.stack import Stack


@pytest.mark.service
def test_the_lag_is_what_is_not_committed(each_stack: Stack) -> None:
    """Given a group that committed some of one partition and nothing of another, when watched, then the lag is what is left of each, and it falls when more is committed; watching joins no group."""
    topic, group = f"t{uuid.uuid4().hex[:8]}", f"g{uuid.uuid4().hex[:8]}"
    properties = {"bootstrap.servers": each_stack.kafka.bootstrap}
    made(each_stack, topic)
    producer = Producer(properties)
    for number in range(15):
        producer.produce(topic, b"x", partition=number % 2)
    assert producer.flush(20) == 0
    committer = Consumer({**properties, "group.id": group, "enable.auto.commit": False})
    committer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    try:
        with LagWatch(properties, group=group, topic=topic, every_s=0.1) as watch:
            expected: dict[tuple[str, ...], float] = {(topic, "0"): 5, (topic, "1"): 7}
            wait_until(lambda: watch.by_partition() == expected, timeout_s=20, what="the lag of both partitions")
            committer.commit(offsets=[TopicPartition(topic, 1, 7)], asynchronous=False)
            expected[topic, "1"] = 0
            wait_until(lambda: watch.by_partition() == expected, timeout_s=20, what="a lag of 0")
    finally:
        committer.close()


def made(here: Stack, topic: str) -> None:
    """Make a topic of two partitions on either kind of broker."""
    if isinstance(here.kafka, EmbeddedKafka):
        here.kafka.create_topic(topic, 2)
        return
    assert isinstance(here.kafka, Brokers)
    admin = AdminClient({"bootstrap.servers": here.kafka.bootstrap})
    for future in admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)]).values():
        future.result(20)


def test_without_brokers_no_lag_is_told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given no broker, when watched, then there is no lag instead of an old or invented one, it is said once, and the end does not hang."""
    monkeypatch.setattr(lag, "ANSWER_MAX_S", 0.5)
    caplog.set_level("INFO", "stream.runtime.kafka.lag")
    (port,) = free_ports(1)
    properties = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}
    with LagWatch(properties, group="g", topic="t", every_s=0.1) as watch:
        wait_until(lambda: caplog.records, timeout_s=20, what="a line that the lag is unknown")
        assert watch.by_partition() == {}
    assert [one.message for one in caplog.records] == ["lag.unknown"]


def test_a_partition_stalls_from_when_it_last_moved_and_only_while_something_waits() -> None:
    """Given the offsets and lags of a group, look by look, then each partition's time without progress begins anew when its offset moves, either way, or when nothing waits; a partition that comes and goes begins at 0."""
    now_s = 0.0
    progress = GroupProgress(clock=lambda: now_s)
    assert progress.look({0: 5, 1: 0}, {0: 3, 1: 0}) == {0: 0, 1: 0}
    now_s = 10
    assert progress.look({0: 5, 1: 0}, {0: 9, 1: 0}) == {0: 10, 1: 0}
    now_s = 20
    assert progress.look({0: 6, 1: 0, 2: -1001}, {0: 8, 1: 4, 2: 7}) == {0: 0, 1: 10, 2: 0}
    now_s = 30
    assert progress.look({0: 2, 1: 0, 2: -1001}, {0: 8, 1: 4, 2: 7}) == {0: 0, 1: 20, 2: 10}
    now_s = 40
    assert progress.look({0: 2}, {0: 8}) == {0: 10}
    now_s = 50
    assert progress.look({0: 2, 1: 0}, {0: 8, 1: 4}) == {0: 20, 1: 0}
