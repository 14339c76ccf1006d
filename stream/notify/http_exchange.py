"""HTTP whose whole exchange, from the connection to the last byte that is read, has a deadline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from ssl import SSLContext
from typing import Any, Final

import httpcore2
import httpx2

from stream.notify.deadlines import Deadline, Deadlines

SLICE_S: Final = 0.5  # one wait for bytes, after which the deadline is looked at
PIECE_BYTES: Final = 16 * 1024  # written at once, likewise


class Http:
    """A client whose connections stay open; it follows no redirects, so that tokens and letters stay where they belong."""

    def __init__(self, deadlines: Deadlines, *, timeout_s: float, headers: Mapping[str, str] | None = None) -> None:
        """Connect to nothing yet. `timeout_s`: of each whole exchange."""
        self._deadlines = deadlines
        self._timeout_s = timeout_s
        self._client = httpx2.Client(timeout=timeout_s, headers=headers, follow_redirects=False)
        self._network = _Network(deadlines.within(timeout_s))
        # httpx2 has no setting for it: its pools, of which those of proxies come from the environment, take ours.
        for transport in (self._client._transport, *self._client._mounts.values()):  # noqa: SLF001 - as said
            if isinstance(transport, httpx2.HTTPTransport):
                transport._pool._network_backend = self._network  # noqa: SLF001 - as said

    @contextmanager
    def exchange(
        self, method: str, url: str, *, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[httpx2.Response]:
        """Send a request; what is read of the answer's body is read inside the block.

        Raises: httpx2.HTTPError, whose text may hold the URL; a ConnectTimeout, ReadTimeout or WriteTimeout at the deadline.
        """
        self._network.deadline = self._deadlines.within(self._timeout_s)
        with self._client.stream(method, url, content=content, headers=headers) as answer:
            yield answer

    def close(self) -> None:
        """Let go of connections."""
        self._client.close()


class _Network(httpcore2.SyncBackend):
    """Makes connections that keep to the deadline of the present exchange."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline

    def left_s(self, timeout_s: float | None, late: type[Exception]) -> float:
        left_s = self.deadline.left_s
        if left_s <= 0:
            msg = "the whole exchange took too long"
            raise late(msg)
        return left_s if timeout_s is None else min(left_s, timeout_s)

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        """Connect."""
        left_s = self.left_s(timeout, httpcore2.ConnectTimeout)
        return _Stream(super().connect_tcp(host, port, left_s, local_address, socket_options), self)


class _Stream(httpcore2.NetworkStream):
    """A connection that waits in slices."""

    def __init__(self, inner: httpcore2.NetworkStream, network: _Network) -> None:
        self._inner = inner
        self._network = network

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read what comes."""
        while True:
            left_s = self._network.left_s(None, httpcore2.ReadTimeout)
            try:
                return self._inner.read(max_bytes, min(left_s, SLICE_S))
            except httpcore2.ReadTimeout:
                self._network.left_s(timeout, httpcore2.ReadTimeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all of it."""
        for start in range(0, len(buffer), PIECE_BYTES):
            left_s = self._network.left_s(timeout, httpcore2.WriteTimeout)
            self._inner.write(buffer[start : start + PIECE_BYTES], left_s)

    def close(self) -> None:
        """Close it."""
        self._inner.close()

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        """Shake hands, which the standard library bounds as a whole."""
        left_s = self._network.left_s(timeout, httpcore2.ConnectTimeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, left_s), self._network)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - the base class's
        """Tell of the connection."""
        return self._inner.get_extra_info(info)
