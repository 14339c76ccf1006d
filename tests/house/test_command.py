from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from stream import errors
from stream.cli.main import SUBCOMMANDS, coach, one_line


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stream.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def every_command() -> Iterator[tuple[str, ...]]:
    """All commands with their groups, such as ("bundle", "build")."""
    yield ()
    for name in SUBCOMMANDS:
        yield (name,)
        command = coach.get_command(click.Context(coach), name)
        if isinstance(command, click.Group):
            for inner in command.commands:
                yield (name, inner)


@pytest.mark.parametrize("words", list(every_command()), ids=lambda words: " ".join(("coach", *words)))
def test_every_command_explains_itself_with_an_example(words: tuple[str, ...]) -> None:
    """Given any command, when it is asked for help, then it says what it does and shows an example of itself."""
    result = CliRunner().invoke(coach, [*words, "--help"], prog_name="coach")
    assert result.exit_code == 0, result.output
    example = result.output.partition("\n  Example:\n    coach")[2]
    assert f"coach{example}".startswith(" ".join(("coach", *words))), "no example in lines of its own"


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("words", list(every_command()), ids=lambda words: " ".join(("coach", *words)))
def test_help_cuts_nothing(words: tuple[str, ...], columns: int) -> None:
    """Given a terminal of any usual width, when help is shown, then no summary ends in dots, and no prose splits a flag."""
    result = CliRunner().invoke(coach, [*words, "--help"], prog_name="coach", terminal_width=columns)
    assert not re.search(r"\.\.\.$", re.sub(r"\[ARGS\]\.\.\.|, \.\.\.", "", result.output), re.MULTILINE), result.output
    assert not re.search(r"--[a-z-]+-$", result.output, re.MULTILINE), result.output


def test_help_imports_no_room() -> None:
    """Given `coach --help`, when it runs, then neither Faust nor a model library is imported, so it is quick."""
    program = (
        "import sys; from stream.cli.main import coach\n"
        "try: coach(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'faust', 'xgboost', 'lightgbm', 'numba', 'numpy', 'confluent_kafka'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_an_unknown_command_is_a_wrong_usage() -> None:
    """Given a command that does not exist, when run, then the exit code is 2 and no traceback is shown."""
    done = run("danse")
    assert done.returncode == 2
    assert "No such command 'danse'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigurationError("x"), 2),
        (errors.ModelRefused("x"), 2),
        (errors.KafkaUnavailable("x"), 3),
        (errors.RedisUnavailable("x"), 3),
        (errors.BundleUnavailable("x"), 3),
        (errors.ProbeMismatch("x"), 1),
        (errors.CorruptionError("x"), 1),
        (errors.InvalidDecision("x"), 1),
    ],
)
def test_each_branch_of_the_error_tree_has_its_exit_code(error: errors.StreamError, code: int) -> None:
    """Given an error of each branch, when a command ends with it, then the code says whose turn it is."""
    assert errors.exit_code(error) == code


def test_an_error_is_one_line_and_a_traceback_only_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a command that fails, when run, then one line names the failure; with COACH_DEBUG the error itself comes."""

    @click.command()
    def broken() -> None:
        message = "COACH_GROUP is empty;\n name a group"
        raise errors.ConfigurationError(message)

    monkeypatch.setattr(type(coach), "get_command", lambda _self, _ctx, _name: broken)
    result = CliRunner().invoke(coach, ["broken"])
    assert result.exit_code == 2
    assert result.stderr == "coach: COACH_GROUP is empty; name a group\n"
    loud = CliRunner().invoke(coach, ["broken"], env={"COACH_DEBUG": "1"})
    assert isinstance(loud.exception, errors.ConfigurationError)


def test_an_error_without_words_is_named() -> None:
    """Given an error that was raised without a message, when shown, then its name stands in for it."""
    assert one_line(errors.LeafOutOfRange()) == "LeafOutOfRange"


def test_an_interruption_is_reported_as_shells_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a command that is interrupted, when it ends, then the code is 130 and there is no traceback."""

    @click.command()
    def slow() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(coach), "get_command", lambda _self, _ctx, _name: slow)
    result = CliRunner().invoke(coach, ["slow"])
    assert (result.exit_code, result.stderr) == (130, "coach: interrupted\n")
