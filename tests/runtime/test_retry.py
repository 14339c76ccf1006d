from __future__ import annotations

import pytest

from stream.errors import RedisUnavailable
from stream.runtime.retry import Abandoned, Retry


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        """Move it."""
        self.now_s += duration_s


def test_pauses_grow_up_to_their_bound_and_end_at_the_total() -> None:
    """Given something that stays away, when it is waited for, then pauses double up to their bound, and after the total the error comes back with how long it was waited for."""
    clock = Clock()
    retry = Retry(total_s=10.0, pause_max_s=1.0, clock=clock, sleep=clock.sleep)
    pauses: list[float] = []

    def wait_for_ever() -> None:
        for _ in range(100):
            before = clock.now_s
            retry.pause(RedisUnavailable("away"))
            pauses.append(round(clock.now_s - before, 6))

    with pytest.raises(RedisUnavailable, match=r"away \(waited 10 s, the bound is COACH_OUTAGE_MAX_S=10\)"):
        wait_for_ever()
    assert pauses[:6] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]
    assert max(pauses) == 1.0
    assert 110.0 <= clock.now_s < 110.001  # the total and no more, but for the rounding of the sums


def test_progress_starts_the_bound_anew() -> None:
    """Given an outage that ended, when another begins, then it has the whole bound again."""
    clock = Clock()
    retry = Retry(total_s=1.0, pause_max_s=1.0, clock=clock, sleep=clock.sleep)
    for _ in range(5):
        retry.pause(RedisUnavailable("away"))
        retry.pause(RedisUnavailable("away"))
        retry.progress()
    assert retry.pauses == 10


def test_a_pause_ends_when_the_work_is_called_off() -> None:
    """Given a long pause, when a stop begins, then the pause ends within a step."""
    clock = Clock()
    retry = Retry(
        total_s=100.0, pause_max_s=60.0, clock=clock, sleep=clock.sleep, abandoned=lambda: clock.now_s > 101.0
    )

    def wait_for_ever() -> None:
        for _ in range(50):
            retry.pause(RedisUnavailable("away"))

    with pytest.raises(Abandoned):
        wait_for_ever()
    assert clock.now_s < 101.3
