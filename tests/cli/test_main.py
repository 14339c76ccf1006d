"""What every command does when the system refuses: one line and an exit code, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from stream.cli.main import SUBCOMMANDS, Coach
from stream.cli.main import coach as coach_group
from stream.errors import ConfigurationError
from stream.files.output_file import written
from tests.service.room import REPOSITORY, invoked, wait_until

PROGRAM = [sys.executable, "-m", "stream.cli.main"]


def coach(*arguments: str, cwd: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run `coach` as a process."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run([*PROGRAM, *arguments], cwd=cwd, env=environment, text=True, timeout=120, check=False, **more)


def said_in_one_line(done: subprocess.CompletedProcess[str], part: str) -> bool:
    """Whether a command ended with 2 and one line of ours that holds `part`."""
    line = done.stderr.strip()
    return done.returncode == 2 and line.startswith("coach: ") and "\n" not in line and part in line


@pytest.mark.parametrize("arguments", [["audit", "verify", "none.jsonl"], ["demo", "--rate", "nan"]])
def test_a_command_says_in_one_line_what_it_refuses(tmp_path: Path, arguments: list[str]) -> None:
    """Given input that a command refuses, then it ends with 2 and one line that repeats it."""
    with contextlib.chdir(tmp_path):
        done = invoked(*arguments)
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert done.stderr.startswith("coach: ")
    assert arguments[-1] in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_standard_output_is_one_line(tmp_path: Path) -> None:
    """Given standard output that takes nothing, when a command prints its result, then it ends with 2, not with the 1 of something found wrong, and one line."""
    (tmp_path / "empty.jsonl").write_text("")
    with Path("/dev/full").open("wb") as full:
        done = coach("audit", "verify", "empty.jsonl", cwd=tmp_path, stdout=full, stderr=subprocess.PIPE)
    assert said_in_one_line(done, "No space left on device"), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["audit", "verify", "x" * 300],
        ["replay", "--run-id", "r", "--input", "rows.csv", "--no-topics", "--out", "x" * 300],
    ],
)
def test_a_path_that_no_system_takes_is_one_line(tmp_path: Path, arguments: list[str]) -> None:
    """Given a path that is too long, then the command ends with 2 and one line."""
    (tmp_path / "rows.csv").write_text("a\n1\n")
    with contextlib.chdir(tmp_path):
        done = invoked(*arguments)
    assert done.exit_code == 2, done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("coach: ")


def test_a_loop_of_symbolic_links_is_no_output(tmp_path: Path) -> None:
    """Given an output that is a symbolic link to itself, then it is refused with its name."""
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ConfigurationError, match=r"cannot write --output .*loop"), written(tmp_path / "loop"):
        pytest.fail("there is nothing to write to")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_draft_behind(tmp_path: Path, number: signal.Signals) -> None:
    """Given a command that writes a file while it reads a pipe, when it is told to end, then its draft, which holds what people told the lender, is gone."""
    script = (
        "import sys, time, pathlib\n"
        "from stream.files.output_file import written\n"
        "import stream.cli.main as main\n"
        "class Slow:\n"
        "    def __call__(self, **_): \n"
        "        with written(pathlib.Path('out.jsonl')) as write:\n"
        "            write(b'a decision\\n')\n"
        "            time.sleep(60)\n"
        "main.coach = Slow()\n"
        "main.main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}
    )
    try:
        wait_until(lambda: list(tmp_path.glob(".coach-*.part")), what="a draft")
        time.sleep(0.1)
        process.send_signal(number)
        assert process.wait(20) == 128 + number
    finally:
        process.kill()
    assert list(tmp_path.iterdir()) == []


def test_what_holds_personal_data_is_its_owner_s_alone(tmp_path: Path) -> None:
    """Given a process whose umask lets everybody read, when a command writes answers or letters, then files are 0600 and folders 0700, and the umask is as before once it is done; a command that writes none leaves it alone."""
    found = {}
    before = os.umask(0o022)
    try:
        for name, command in SUBCOMMANDS.items():

            @click.command()
            def probe(at: str = name) -> None:
                (tmp_path / at).mkdir()
                (tmp_path / at / "file").touch()

            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(Coach, "get_command", lambda _self, _ctx, _name, it=probe: it)
                assert CliRunner().invoke(coach_group, [name]).exit_code == 0
            modes = [oct(one.stat().st_mode & 0o777) for one in (tmp_path / name, tmp_path / name / "file")]
            found[name] = modes == ["0o700", "0o600"]
            assert found[name] == command.writes_personal_data
            assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
    assert [name for name, alone in found.items() if alone] == ["recommend", "audit", "notify", "dlq", "replay"]
