"""A child process that takes one command a line and answers each with a line, and that cannot outlive its parent.

The child reads its commands from standard input and ends when that does, which happens at the latest when the parent is
gone, however it went. It runs in a session of its own, so that Ctrl-C in a terminal reaches the parent alone, which then
stops things in the right order.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Final, Self, cast

from stream.errors import DependencyError

START_TIMEOUT_S: Final = 20.0
REPLY_TIMEOUT_S: Final = 10.0
STOP_TIMEOUT_S: Final = 5.0
LINE_CHARACTERS_MAX: Final = 65_536


class LineProcess:
    """`python -m module arguments...`, from `__enter__` to `__exit__`.

    Commands are serialised by a lock, so any thread may give them. `gone` is raised, with one clear line, when the
    process is not running, refuses, dies, or does not answer in time.
    """

    def __init__(self, module: str, *arguments: str, name: str, gone: type[DependencyError]) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._name = name
        self._gone = gone
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Start the process. Raises: `gone` when it says nothing within START_TIMEOUT_S."""
        self._said = tempfile.TemporaryFile()  # a pipe that nobody reads would fill and block
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            start_new_session=True,
        )
        try:
            self._first_line = self._line(START_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_why: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The child's process id. Raises: `gone` where it does not run."""
        return self._running().pid

    @property
    def first_line(self) -> str:
        """What the process said when it was ready."""
        self._running()
        return self._first_line

    def command(self, command: str) -> None:
        """Give one command and wait until it is done.

        Raises: `gone` if it is refused or not answered within REPLY_TIMEOUT_S.
        """
        with self._lock:
            try:
                self._pipe("stdin").write(command + "\n")
                self._pipe("stdin").flush()
            except (OSError, ValueError) as broken:  # ValueError: stopped, so the pipe is closed
                message = f"{self._name} (pid {self.pid}) is gone: {broken}"
                raise self._gone(message) from broken
            reply = self._line(REPLY_TIMEOUT_S)
        if reply != "ok":
            message = f"{self._name} refuses `{command}`: {reply}"
            raise self._gone(message)

    def stop(self) -> None:
        """End the process: ask by closing its input, then insist. Calling it again does nothing."""
        process = self._process
        if process is None:
            return
        with suppress(OSError):  # an unsent command of a process that is gone
            self._pipe("stdin").close()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._pipe("stdout").close()
        self._said.close()
        self._process = None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            message = f"{self._name} is not running: use it inside its `with` block"
            raise self._gone(message)
        return self._process

    def _pipe(self, which: str) -> IO[str]:
        return cast("IO[str]", getattr(self._running(), which))  # both are pipes

    def _line(self, timeout_s: float) -> str:
        process = self._running()
        watchdog = threading.Timer(timeout_s, process.kill)  # a kill ends the blocked read below
        watchdog.start()
        try:
            line = self._pipe("stdout").readline(LINE_CHARACTERS_MAX)
        finally:
            watchdog.cancel()
        if line:
            return line.rstrip("\n")
        process.kill()
        process.wait()
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").strip().splitlines()
        message = f"{self._name} does not answer: {said[-1] if said else f'nothing within {timeout_s:.0f} s'}"
        raise self._gone(message)


def serve_lines(first_line: str, obey: Callable[[str], None], *refusals: type[Exception]) -> None:
    """In the child: say the first line, then obey each line of standard input; `obey` raises one of `refusals`."""
    print(first_line, flush=True)  # noqa: T201 - the parent reads it
    for line in filter(str.strip, sys.stdin):
        try:
            obey(line.strip())
        except refusals as refused:
            print(f"error {refused}".replace("\n", " ").rstrip(), flush=True)  # noqa: T201 - as above
        else:
            print("ok", flush=True)  # noqa: T201 - as above
