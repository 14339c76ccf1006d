from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.demo.loans import FEATURES, own_data, write_loans
from tests.service.room import invoked

COACH = [sys.executable, "-m", "stream.cli.main"]


@pytest.fixture
def loans(tmp_path: Path) -> Path:
    """A folder with made-up loans."""
    return write_loans(tmp_path)


def demo(folder: Path, *more: str) -> list[str]:
    return [*COACH, "demo", *own_data(folder), *more]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)


def processes_under(folder: Path) -> list[str]:
    """Command lines and variables of processes that have to do with a folder; Linux only."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            said = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in said and process.name != str(os.getpid()):
            found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


@pytest.mark.service
def test_the_whole_story_with_ones_own_data(loans: Path) -> None:
    """Given own data with a features.toml, when the demo runs, then every declined one is answered, verified, and kept."""
    done = run(demo(loans, "--rate", "1000", "--out", str(loans / "out")))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    counts = {line[:23].strip(): line[23:] for line in done.stdout.splitlines()}
    declined = counts["decisions"].split(", ")[-1].split()[0]
    assert counts["recommendations"].startswith(f"{declined}: ok")
    assert counts["audit records"] == f"{declined}, each verified without the model: 0 faults"
    assert counts["dead letters"] == "0"
    assert "Your income is low for this loan" in done.stdout
    assert "- Income: from " in done.stdout
    assert "housing: from" not in done.stdout
    assert json.loads((loans / "out" / "bundle" / "manifest.json").read_text())["model_id"] == "demo"
    shown = run([*COACH, "bundle", "show", str(loans / "out" / "bundle")])
    assert shown.returncode == 0, shown.stderr
    answers, bundle = loans / "out" / "answers.jsonl", loans / "out" / "bundle"
    assert f"coach audit verify {answers} --bundle {bundle}" in done.stdout
    verified = run([*COACH, "audit", "verify", str(answers), "--bundle", str(bundle), "--json"])
    assert verified.returncode == 0, verified.stderr
    told = json.loads(verified.stdout)
    assert (str(told["records"]), told["wrong"], told["answered_again"]) == (declined, 0, told["records"])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--data", "loans.csv"], "--data also needs --features"),
        (["--data", "none.csv", "--features", "features.toml", "--target-column", "repaid"], "cannot read none.csv"),
        (["--data", "loans.csv", "--features", "none.toml", "--target-column", "repaid"], "--features none.toml"),
        (["--data", "loans.csv", "--features", "short.toml", "--target-column", "repaid"], "no table for: housing"),
        (["--data", "loans.csv", "--features", "features.toml", "--target-column", "paid"], "has no column paid"),
        (
            ["--data", "loans.csv", "--features", "features.toml", "--target-column", "repaid", "--out", "."],
            "not empty",
        ),
    ],
)
def test_what_is_wrong_with_ones_own_data_is_one_line(
    loans: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], complaint: str
) -> None:
    """Given own data with something wrong, when the demo runs, then the code is 2 and one line names it."""
    (loans / "short.toml").write_text(FEATURES.partition("[housing]")[0])
    monkeypatch.chdir(loans)
    done = invoked("demo", *arguments)
    assert done.exit_code == 2, done.stderr
    assert complaint in done.stderr
    assert done.stderr.startswith("coach: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("blow", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_client_that_swallows_a_signal_changes_no_exit_code(
    loans: Path, monkeypatch: pytest.MonkeyPatch, blow: signal.Signals, code: int
) -> None:
    """Given a signal that comes while a Kafka client is being made, which then raises TypeError, then the exit code is the signal's."""

    def run_demo(*_: object) -> list[str]:
        try:
            signal.raise_signal(blow)
        except BaseException:  # noqa: BLE001 - as a client of librdkafka does it
            message = "expected configuration property name as type unicode string"
            raise TypeError(message) from None
        return []

    monkeypatch.setattr("stream.cli.demo.run_demo", run_demo)
    done = invoked("demo", *own_data(loans))
    assert done.exit_code == code, done.output


@pytest.mark.service
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("blow", "code"),
    [pytest.param(signal.SIGINT, 130, marks=pytest.mark.nightly), (signal.SIGTERM, 143), (signal.SIGKILL, -9)],
)
def test_nothing_is_left_behind_whatever_ends_it(loans: Path, blow: signal.Signals, code: int) -> None:
    """Given a demo under way, when it is interrupted, terminated or killed, then no process of it is left."""
    # A shell's background job ignores SIGINT, and hands that down: pytest may be one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    out = loans / "out"
    command = demo(loans, "--rate", "5", "--out", str(out))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as story:
        deadline = time.monotonic() + 60
        while not (out / "worker.log").exists() or b"worker.assigned" not in (out / "worker.log").read_bytes():
            assert time.monotonic() < deadline
            assert story.poll() is None
            time.sleep(0.1)
        assert processes_under(out)
        story.send_signal(blow)
        _, said = story.communicate(timeout=40)
        assert story.returncode == code, said
        assert "Traceback" not in said
    deadline = time.monotonic() + 30
    while processes_under(out) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_under(out) == []


@pytest.mark.service
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_that_dies_fails_the_demo(loans: Path) -> None:
    """Given a demo under way, when its worker is killed, then the demo ends with code 1 and says so."""
    out = loans / "out"
    with subprocess.Popen(
        demo(loans, "--rate", "5", "--out", str(out)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as story:
        deadline = time.monotonic() + 60
        while not (out / "worker.log").exists() or b"worker.assigned" not in (out / "worker.log").read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.kill(_worker_of(out), signal.SIGKILL)
        _, said = story.communicate(timeout=60)
    assert story.returncode == 1
    assert "the worker ended with exit code 137" in said


def _worker_of(folder: Path) -> int:
    told = f"COACH_BUNDLE_DIR={folder}/".encode()
    [pid] = [int(one.name) for one in Path("/proc").glob("[0-9]*") if told in _environment(one)]
    return pid


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""
