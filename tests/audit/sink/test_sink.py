"""`coach audit sink` as a process on a real topic: killed, doubled, cut off, and put before what it cannot keep."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from stream.audit.archive.read import read_archive
from stream.wire.avro_records import decode
from tests.audit.archive.topic import files_of
from tests.audit.nursery import Child, Nursery
from tests.audit.trickle import Trickle, kept, send, unnamed
from tests.kafka.brokers import free_ports
from tests.service.room import REPOSITORY, Room, room
from tests.service.stack import Stack

pytestmark = [pytest.mark.service, pytest.mark.timeout(300)]

Json = Any
RANGE = "40"


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """Starts `coach` at once."""
    with Nursery() as started:
        yield started


@pytest.fixture
def here(stack: Stack, tmp_path: Path) -> Iterator[Room]:
    """A topic of two partitions of one's own."""
    with room(stack, tmp_path, partitions=2, log_totals_every_s="0.5", retry_delay_max_s="0.5") as made:
        yield made


def write(here: Room, first: int, count: int, *, partitions: int = 2) -> None:
    """Put audit records on the topic, of three days and two versions."""
    producer = Producer({"bootstrap.servers": here.settings.kafka_brokers, "linger.ms": 20})
    for number in range(first, first + count):
        send(producer, here.settings.topic_audit, number, partitions=partitions)
    assert producer.flush(30) == 0


class Sinks:
    """Sinks of one room, in any number."""

    def __init__(self, nursery: Nursery, here: Room) -> None:
        self._nursery, self._here = nursery, here
        self.started: list[Child] = []

    def start(self, to: str | Path, *more: str, name: str = "", **environment: str) -> Child:
        """Start one. `name` is its static membership, with which it need not wait for a dead one's session to end."""
        log = self._here.folder / f"sink-{len(self.started)}.log"
        group = f"{self._here.settings.group}-{Path(str(to)).name}"
        own = {"COACH_SINK_RANGE_OFFSETS": RANGE, "COACH_SINK_GROUP": group, "COACH_SINK_INSTANCE": name}
        own |= {"COACH_SINK_TAIL_S": "0.2"} | {f"COACH_{key.upper()}": value for key, value in environment.items()}
        child = self._nursery.start(
            "audit", "sink", "--to", str(to), *more, environment=self._here.environment | own, log=log
        )
        self.started.append(child)
        return child

    def once(self, to: str | Path, *more: str, code: int = 0, name: str = "one", **environment: str) -> Json:
        """Let one bring all that is there into an archive."""
        child = self.start(to, "--once", "--json", *more, name=name, **environment)
        assert child.wait(240.0) == code, child.log.read_text()[-3000:]
        return json.loads(child.log.read_text().splitlines()[-1])


@pytest.fixture
def sinks(nursery: Nursery, here: Room) -> Iterator[Sinks]:
    """Whatever still runs is ended."""
    made = Sinks(nursery, here)
    yield made
    for child in made.started:
        if child.alive:
            child.kill()


def each_once(here: Room, folder: Path) -> None:
    """Every record of the topic is in the archive once, as it is."""
    found = list(read_archive(str(folder)))
    topic = {(message.partition(), message.offset()): message for message in here.read(here.settings.topic_audit)}
    assert Counter((one.stored.partition, one.stored.offset) for one in found) == Counter(topic.keys())
    for one in found:
        if not isinstance(one.record, str):
            assert one.record == decode(topic[one.stored.partition, one.stored.offset].value() or b"")[1]


# Of each life: how many records come, half of them once it has its partitions. They are 16 a partition and a range is 10,
# so that each partition keeps a range and another one or a tail: at least four in all. It dies after one of these, or when it
# shows a tail while further records come; in both cases after a moment in which it goes on.
A_LIFE = 32
SHORT = 10
KEPT_MAX = 4
AFTER_TAIL = 6
AT_TAIL = 0.35
MOMENT_MIN_S, MOMENT_MAX_S = 0.02, 0.2
AMID_WORK_MIN = 0.75  # of the kills fall while records of the topic are not in the archive
SEED = 20261128  # CI must say the same of the same commit
KILLS = [
    pytest.param(6, id="6"),
    pytest.param(60, id="60", marks=[pytest.mark.nightly, pytest.mark.timeout(1_800)]),
]


@pytest.mark.chaos
@pytest.mark.parametrize("kills", KILLS)
def test_killed_at_random_points_it_writes_what_an_undisturbed_one_writes(
    here: Room, sinks: Sinks, tmp_path: Path, kills: int
) -> None:
    """Given a sink killed again and again amid its work while records come, when one lives to the end, then its files are those of an undisturbed sink byte for byte, with every record of the topic once."""
    seed = SEED if os.environ.get("CI") == "true" else random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)  # noqa: S311 - when to kill is no secret
    folder = tmp_path / "killed"
    with Trickle(here) as records:
        lives = [one_life(sinks, folder, records, chance) for _ in range(kills)]
        records.grant(A_LIFE)
    amid = sum(one.missing > 0 for one in lives)
    torn = sum(one.torn for one in lives)
    print(
        f"seed {seed}: {kills} kills, {amid} amid work, {torn} of them amid a range: with files that no range file names"
    )
    print(*(f"+{one.progress} (-{one.missing})" for one in lives))
    assert amid >= AMID_WORK_MIN * kills
    assert all(one.progress > 0 for one in lives)
    sinks.once(folder, sink_range_offsets="0")
    totals = sinks.once(tmp_path / "undisturbed", sink_range_offsets=str(SHORT))
    assert totals["records"] == records.granted >= (kills + 1) * A_LIFE
    assert totals["ranges"] >= records.granted // SHORT - 2
    assert files_of(folder) == files_of(tmp_path / "undisturbed")
    each_once(here, folder)


@dataclass(frozen=True, kw_only=True)
class Life:
    """What a sink did until it was killed: records that it brought into the archive, and those that it left on the topic alone."""

    progress: int
    missing: int
    torn: bool


def one_life(sinks: Sinks, folder: Path, records: Trickle, chance: random.Random) -> Life:
    """Let a sink begin, work until it kept a seeded number of ranges and tails and for a seeded moment, and kill it."""
    before, known = kept(folder), unnamed(folder)
    records.grant(A_LIFE // 2)
    child = sinks.start(folder, name="one", sink_range_offsets=str(SHORT))
    child.until("sink.assigned")
    records.grant(A_LIFE // 2)
    if chance.random() < AT_TAIL and records.granted // 2 % SHORT:  # else no tail remains to be shown
        child.until("sink.tail_kept")
        records.grant(AFTER_TAIL)
    else:
        child.until("sink.range_kept", "sink.tail_kept", count=chance.randint(1, KEPT_MAX))
    time.sleep(chance.uniform(MOMENT_MIN_S, MOMENT_MAX_S))
    child.kill()
    after = kept(folder)
    return Life(progress=after - before, missing=records.there - after, torn=bool(unnamed(folder) - known))


@pytest.mark.chaos
@pytest.mark.nightly
def test_two_sinks_and_one_that_slept_leave_one_archive(here: Room, sinks: Sinks, tmp_path: Path) -> None:
    """Given two sinks of one group, one of which sleeps past its session and wakes up when the other has its partitions, when both go on, then the files are those of an undisturbed sink."""
    folder = tmp_path / "two"
    write(here, 0, 200)
    first = sinks.start(folder)
    first.until("sink.range_kept")
    first.signal(signal.SIGSTOP)
    second = sinks.start(folder)
    write(here, 200, 200)
    second.until("sink.range_kept", count=8, timeout_s=120)
    first.signal(signal.SIGCONT)
    write(here, 400, 100)
    time.sleep(8)
    for child in (first, second):
        child.signal(signal.SIGTERM)
        assert child.wait() == 0, child.log.read_text()[-3000:]
    sinks.once(folder)
    sinks.once(tmp_path / "undisturbed")
    assert files_of(folder) == files_of(tmp_path / "undisturbed")
    each_once(here, folder)


def test_a_quiet_topic_is_in_the_archive_soon_and_a_stop_leaves_nothing_behind(
    here: Room, sinks: Sinks, tmp_path: Path
) -> None:
    """Given a sink that waits, when a few records come, then the archive shows them within the bound; when it is told to stop, then it ends with 0 and shows all."""
    (port,) = free_ports(1)
    child = sinks.start(tmp_path / "quiet", sink_tail_s="0.3", sink_metrics_port=str(port))
    child.until("sink.assigned")
    write(here, 0, 3)
    child.until("sink.tail_kept", timeout_s=20)
    write(here, 3, 1)
    time.sleep(1)
    told = {path: httpx2.get(f"http://127.0.0.1:{port}/{path}", timeout=10) for path in ("metrics", "ready")}
    assert "coach_sink_records_total 4.0" in told["metrics"].text
    assert 'coach_sink_lag{partition="1"} 0.0' in told["metrics"].text
    assert told["ready"].status_code == 200
    child.signal(signal.SIGTERM)
    assert child.wait() == 0
    each_once(here, tmp_path / "quiet")
    assert child.events("sink.ended")[0]["records"] == 4


def test_the_last_line_tells_the_lag_at_the_end(here: Room, sinks: Sinks, tmp_path: Path) -> None:
    """Given a sink that brings all that is there in less than a second, when it ends, then its last line tells where it is and that nothing is left."""
    write(here, 0, 150)
    sinks.once(tmp_path / "quick")
    (ended,) = sinks.started[0].events("sink.ended")
    assert (ended["lag"], ended["records"], ended["positions"]) == (0, 150, {"0": 75, "1": 75})


def test_an_archive_wiped_under_a_sink_ends_it(here: Room, sinks: Sinks, tmp_path: Path) -> None:
    """Given a sink at work, when its archive is removed and records come, then it ends with 1 and one line that says what is gone and what to do."""
    child = sinks.start(tmp_path / "wiped")
    write(here, 0, 30)
    child.until("sink.tail_kept", count=2)
    shutil.rmtree(tmp_path / "wiped")
    write(here, 30, 100)
    assert child.wait() == 1
    assert "lost _archive.json while a sink worked on it" in child.log.read_text()


def test_brokers_that_are_not_there_are_one_line(sinks: Sinks, tmp_path: Path) -> None:
    """Given no broker, when a sink begins, then it ends with 3 and one line, which says why and names the protocol's setting."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    child = sinks.start(tmp_path, kafka_brokers=address, start_wait_s="1")
    assert child.wait() == 3
    (line,) = child.log.read_text().splitlines()
    assert re.fullmatch(rf"coach: no Kafka broker answered within 1 s at {address}: .* \(COACH_KAFKA_\w+\)\?", line)


def test_what_is_no_audit_record_is_kept_counted_and_told(here: Room, sinks: Sinks, tmp_path: Path) -> None:
    """Given garbage, a tombstone and another record on the topic, when they are brought in, then each is kept as bytes with the reason, the exit code is 1, and the records around them are there."""
    write(here, 0, 4)
    producer = Producer({"bootstrap.servers": here.settings.kafka_brokers})
    garbage: list[tuple[bytes | None, bytes | None]] = [
        (b"k", b"\xff\x00"),
        (None, None),
        (b"", b"\xc3\x01" + b"9" * 20),
    ]
    for key, value in garbage:
        producer.produce(here.settings.topic_audit, value, key, partition=0, headers=[("h", b"\x80"), ("n", None)])
    assert producer.flush(20) == 0
    done = sinks.once(tmp_path / "mixed", code=1)
    assert (done["records"], done["unreadable"]) == (4, 3)
    each_once(here, tmp_path / "mixed")
    (file,) = (tmp_path / "mixed" / "_unreadable").iterdir()
    kept = pq.read_table(file).to_pylist()
    assert [(row["kafka_key"], row["kafka_value"]) for row in kept] == garbage
    assert all(row["kafka_headers"] == [{"key": "h", "value": b"\x80"}, {"key": "n", "value": None}] for row in kept)
    assert [row["why"].split(":")[0] for row in kept] == ["cannot be decoded", "has no value", "cannot be decoded"]


def test_what_retention_took_is_told_and_only_a_person_goes_on(here: Room, sinks: Sinks, tmp_path: Path) -> None:
    """Given records deleted from the topic before the archive had them, when a sink begins, then it ends with 1 and names them; with --accept-loss it goes on, and the archive names them for ever."""
    if not here.stack.real:
        pytest.skip("the embedded Kafka deletes nothing")
    folder = tmp_path / "late"
    write(here, 0, 50, partitions=1)
    sinks.once(folder)
    write(here, 50, 100, partitions=1)
    delete_below(here, 130)
    refused = sinks.start(folder, "--once", name="one")
    assert refused.wait() == 1
    assert "offsets 50 to 129 of" in refused.log.read_text()
    assert "--accept-loss" in refused.log.read_text()
    done = sinks.once(folder, "--accept-loss")
    assert (done["offsets_lost"], done["records"]) == (80, 20)
    assert sinks.once(folder)["offsets_lost"] == 0
    assert [one.stored.offset for one in read_archive(str(folder))] == [*range(50), *range(130, 150)]


def test_retention_that_overtakes_a_running_sink_ends_it(here: Room, sinks: Sinks, tmp_path: Path) -> None:
    """Given a sink that slept while the topic deleted what it was to read next, when it wakes up, then it ends with 1 and names what is lost."""
    if not here.stack.real:
        pytest.skip("the embedded Kafka deletes nothing")
    write(here, 0, 20, partitions=1)
    child = sinks.start(tmp_path / "overtaken", name="one")
    child.until("sink.tail_kept")
    child.signal(signal.SIGSTOP)
    write(here, 20, 80, partitions=1)
    delete_below(here, 70)
    child.signal(signal.SIGCONT)
    assert child.wait() == 1
    told = re.search(r"offsets (\d+) to 69 of", child.log.read_text().splitlines()[-1])
    assert told is not None
    first = int(told[1])  # the answer to a fetch that was under way when it fell asleep still reached it
    assert first >= 20
    assert sinks.once(tmp_path / "overtaken", "--accept-loss")["offsets_lost"] == 70 - first


def delete_below(here: Room, offset: int) -> None:
    """Do what retention does."""
    admin = AdminClient({"bootstrap.servers": here.settings.kafka_brokers})
    for future in admin.delete_records([TopicPartition(here.settings.topic_audit, 0, offset)]).values():
        future.result(20)


def test_a_target_that_cannot_be_written_is_waited_for_and_then_named(here: Room, sinks: Sinks, tmp_path: Path) -> None:
    """Given a target under a file, when a sink begins, then it waits for the named bound and ends with 3 in one line; nothing is committed."""
    (tmp_path / "occupied").write_text("a file")
    write(here, 0, 5)
    child = sinks.start(tmp_path / "occupied" / "archive", "--once", outage_max_s="1")
    assert child.wait() == 3
    said = child.log.read_text().splitlines()[-1]
    assert said.startswith("coach: the archive at")
    assert "COACH_OUTAGE_MAX_S=1" in said


def test_the_commands_of_the_page_do_what_it_says(here: Room, nursery: Nursery, tmp_path: Path) -> None:
    """Given the commands of docs/audit-archive.md, when they run in an empty folder, then each ends with 0."""
    write(here, 0, 30)
    blocks = re.findall(r"```bash\n(.*?)```", (REPOSITORY / "docs" / "audit-archive.md").read_text(), re.DOTALL)
    lines = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert lines
    for number, (program, *arguments) in enumerate(lines):
        assert program == "coach"
        log = here.folder / f"command-{number}.log"
        child = nursery.start(*arguments, environment=here.environment, log=log, folder=tmp_path)
        assert child.wait() == 0, log.read_text()
    assert log.read_text().startswith("30 records, 0 wrong")


def test_brokers_that_go_away_come_back_to_a_sink_that_waited(
    embedded_stack: Stack, nursery: Nursery, tmp_path: Path
) -> None:
    """Given brokers that are away for a while, when they are back, then the sink goes on; when they stay away, then it ends with 3 and names the bound."""
    with room(embedded_stack, tmp_path, partitions=2, outage_max_s="4", log_totals_every_s="0.5") as here:
        sinks = Sinks(nursery, here)
        child = sinks.start(tmp_path / "archive")
        child.until("sink.assigned")
        embedded_stack.kafka.down()
        time.sleep(2)
        embedded_stack.kafka.up()
        write(here, 0, 30)
        child.until("sink.tail_kept", timeout_s=30)
        embedded_stack.kafka.down()
        try:
            assert child.wait() == 3
        finally:
            embedded_stack.kafka.up()
        assert "COACH_OUTAGE_MAX_S=4" in child.log.read_text().splitlines()[-1]
