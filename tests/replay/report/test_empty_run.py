"""A run that replayed nothing says why, and where its report is."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from stream.cli.main import coach
from stream.replay.report.empty_run import why_nothing
from stream.replay.sources.records import Window
from tests.replay.past import Lived
from tests.service.lender import Lender

LATER = "2031-01-01T00:00:00Z"


def run(folder: Path, *more: str) -> Result:
    """Reproduce without topics, in a folder of its own."""
    return CliRunner().invoke(coach, ["replay", "--run-id", "x", "--state", str(folder / "state"), *more])


def test_a_window_that_leaves_all_out_is_named(toy: Lender, tmp_path: Path) -> None:
    """Given a file of decisions and a --from in the future, when decided again, then it says how many records the file holds, when they were decided, and which flag left them out, and on the page too."""
    times = ["2026-11-27T10:00:00Z", "2026-11-25T10:00:00Z"]
    lines = [orjson.dumps(toy.decision(number, event_time=at)) + b"\n" for number, at in enumerate(times)]
    (tmp_path / "input.jsonl").write_bytes(b"".join(lines))
    flags = ("--mode", "what-if", "--threshold", "0.6", "--bundle", str(toy.bundle), "--from", LATER)
    where = ("--input", str(tmp_path / "input.jsonl"), "--no-topics", "--out", str(tmp_path / "out"))
    done = run(tmp_path, *flags, *where)
    told = (
        "Nothing was replayed: 2 records of the file of --input were read, and --from 2031-01-01T00:00:00.000Z left them out; "
        "they were decided 2026-11-25T10:00:00.000Z to 2026-11-27T10:00:00.000Z."
    )
    assert told in done.stderr
    assert told in (tmp_path / "out" / "report.html").read_text()
    assert done.stdout.splitlines()[-1] == f"report: {tmp_path / 'out' / 'report.html'}"
    shown = orjson.loads(run(tmp_path, *flags, *where, "--json").stdout)
    assert shown["nothing"] == told


def test_an_empty_file_is_said_to_be_empty(toy: Lender, tmp_path: Path) -> None:
    """Given a file without a record, when reproduced, then it says so and exits with 1."""
    (tmp_path / "input.jsonl").write_bytes(b"\n")
    done = run(
        tmp_path, "--input", str(tmp_path / "input.jsonl"), "--bundle", str(toy.bundle), "--no-topics", "--out", str(tmp_path / "o")
    )  # fmt: skip
    assert done.exit_code == 1
    assert "the file of --input holds no record." in done.stderr


@pytest.mark.parametrize(
    ("says", "given", "told"),
    [
        ({"topic": "audit"}, {}, "topic audit holds no record."),
        ({"topic": "audit"}, {"offsets": {"0": [3, 3]}}, "--offsets names no record of topic audit."),
        (
            {"topic": "audit", "left_out": {"records": 131}},
            {"from_ms": 0, "to_ms": 1},
            (
                "topic audit holds up to 131 records that --from 1970-01-01T00:00:00.000Z left out unread, by the times at which "
                "the brokers took them in."
            ),
        ),
    ],
)
def test_a_topic_says_what_it_holds(says: dict[str, object], given: dict[str, object], told: str) -> None:
    """Given a topic that is empty, of which no offset was named, or that a time left out, when nothing was replayed, then each is said by its own words."""
    counted = dict.fromkeys(("decision", "unreadable", "repeat", "outside_window", "of_a_replay"), 0)
    report = {
        "parameters": given, "source": {"kind": "kafka", "says": says}, "counted": counted, "records": 0, "outside": None,
    }  # fmt: skip
    assert why_nothing(report) == f"Nothing was replayed: {told}"
    assert why_nothing({**report, "counted": {**counted, "decision": 1}}) is None


@pytest.mark.service
def test_topic_and_archive_say_what_was_left_out(lived: Lived) -> None:
    """Given the audit topic and a window in the future, when reproduced, then what the topic holds is said, with the flag; and without --out the last line is the report's path, in the run's own folder."""
    report = lived.replay("future", "reproduce", window=Window(from_ms=4_000_000_000_000)).report
    held = len(lived.here.values(lived.here.settings.topic_audit))
    assert f"topic {lived.here.settings.topic_audit} holds up to {held} records" in str(why_nothing(report))
    state = lived.here.folder / "runs" / "last-line"
    command = ["replay", "--run-id", "last-line", "--from", LATER, "--state", str(state)]
    done = CliRunner().invoke(coach, command, env=lived.here.environment)
    assert done.exit_code == 1
    assert "--from 2031-01-01T00:00:00.000Z left out" in done.stderr
    assert done.output.splitlines()[-1] == f"report: {state / 'report' / 'report.html'}"
