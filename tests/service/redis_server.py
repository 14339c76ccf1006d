"""A real redis-server for tests, which can be killed and started again on its port."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Final, Self

START_TIMEOUT_S: Final = 10.0


class NoRedis(Exception):
    """No redis-server can be started here; the message says why."""


class RealRedis:
    """An empty server on a free port of 127.0.0.1, from `__enter__` to `__exit__`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """As redis-py takes it."""
        return f"redis://127.0.0.1:{self._port}/0"

    def __enter__(self) -> Self:
        """Start it."""
        if shutil.which("redis-server") is None:
            reason = "redis-server is not installed"
            raise NoRedis(reason)
        self._directory.mkdir(parents=True, exist_ok=True)
        self.up()
        return self

    def __exit__(self, *_how: object) -> None:
        """Stop it."""
        self.down()

    def up(self) -> None:
        """Start an empty server."""
        command = ["redis-server", "--port", str(self._port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        with (self._directory / "redis.log").open("ab") as said:
            self._process = subprocess.Popen(
                command, cwd=self._directory, stdout=said, stderr=said, start_new_session=True
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                return
            time.sleep(0.05)
        reason = (self._directory / "redis.log").read_text()[-300:]
        raise NoRedis(reason)

    def down(self) -> None:
        """Kill it; what it held is gone."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
