"""Replays of what workers answered live, on real Kafka and Redis."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import xgboost as xgb
from confluent_kafka import Producer

from stream.audit.sink.settings import SinkSettings
from stream.audit.sink.sink import Sink
from stream.canonical import canonical_json
from stream.errors import BundleUnavailable, ConfigurationError
from stream.replay.fence import RUN_HEADER
from stream.replay.judge.what_if import Change
from stream.replay.report.empty_run import why_nothing
from stream.replay.report.report import is_all_right
from stream.replay.request import Request
from stream.replay.run import run_replay
from stream.replay.settings import ReplaySettings, read_replay_settings
from stream.replay.sources.records import Window
from stream.runtime.kafka.topics import TopicKeeper
from stream.runtime.settings import read_settings
from stream.runtime.topic_specs import TopicSpec
from stream.wire.avro_records import decode, encode
from tests.replay.past import Lived, past
from tests.replay.processes import replay, start_replay
from tests.service.lender import Lender, record
from tests.service.room import Room, wait_until
from tests.service.stack import Stack

pytestmark = [pytest.mark.service, pytest.mark.chaos]
KILLS = 4
UNANSWERED = 30
SPEED = 40  # records a second, so that a small run lasts for all its kills
ATTEMPTS = 3


def bodies_of(here: Room, topic: str) -> set[bytes]:
    """The canonical bodies of a topic's audit records."""
    return {canonical_json(decode(value)[1]["body"]) for value in here.values(topic)}


def reproduce_under_kills(lived: Lived, kills: int, weather: random.Random) -> dict[str, Any]:
    """Reproduce the audit topic once undisturbed and once killed at random points; check that both end alike."""
    here = lived.here
    calm = Request(run_id="calm", mode="reproduce", out=here.folder / "calm")
    assert is_all_right(run_replay(calm, here.settings, read_replay_settings(here.environment)).report)
    run_id = killed_run(here, kills, weather, speed=None if kills > KILLS else SPEED)
    out = here.folder / run_id
    last = replay(here, "--run-id", run_id, "--out", str(out))
    assert last.returncode == 0, last.stdout + last.stderr
    report: dict[str, Any] = orjson.loads((out / "report.json").read_bytes())
    for name in ("report.json", "report.html"):
        calm_bytes = (here.folder / "calm" / name).read_bytes()
        assert calm_bytes.replace(b"calm", run_id.encode()) == (out / name).read_bytes(), f"{name} differs"
    live = here.settings
    assert bodies_of(here, live.topic_audit) == bodies_of(here, f"{live.topic_audit}.replay.{run_id}")
    print(f">>> {report['records']} audit records, {report['outcomes']['identical']} identical, killed {kills} times")
    return report


def killed_run(here: Room, kills: int, weather: random.Random, *, speed: int | None) -> str:
    """Kill a run so many times while it is at work and unfinished; give its id. A run that ends too early does not count."""
    whole = len(list((here.folder / "state" / "calm" / "chunks").glob("*.json")))
    for attempt in range(ATTEMPTS):
        run_id, hit = f"stormy-{attempt}", 0
        chunks = here.folder / "state" / run_id / "chunks"
        pace = [] if speed is None else ["--speed", str(speed >> attempt)]
        while hit < kills:
            already = len(list(chunks.glob("*.json")))
            out = here.folder / run_id
            flags = ["--run-id", run_id, "--out", str(out), *pace]
            process = start_replay(here, *flags, log=here.folder / "replay.log")
            wait_until(
                lambda: process.poll() is not None or len(list(chunks.glob("*.json"))) > already,  # noqa: B023
                what="the replay gets on",
            )
            time.sleep(weather.random() * 0.3)
            process.kill()
            was_running = process.wait() == -signal.SIGKILL
            if not was_running or len(list(chunks.glob("*.json"))) >= whole:
                break  # it was done, so nothing is left to be killed
            hit += 1
        if hit == kills:
            return run_id
    pytest.fail(f"no run of {ATTEMPTS} lasted for {kills} kills: {(here.folder / 'replay.log').read_text()[-2000:]}")


def check_reproduced(lived: Lived, kills: int) -> None:
    """Reproduce all of it under kills, and look at what was written where."""
    here = lived.here
    recommendations = sorted(here.values(here.settings.topic_recommendations))
    report = reproduce_under_kills(lived, kills, random.Random(7))  # noqa: S311 - a storm, no secret
    outcomes = report["outcomes"]  # what a killed worker answered twice is compared once
    assert outcomes["identical"] + outcomes["repeat"] == report["records"]
    assert outcomes["identical"] == len(lived.declined)
    assert len(report["bundles"]) == 2
    run_id = report["run_id"]
    marks = lived.written(here.settings.topic_recommendations, run_id)
    assert {(one["replay"], one["run_id"]) for one in marks} == {(True, run_id)}
    assert {one["decision_id"] for one in marks} == lived.declined
    assert sorted(here.values(here.settings.topic_recommendations)) == recommendations
    assert lived.written(here.settings.topic_dlq, run_id) == []


@pytest.mark.timeout(300)
def test_decisions_of_two_versions_are_reproduced_under_kills(lived: Lived) -> None:
    """Given 240 decisions under two interleaved model versions, answered live under kills, when the audit topic is reproduced by a replay that is killed four times, then every body is byte-identical, and report and output are those of an undisturbed run."""
    check_reproduced(lived, KILLS)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_twenty_thousand_decisions_of_two_versions_are_reproduced_under_kills(
    stack: Stack, lenders: tuple[Lender, Lender], tmp_path: Path
) -> None:
    """Given 20,000 decisions under two interleaved model versions, answered live under kills, when the audit topic is reproduced by a replay that is killed ten times, then every body is byte-identical, and report and output are those of an undisturbed run."""
    if not stack.real:
        pytest.skip("the embedded Kafka makes no topics on request")
    with past(stack, lenders, tmp_path, decisions=20_000, kills=10, chunk=250) as found:
        check_reproduced(found, 10)


def test_the_archive_of_the_sink_is_reproduced(lived: Lived) -> None:
    """Given the archive that the sink made of the audit topic, when it is reproduced without topics, then every record is identical, and a window of days that holds none is told from one that does."""
    archive = str(lived.here.folder / "archive")
    Sink(lived.here.settings, SinkSettings(sink_to=archive, sink_group="sink", sink_range_offsets=40), once=True).run()
    report = lived.replay(
        "of-archive", "reproduce", archive=archive, to_topics=False, out=lived.here.folder / "of"
    ).report
    stored = len(lived.here.values(lived.here.settings.topic_audit))
    assert report["outcomes"]["identical"] + report["outcomes"]["repeat"] == report["records"] == stored
    day = Window(from_ms=1_795_737_600_000, to_ms=1_795_824_000_000)  # the 27th of November 2026, that of all decisions
    within = lived.replay(
        "within", "reproduce", archive=archive, to_topics=False, out=lived.here.folder / "w", window=day
    )
    assert within.report["outcomes"] == report["outcomes"]
    before = Window(to_ms=1_795_737_600_000)
    none = lived.replay(
        "none", "reproduce", archive=archive, to_topics=False, out=lived.here.folder / "n", window=before
    )
    assert none.report["records"] == 0
    assert not is_all_right(none.report)
    assert f"holds {stored} records of 2026-11-27 that --to 2026-11-27T00:00:00.000Z left out" in str(
        why_nothing(none.report)
    )


def test_all_decisions_are_decided_again_by_the_next_version(lived: Lived) -> None:
    """Given the decisions topic, when a what-if asks version 2026-11, then all decisions are decided again as its owner library would, approved ones too, and exactly those it declines are answered."""
    old, new = lived.lenders
    report = lived.replay("next", "what-if", change=Change(model_version="2026-11")).report
    outcomes = report["outcomes"]
    expected = {"still_approved": 0, "newly_declined": 0, "newly_approved": 0, "still_declined": 0}
    declined_after = set()
    probabilities = probabilities_of(new, [one["features"] for one in lived.decisions])
    for number, one in enumerate(lived.decisions):
        after = probabilities[number] >= 0.5
        was = one["outcome"] == "approved"
        name = (
            ("still_approved" if was else "newly_approved")
            if after
            else ("newly_declined" if was else "still_declined")
        )
        expected[name] += 1
        if not after:
            declined_after.add(f"d-{number}")
    assert {name: outcomes[name] for name in expected} == expected
    assert sum(outcomes.values()) == len(lived.decisions) == report["records"]
    assert old.version != new.version
    answers = lived.written(lived.here.settings.topic_audit, "next")
    assert {one["decision_id"] for one in answers} == declined_after
    assert {one["body"]["bundle"]["model_version"] for one in answers} == {"2026-11"}


def probabilities_of(lender: Lender, rows: list[dict[str, Any]]) -> list[float]:
    """What the owner library says of rows."""
    booster = xgb.Booster(model_file=str(lender.bundle.parent / "model.json"))
    values = np.array([[row[name] for name in lender.features] for row in rows])
    found: list[float] = booster.predict(xgb.DMatrix(values, feature_names=list(lender.features))).tolist()
    return found


def test_a_backfill_answers_what_the_workers_did_not(lived: Lived) -> None:
    """Given decisions that came while no worker ran, and records that nobody can answer, when backfilled, then exactly those are answered into the run's topics, the others are its dead letters byte for byte, and what was answered live is left alone."""
    old = lived.lenders[0]
    late = [old.decision(number, decision_id=f"late-{number}") for number in old.declined(UNANSWERED)]
    [declined] = old.declined(1)
    lost = old.decision(declined, decision_id="lost", model_version="1999-01", margin=None, probability=None)
    bad = [(b"k1", b"nonsense"), (b"k2", None), record(lost)]
    live = lived.here.settings
    lived.here.send([*(record(one) for one in late), *bad])
    report = lived.replay("outage", "backfill").report
    assert report["outcomes"]["answered_now"] == UNANSWERED
    assert report["outcomes"]["answered_before"] == len(lived.declined)
    assert report["errors"] == {"MalformedRecord": 2, "ModelNotPublished": 1}
    assert report["outcomes"]["error"] == len(bad)
    assert {one["decision_id"] for one in lived.written(live.topic_audit, "outage")} == {
        one["decision_id"] for one in late
    }
    letters = lived.written(live.topic_dlq, "outage")
    assert {(one["key"], one["value"]) for one in letters} == set(bad)
    reasons = {one["key"]: (one["error"], one["message"]) for one in letters}
    assert {key: error for key, (error, _) in reasons.items()} == {
        b"k1": "MalformedRecord",
        b"k2": "MalformedRecord",
        b"lost": "ModelNotPublished",
    }
    assert "1999-01" in reasons[b"lost"][1]
    assert {one["topic"] for one in letters} == {live.topic_decisions}


def test_offsets_and_times_narrow_what_is_read(lived: Lived) -> None:
    """Given offsets of one partition, or a window before all decisions, when the audit topic is reproduced, then only those records are read, or all are counted as outside."""
    some = lived.replay("some", "reproduce", offsets={0: (3, 13)}).report
    assert some["records"] == some["outcomes"]["identical"] + some["outcomes"]["repeat"] == 10
    later = lived.replay("later", "reproduce", window=Window(from_ms=4_000_000_000_000)).report
    assert later["records"] == later["outcomes"]["outside_window"]
    with pytest.raises(ConfigurationError, match="--offsets"):
        lived.replay("beyond", "reproduce", offsets={0: (3, 1 << 40)})
    with pytest.raises(ConfigurationError, match="no topic"):
        lived.replay("nowhere", "reproduce", topic="nowhere")


def test_decisions_of_transactions_are_read_as_committed(lived: Lived) -> None:
    """Given a topic that a transactional producer wrote, with an aborted batch and marks at its end, when it is replayed in small chunks, then each committed record comes once and no offset without a record is waited for."""
    topic, old = f"{lived.here.settings.topic_decisions}.tx", lived.lenders[0]
    brokers = {"bootstrap.servers": lived.here.settings.kafka_brokers}
    TopicKeeper(brokers, timeout_s=10).apply(
        [TopicSpec(name=topic, record="Decision", partitions=1, configuration={})], replication=1, dry_run=False
    )
    producer = Producer({**brokers, "transactional.id": topic})
    producer.init_transactions(20)
    for batch, committed in enumerate((True, False, True, False)):
        producer.begin_transaction()
        for number in range(30 * batch, 30 * batch + 30):
            key, value = record(old.decision(number))
            producer.produce(topic, key=key, value=value)
        if committed:
            producer.commit_transaction(20)
        else:
            producer.flush(20)
            producer.abort_transaction(20)
    report = lived.replay("tx", "what-if", topic=topic, change=Change(threshold=0.6)).report
    assert report["records"] == 60
    assert report["offsets_without_record"] == 64
    assert sum(report["outcomes"].values()) == 60


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("kind", ["unmarked", "of another run", "live record", "rubbish"])
def test_a_topic_with_anything_else_on_it_is_refused(lived: Lived, place: str, kind: str) -> None:
    """Given a topic of the run's name that holds a record of another run, a live one, or anything else, at its beginning or end, when the replay starts, then it is refused, names topic and place, and writes nothing."""
    live, run_id = lived.here.settings, f"foreign-{place}-{kind.replace(' ', '-')}"
    topic = f"{live.topic_recommendations}.replay.{run_id}"
    stored = decode(lived.here.values(live.topic_recommendations)[0])[1]
    mine = encode("Recommendation", {**stored, "replay": True, "run_id": run_id})
    mark = [(RUN_HEADER, run_id.encode())]
    foreign: tuple[bytes, list[tuple[str, bytes]]] = {
        "unmarked": (mine, []),
        "of another run": (mine, [(RUN_HEADER, b"other")]),
        "live record": (encode("Recommendation", stored), mark),
        "rubbish": (b"rubbish", mark),
    }[kind]
    own = (mine, mark)
    produce(lived, topic, [foreign, own] if place == "first" else [own, own, foreign])
    with pytest.raises(ConfigurationError, match=f"{topic} holds, at partition 0"):
        lived.replay(run_id, "reproduce")
    assert len(lived.here.read(topic)) == (2 if place == "first" else 3)


def test_records_of_a_run_whose_state_is_lost_are_refused(lived: Lived) -> None:
    """Given the topics of a run whose state folder is gone, when a run of the same id begins, then it is refused: it would write everything twice."""
    lived.replay("forgotten", "reproduce", offsets={0: (0, 5)})
    with pytest.raises(ConfigurationError, match="whose state is not in this --state"):
        run_replay(
            Request(run_id="forgotten", mode="reproduce", state=lived.here.folder / "elsewhere"),
            lived.here.settings,
            ReplaySettings(),
        )


def test_a_bundle_that_is_away_stops_the_run_and_its_return_goes_on(lived: Lived, tmp_path: Path) -> None:
    """Given a published bundle that is neither on disk, in Redis, nor at its URI, when reproduced, then the run stops as for a dependency, and when it is back the same run ends well."""
    where = lived.lenders[1].bundle
    away = where.with_name("away")
    settings = read_settings({**lived.here.environment, "COACH_BUNDLE_DIR": str(tmp_path / "fresh")})
    request = Request(run_id="away", mode="reproduce", state=tmp_path / "state", to_topics=False, out=tmp_path / "out")
    replaying = ReplaySettings(replay_chunk_records=50)
    lived.here.stack.redis.down()
    lived.here.stack.redis.up()  # empty
    where.rename(away)
    try:
        with pytest.raises(BundleUnavailable, match="same --run-id"):
            run_replay(request, settings, replaying)
    finally:
        away.rename(where)
    assert is_all_right(run_replay(request, settings, replaying).report)


def test_the_topics_of_a_run_are_made_as_they_must_be(lived: Lived) -> None:
    """Given a run, when its topics are looked at, then they hold records of the live ones' sizes, its dead letters audit records too, and keep them as long as the settings say."""
    lived.replay("made", "reproduce", offsets={0: (0, 1)})
    live = lived.here.settings
    keeper = TopicKeeper({"bootstrap.servers": live.kafka_brokers}, timeout_s=10)
    names = {one: f"{one}.replay.made" for one in (live.topic_audit, live.topic_recommendations, live.topic_dlq)}
    found = keeper.configurations(names.values())
    assert int(found[names[live.topic_audit]]["max.message.bytes"]) == live.audit_bytes_max
    assert int(found[names[live.topic_dlq]]["max.message.bytes"]) > live.audit_bytes_max
    assert {one["retention.ms"] for one in found.values()} == {str(90 * 86_400_000)}


def produce(lived: Lived, topic: str, values: list[tuple[bytes, list[tuple[str, bytes]]]]) -> None:
    """Write records to partition 0 of a topic that is made for it."""
    brokers = {"bootstrap.servers": lived.here.settings.kafka_brokers}
    TopicKeeper(brokers, timeout_s=10).apply(
        [TopicSpec(name=topic, record="Decision", partitions=1, configuration={})], replication=1, dry_run=False
    )
    producer = Producer(brokers)
    for value, headers in values:
        producer.produce(topic, value=value, headers=list(headers), partition=0)
    assert producer.flush(20) == 0
