"""Processes of `coach` that are there at once: one process imports everything, and each of its children is a fork of it.

A test that kills twenty sinks would else wait twenty times for imports. Run as a script it reads a JSON object a line
(environment, arguments, where to log) and answers with the child's process id; at the end of its input it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

REPOSITORY: Final = Path(__file__).resolve().parents[2]
LOOK_AGAIN_S: Final = 0.01


class Nursery:
    """The process that forks, from `__enter__` to `__exit__`."""

    def __enter__(self) -> Self:
        """Start it."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.audit.nursery"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _raised: BaseException | None, _at: TracebackType | None
    ) -> None:
        """End it and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def start(self, *arguments: str, environment: Mapping[str, str], log: Path, folder: Path | None = None) -> Child:
        """Start `coach` with these arguments, in a folder or else in the repository."""
        pipes = self._process.stdin, self._process.stdout
        assert pipes[0] is not None
        assert pipes[1] is not None
        order = {"arguments": arguments, "environment": dict(environment), "log": str(log)}
        order["folder"] = str(folder or REPOSITORY)
        pipes[0].write(json.dumps(order) + "\n")
        pipes[0].flush()
        return Child(int(pipes[1].readline()), log)


class Child:
    """One of them."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid = pid
        self.log = log
        log.touch()  # the child opens it when it gets to it
        self._ended = log.with_suffix(".ended")

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return not self._ended.exists()

    def signal(self, which: signal.Signals) -> None:
        """Send it a signal."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, which)

    def kill(self) -> None:
        """End it as a crash does."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self, timeout_s: float = 60.0) -> int:
        """Wait for its end, and return its exit code; below 0: the signal that ended it."""
        deadline = time.monotonic() + timeout_s
        while self.alive:
            assert time.monotonic() < deadline, f"{self.log.read_text()[-2000:]}"
            time.sleep(LOOK_AGAIN_S)
        return int(self._ended.read_text())

    def events(self, *names: str) -> list[dict[str, Any]]:
        """The log's lines of these events."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return [one for one in found if isinstance(one, dict) and one.get("event") in names]

    def until(self, *names: str, count: int = 1, timeout_s: float = 60.0) -> list[dict[str, Any]]:
        """Wait for so many of these events in the log."""
        deadline = time.monotonic() + timeout_s
        while len(found := self.events(*names)) < count:
            assert self.alive, f"it ended: {self.log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"no {names}: {self.log.read_text()[-2000:]}"
            time.sleep(LOOK_AGAIN_S)
        return found


def _child(order: Mapping[str, Any]) -> None:
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    from stream.cli.main import coach  # noqa: PLC0415 - it is there already

    coach(order["arguments"], prog_name="coach")


def _main() -> None:
    import pyarrow.parquet  # noqa: F401, PLC0415 - so that the children have it

    import stream.audit.archive.target  # noqa: PLC0415 - as above
    import stream.cli.audit  # noqa: PLC0415 - as above

    # As in conftest.py: processes die, and no machine.
    vars(stream.audit.archive.target)["to_disk"] = lambda _path: None

    children: dict[int, str] = {}

    def reap(*_: object) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                ended = Path(children[pid]).with_suffix(".ended")
                draft = ended.with_suffix(".draft")
                draft.write_text(str(os.waitstatus_to_exitcode(status)))
                draft.rename(ended)

    for line in iter(sys.stdin.readline, ""):
        order = json.loads(line)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        pid = os.fork()
        if not pid:
            try:
                _child(order)
            except SystemExit as ended:
                os._exit(int(ended.code or 0))
            finally:
                os._exit(70)
        children[pid] = order["log"]
        signal.signal(signal.SIGCHLD, reap)
        reap()
        print(pid, flush=True)


if __name__ == "__main__":
    _main()
