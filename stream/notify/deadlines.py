"""How long whole exchanges with another host may last: a stop shortens them all.

A timeout of a socket bounds one wait for bytes. A server that sends one byte a second never meets it.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable


class Deadlines:
    """What bounds the exchanges of one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is stopping. `clock`: seconds."""
        self._clock = clock
        self._stop_by_s = math.inf

    def stop_in(self, seconds: float) -> None:
        """End whatever goes on, and whatever begins, so soon at the latest; the first call counts."""
        self._stop_by_s = min(self._stop_by_s, self._clock() + seconds)

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was asked for."""
        return self._stop_by_s < math.inf

    @property
    def is_over(self) -> bool:
        """Whether the time that a stop leaves has passed."""
        return self._clock() >= self._stop_by_s

    def within(self, seconds: float) -> Deadline:
        """Give one exchange so many seconds from now."""
        return Deadline(self._clock() + seconds, self._left_s)

    def _left_s(self, by_s: float) -> float:
        return min(by_s, self._stop_by_s) - self._clock()


class Deadline:
    """When one exchange must be over."""

    def __init__(self, by_s: float, left_s: Callable[[float], float]) -> None:
        """See `Deadlines.within`."""
        self._by_s = by_s
        self._left_s = left_s

    @property
    def left_s(self) -> float:
        """The seconds that are left, at most 0 when it is over."""
        return self._left_s(self._by_s)


class Watchdog:
    """Calls `cut` from a thread of its own once a deadline has passed, again and again until the block ends.

    Again and again because a connection may be made only after the deadline.
    """

    STEP_S = 0.25  # a stop that shortens the deadline is noticed within this

    def __init__(self, deadline: Deadline, cut: Callable[[], None]) -> None:
        """`cut` must be safe to call from another thread, and raise nothing."""
        self._deadline = deadline
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
        while not self._done.wait(
            min(self._deadline.left_s, self.STEP_S) if self._deadline.left_s > 0 else self.STEP_S
        ):
            if self._deadline.left_s <= 0:
                self._cut()


def end_connection(connected: socket.socket | None) -> None:
    """End every wait on a connection, from any thread; its owner still closes it."""
    if connected is not None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(connected, socket.SHUT_RDWR)  # a TLS socket's own `shutdown` is not safe from here
