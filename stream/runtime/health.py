"""`/metrics`, `/health` and `/ready` over plain HTTP, when a port is set.

`/health` (liveness) says 503 only when a loop of the process is wedged: it was to be heard of within a bound and was
not. Who restarts the process then does right. Waiting is not being wedged: neither an outage nor an empty topic is.
`/ready` says 503 while the process would not work on what arrives now, and why; who restarts it for that does harm.

    vitals = Vitals()
    with served(settings.metrics_port, address=settings.metrics_address, counters=counters, vitals=vitals, not_ready=lambda: [...reasons...]):
        while True:
            vitals.expect("reading", within_s=60)     # from now on; said again, it counts anew
            ...
            vitals.rest("reading")                    # waits for something that may take any time

A loop that polls need not rest: it says `expect` at each turn. Bounds are generous: they end what would last for ever.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from stream.errors import ConfigurationError
from stream.runtime.counters import Counters

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_TIMEOUT_S: Final = 5.0  # for a client to say what it wants
REQUESTS_MAX: Final = 16  # at once


class Vitals:
    """Until when each loop of the process has to be heard of; any thread may tell."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._due: dict[str, tuple[float, float]] = {}  # when, and the bound that it came from

    def expect(self, what: str, within_s: float) -> None:
        """From now on `what` has to be heard of within so many seconds."""
        with self._lock:
            self._due[what] = self._clock() + within_s, within_s

    def rest(self, what: str) -> None:
        """What waits now, for as long as it takes, is expected no more."""
        with self._lock:
            self._due.pop(what, None)

    def stalled(self) -> list[str]:
        """Whatever was not heard of in time, a text each."""
        now_s = self._clock()
        with self._lock:
            due = dict(self._due)
        return [
            f"{what} was to be heard of within {within_s:g} s, and was not for {now_s - at_s + within_s:.0f} s"
            for what, (at_s, within_s) in due.items()
            if now_s > at_s
        ]


@contextmanager
def served(
    port: int,
    *,
    address: str,
    counters: Counters,
    vitals: Vitals,
    not_ready: Callable[[], Sequence[str]],
    setting: str = "COACH_METRICS_PORT",
) -> Iterator[None]:
    """Serve the three paths on one address while the block runs, from threads; do nothing for port 0.

    `not_ready` gives the reasons why the process would not work now, none when it would. `setting` is what gave the port.
    Raises: ConfigurationError, which names the setting, when the port is taken.
    """
    if not port:
        yield
        return

    def why_not_ready() -> list[str]:
        return [*vitals.stalled(), *not_ready()]

    try:
        server = _BoundedServer((address, port), _handler(counters, vitals, why_not_ready))
    except OSError as taken:
        message = (
            f"{setting}={port} cannot be listened on at COACH_METRICS_ADDRESS={address}: {taken}; is another process there, "
            "and is the address one of this host?"
        )
        raise ConfigurationError(message) from taken
    counters.follow("ready", lambda: not why_not_ready())
    counters.follow("stalled_loops", lambda: len(vitals.stalled()))
    threading.Thread(target=server.serve_forever, name="coach-health", daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def _handler(
    counters: Counters, vitals: Vitals, why_not_ready: Callable[[], list[str]]
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_TIMEOUT_S

        def do_GET(self) -> None:
            """Answer /metrics, /health or /ready, and 404 for any other path."""
            if self.path == "/metrics":
                self._say(200, METRICS_TYPE, counters.exposition())
            elif self.path == "/health":
                self._judge(vitals.stalled(), "alive", "stalled")
            elif self.path == "/ready":
                self._judge(why_not_ready(), "ready", "not ready")
            else:
                self._say(404, "text/plain", b"there are /metrics, /health and /ready\n")

        def _judge(self, why_not: Sequence[str], good: str, bad: str) -> None:
            body = {"status": bad if why_not else good, "why": list(why_not)}
            self._say(503 if why_not else 200, "application/json", json.dumps(body).encode())

        def _say(self, status: int, content_type: str, data: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Say nothing: probes come every few seconds."""

    return Handler


class _BoundedServer(ThreadingHTTPServer):
    """Answers so many at once; whoever comes then takes the place of the one that has been there longest.

    So clients that say nothing, or never end, keep no probe out.
    """

    daemon_threads = True
    request_queue_size = 4 * REQUESTS_MAX  # connections that wait to be taken; past it they would wait for seconds

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._lock = threading.Lock()
        self._live: dict[socket.socket, None] = {}  # in the order in which they came

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base class's signature
        """Answer in a thread."""
        with self._lock:
            if len(self._live) >= REQUESTS_MAX:
                longest = next(iter(self._live))
                del self._live[longest]
                with contextlib.suppress(OSError):
                    longest.shutdown(socket.SHUT_RDWR)  # its thread then finds nobody there
            self._live[request] = None
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as above
        """Answer one request, and forget it."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._live.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as above
        """A client that went away is nobody's trouble; the base class prints a traceback."""
