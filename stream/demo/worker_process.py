"""The real worker, `coach worker`, as a process of its own: the same program that runs in production."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from stream.errors import CorruptionError
from stream.runtime.settings import Settings
from stream.runtime.settings_reader import documentation

START_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 20.0
KILL_TIMEOUT_S: Final = 5.0
LOG_LINES_SHOWN: Final = 5
LOOK_AGAIN_S: Final = 0.05
ASSIGNED: Final = b'"event":"worker.assigned"'  # what the worker logs once its partitions are its own


class WorkerFailed(CorruptionError):
    """The worker ended by itself, or did not stop cleanly."""


class WorkerChildProcess:
    """One worker from `__enter__` to `__exit__`, which stops it and expects a clean exit.

    `settings` maps `COACH_*` names to values, and is all that the worker is told; what it logs goes to `log`.
    """

    def __init__(self, settings: Mapping[str, str], log: Path) -> None:
        self._settings = dict(settings)
        self.log = log
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        variables = [f"{name}={value}" for name, value in self._settings.items()]
        unset = [word for name, _, _ in documentation(Settings) for word in ("-u", name)]
        worker = ["env", *unset, *variables, sys.executable, "-m", "stream.cli.main", "worker"]
        with self.log.open("wb") as log:
            self._guard = subprocess.Popen(  # noqa: S603 - our own program; a session of its own, so Ctrl-C is ours to handle
                [sys.executable, "-m", "stream.demo.embedded.guard", str(STOP_TIMEOUT_S), *worker],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def __exit__(self, _kind: object, raised: BaseException | None, _trace: object) -> None:
        """Stop the worker.

        Raises: WorkerFailed if it did not end cleanly, unless something else is being raised already.
        """
        code = self.stop()
        if code != 0 and raised is None:
            message = f"the worker ended with exit code {code} instead of stopping cleanly{self._last_words()}"
            raise WorkerFailed(message)

    def wait_until_assigned(self) -> None:
        """Wait until the worker has partitions to read from.

        Raises: WorkerFailed if it ends before, or takes longer than START_TIMEOUT_S.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while ASSIGNED not in self.log.read_bytes():
            self.check_alive()
            if time.monotonic() > deadline:
                message = f"the worker got no partitions within {START_TIMEOUT_S:.0f} s{self._last_words()}"
                raise WorkerFailed(message)
            time.sleep(LOOK_AGAIN_S)

    def check_alive(self) -> None:
        """Raise WorkerFailed, with its last words, if the worker is gone."""
        if self._guard is None or self._guard.poll() is not None:
            code = "before it was started" if self._guard is None else f"with exit code {self._guard.returncode}"
            message = f"the worker ended {code}{self._last_words()}"
            raise WorkerFailed(message)

    def stop(self) -> int:
        """Stop the worker, and return its exit code; 0 when it was not running."""
        guard, self._guard = self._guard, None
        if guard is None:
            return 0
        assert guard.stdin is not None  # noqa: S101 - a pipe, opened above
        guard.stdin.close()
        try:
            return guard.wait(STOP_TIMEOUT_S + KILL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            guard.kill()
            return guard.wait()

    def _last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines() if self.log.is_file() else []
        return "; it said last: " + " | ".join(lines[-LOG_LINES_SHOWN:]) if lines else ""
