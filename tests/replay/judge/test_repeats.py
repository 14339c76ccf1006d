"""What comes twice is counted once: redriven decisions, and duplicates of at-least-once delivery."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream.bundle.open import open_bundle
from stream.files.answer_lines import answer_line
from stream.recourse.answer import answer
from stream.replay.judge.repeats import Keys, SeenRecords, keys_from
from stream.replay.judge.what_if import Change
from stream.replay.report.report import is_all_right
from stream.replay.request import Request
from stream.replay.run import Finished, run_replay
from stream.replay.settings import ReplaySettings
from stream.runtime.kafka.topics import TopicKeeper
from stream.runtime.settings import Settings
from stream.runtime.topic_specs import TopicSpec
from stream.wire.decisions import decision_of
from tests.examples import examples
from tests.replay.past import Lived
from tests.service.lender import Lender, record

some = settings(
    max_examples=examples(4), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
notes = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=40)  # an id, and one of its contents


class Broken(Exception):
    """What ends a run in the middle."""


def do(folder: Path, lines: list[dict[str, Any]], mode: Any, *, chunk: int = 7, **more: Any) -> Finished:
    """Replay lines from a file, without topics; `progress` may break it off."""
    progress = more.pop("progress", lambda *_: None)
    folder.mkdir(exist_ok=True)
    source = folder / "input.jsonl"
    source.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    request = Request(
        run_id="x", mode=mode, file=source, to_topics=False, out=folder / "out", state=folder / "state", **more
    )
    return run_replay(request, Settings(), ReplaySettings(replay_chunk_records=chunk), progress=progress)


def changed(**more: Any) -> dict[str, Any]:
    """A what-if by threshold."""
    return {"mode": "what-if", "change": Change(threshold=0.6), **more}


def digits(number: int) -> str:
    return f"{number:032x}"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@given(rows=notes, cut=st.integers(0, 40))
def test_the_first_of_each_content_counts(rows: list[tuple[int, int]], cut: int) -> None:
    """Given ids with contents in any order, when noted, in one process or in one that was told what came before, then the first of each content is new, or a conflict where its id had another content, and all others are repeats."""
    expected, contents_of = [], dict[int, set[int]]()
    for name, content in rows:
        had = contents_of.setdefault(name, set())
        expected.append("repeat" if content in had else "conflict" if had else "new")
        had.add(content)
    keys = [
        Keys(name=digits(name), decision=digits(100 * name + one), record=digits(100 * name + one))
        for name, one in rows
    ]
    with SeenRecords() as first, SeenRecords() as second:
        found = [first.note(one) for one in keys[:cut]]
        kept = [one.to_text() for one in first.taken()]
        second.know(keys_from(text) for text in kept)
        found += [second.note(one) for one in keys[cut:]]
        assert len(kept) + len(second.taken()) == len(set(rows))
    assert found == expected


@some
@given(
    order=st.lists(st.integers(0, 30), min_size=5, max_size=40),
    mode=st.sampled_from(["what-if", "backfill"]),
    chunk=st.integers(1, 20),
    weather=st.integers(0, 1 << 30),
)
def test_what_is_said_of_people_is_said_once(
    toy: Lender,
    tmp_path_factory: pytest.TempPathFactory,
    order: list[int],
    mode: Any,
    chunk: int,
    weather: int,
) -> None:
    """Given decisions of which some come again anywhere, when replayed in chunks of any size with interruptions and a result that was lost, or each once in one chunk, then outcomes, answers and all that is said of people are equal, but for the count of repeats, and the files hold each answer once."""
    folder, luck = tmp_path_factory.mktemp("run"), random.Random(weather)  # noqa: S311 - no secret
    (folder / "none.jsonl").write_bytes(b"")
    more: dict[str, Any] = {"mode": mode, "bundles": [toy.bundle]}
    more |= {"change": Change(threshold=0.6)} if mode == "what-if" else {"answers": folder / "none.jsonl"}
    lines = [toy.decision(number) for number in order]
    once = do(folder / "once", [toy.decision(number) for number in dict.fromkeys(order)], chunk=1_000, **more).report

    def break_now(*_counts: int) -> None:
        if luck.random() < 0.1:
            raise Broken

    for _ in range(20):
        try:
            found = do(folder / "again", lines, chunk=chunk, progress=break_now, **more)
            break
        except Broken:
            continue
    else:
        found = do(folder / "again", lines, chunk=chunk, **more)
    report = found.report
    [*_, lost] = sorted((folder / "again" / "state" / "chunks").iterdir())[: luck.randrange(1, 5)]
    lost.unlink()
    assert do(folder / "again", lines, chunk=chunk, **more).report == report
    repeats = len(order) - len(set(order))
    assert report["counted"] == {**once["counted"], "repeat": repeats}
    assert report["outcomes"] == {**once["outcomes"], "repeat": repeats}
    assert report["records"] == len(order) == sum(report["outcomes"].values())
    for name in ("answers", "recourse", "recourse_of_newly_declined", "feasibility", "tiers", "margins", "bundles"):
        assert report[name] == once[name], name
    texts = [
        sorted(b"".join(contents(folder / one / "out" / "answers").values()).splitlines()) for one in ("once", "again")
    ]
    assert texts[0] == texts[1]


def test_the_same_id_with_other_content_is_another_decision(toy: Lender, tmp_path: Path) -> None:
    """Given two decisions of one id with different content, and one of them again with another trace and another order of its fields, when decided again, then both are counted, the conflict is said with its place, the third is a repeat, and the page leads with the decisions."""
    one = toy.decision(toy.declined(1)[0])
    again = {**dict(reversed(one.items())), "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    finished = do(tmp_path, [one, {**one, "product": "card"}, again], bundles=[toy.bundle], **changed())
    report, page = finished.report, finished.html_path.read_text()
    assert "Of 2 decisions, " in page
    assert "3 records: 2 decisions, 1 that repeats one of them. Same id, other content: 1 of the decisions" in page
    assert report["counted"]["decision"] == 2
    assert report["counted"]["repeat"] == report["conflicts"] == 1
    assert [example["where"] for example in report["examples"]["conflict"]] == ["line 2"]
    assert [example["where"] for example in report["examples"]["repeat"]] == ["line 3"]


def test_a_decision_that_cannot_be_replayed_is_refused_once(toy: Lender, tmp_path: Path) -> None:
    """Given a decision that lacks a feature and comes again, and two lines that are no records, when decided again, then it is one error and one repeat, and each line that nobody can read is its own error."""
    lacking = toy.decision(0, features={"f0": 1.0})
    report = do(tmp_path, [lacking, {"x": 1}, lacking, {"x": 1}], bundles=[toy.bundle], **changed()).report
    assert report["outcomes"]["error"] == 3
    assert report["counted"] == {"decision": 1, "unreadable": 2, "repeat": 1, "outside_window": 0, "of_a_replay": 0}


def stored(toy: Lender, number: int) -> dict[str, Any]:
    made = answer(decision_of(toy.decision(number)), open_bundle(toy.bundle))
    line: dict[str, Any] = orjson.loads(answer_line(f"toy-{number}", made.recommendation, made.body, made.body_sha256))
    return line


def test_stored_answers_that_come_twice_are_compared_once(toy: Lender, tmp_path: Path) -> None:
    """Given stored answers of which two come again, one equal and one altered, when reproduced, then the equal one is a repeat, the altered one is found, and neither is a conflict; decided again, both are repeats."""
    lines = [stored(toy, number) for number in toy.declined(5)]
    altered = orjson.loads(orjson.dumps(lines[1]))
    altered["audit"]["body"]["margin"] = -0.5
    lines += [lines[0], altered]
    report = do(tmp_path / "a", lines, "reproduce", bundles=[toy.bundle]).report
    assert {name: count for name, count in report["outcomes"].items() if count} == {
        "identical": 5, "repeat": 1, "altered": 1,
    }  # fmt: skip
    assert report["conflicts"] == 0
    assert is_all_right(do(tmp_path / "b", lines[:6], "reproduce", bundles=[toy.bundle]).report)
    again = do(tmp_path / "c", lines, bundles=[toy.bundle], **changed()).report
    assert (again["counted"]["decision"], again["counted"]["repeat"]) == (5, 2)


def test_a_backfill_counts_decisions(toy: Lender, tmp_path: Path) -> None:
    """Given four decisions that come twice, two of them answered before, when backfilled, then two were answered before, two are answered now, and four records are repeats."""
    numbers = toy.declined(4)
    (tmp_path / "answers.jsonl").write_bytes(
        b"".join(orjson.dumps(stored(toy, number)) + b"\n" for number in numbers[:2])
    )
    lines = [toy.decision(number) for number in [*numbers, *numbers]]
    more: dict[str, Any] = {"bundles": [toy.bundle], "answers": tmp_path / "answers.jsonl"}
    outcomes: Mapping[str, int] = do(tmp_path, lines, "backfill", **more).report["outcomes"]
    assert (outcomes["answered_before"], outcomes["answered_now"], outcomes["repeat"]) == (2, 2, 4)


@pytest.mark.service
def test_redriven_decisions_are_counted_once(lived: Lived) -> None:
    """Given a topic of decisions onto which six were brought back as a redrive does, when decided again and backfilled, then the decisions are those that were taken, and six records repeat one of them, which the run's topics hold once."""
    live, old = lived.here.settings, lived.lenders[0]
    topic = f"{live.topic_decisions}.redriven"
    numbers = old.declined(20)
    brokers = {"bootstrap.servers": live.kafka_brokers}
    TopicKeeper(brokers, timeout_s=10).apply(
        [TopicSpec(name=topic, record="Decision", partitions=2, configuration={})], replication=1, dry_run=False
    )
    producer = Producer(brokers)
    for place, number in enumerate([*numbers, *numbers[:6]]):
        key, value = record(old.decision(number))
        producer.produce(topic, key=key, value=value, partition=place % 2)
    assert producer.flush(20) == 0
    for run_id, mode, more in (
        ("redriven-w", "what-if", {"change": Change(threshold=0.55)}),
        ("redriven-b", "backfill", {}),
    ):
        report = lived.replay(run_id, mode, topic=topic, **more).report
        assert report["records"] == 26
        assert (report["counted"]["decision"], report["counted"]["repeat"]) == (20, 6)
        assert len(lived.written(live.topic_audit, run_id)) == 20
