"""Runs from files, without Kafka: they add up, go on after any interruption, and refuse what is not theirs."""

from __future__ import annotations

import fcntl
import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream.bundle.open import open_bundle
from stream.errors import ConfigurationError, CorruptionError
from stream.files.answer_lines import answer_line
from stream.recourse.answer import answer
from stream.replay.judge.what_if import Change
from stream.replay.report.report import is_all_right
from stream.replay.request import Request
from stream.replay.run import Finished, run_replay
from stream.replay.settings import ReplaySettings
from stream.replay.sources.records import Window
from stream.runtime.settings import Settings
from stream.wire.decisions import decision_of
from tests.examples import examples
from tests.replay.processes import replay
from tests.service.lender import Lender

RUN = "spring-check"
several = settings(
    max_examples=examples(5), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture(scope="module")
def answers(toy: Lender) -> list[bytes]:
    """Answers of the small lender, as `coach recommend` writes them."""
    model = open_bundle(toy.bundle)
    lines = []
    for number in toy.declined(60):
        made = answer(decision_of(toy.decision(number)), model)
        lines.append(answer_line(f"toy-{number}", made.recommendation, made.body, made.body_sha256))
    return lines


def do(request: Request, folder: Path, chunk: int = 7, **more: Any) -> Finished:
    """Do a run without topics, in a folder of its own."""
    request = Request(
        **{
            **{name: getattr(request, name) for name in Request.__dataclass_fields__},
            "to_topics": False,
            "out": request.out or folder / "out",
            "state": request.state or folder / "state",
        }
    )
    return run_replay(request, Settings(), ReplaySettings(replay_chunk_records=chunk), **more)


def file_of(folder: Path, lines: list[bytes], name: str = "input.jsonl") -> Path:
    path = folder / name
    path.write_bytes(b"".join(line if line.endswith(b"\n") else line + b"\n" for line in lines))
    return path


def replayed(line: bytes) -> bytes:
    """An answer as a replay writes it."""
    value = orjson.loads(line)
    envelope = {
        "source": None,
        "software_version": "",
        "traceparent": None,
        "replay": True,
        "run_id": "x",
        "seal": None,
    }
    value["audit"]["envelope"] = envelope
    return orjson.dumps(value)


KINDS: dict[str, Callable[[Lender, list[bytes], int], bytes]] = {
    "decision": lambda toy, _, n: orjson.dumps(toy.decision(n % 900)),
    "answer": lambda _, answers, n: answers[n % len(answers)],
    "replay": lambda _, answers, n: replayed(answers[n % len(answers)]),
    "no json": lambda *_: b"nonsense {",
    "not ours": lambda *_: b'{"x": 1}',
    "twice": lambda *_: b'{"decision_id": "a", "decision_id": "b"}',
    "lacking": lambda toy, _, n: orjson.dumps(toy.decision(n % 900, features={"f0": 1.0})),
    "of another model": lambda toy, _, n: orjson.dumps(toy.decision(n % 900, model_version="1999-01")),
    "wrong claim": lambda toy, _, n: orjson.dumps(toy.decision(n % 900, margin=77.0)),
    "a word": lambda toy, _, n: orjson.dumps(toy.decision(n % 900, features=dict.fromkeys(toy.features, "word"))),
    "body of another shape": lambda *_: b'{"audit": {"body": {"decision": {}}}}',
    "blank": lambda *_: b"   ",
}


@several
@given(
    rows=st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.integers(0, 2_000)), max_size=25),
    mode=st.sampled_from(["reproduce", "what-if", "backfill"]),
    chunk=st.integers(1, 50),
    weather=st.integers(0, 1 << 30),
)
def test_counts_add_up_and_interruptions_leave_no_trace(
    toy: Lender,
    answers: list[bytes],
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, int]],
    mode: Any,
    chunk: int,
    weather: int,
) -> None:
    """Given any mixture of decisions, answers, replays and rubbish, when it is replayed in any mode, then each line is counted once, errors have reasons, and a run that breaks off again and again ends with the same bytes as one that does not."""
    folder = tmp_path_factory.mktemp("run")
    source = file_of(folder, [KINDS[kind](toy, answers, number) for kind, number in rows])
    known = file_of(folder, answers[:5], "answers.jsonl")
    request = Request(
        run_id=RUN,
        mode=mode,
        file=source,
        bundles=[toy.bundle],
        answers=known if mode == "backfill" else None,
        change=Change(threshold=0.6) if mode == "what-if" else Change(),
        out=folder / "calm",
        state=folder / "calm-state",
    )
    calm = do(request, folder, chunk)
    report = calm.report
    wanted = sum(kind != "blank" for kind, _ in rows)
    assert report["records"] == wanted == sum(report["outcomes"].values())
    assert sum(report["errors"].values()) == report["outcomes"]["error"]
    assert "UnexpectedFault" not in report["errors"]
    assert report["outcomes"]["of_a_replay"] == sum(kind == "replay" for kind, _ in rows)
    stormy = break_off(request, folder, chunk, random.Random(weather))  # noqa: S311 - no secret
    assert stormy.json_path.read_bytes() == calm.json_path.read_bytes()
    assert stormy.html_path.read_bytes() == calm.html_path.read_bytes()
    assert contents(folder / "calm") == contents(folder / "out")


class Broken(Exception):
    """What ends a run in the middle."""


def break_off(request: Request, folder: Path, chunk: int, weather: random.Random) -> Finished:
    """Do a run that breaks off at random places, until it ends."""
    kept = {name: getattr(request, name) for name in Request.__dataclass_fields__}
    again = Request(**{**kept, "out": None, "state": None})

    def break_now(_done: int, _before: int, _total: int) -> None:
        if weather.random() < 0.25:
            raise Broken

    for _ in range(30):
        try:
            return do(again, folder, chunk, progress=break_now)
        except Broken:
            continue
    return do(again, folder, chunk)


def lines_of(folder: Path) -> list[Any]:
    """All lines of JSON of a folder's files, in order."""
    return [orjson.loads(line) for path in sorted(folder.iterdir()) for line in path.read_bytes().splitlines()]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_stored_answers_come_out_again(toy: Lender, answers: list[bytes], tmp_path: Path) -> None:
    """Given the answers of `coach recommend`, when reproduced, then all are identical, nothing is wrong, and the lines written carry the same bodies, marked as a replay's."""
    finished = do(
        Request(run_id=RUN, mode="reproduce", file=file_of(tmp_path, answers), bundles=[toy.bundle]), tmp_path
    )
    assert finished.report["outcomes"]["identical"] == len(answers)
    assert is_all_right(finished.report)
    lines = lines_of(tmp_path / "out" / "answers")
    stored = [orjson.loads(line) for line in answers]
    assert [one["audit"]["body"] for one in lines] == [one["audit"]["body"] for one in stored]
    for one in lines:
        assert (one["recommendation"]["replay"], one["recommendation"]["run_id"]) == (True, RUN)
        assert (one["audit"]["envelope"]["replay"], one["audit"]["envelope"]["run_id"]) == (True, RUN)


@pytest.mark.parametrize(
    ("tamper", "outcome", "part"),
    [
        (lambda one: one["audit"]["body"]["tiers"][0].update(effort=0.25), "altered", "tiers.near"),
        (lambda one: one["audit"]["body"].update(margin=-0.5), "altered", "margin"),
        (lambda one: one["audit"].update(body_sha256="0" * 64), "altered", "body_sha256"),
        (lambda one: (one["audit"]["body"].update(margin=-0.5), one["audit"].pop("body_sha256")), "changed", "margin"),
        (
            lambda one: (one["audit"]["body"].update(engine_version="0"), one["audit"].pop("body_sha256")),
            "other_engine",
            "engine_version",
        ),
        (lambda one: one["recommendation"].update(status="no_feasible_recourse"), "changed", "recommendation.status"),
        (lambda one: one["recommendation"].update(run_id="x", replay=True), "identical", None),
    ],
)
def test_each_kind_of_difference_is_named(
    toy: Lender, answers: list[bytes], tmp_path: Path, tamper: Callable[[Any], object], outcome: str, part: str | None
) -> None:
    """Given a stored answer of which one part was changed, when reproduced, then it is counted under its own kind, and the part is named."""
    one = orjson.loads(answers[3])
    tamper(one)
    lines = [answers[0], orjson.dumps(one), answers[1]]
    finished = do(Request(run_id=RUN, mode="reproduce", file=file_of(tmp_path, lines), bundles=[toy.bundle]), tmp_path)
    assert finished.report["outcomes"][outcome] == (3 if outcome == "identical" else 1)
    assert is_all_right(finished.report) == (outcome == "identical")
    if part is not None:
        assert part in finished.report["differs"][outcome]


def test_a_bundle_that_nobody_gave_is_a_typed_error(
    answers: list[bytes], tmp_path: Path, lenders: tuple[Lender, Lender]
) -> None:
    """Given answers of a bundle that is not given, when reproduced, then each is counted as not replayed with its reason, in a file that says where it stood, and the run is not all right; neither is one of nothing."""
    other = lenders[1].bundle
    finished = do(Request(run_id=RUN, mode="reproduce", file=file_of(tmp_path, answers[:9]), bundles=[other]), tmp_path)
    assert finished.report["errors"] == {"ModelNotPublished": 9}
    assert not is_all_right(finished.report)
    refused = lines_of(tmp_path / "out" / "refused")
    assert {one["where"] for one in refused} == {f"line {number}" for number in range(1, 10)}
    assert all("--bundle" in one["message"] for one in refused)
    nothing = do(
        Request(run_id=RUN, mode="reproduce", file=file_of(tmp_path, []), state=tmp_path / "s", out=tmp_path / "o"),
        tmp_path,
    )
    assert not is_all_right(nothing.report)


def test_only_the_window_is_replayed(toy: Lender, tmp_path: Path) -> None:
    """Given decisions of three days, when a window names one of them, then the others are counted as outside, and the end is excluded."""
    days = ["2026-11-26T23:59:59.999Z", "2026-11-27T00:00:00Z", "2026-11-27T12:00:00Z", "2026-11-28T00:00:00Z"]
    lines = [orjson.dumps(toy.decision(number, event_time=day)) for number, day in enumerate(days)]
    window = Window(from_ms=1_795_737_600_000, to_ms=1_795_824_000_000)
    finished = do(
        Request(
            run_id=RUN,
            mode="what-if",
            file=file_of(tmp_path, lines),
            bundles=[toy.bundle],
            change=Change(threshold=0.6),
            window=window,
        ),
        tmp_path,
    )
    assert finished.report["outcomes"]["outside_window"] == 2
    assert finished.report["records"] == 4


def test_a_backfill_answers_only_what_has_no_answer(toy: Lender, answers: list[bytes], tmp_path: Path) -> None:
    """Given decisions of which some have an answer, one of them with other content, when backfilled, then exactly the others are answered, as they would have been live."""
    declined = toy.declined(30)
    lines = [orjson.dumps(toy.decision(number)) for number in declined]
    lines[4] = orjson.dumps(toy.decision(declined[4], product="card"))
    finished = do(
        Request(
            run_id=RUN,
            mode="backfill",
            file=file_of(tmp_path, lines),
            answers=file_of(tmp_path, answers[:20], "answers.jsonl"),
            bundles=[toy.bundle],
        ),
        tmp_path,
    )
    assert (finished.report["outcomes"]["answered_before"], finished.report["outcomes"]["answered_now"]) == (19, 11)
    made = lines_of(tmp_path / "out" / "answers")
    assert [one["decision_id"] for one in made] == [f"toy-{declined[4]}", *(f"toy-{n}" for n in declined[20:])]
    assert made[-1]["audit"]["body"] == orjson.loads(answers[29])["audit"]["body"]


def test_a_run_goes_on_only_as_what_it_began(toy: Lender, answers: list[bytes], tmp_path: Path) -> None:
    """Given a run, when it is started again with other parameters, another input, a damaged result, or while another process works on it, then it is refused with a message that names what; left alone, it gives the same report."""
    source = file_of(tmp_path, answers[:20])
    request = Request(run_id=RUN, mode="reproduce", file=source, bundles=[toy.bundle])
    first = do(request, tmp_path).json_path.read_bytes()
    assert do(request, tmp_path).json_path.read_bytes() == first
    with pytest.raises(ConfigurationError, match=r"mode was reproduce and is what-if.*threshold was none and is 0\.6"):
        do(
            Request(run_id=RUN, mode="what-if", file=source, bundles=[toy.bundle], change=Change(threshold=0.6)),
            tmp_path,
        )
    with pytest.raises(ConfigurationError, match="chunk_records was 7 and is 8"):
        do(request, tmp_path, chunk=8)
    with pytest.raises(ConfigurationError, match="run_id was spring-check and is autumn-check"):
        do(Request(run_id="autumn-check", mode="reproduce", file=source, bundles=[toy.bundle]), tmp_path)
    with (tmp_path / "state" / "lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ConfigurationError, match="already working on this run"):
            do(request, tmp_path)
    result = tmp_path / "state" / "chunks" / "00000-0000000000000007.json"
    good = result.read_bytes()
    result.write_bytes(good[:-40])
    with pytest.raises(CorruptionError, match=result.name):
        do(request, tmp_path)
    result.write_bytes(good.replace(b'"records": 7', b'"records": 6'))
    with pytest.raises(CorruptionError, match="do not add up"):
        do(request, tmp_path)
    result.unlink()
    assert do(request, tmp_path).json_path.read_bytes() == first
    file_of(tmp_path, answers[:21])
    with pytest.raises(ConfigurationError, match="--input"):
        do(request, tmp_path)


def test_a_folder_with_something_else_in_it_is_refused(toy: Lender, answers: list[bytes], tmp_path: Path) -> None:
    """Given folders that hold other things, when a run is to keep its state or answers there, then it is refused and they stay as they are."""
    source = file_of(tmp_path, answers[:3])
    request = Request(run_id=RUN, mode="reproduce", file=source, bundles=[toy.bundle])
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "thesis.tex").write_text("x")
    with pytest.raises(ConfigurationError, match=r"--state.*thesis\.tex"):
        do(request, tmp_path)
    (tmp_path / "state" / "thesis.tex").unlink()
    (tmp_path / "state" / "run.json").write_text('{"format_version": 1}')
    with pytest.raises(ConfigurationError, match="--state"):
        do(request, tmp_path)
    (tmp_path / "state" / "run.json").unlink()
    (tmp_path / "out" / "answers").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="--out"):
        do(request, tmp_path)


def test_a_version_that_nobody_knows_is_refused(toy: Lender, answers: list[bytes], tmp_path: Path) -> None:
    """Given a model version that is neither published nor given, when a what-if asks for it, then it is refused before a record is judged, with the versions there are."""
    with pytest.raises(ConfigurationError, match=r"--model 2026-1: .*known are 2026-10"):
        do(
            Request(
                run_id=RUN,
                mode="what-if",
                file=file_of(tmp_path, answers),
                bundles=[toy.bundle],
                change=Change(model_version="2026-1"),
            ),
            tmp_path,
        )


def test_the_command_says_what_it_found(toy: Lender, answers: list[bytes], tmp_path: Path) -> None:
    """Given a file with one altered answer, when the command reproduces it, then it exits with 1, says the counts in JSON, tells its progress in plain lines, and shows no feature value."""
    one = orjson.loads(answers[0])
    one["audit"]["body"]["margin"] = -123.5
    file_of(tmp_path, [orjson.dumps(one), *answers[1:4]], "answers.jsonl")
    flags = ["--run-id", RUN, "--input", "answers.jsonl", "--bundle", str(toy.bundle), "--no-topics", "--out", "report"]
    done: subprocess.CompletedProcess[str] = replay(None, *flags, "--state", "state", "--json", folder=tmp_path)
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert (told["outcomes"]["identical"], told["outcomes"]["altered"]) == (3, 1)
    assert "4 of 4 records" in done.stderr
    assert "\r" not in done.stderr
    assert "123.5" not in (tmp_path / "report" / "report.json").read_text()
