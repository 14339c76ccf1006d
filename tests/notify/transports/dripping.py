"""A server that never ends its answer: a line, or a byte, every now and then, for ever."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

EVERY_S = 0.1


@contextlib.contextmanager
def dripping(*answers: bytes, drop: bytes, began: threading.Event | None = None) -> Iterator[int]:
    """Give the port of a server that reads something before each of `answers`, and then sends `drop` for ever.

    `began` is set when the dripping begins. What begins with 220 is sent unasked, as mail servers do.
    """
    over = threading.Event()
    threads = []
    listening = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            for answer in answers:
                if not answer.startswith(b"220"):
                    connection.recv(65_536)
                connection.sendall(answer)
            if not answers[0].startswith((b"HTTP", b"220-")):
                connection.recv(65_536)
            if began is not None:
                began.set()
            while not over.wait(EVERY_S):
                connection.sendall(drop)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while not over.is_set():
                threads.append(threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True))
                threads[-1].start()

    first = threading.Thread(target=accept, daemon=True)
    first.start()
    try:
        yield int(listening.getsockname()[1])
    finally:
        over.set()
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for thread in (first, *threads):
            thread.join(5)
