"""What a replay says of its progress, by a clock of the test's own."""

from __future__ import annotations

import pytest

from stream.cli.progress import RecordsProgress


class Clock:
    """Stands at the seconds that it is set to."""

    now_s = 1_000.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now_s


@pytest.mark.parametrize("terminal", [False, True])
def test_rate_and_time_left_are_of_this_start(capsys: pytest.CaptureFixture[str], *, terminal: bool) -> None:
    """Given a run that goes on behind 1,000 of 5,000 records, when it gets on by the clock, then the rate is that of this start alone, the time left is what is left by that rate, and the end has no time left."""
    clock = Clock()
    progress = RecordsProgress(terminal=terminal, clock=clock)
    said = []
    for seconds, done in ((20.0, 2_000), (100.0, 2_000), (220.0, 3_200), (250.0, 5_000)):
        clock.now_s = 1_000.0 + seconds
        progress(done, 1_000, 5_000)
        said.append(capsys.readouterr().err)
    lines = [one.strip() for one in said]
    assert lines == [
        "2000 of 5000 records, 50/s, 1 min 0 s left",
        "",  # nothing new
        "3200 of 5000 records, 10/s, 3 min 0 s left",
        "5000 of 5000 records, 16/s",
    ]
    assert all(one.startswith("\r") and "\n" not in one for one in said if one) == terminal


def test_it_is_told_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    """Given a record each tenth of a second, when ten minutes pass, then a line comes each ten seconds, the last record has its own, and hours are told as hours."""
    clock = Clock()
    with RecordsProgress(terminal=False, clock=clock) as progress:
        for done in range(1, 6_001):
            clock.now_s += 0.1
            progress(done, 0, 6_000)
    lines = capsys.readouterr().err.splitlines()
    assert 58 <= len(lines) <= 61
    assert lines[0].startswith("10")
    assert lines[-1] == "6000 of 6000 records, 10/s"
    clock.now_s = 0.0
    slow = RecordsProgress(terminal=False, clock=clock)
    clock.now_s = 10.0
    slow(10, 0, 7_270)
    assert capsys.readouterr().err == "10 of 7270 records, 1/s, 2 h 1 min left\n"


def test_no_rate_is_told_of_a_moment(capsys: pytest.CaptureFixture[str]) -> None:
    """Given a run that is over within half a second, when it ends, then its count is told without a rate."""
    clock = Clock()
    progress = RecordsProgress(terminal=False, clock=clock)
    clock.now_s += 0.4
    progress(4, 0, 4)
    assert capsys.readouterr().err == "4 of 4 records\n"
