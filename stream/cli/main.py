"""The `coach` command: finds sub-commands, and turns each error into an exit code and one line, here and only here."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

import click

from stream.errors import WRONG_USAGE, StreamError, exit_code

OWNER_ONLY: Final = 0o077  # files become 0600 and folders 0700
INTERRUPTED: Final = 130  # 128 + SIGINT, what a shell reports


@dataclass(frozen=True, slots=True)
class Subcommand:
    """Where a sub-command is defined, and what `coach --help` says without importing it."""

    module: str
    summary: str
    writes_personal_data: bool = False


SUBCOMMANDS: Final = {  # in the order in which one meets them
    "demo": Subcommand("stream.cli.demo", "The whole story on this machine, with nothing else installed."),
    "bundle": Subcommand("stream.cli.bundle", "Build a bundle from a model and its training pool, or look into one."),
    "model": Subcommand("stream.cli.model", "Publish a bundle to the workers, or list what is published."),
    "recommend": Subcommand(
        "stream.cli.recommend", "Answer the declined rows of a file, offline.", writes_personal_data=True
    ),
    "worker": Subcommand("stream.cli.worker", "Answer declined decisions from Kafka as they come."),
    "audit": Subcommand(
        "stream.cli.audit", "Keep audit records in an archive, and re-check them.", writes_personal_data=True
    ),
    "notify": Subcommand(
        "stream.cli.notify", "Send each declined applicant one letter, and record it.", writes_personal_data=True
    ),
    "dlq": Subcommand("stream.cli.dlq", "List dead letters, show one, or send them back.", writes_personal_data=True),
    "replay": Subcommand(
        "stream.cli.replay", "Answer historic decisions again, and report what differs.", writes_personal_data=True
    ),
    "topics": Subcommand("stream.cli.topics", "Create or check the topics, or print what is on one."),
}


def one_line(error: StreamError) -> str:
    """The error's message without line breaks, or its name when it has none."""
    return " ".join(str(error).split()) or type(error).__name__


class Coach(click.Group):
    """A group that imports a sub-command only when it is asked for, so that `coach --help` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Name the sub-commands."""
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import one; None when there is no such command."""
        if cmd_name not in SUBCOMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(SUBCOMMANDS[cmd_name].module), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """List the sub-commands with their summaries, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in SUBCOMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        """Run the sub-command; an error of ours becomes one line on standard error and an exit code."""
        try:
            return super().invoke(ctx)
        except StreamError as error:
            if ctx.params["debug"]:
                raise
            click.echo(f"coach: {one_line(error)}", err=True)
            ctx.exit(exit_code(error))
        except OSError as error:  # a full disk behind standard output, a path that no system takes
            if ctx.params["debug"] or isinstance(error, BrokenPipeError):
                raise
            where = f": {error.filename}" if error.filename else ""
            click.echo(f"coach: {error.strerror or error}{where}", err=True)
            ctx.exit(WRONG_USAGE)
        except KeyboardInterrupt:
            click.echo("coach: interrupted", err=True)
            ctx.exit(INTERRUPTED)


EXAMPLE: Final = """\b
Example:
  coach demo
  coach bundle build --help"""


@click.group(
    cls=Coach, epilog=EXAMPLE, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.option("--debug", is_flag=True, envvar="COACH_DEBUG", help="Show the full traceback of an error.")
@click.version_option(version("coach-stream"), prog_name="coach")
@click.pass_context
def coach(ctx: click.Context, debug: bool) -> None:  # noqa: ARG001, FBT001 - `Coach.invoke` reads it from the context
    """Feasible, model-verified recourse for declined credit decisions, with an exact audit record.

    Exit codes: 0 done; 1 found something wrong; 2 usage or configuration; 3 a dependency is unreachable.
    """
    command = SUBCOMMANDS.get(str(ctx.invoked_subcommand))
    if command is not None and command.writes_personal_data:
        before = os.umask(OWNER_ONLY)
        ctx.call_on_close(lambda: os.umask(before))


def main() -> None:
    """Run `coach` with the process's arguments, and exit."""
    for one in (signal.SIGTERM, signal.SIGHUP):  # so that drafts are removed; long-running commands have their own way
        signal.signal(one, _leave)
    try:
        coach(prog_name="coach")
    finally:
        _flush()


def _flush() -> None:
    """Write what is left; where that cannot be written it was said already, and Python need not say it again."""
    try:
        if sys.stdout:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
