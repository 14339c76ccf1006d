from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer

from stream.demo import traffic
from stream.demo.embedded.embedded_kafka import EmbeddedKafka
from stream.demo.traffic import Exchange, Heard, Post
from stream.demo.worker_process import WorkerFailed
from stream.errors import CorruptionError, KafkaUnavailable
from stream.runtime.settings import Settings

PARTITIONS = {"decisions": 2, "recommendations": 1, "audit": 2, "decisions.dlq": 1}
GROUP = "group"


def settings(kafka: EmbeddedKafka) -> Settings:
    return Settings(kafka_brokers=kafka.bootstrap, group=GROUP)


@contextmanager
def answering(kafka: EmbeddedKafka, reply: Callable[[str, Producer], None]) -> Iterator[None]:
    """A stand-in for the worker that keeps its promises: it replies to each decision, flushes, then commits."""
    stopping = threading.Event()

    def work() -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["decisions"])
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        while not stopping.is_set():
            for message in consumer.consume(100, 0.05):
                reply((message.key() or b"").decode(), producer)
                producer.flush(5)
                consumer.commit(message=message, asynchronous=False)
        consumer.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def answer_declined(decision_id: str, producer: Producer, size: int = 10) -> None:
    if decision_id.startswith("declined"):
        producer.produce("audit", key=decision_id, value=bytes(size))
        producer.produce("recommendations", key=decision_id, value=b"do this")


def posts(declined: int, approved: int) -> list[Post]:
    names = [f"declined-{i}" for i in range(declined)] + [f"approved-{i}" for i in range(approved)]
    return [Post(decision_id=name, value=b"{}", declined=name.startswith("declined")) for name in names]


def run(kafka: EmbeddedKafka, decisions: list[Post], answer_bytes_max: int = 1000) -> Heard:
    exchange = Exchange(settings(kafka), PARTITIONS, check_alive=lambda: None, on_step=lambda _: None)
    try:
        return exchange.run(decisions, per_second=1000, answer_bytes_max=answer_bytes_max)
    finally:
        exchange.close()


@pytest.fixture
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(PARTITIONS) as running:
        yield running


def test_every_declined_decision_is_heard_of_and_timed(kafka: EmbeddedKafka) -> None:
    """Given declined and approved decisions, when exchanged, then both records of each declined one are there, and timed."""
    with answering(kafka, answer_declined):
        heard = run(kafka, posts(20, 10))
    expected = {f"declined-{i}" for i in range(20)}
    assert heard.recommendations.keys() == heard.audits.keys() == heard.answered_after_s.keys() == expected
    assert all(0 < seconds < 60 for seconds in heard.answered_after_s.values())
    assert (heard.duplicates, heard.dead_letters) == (0, {})


def test_a_dead_letter_settles_a_decision(kafka: EmbeddedKafka) -> None:
    """Given a worker that writes a dead letter, when exchanged, then nobody waits for an answer to that decision."""

    def reply(decision_id: str, producer: Producer) -> None:
        producer.produce("decisions.dlq", key=decision_id, value=b"no")

    with answering(kafka, reply):
        assert run(kafka, posts(1, 0)).dead_letters == {"declined-0": b"no"}


def test_what_comes_twice_is_counted(kafka: EmbeddedKafka) -> None:
    """Given a worker that writes an audit record twice, when exchanged, then the second counts as a duplicate."""

    def reply(decision_id: str, producer: Producer) -> None:
        producer.produce("audit", key=decision_id, value=b"twice")
        producer.produce("audit", key=decision_id, value=b"twice")
        producer.flush(5)
        producer.produce("recommendations", key=decision_id, value=b"once")

    with answering(kafka, reply):
        assert run(kafka, posts(1, 0)).duplicates == 1


def test_more_than_a_partition_keeps_passes_through_whole(kafka: EmbeddedKafka) -> None:
    """Given audit records of 30 MB for partitions of 5 MiB, when exchanged, then the window lets none be dropped unread."""
    with answering(kafka, lambda name, producer: answer_declined(name, producer, size=300_000)):
        heard = run(kafka, posts(100, 0), answer_bytes_max=300_000)
    assert len(heard.audits) == 100
    assert all(len(audit) == 300_000 for audit in heard.audits.values())


def test_a_record_that_was_dropped_unread_is_an_error(kafka: EmbeddedKafka) -> None:
    """Given a worker whose answers overflow a partition, when exchanged, then the loss is an error and not a smaller count."""

    def reply(decision_id: str, producer: Producer) -> None:
        for _ in range(40):
            producer.produce("audit", key=decision_id, value=bytes(900_000), partition=0)
        producer.flush(10)
        producer.produce("recommendations", key=decision_id, value=b"late")

    with answering(kafka, reply), pytest.raises((CorruptionError, KafkaUnavailable), match=r"dropped|audit"):
        run(kafka, posts(1, 0))


def test_a_worker_that_is_gone_ends_the_exchange(kafka: EmbeddedKafka) -> None:
    """Given a worker that died, when decisions are exchanged, then its end is reported at once instead of waited out."""

    def gone() -> None:
        reason = "gone"
        raise WorkerFailed(reason)

    exchange = Exchange(settings(kafka), PARTITIONS, check_alive=gone, on_step=lambda _: None)
    with pytest.raises(WorkerFailed):
        exchange.run(posts(1, 0), per_second=1000, answer_bytes_max=1000)
    exchange.close()


def test_silence_is_bounded(kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a worker that never answers, when the bound on silence has passed, then the error counts who is waiting."""
    monkeypatch.setattr(traffic, "SILENCE_MAX_S", 1.0)
    with pytest.raises(KafkaUnavailable, match="1 declined decisions wait"):
        run(kafka, posts(1, 0))
