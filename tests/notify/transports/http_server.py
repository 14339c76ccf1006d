"""A real HTTP server in the test's process: a contact look-up and a webhook's receiver, which does as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


@dataclass(kw_only=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(kw_only=True)
class HttpServer:
    """`people` by pseudonym; `answers`: status codes to give first, one a request."""

    port: int = 0
    people: dict[str, Any] = field(default_factory=dict)
    answers: list[int] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    raw: bytes | None = None  # an answer as it is

    @property
    def look_up(self) -> str:
        """The look-up's URL."""
        return f"http://127.0.0.1:{self.port}/people/{{subject_ref}}?v=1"

    @property
    def hook(self) -> str:
        """The receiver's URL."""
        return f"http://127.0.0.1:{self.port}/hook"


@contextmanager
def http_server() -> Iterator[HttpServer]:
    """Serve while the block runs."""
    state = HttpServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """A look-up."""
            status = self._note()
            one = unquote(self.path.split("?")[0].rpartition("/")[2])
            if status == 200 and state.raw is None and one not in state.people:
                status = 404
            body = state.raw if state.raw is not None else json.dumps(state.people.get(one, {"no": "body"})).encode()
            self._say(status, body)

        def do_POST(self) -> None:
            """A letter."""
            self._say(self._note(), b"{}")

        def _note(self) -> int:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            state.asked.append(Asked(method=self.command, path=self.path, headers=dict(self.headers), body=body))
            return state.answers.pop(0) if state.answers else 200

        def _say(self, status: int, body: bytes) -> None:
            self.send_response(status)
            if status in (301, 302):
                self.send_header("Location", state.hook)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that has read enough may leave."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
