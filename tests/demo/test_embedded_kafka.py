from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from stream.demo.embedded.embedded_kafka import lost_records
from stream.errors import KafkaUnavailable
from tests.kafka.faulty_kafka import FaultyKafka

PRODUCE, NOT_LEADER = 0, 6  # Kafka protocol: an API key and an error code


@pytest.fixture
def kafka() -> Iterator[FaultyKafka]:
    with FaultyKafka({"letters": 2}) as running:
        yield running


def send(kafka: FaultyKafka, values: list[bytes], *, partition: int = 0) -> list[str | None]:
    """Produce to `letters` and return each delivery's error."""
    reports: list[str | None] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "message.timeout.ms": 4000, "log_level": 0})
    for value in values:
        producer.produce(
            "letters",
            value=value,
            partition=partition,
            on_delivery=lambda error, _: reports.append(None if error is None else error.str()),
        )
        producer.poll(0)
    producer.flush(10)
    return reports


def read(kafka: FaultyKafka, count: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "reader", "log_level": 0})
    consumer.assign([TopicPartition("letters", 0, 0)])
    try:
        return consumer.consume(count, 10)
    finally:
        consumer.close()


def test_what_is_produced_is_read_back(kafka: FaultyKafka) -> None:
    """Given an embedded Kafka, when records are produced, then a reader gets the same bytes in the same order."""
    assert send(kafka, [b"one", b"two"]) == [None, None]
    assert [message.value() for message in read(kafka, 2)] == [b"one", b"two"]


def test_a_broker_that_is_down_comes_back_with_what_it_held(kafka: FaultyKafka) -> None:
    """Given a record on the broker, when it goes down and comes up again, then the record is still there."""
    send(kafka, [b"kept"])
    kafka.down()
    with pytest.raises(KafkaException):
        Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "x", "log_level": 0}).list_topics(timeout=0.5)
    kafka.up()
    assert [message.value() for message in read(kafka, 1)] == [b"kept"]


def test_an_injected_error_is_one_that_the_client_retries(kafka: FaultyKafka) -> None:
    """Given two injected errors on Produce, when a record is sent, then the client's retries still deliver it once."""
    kafka.err(PRODUCE, NOT_LEADER, 2)
    assert send(kafka, [b"in the end"]) == [None]
    assert [message.value() for message in read(kafka, 1)] == [b"in the end"]


def test_a_dropped_head_is_noticed(kafka: FaultyKafka) -> None:
    """Given more than 5 MiB on one partition, when nothing was read, then the loss is counted; when all was, none."""
    assert send(kafka, [bytes(100_000)] * 80) == [None] * 80
    assert lost_records(kafka.bootstrap, {("letters", 0): 0, ("letters", 1): 0}).keys() == {("letters", 0)}
    assert lost_records(kafka.bootstrap, {("letters", 0): 80, ("letters", 1): 0}) == {}


def test_a_command_that_cannot_be_obeyed_says_why(kafka: FaultyKafka) -> None:
    """Given a running cluster, when a broker that is not there shall go down, then the error names the command."""
    with pytest.raises(KafkaUnavailable, match="refuses `down 9`"):
        kafka.down(9)
    kafka.down(1)  # it still listens


def test_outside_its_block_it_says_that_it_is_not_running() -> None:
    """Given a cluster that was not entered, when its address is asked for, then the error says what to do."""
    with pytest.raises(KafkaUnavailable, match="`with` block"):
        _ = FaultyKafka().bootstrap


def test_a_cluster_that_was_killed_is_reported_as_gone(kafka: FaultyKafka) -> None:
    """Given a cluster whose process was killed, when it is told something, then the error says that it is away."""
    os.kill(kafka.pid, signal.SIGKILL)
    with pytest.raises(KafkaUnavailable, match="the embedded Kafka"):
        kafka.down(1)


def gone(pid: int, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
        if state == "Z":  # ended, and only its new parent has not looked yet
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_it_does_not_outlive_a_parent_that_was_killed() -> None:
    """Given a program that embeds Kafka, when the program is killed with SIGKILL, then the cluster's process ends too."""
    program = (
        "import time; from stream.demo.embedded.embedded_kafka import EmbeddedKafka\n"
        "with EmbeddedKafka() as kafka:\n    print(kafka.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    assert gone(pid, within_s=10)
