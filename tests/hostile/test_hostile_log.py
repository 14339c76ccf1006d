"""What no ordinary producer writes, on a real log: each record is answered, or is a dead letter, and no partition stops."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from tests.kafka.brokers import free_ports
from tests.kafka.raw_log import hostile_batches, produce_raw, raw_batch, raw_record, unreadable_batches
from tests.notify.notifier_room import notifier_room
from tests.service.lender import Lender, record, records
from tests.service.room import Room, command, freeze, probed, room, wait_until
from tests.service.stack import Stack

pytestmark = [pytest.mark.service, pytest.mark.timeout(180)]


@pytest.fixture
def real(real_stack_or_none: Stack | None) -> Stack:
    """Apache Kafka: the embedded one has no transactions, keeps no raw batches and deletes nothing."""
    if real_stack_or_none is None:
        pytest.skip("needs Apache Kafka")
    return real_stack_or_none


def answered(here: Room) -> set[str]:
    """The decisions that have a recommendation."""
    return {one["decision_id"] for one in here.recommendations()}


def test_a_strange_frame_around_a_decision_changes_nothing(real: Stack, toy: Lender, tmp_path: Path) -> None:
    """Given decisions in every strange frame that the broker takes, one of them with a header name that is no UTF-8, then each is answered, its dead letters name nothing, and lag is 0."""
    (number,) = toy.declined(1)
    with room(real, tmp_path, partitions=1) as here:
        here.publish(toy)
        names = sorted(hostile_batches(b"", b""))
        for place, name in enumerate(names):
            key, value = record(toy.decision(number, decision_id=f"strange-{place}"))
            batch = hostile_batches(key, value)[name]
            assert produce_raw(here.settings.kafka_brokers, here.settings.topic_decisions, batch) == [None], name
        here.send(records(toy, toy.declined(2, skip=1)))
        worker = here.worker()
        here.until_done()
        assert worker.alive
        assert here.dead_letters() == []
        expected = {f"strange-{place}" for place in range(len(names))}
        assert answered(here) == expected | {f"toy-{one}" for one in toy.declined(2, skip=1)}


def test_what_nobody_can_read_is_one_dead_letter_and_the_partition_goes_on(
    real: Stack, toy: Lender, tmp_path: Path
) -> None:
    """Given batches that no record can be read from, between decisions, then each is one dead letter that holds the batch and names its offsets, and the decisions around it are answered."""
    before, after = toy.declined(2)
    with room(real, tmp_path, partitions=1) as here:
        here.publish(toy)
        here.send(records(toy, [before]))
        bad = unreadable_batches()
        assert produce_raw(here.settings.kafka_brokers, here.settings.topic_decisions, *bad.values()) == [None] * len(
            bad
        )
        here.send(records(toy, [after]))
        worker = here.worker()
        here.until_done()
        assert worker.alive
        letters = sorted(here.dead_letters(), key=lambda one: one["offset"])
        assert [(one["error"], one["stage"]) for one in letters] == [("UnreadableRecords", "decode")] * len(bad)
        for offset, (letter, batch) in enumerate(zip(letters, bad.values(), strict=True), start=1):
            assert letter["value"][16:] == batch[16:]  # before that the broker puts offset and epoch
            assert f"offsets {offset} to {offset}" in letter["message"]
        assert answered(here) == {f"toy-{before}", f"toy-{after}"}


def test_what_was_never_committed_is_never_answered_and_lag_ends_at_zero(
    real: Stack, toy: Lender, tmp_path: Path
) -> None:
    """Given decisions in transactions that commit, that abort, and that stay open, when a worker reads, then only the committed ones are answered, what follows an open one waits for its end, and markers are no lag, for our metric and for the group's committed offset."""
    numbers = toy.declined(5)
    with room(real, tmp_path, partitions=1) as here:
        here.publish(toy)
        worker = here.worker()
        with transaction(here, "aborted") as producer:
            produce(here, producer, toy, numbers[0])
            producer.flush()
            producer.abort_transaction()
        with transaction(here, "committed") as producer:
            produce(here, producer, toy, numbers[1])
            producer.commit_transaction()
        here.until_done()  # past the last marker
        assert answered(here) == {f"toy-{numbers[1]}"}
        with transaction(here, "open") as producer:
            produce(here, producer, toy, numbers[2])
            producer.flush()
            here.send(records(toy, [numbers[3]]))
            time.sleep(2)
            assert answered(here) == {f"toy-{numbers[1]}"}
            producer.abort_transaction()
        here.until_done()
        assert answered(here) == {f"toy-{one}" for one in (numbers[1], numbers[3])}
        assert worker.alive
        assert worker.stop() == 0
        again = here.worker()
        here.send(records(toy, [numbers[4]]))
        here.until_done()
        assert again.events("decisions.lost") == []


@contextmanager
def transaction(here: Room, name: str) -> Iterator[Producer]:
    """A producer within a transaction."""
    settings = {"bootstrap.servers": here.settings.kafka_brokers, "transactional.id": f"{here.settings.group}-{name}"}
    producer = Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    yield producer


def produce(here: Room, producer: Producer, lender: Lender, number: int) -> None:
    """Write one decision."""
    key, value = record(lender.decision(number))
    producer.produce(here.settings.topic_decisions, key=key, value=value, partition=0)


def test_decisions_deleted_under_a_running_worker_are_named_and_counted(
    real: Stack, toy: Lender, tmp_path: Path
) -> None:
    """Given a worker that stands still, or none, while the topic's head is deleted, when one goes on, then what it never read is logged once with partition and offsets, and counted, and it answers what is left."""
    numbers = toy.declined(3)
    with room(real, tmp_path, partitions=1, uncommitted_max="1000") as here:
        here.publish(toy)
        worker = here.worker()
        here.send(records(toy, numbers[:1]))
        here.until_done()
        freeze(worker.process.pid)
        here.send([(b"k", b"{}")])
        time.sleep(0.3)  # the fetch that waited takes this one along
        here.send((b"k", b"{}") for _ in range(49))
        trim(here, 41)
        os.kill(worker.process.pid, signal.SIGCONT)
        here.send(records(toy, numbers[1:2]))
        here.until_done()
        (told,) = worker.events("decisions.lost")
        assert (told["partition"], told["to"], told["count"]) == (0, 40, 41 - told["from"])
        assert len(here.dead_letters()) + told["count"] == 50  # some had been fetched when it was stopped
        wait_until(
            lambda: worker.events("worker.totals")[-1]["decisions_lost"] == told["count"],
            what="the loss among the totals",
        )
        assert worker.stop() == 0
        here.send((b"k", b"{}") for _ in range(5))
        trim(here, 55)
        worker = here.worker()
        here.send(records(toy, numbers[2:]))
        here.until_done()
        (told,) = worker.events("decisions.lost")
        assert (told["from"], told["to"], told["count"]) == (52, 54, 3)
        assert answered(here) == {f"toy-{one}" for one in numbers}


def trim(here: Room, before: int) -> None:
    """Delete the head of the topic of decisions."""
    admin = AdminClient({"bootstrap.servers": here.settings.kafka_brokers})
    asked = [TopicPartition(here.settings.topic_decisions, 0, before)]
    for future in admin.delete_records(asked).values():
        future.result(30)


def test_partitions_added_later_are_read_from_their_beginning(real: Stack, toy: Lender, tmp_path: Path) -> None:
    """Given a group that began with --start-at latest, when partitions are added, under a running worker and while none runs, then all that lies on them is answered within seconds, and a second worker starts beside the first."""
    numbers = toy.declined(4)
    with room(real, tmp_path, partitions=1, start_at="latest") as here:
        here.publish(toy)
        first = here.worker()
        grow(here, 2)
        send_to(here, toy, numbers[0], partition=1)
        second = here.worker()
        wait_until(
            lambda: answered(here) == {f"toy-{numbers[0]}"}, what="an answer from the partition added", timeout_s=30
        )
        assert first.stop() == 0
        assert second.stop() == 0
        grow(here, 3)
        send_to(here, toy, numbers[1], partition=2)
        here.worker()
        here.partitions = 3
        here.until_done()
        assert answered(here) == {f"toy-{one}" for one in numbers[:2]}


def grow(here: Room, partitions: int) -> None:
    """Add partitions to the topic of decisions."""
    admin = AdminClient({"bootstrap.servers": here.settings.kafka_brokers})
    for future in admin.create_partitions([NewPartitions(here.settings.topic_decisions, partitions)]).values():
        future.result(30)


def send_to(here: Room, lender: Lender, number: int, *, partition: int) -> None:
    """Write one decision to a partition."""
    key, value = record(lender.decision(number))
    assert produce_raw(
        here.settings.kafka_brokers,
        here.settings.topic_decisions,
        raw_batch(raw_record(key, value)),
        partition=partition,
    ) == [None]


def test_a_topic_made_anew_is_read_within_seconds(real: Stack, toy: Lender, tmp_path: Path) -> None:
    """Given a running worker, when its topic is deleted and made anew, then what is written to the new one is answered within seconds, and while it was away the worker was not ready."""
    numbers = toy.declined(2)
    (port,) = free_ports(1)
    with room(real, tmp_path, partitions=1, metrics_port=str(port)) as here:
        here.publish(toy)
        worker = here.worker()
        here.send(records(toy, numbers[:1]))
        here.until_done()
        assert probed(port, "/ready")[0] == 200
        admin = AdminClient({"bootstrap.servers": here.settings.kafka_brokers})
        for future in admin.delete_topics([here.settings.topic_decisions]).values():
            future.result(30)
        wait_until(lambda: probed(port, "/ready")[0] == 503, what="not ready without the topic", timeout_s=30)
        real.create_topics(here.settings, partitions=1)
        wait_until(
            lambda: here.settings.topic_decisions in admin.list_topics(timeout=5).topics, what="the topic made anew"
        )
        here.send(records(toy, numbers[1:]))
        wait_until(
            lambda: answered(here) == {f"toy-{one}" for one in numbers},
            what="an answer from the new topic",
            timeout_s=45,
        )
        assert worker.alive
        wait_until(lambda: probed(port, "/ready")[0] == 200, what="ready again", timeout_s=30)
        assert probed(port, "/health")[0] == 200


def test_timestamps_far_ahead_and_far_behind_are_answered_alike(real: Stack, toy: Lender, tmp_path: Path) -> None:
    """Given records whose Kafka timestamps lie before 1970 and in the far future, then the answer is that of any other time: the decision states its own."""
    (number,) = toy.declined(1)
    with room(real, tmp_path, partitions=1) as here:
        here.publish(toy)
        _, value = record(toy.decision(number))
        for place, first_ms in enumerate((-1_000_000, 0, 1_000)):
            changed = orjson.dumps({**orjson.loads(value), "decision_id": f"t{place}"})
            batch = raw_batch(raw_record(b"k", changed), first_ms=first_ms)
            assert produce_raw(here.settings.kafka_brokers, here.settings.topic_decisions, batch) == [None]
        here.worker()
        here.until_done()
        assert answered(here) == {"t0", "t1", "t2"}


def test_no_consumer_of_our_own_topics_ends_at_a_header_name_that_is_no_text(
    real: Stack, toy: Lender, tmp_path: Path
) -> None:
    """Given a decision, its audit record, recommendation and dead letter, each with a header name that is no UTF-8, then the sink keeps them, the notifier writes its letter, a replay answers, and the topics are listed."""
    (number,) = toy.declined(1)
    with notifier_room(real, tmp_path, partitions=1) as letters:
        here = letters.room
        here.publish(toy)
        here.worker()
        here.send([*records(toy, [number]), (b"bad", b"{")])
        here.until_done()
        settings = here.settings
        topics = (settings.topic_decisions, settings.topic_audit, settings.topic_recommendations, settings.topic_dlq)
        for topic in topics:
            (kept, *_) = here.read(topic)
            strange = raw_record(kept.key(), kept.value(), headers=[(b"\xff", b"y")])
            assert produce_raw(settings.kafka_brokers, topic, raw_batch(strange)) == [None]
        here.until_done()
        for topic, count in zip(topics, (3, 3, 3, 2), strict=True):
            assert len(command(here, "topics", "read", topic).stdout.splitlines()) == count
        letters.notifier(COACH_START_AT="earliest")
        letters.until_done()
        assert [one["status"] for one in letters.notices("printed", "sent")] == ["printed"]
        kept_by_sink = command(here, "audit", "sink", "--to", str(tmp_path / "archive"), "--once")
        assert kept_by_sink.returncode == 0, kept_by_sink.stderr
        assert command(here, "audit", "verify", str(tmp_path / "archive")).returncode == 0
        listed = command(here, "dlq", "list", "--json")
        assert (listed.returncode, len(listed.stdout.splitlines())) == (0, 2), listed.stderr
        replayed = command(
            here,
            "replay",
            "--run-id",
            "strange",
            "--no-topics",
            "--out",
            str(tmp_path / "report"),
            COACH_REPLAY_STATE_DIR=str(tmp_path),
        )
        assert replayed.returncode in (0, 1), replayed.stderr
        report = json.loads((tmp_path / "report" / "report.json").read_text())
        assert report["records"] == 3


def test_a_topic_s_end_lies_behind_the_marker_of_a_transaction(real: Stack, toy: Lender, tmp_path: Path) -> None:
    """Given topics whose last offset is the marker of a transaction, committed or aborted, or an open one, then reading them to their end ends, with what is committed and without what is not."""
    with notifier_room(real, tmp_path, partitions=1) as letters:
        here = letters.room
        here.publish(toy)
        for topic in (here.settings.topic_decisions, here.settings.topic_recommendations, here.settings.topic_models):
            for name in ("committed", "aborted", "open"):
                with transaction(here, f"{topic}-{name}") as producer:
                    producer.produce(topic, key=name.encode(), value=b"{}", partition=0)
                    producer.flush()
                    if name == "committed":
                        producer.commit_transaction()
                    if name == "aborted":
                        producer.abort_transaction()
                    began_s = time.monotonic()
                    told = [
                        json.loads(line)["key"] for line in command(here, "topics", "read", topic).stdout.splitlines()
                    ]
                    print(f"{topic} {name}: read in {time.monotonic() - began_s:.1f} s")
                    assert [one for one in told if one in ("committed", "aborted", "open")] == ["committed"]
                    if name == "open":
                        producer.abort_transaction()
        assert command(here, "model", "list").returncode == 0
        letters.notifier(COACH_START_AT="earliest")
        letters.until_done()


def test_workers_agree_after_the_topic_of_models_was_made_anew(real: Stack, toy: Lender, tmp_path: Path) -> None:
    """Given a worker that knows a publication, when the topic of models is made anew, empty, then that worker forgets it as one that starts now never knew it, says so, and both answer with what is published next."""
    numbers = toy.declined(3)
    with room(real, tmp_path, partitions=1, model_wait_s="60") as here:
        here.publish(toy)
        first = here.worker()
        here.send(records(toy, numbers[:1]))
        here.until_done()
        admin = AdminClient({"bootstrap.servers": here.settings.kafka_brokers})
        for future in admin.delete_topics([here.settings.topic_models]).values():
            future.result(30)
        time.sleep(1)
        real.create_topics(here.settings, partitions=1)
        first.until("models.topic_remade", timeout_s=30)
        here.send(records(toy, numbers[1:2]))
        first.until("decisions.waiting")
        here.publish(toy)
        here.until_done()
        assert first.stop() == 0
        here.worker()
        here.send(records(toy, numbers[2:]))
        here.until_done()
        assert answered(here) == {f"toy-{one}" for one in numbers}
        assert here.dead_letters() == []
