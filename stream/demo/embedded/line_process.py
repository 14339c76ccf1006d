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
from contextlib import suppress
from typing import IO, Final, cast

from stream.errors import DependencyError

START_TIMEOUT_S: Final = 20.0
REPLY_TIMEOUT_S: Final = 10.0
STOP_TIMEOUT_S: Final = 5.0
LINE_CHARACTERS_MAX: Final = 65_536


class LineProcess:
    """`python -m module arguments...`, started at once; `first_line` is what it said when it was ready.

    Commands are serialised by a lock, so any thread may give them. `gone` is what is raised, with one clear line, when
    the process refuses, dies, or does not answer in time.
    """

    def __init__(self, module: str, *arguments: str, name: str, gone: type[DependencyError]) -> None:
        """Start the process and wait for its first line.

        Raises: `gone` when there is none within START_TIMEOUT_S.
        """
        self._name = name
        self._gone = gone
        self._lock = threading.Lock()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `stop`; a pipe that nobody reads would fill and block
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            start_new_session=True,
        )
        try:
            self.first_line = self._line(START_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def tell(self, command: str) -> None:
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
        with suppress(OSError):  # an unsent command of a process that is gone
            self._pipe("stdin").close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._pipe("stdout").close()
        self._said.close()

    def _pipe(self, which: str) -> IO[str]:
        return cast("IO[str]", getattr(self._process, which))  # both are pipes, opened above

    def _line(self, timeout_s: float) -> str:
        watchdog = threading.Timer(timeout_s, self._process.kill)  # a kill ends the blocked read below
        watchdog.start()
        try:
            line = self._pipe("stdout").readline(LINE_CHARACTERS_MAX)
        finally:
            watchdog.cancel()
        if line:
            return line.rstrip("\n")
        self._process.kill()
        self._process.wait()
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").strip().splitlines()
        message = f"{self._name} does not answer: {said[-1] if said else f'nothing within {timeout_s:.0f} s'}"
        raise self._gone(message)
