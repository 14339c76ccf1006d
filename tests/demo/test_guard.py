from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stream.demo.worker_process import WorkerChildProcess, WorkerFailed

SLEEPS = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


def guarded(program: str, timeout_s: float = 5) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "stream.demo.embedded.guard", str(timeout_s), sys.executable, "-c", program]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_the_exit_code_is_the_commands() -> None:
    """Given a guarded command, when it ends by itself, then the guard ends with its code though its input is open."""
    with guarded("raise SystemExit(7)") as guard:
        assert guard.wait(20) == 7


@pytest.mark.parametrize(("program", "code"), [(SLEEPS, 128 + signal.SIGTERM), (STUBBORN, 128 + signal.SIGKILL)])
def test_closing_its_input_stops_the_command(program: str, code: int) -> None:
    """Given a guarded command, when the guard's input closes, then it gets SIGTERM, and SIGKILL if that does not help."""
    with guarded(program, timeout_s=0.5) as guard:
        assert guard.stdout is not None
        assert guard.stdin is not None
        guard.stdout.readline()
        guard.stdin.close()
        assert guard.wait(20) == code


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_command_does_not_outlive_a_killed_parent() -> None:
    """Given a program that guards a command, when the program is killed with SIGKILL, then the command ends too."""
    command = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    program = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-m', 'stream.demo.embedded.guard', '5', sys.executable, '-c', sys.argv[1]],"
        " stdin=subprocess.PIPE); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, command], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


def test_a_worker_that_cannot_start_is_quoted(tmp_path: Path) -> None:
    """Given settings that the worker refuses, when it is waited for, then the error quotes what it said last."""
    worker = WorkerChildProcess({"COACH_BATCH_MAX": "many"}, tmp_path / "worker.log")
    with pytest.raises(WorkerFailed, match=r"exit code 2; it said last: .*COACH_BATCH_MAX"), worker:
        worker.wait_until_assigned()
    assert worker.stop() == 0


def test_a_worker_that_is_not_running_says_so(tmp_path: Path) -> None:
    """Given a worker that was not started, when it is checked, then the error says that it is not there."""
    with pytest.raises(WorkerFailed, match="before it was started"):
        WorkerChildProcess({}, tmp_path / "worker.log").check_alive()
    assert not list(tmp_path.iterdir())
