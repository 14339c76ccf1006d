"""Progress of long work on standard error: a running count on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

import click

Item = TypeVar("Item")

LINE_EVERY: Final = 1_000
COUNT_EVERY: Final = 50


def counted(items: Iterable[Item], what: str) -> Iterator[Item]:
    """Pass items on, saying how many there were of `what` (a plural)."""
    terminal = sys.stderr.isatty()
    for count, item in enumerate(items, start=1):
        yield item
        if terminal and count % COUNT_EVERY == 0:
            click.echo(f"\r{count} {what}", err=True, nl=False)
        elif not terminal and count % LINE_EVERY == 0:
            click.echo(f"{count} {what}", err=True)
    if terminal:
        click.echo("\r", err=True, nl=False)
