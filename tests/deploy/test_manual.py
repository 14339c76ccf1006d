"""The operator's manual against the code."""

from __future__ import annotations

import re

import click

from stream.audit.sink.settings import SinkSettings
from stream.cli.main import coach
from stream.notify.settings import NotifySettings
from stream.replay.settings import ReplaySettings
from stream.runtime.settings import Settings
from tests.deploy.metric_rows import rows
from tests.service.room import REPOSITORY

MANUAL = (REPOSITORY / "docs" / "operate.md").read_text()


def test_every_metric_is_in_the_table_as_the_code_has_it() -> None:
    """Given the meters of all parts, when the manual's table is read, then it has each with part, kind, labels and meaning, and no other."""
    heading = "| name | part | kind | labels | meaning |\n|---|---|---|---|---|\n"
    table = MANUAL.split(heading)[1].split("\n\n")[0].splitlines()
    assert table == list(rows()), "take what `python -m tests.deploy.metric_rows` prints"


def test_every_setting_that_is_named_is_one() -> None:
    """Given each COACH_ variable in the manual, when looked for, then a part has it."""
    known = {f"COACH_{name.upper()}" for kind in (Settings, SinkSettings, NotifySettings, ReplaySettings) for name in kind.__dataclass_fields__}  # fmt: skip
    named = set(re.findall(r"\bCOACH_[A-Z_]*[A-Z]\b", MANUAL))
    assert len(named) > 12
    assert named - {"COACH_NOTIFY", "COACH_SINK", "COACH_REPLAY"} <= known


def test_every_command_that_is_named_is_one() -> None:
    """Given each `coach ...` in the manual, when looked for, then there is such a command."""
    named = re.findall(r"`coach ([a-z]+(?: [a-z]+)?)", MANUAL)
    assert len(named) > 8
    context = click.Context(coach)
    for words in named:
        first, *rest = words.split()
        command = coach.get_command(context, first)
        assert command is not None, words
        if rest and isinstance(command, click.Group):
            assert command.get_command(context, rest[0]) is not None, words


def test_every_log_line_that_is_named_is_one() -> None:
    """Given each log line that the manual names, when the source is searched, then somebody writes it."""
    source = "\n".join(path.read_text() for path in (REPOSITORY / "stream").rglob("*.py"))
    named = set(re.findall(r"`((?:outage|decisions?|bundle|models|worker)\.[a-z_]+)`", MANUAL))
    assert len(named) > 8
    for name in named:
        assert f'"{name}"' in source, name


def test_every_anchor_leads_somewhere() -> None:
    """Given the manual's links to its own sections, when followed, then each has a heading."""
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", MANUAL, re.MULTILINE)}  # fmt: skip
    linked = set(re.findall(r"\]\(#([^)]+)\)", MANUAL))
    assert linked
    assert linked <= anchors
