"""The patience that all programs share in an outage: growing pauses with a bound each, and a bound in all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from stream.errors import DependencyError

FIRST_PAUSE_S: Final = 0.05
Result = TypeVar("Result")
STEP_S: Final = 0.1  # a pause notices within this that it is called off


class Abandoned(Exception):
    """A stop or a rebalance ends the waiting: nothing is acked, and all of it will be read again."""


class StopRequested:
    """True once a stop or rebalance has gone on for `drain_s`, as far as it was asked meanwhile."""

    def __init__(
        self, suspended: Callable[[], bool], drain_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`suspended` says whether one is going on now."""
        self._suspended = suspended
        self._drain_s = drain_s
        self._clock = clock
        self._since_s: float | None = None

    def __call__(self) -> bool:
        """Whether the stop has lasted that long by now."""
        if not self._suspended():
            self._since_s = None
            return False
        now_s = self._clock()
        self._since_s = now_s if self._since_s is None else self._since_s
        return now_s - self._since_s >= self._drain_s


class Retry:
    """The waiting of one batch, or of a start. Each failed try pauses twice as long as the one before, up to `pause_max_s`.

    `total_s`, the setting `bound`, bounds the time from the first pause on; `progress` starts it anew. `abandoned` is asked before and during
    each pause; `on_wait` hears of each, and how long the outage has lasted.
    """

    def __init__(
        self,
        *,
        total_s: float,
        pause_max_s: float,
        abandoned: Callable[[], bool] = lambda: False,
        on_wait: Callable[[DependencyError, float], None] = lambda _error, _waited_s: None,
        bound: str = "COACH_OUTAGE_MAX_S",
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self._total_s = total_s
        self._pause_max_s = pause_max_s
        self._abandoned = abandoned
        self._on_wait = on_wait
        self._bound = bound
        self._clock = clock
        self._sleep = sleep or threading.Event().wait
        self._since: float | None = None
        self._next_s = FIRST_PAUSE_S
        self.pauses = 0

    def pause(self, error: DependencyError) -> None:
        """Wait before the next try.

        Raises: Abandoned when a stop or a rebalance calls; `error`, with how long it was waited for, when the bound is
        reached.
        """
        now = self._clock()
        self._since = now if self._since is None else self._since
        waited_s = now - self._since
        if waited_s >= self._total_s:
            message = f"{error} (waited {waited_s:.0f} s, the bound is {self._bound}={self._total_s:g})"
            raise type(error)(message) from error
        left_s = min(self._next_s, self._total_s - waited_s)
        self._next_s = min(2 * self._next_s, self._pause_max_s)
        self.pauses += 1
        self._on_wait(error, waited_s)
        while left_s > 0:
            self.check()
            step_s = min(left_s, STEP_S)
            self._sleep(step_s)
            left_s -= step_s
        self.check()

    def outlast(self, doing: Callable[[], Result]) -> Result:
        """Do something, again after a pause while its dependency is away. Raises: as `pause`, and as `doing`."""
        while True:  # bounded by `total_s`
            try:
                return doing()
            except DependencyError as away:
                self.pause(away)

    def check(self) -> None:
        """Go on only while nobody calls the work off. Raises: Abandoned."""
        if self._abandoned():
            raise Abandoned

    def progress(self) -> None:
        """Something answered again: the next outage has its own bound."""
        self._since = None
        self._next_s = FIRST_PAUSE_S
