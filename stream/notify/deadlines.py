"""Deadlines of whole exchanges with another host; a stop shortens them all.

A socket timeout bounds one wait for bytes only: a server that sends one byte a second never meets it.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable


class Deadlines:
    """The deadlines of one process. `clock`: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stop_by_s = math.inf

    def stop_in(self, seconds: float) -> None:
        """End present and future exchanges within `seconds`; the earliest call counts."""
        self._stop_by_s = min(self._stop_by_s, self._clock() + seconds)

    @property
    def is_stopping(self) -> bool:
        """Whether `stop_in` was called."""
        return self._stop_by_s < math.inf

    @property
    def is_over(self) -> bool:
        """Whether the time left by `stop_in` has passed."""
        return self._clock() >= self._stop_by_s

    def within(self, seconds: float) -> Callable[[], float]:
        """Begin an exchange: what is returned tells the seconds that it has left, 0 or less when it is over."""
        by_s = self._clock() + seconds

        def left_s() -> float:
            return min(by_s, self._stop_by_s) - self._clock()

        return left_s


class Watchdog:
    """Calls `cut` from its own thread once no seconds are left, repeatedly until the block ends.

    Repeatedly because a connection may be opened only after the deadline. `cut` must be thread-safe and raise nothing.
    """

    STEP_S = 0.25  # longest delay until a shortened deadline is noticed

    def __init__(self, left_s: Callable[[], float], cut: Callable[[], None]) -> None:
        self._left_s = left_s
        self._cut = cut
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._wait, name="deadline", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_how: object) -> None:
        """Stop watching; `cut` is never called after this."""
        self._done.set()
        self._thread.join()

    def _wait(self) -> None:
        while not self._done.wait(min(self._left_s(), self.STEP_S) if self._left_s() > 0 else self.STEP_S):
            if self._left_s() <= 0:
                self._cut()


def end_connection(connected: socket.socket | None) -> None:
    """Shut a connection down, from any thread; its owner still closes it."""
    if connected is not None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(connected, socket.SHUT_RDWR)  # a TLS socket's own `shutdown` is not thread-safe
