from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest
import xgboost
from click.testing import CliRunner

from stream.bundle.open import open_bundle
from stream.cli.main import SUBCOMMANDS, coach
from stream.demo.embedded.embedded_kafka import EmbeddedKafka
from stream.demo.embedded.embedded_redis import EmbeddedRedis
from stream.wire.decisions import read_decision
from tests.house.renew_readme import PAGES, RENEWING, settings_table

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
MARK = "<!-- run by tests/house/test_readme.py -->\n"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def coach_lines() -> Iterator[list[str]]:
    for block in blocks("bash"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["coach"]:
                yield words[1:]


def resolve(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that these words name, and its own arguments."""
    context = click.Context(coach)
    command: click.Command = coach
    while isinstance(command, click.Group) and not (
        command.invoke_without_command and words[:1] and words[0][0] == "-"
    ):
        found = command.get_command(context, words[0])
        assert found is not None, words
        command, words = found, words[1:]
    return command, words


@pytest.fixture
def lender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the README takes for given: model, training data, features.toml, applications."""
    rows = np.random.PCG64(5).random_raw(600) % 48
    durations = rows.astype(float) + 4
    savings = np.roll(durations, 7)
    favourable = (savings > durations - 6).astype(float)
    matrix = np.column_stack([durations, savings])
    booster = xgboost.train(
        {"objective": "binary:logistic", "max_depth": 3, "nthread": 1},
        xgboost.DMatrix(matrix, favourable, feature_names=["duration", "savings"]),
        num_boost_round=20,
    )
    booster.save_model(tmp_path / "model.json")
    table = "\n".join(f"{d:g},{s:g},{int(y)}" for d, s, y in zip(durations, savings, favourable, strict=True))
    (tmp_path / "training.csv").write_text(f"duration,savings,repaid\n{table}\n")
    applications = "\n".join(line.rpartition(",")[0] for line in table.splitlines())
    (tmp_path / "applications.csv").write_text(f"duration,savings\n{applications}\n")
    sample = next(block for block in blocks("toml") if "[savings]" in block)
    tables = re.split(r"\n(?=\[)", sample)
    (tmp_path / "features.toml").write_text("\n".join(t for t in tables if not t.startswith("[purpose]")))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("lender")
def test_the_four_commands_for_ones_own_model_work() -> None:
    """Given the files that the README names, when its block of commands is run as it stands, then each succeeds."""
    block = README.partition(MARK)[2].partition("```bash\n")[2].partition("```")[0]
    lines = block.splitlines()
    assert len(lines) == 4
    for line in lines:
        result = CliRunner().invoke(coach, shlex.split(line)[1:])
        assert result.exit_code == 0, (line, result.output)
    assert Path("answers.jsonl").read_text().count("\n") > 10


@pytest.mark.usefixtures("lender")
def test_publishing_works_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a bundle and the embedded stack, when the README's `coach model publish` is run, then it is published."""
    build, publish = (next(words for words in coach_lines() if words[:2] == verb) for verb in VERBS)
    assert CliRunner().invoke(coach, build).exit_code == 0
    with EmbeddedKafka({"models": 1}) as kafka, EmbeddedRedis() as redis:
        monkeypatch.setenv("COACH_KAFKA_BROKERS", kafka.bootstrap)
        monkeypatch.setenv("COACH_REDIS_URL", redis.url)
        result = CliRunner().invoke(coach, publish)
    assert result.exit_code == 0, result.output
    assert "published consumer-loan/" in result.output


VERBS = (["bundle", "build"], ["model", "publish"])


@pytest.mark.parametrize("words", list(coach_lines()), ids=" ".join)
def test_every_command_in_it_is_one_that_coach_takes(words: list[str]) -> None:
    """Given each `coach` line of the README, when parsed by coach, then command, flags and values are known to it."""
    command, arguments = resolve(words)
    context = (
        command.make_context("coach", list(arguments), resilient_parsing=False) if not _needs_files(command) else None
    )
    known = {flag for parameter in command.params for flag in parameter.opts}
    assert {word for word in arguments if word.startswith("--")} <= known
    assert context is None or context.command is command


def _needs_files(command: click.Command) -> bool:
    return any(isinstance(parameter.type, click.Path) and parameter.type.exists for parameter in command.params)


def test_its_table_of_commands_is_complete() -> None:
    """Given the commands of coach, when the README's table is read, then each has its row."""
    for name in SUBCOMMANDS:
        assert re.search(rf"^\| `coach {name}", README, re.MULTILINE), name


def test_its_settings_are_the_workers() -> None:
    """Given the worker's settings, when the table of docs/settings.md is read, then it is the same, line by line."""
    page = PAGES["settings"].read_text(encoding="utf-8")
    table = page.partition("<!-- settings: begin -->\n")[2].partition("<!-- settings: end -->")[0]
    assert table == settings_table(), "renew it: python tests/house/renew_readme.py settings"


def test_its_first_decision_is_one() -> None:
    """Given the README's first decision, when the worker's reader reads it, then it is a whole, valid decision."""
    [sample] = blocks("json")
    decision = read_decision(sample.encode())
    assert decision.outcome == "declined"
    assert decision.features["savings"] is None


def test_its_links_into_the_tree_lead_somewhere() -> None:
    """Given the README's relative links, when followed, then each file or heading is there."""
    headings = {
        re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-")
        for h in re.findall(r"^#+ (.*)$", README, re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)]+)\)", README):
        if target.startswith("#"):
            assert target[1:] in headings, target
        elif "://" not in target:
            assert (REPOSITORY / target).exists(), target


@pytest.mark.parametrize(("page", "rows"), [("README.md", 6), ("docs/comparison.md", 8)])
def test_each_cell_beside_other_tools_has_its_source(page: str, rows: int) -> None:
    """Given the table beside other tools, when its cells are read, then each links to a source or names a command, and files are there."""
    path = REPOSITORY / page
    table = path.read_text("utf-8").partition("| | coach-stream |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [cell for line in table for cell in line.strip("| ").split(" | ")[1:]]
    assert (len(table), len(cells)) == (rows, rows * 6)
    assert not [cell for cell in cells if "](" not in cell and "`coach " not in cell and "`stream/" not in cell]
    linked = [target.partition("#")[0] for cell in cells for target in re.findall(r"\]\(([^)]+)\)", cell)]
    assert not [target for target in linked if "://" not in target and not (path.parent / target).exists()]


def test_its_outputs_come_from_real_runs() -> None:
    """Given the output blocks of the README and docs/demo.md, when read, then neither is empty, and both say that all went well."""
    demo, test = (
        PAGES[f"{part} output"].read_text("utf-8").partition(f"<!-- {part} output: begin -->")[2].partition("<!--")[0]
        for part in ("demo", "test")
    )
    assert "each verified without the model: 0 faults" in demo
    if RENEWING in os.environ:
        return
    assert re.search(r"\d+ passed", test)
    assert "failed" not in test


def test_the_bundle_of_the_example_opens(lender: Path) -> None:
    """Given the README's build command, when its bundle is opened, then it is the model that the decision names."""
    build = next(words for words in coach_lines() if words[:2] == ["bundle", "build"])
    assert CliRunner().invoke(coach, build).exit_code == 0
    assert open_bundle(lender / "bundle").identity["model_id"] == "consumer-loan"
