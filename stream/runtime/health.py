"""`/metrics` and `/health` over plain HTTP, when a port is set. A later version adds latencies and lag."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from stream.errors import ConfigurationError
from stream.runtime.counters import MEANINGS, Counters

LABELS: Final = {"decisions_answered": "status", "decisions_dead": "reason"}
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def exposition(counters: Counters, gauges: Mapping[str, float]) -> str:
    """All numbers in Prometheus' text format (version 0.0.4)."""
    counts = counters.read()
    lines = []
    for name, meaning in MEANINGS.items():
        lines += [f"# HELP coach_{name}_total {meaning}", f"# TYPE coach_{name}_total counter"]
        labelled = {label: count for (one, label), count in counts.items() if one == name} or (
            {} if name in LABELS else {"": 0}
        )
        for label, count in sorted(labelled.items()):
            written = f'{{{LABELS[name]}="{label}"}}' if name in LABELS else ""
            lines.append(f"coach_{name}_total{written} {count}")
    for name, value in gauges.items():
        lines += [f"# TYPE coach_{name} gauge", f"coach_{name} {value:g}"]
    return "\n".join(lines) + "\n"


class HealthServer:
    """Serves both paths from a thread of its own."""

    def __init__(
        self,
        port: int,
        *,
        counters: Counters,
        gauges: Callable[[], Mapping[str, float]],
        ready: Callable[[], bool],
    ) -> None:
        """Listen on all addresses; `ready` says whether partitions are assigned and no outage is being waited out.

        Raises: ConfigurationError when the port is taken.
        """

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                """Answer one request."""
                if self.path == "/metrics":
                    self._say(200, METRICS_TYPE, exposition(counters, gauges()))
                elif self.path in ("/health", "/ready"):
                    is_ready = ready()
                    status = 200 if is_ready or self.path == "/health" else 503
                    body = json.dumps({"status": "ready" if is_ready else "not ready", **gauges()})
                    self._say(status, "application/json", body)
                else:
                    self._say(404, "text/plain", "there are /metrics, /health and /ready\n")

            def _say(self, status: int, content_type: str, body: str) -> None:
                data = body.encode()
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                """Say nothing: probes come every few seconds."""

        try:
            self._server = ThreadingHTTPServer(("", port), Handler)
        except OSError as taken:
            reason = f"COACH_METRICS_PORT={port} cannot be listened on: {taken}"
            raise ConfigurationError(reason) from taken
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="coach-health", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._server.shutdown()
        self._server.server_close()
