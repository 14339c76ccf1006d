"""Progress of long work on standard error: in place on a terminal, plain lines now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Self, TypeVar

import click

Item = TypeVar("Item")

LINE_EVERY: Final = 1_000
COUNT_EVERY: Final = 50
TERMINAL_EVERY_S: Final = 0.2
LINE_EVERY_S: Final = 10.0
RATE_FROM_S: Final = 0.5
WIDTH: Final = 60


def has_terminal() -> bool:
    """Whether somebody may watch standard error; nobody can where the process was started without one."""
    return bool(sys.stderr and sys.stderr.isatty())


def counted(items: Iterable[Item], what: str) -> Iterator[Item]:
    """Yield the items, and show how many there were of `what` (a plural)."""
    terminal = has_terminal()
    for count, item in enumerate(items, start=1):
        yield item
        if count % (COUNT_EVERY if terminal else LINE_EVERY) == 0:
            _say(f"{count} {what}", terminal=terminal)
    if terminal:
        click.echo("\r", err=True, nl=False)


class RecordsProgress:
    """Work whose length is known: records done, rate and time left. To be used as a block."""

    def __init__(self, *, terminal: bool | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Start the clock, in seconds. `terminal`: whether standard error is one; None: find out."""
        self._terminal = has_terminal() if terminal is None else terminal
        self._clock = clock
        self._began_s = self._shown_s = clock()
        self._shown = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_why: object) -> None:
        if self._terminal:
            click.echo(err=True)

    def __call__(self, done: int, before: int, total: int) -> None:
        """Show progress when due: `done` of `total` records, of which an earlier start did `before`."""
        now_s = self._clock()
        due = now_s - self._shown_s >= (TERMINAL_EVERY_S if self._terminal else LINE_EVERY_S)
        if done == self._shown or not (due or done == total):
            return
        self._shown = done
        self._shown_s = now_s
        spent_s = now_s - self._began_s
        rate = (done - before) / spent_s if spent_s >= RATE_FROM_S else 0.0
        left = f", {duration((total - done) / rate)} left" if rate and done < total else ""
        _say(f"{done} of {total} records{f', {rate:.0f}/s' if rate else ''}{left}", terminal=self._terminal)


def duration(seconds: float) -> str:
    """Write a duration in hours, minutes and seconds."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"  # noqa: PLR2004 - an hour


def _say(line: str, *, terminal: bool) -> None:
    click.echo(f"\r{line:<{WIDTH}}" if terminal else line, err=True, nl=not terminal)
