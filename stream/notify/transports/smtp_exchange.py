"""Connections to a mail server that another thread can cut, whatever they are waiting for."""

from __future__ import annotations

import contextlib
import smtplib
import socket
import ssl
import threading


class CutLine:
    """Holds a connection from its opening on. A cut ends each wait on it at once, and each later one."""

    def __init__(self) -> None:
        """Nothing is open."""
        self._lock = threading.Lock()
        self._twin: socket.socket | None = None  # the same connection, which TLS does not take away when it wraps it
        self.was_cut = False

    def hold(self, opened: socket.socket) -> None:
        """Take a connection that was opened."""
        self.let_go()
        with self._lock:
            self._twin = opened.dup()
        if self.was_cut:
            self.cut()

    def cut(self) -> None:
        """End it, from any thread."""
        with self._lock:
            self.was_cut = True
            if self._twin is not None:
                with contextlib.suppress(OSError):
                    self._twin.shutdown(socket.SHUT_RDWR)

    def let_go(self) -> None:
        """Forget the connection, which its owner closes."""
        with self._lock:
            twin, self._twin = self._twin, None
            if twin is not None:
                twin.close()


class Smtp(smtplib.SMTP):
    """SMTP over a connection that can be cut."""

    def __init__(self, host: str, port: int, *, timeout_s: float, line: CutLine) -> None:
        """Connect, and read the greeting. Raises: OSError, smtplib.SMTPException."""
        self._line = line
        super().__init__(host, port, timeout=timeout_s)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        # The library's hook for its own SMTP_SSL.
        opened: socket.socket = super()._get_socket(host, port, timeout)  # type: ignore[misc]
        self._line.hold(opened)
        return opened

    def close(self) -> None:
        """Close it."""
        self._line.let_go()
        super().close()


class SmtpTls(smtplib.SMTP_SSL, Smtp):
    """The same with TLS from the first byte."""

    def __init__(self, host: str, port: int, *, timeout_s: float, line: CutLine, context: ssl.SSLContext) -> None:
        """Connect, shake hands, and read the greeting. Raises: OSError, smtplib.SMTPException."""
        self._line = line
        smtplib.SMTP_SSL.__init__(self, host, port, timeout=timeout_s, context=context)
