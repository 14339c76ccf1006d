"""HTTP exchanges with a deadline: a watchdog shuts down the connection of one that takes too long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2

from stream.notify.deadlines import Deadlines, Watchdog, end_connection


class HttpClient:
    """Keeps connections open; follows no redirects, which could carry tokens and letters elsewhere.

    `timeout_s` bounds each whole exchange.
    """

    def __init__(self, deadlines: Deadlines, *, timeout_s: float, headers: Mapping[str, str] | None = None) -> None:
        self._deadlines = deadlines
        self._timeout_s = timeout_s
        self._client = httpx2.Client(timeout=timeout_s, headers=headers, follow_redirects=False)
        self._connection: Any = None  # the network stream of the present exchange; kept ones are reused
        self._is_late = False

    @contextmanager
    def exchange(
        self, method: str, url: str, *, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[httpx2.Response]:
        """Send a request; read the response's body inside the block.

        Raises: httpx2.HTTPError, whose text may hold the URL; a ConnectTimeout or ReadTimeout at the deadline.
        """
        left_s = self._deadlines.within(self._timeout_s)
        self._is_late = False
        if left_s() <= 0:
            message = "the process is stopping"
            raise httpx2.ConnectTimeout(message)
        with Watchdog(left_s, self._end):
            try:
                with self._client.stream(
                    method, url, content=content, headers=headers, timeout=left_s(), extensions={"trace": self._trace}
                ) as response:
                    yield response
            except httpx2.TransportError as error:
                if self._is_late and not isinstance(error, httpx2.ConnectError | httpx2.TimeoutException):
                    message = "the whole exchange took too long"
                    raise httpx2.ReadTimeout(message) from error
                raise

    def close(self) -> None:
        """Close the connections that were kept open for the next request."""
        self._client.close()

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Keep the network stream that httpx's `trace` extension reports."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._connection = info["return_value"]

    def _end(self) -> None:
        self._is_late = True
        if self._connection is not None:
            end_connection(self._connection.get_extra_info("socket"))
