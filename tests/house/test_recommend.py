from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stream.cli.main import coach
from stream.recourse.answer import answer_if_declined
from tests.bundle.inputs import inputs


@pytest.fixture
def lender(tmp_path: Path) -> Path:
    """A folder with a bundle, and with 400 applications as CSV."""
    inputs(tmp_path).build()
    return tmp_path


def recommend(folder: Path, *more: str | Path, source: str = "pool.csv") -> Result:
    given = ["recommend", "--bundle", folder / "bundle", "--input", folder / source, *more]
    return CliRunner().invoke(coach, [str(word) for word in given])


def drafts(folder: Path) -> list[Path]:
    return list(folder.glob(".coach-*"))


def test_answers_go_to_the_file_and_replace_what_was_there(lender: Path) -> None:
    """Given an --output that exists, then it holds the new answers alone, keeps its mode, and nothing lies beside it."""
    out = lender / "answers.jsonl"
    out.write_text("old\n" * 10_000)
    out.chmod(0o640)
    done = recommend(lender, "--output", out)
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert f"{len(lines)} declined rows answered" in done.stderr
    assert out.stat().st_mode & 0o777 == 0o640
    assert not drafts(lender)
    assert done.stdout == ""
    assert recommend(lender).stdout_bytes == out.read_bytes()


def test_a_link_is_written_through(lender: Path) -> None:
    """Given an --output that is a link to a file, then the file is written and the link stays one."""
    (lender / "link").symlink_to(lender / "real.jsonl")
    assert recommend(lender, "--output", lender / "link").exit_code == 0
    assert (lender / "link").is_symlink()
    assert (lender / "real.jsonl").stat().st_size > 1_000


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("nowhere/answers.jsonl", "there is no folder"),
        ("bundle", "is a folder; name a file"),
        ("pool.csv/answers.jsonl", "there is no folder"),
        ("x" * 300, "File name too long"),
        ("/dev/full", "No space left on device"),
    ],
)
def test_an_output_that_cannot_be_written_exits_2_with_one_line(lender: Path, output: str, said: str) -> None:
    """Given an --output that cannot be written, then the command exits 2 and one line names it."""
    done = recommend(lender, "--output", lender / output)
    assert done.exit_code == 2, done.output
    [line] = done.stderr.splitlines()
    assert line.startswith("coach: ")
    assert f"--output {lender / output}" in line
    assert said in line
    assert not drafts(lender)


def test_a_failure_midway_leaves_what_was_there(lender: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a fault of our own after some answers, then it is not hidden, and the file that was there is as it was."""
    out = lender / "answers.jsonl"
    out.write_text("old\n")
    answered = 0

    def some(*arguments: object) -> object:
        nonlocal answered
        answered += 1
        if answered > 20:
            raise ZeroDivisionError
        return answer_if_declined(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("stream.cli.recommend.answer_if_declined", some)
    done = recommend(lender, "--output", out)
    assert isinstance(done.exception, ZeroDivisionError)
    assert out.read_text() == "old\n"
    assert not drafts(lender)


def test_a_target_column_is_passed_over_whatever_its_name(lender: Path) -> None:
    """Given rows that carry how they turned out in a column named as a decision's own, when it is named as the target, then the answers are those of rows without it."""
    table = (lender / "pool.csv").read_text("utf-8").splitlines()
    rows = [f"{table[0]},outcome", *(f"{line},{number % 2}" for number, line in enumerate(table[1:]))]
    (lender / "with.csv").write_text("\n".join(rows) + "\n", "utf-8")
    plain = recommend(lender)
    named = recommend(lender, "--target-column", "outcome", source="with.csv")
    assert (plain.exit_code, named.exit_code) == (0, 0)
    assert plain.stdout_bytes == named.stdout_bytes
    assert recommend(lender, source="with.csv").exit_code == 1


def test_a_cell_that_is_no_number_costs_its_row_alone(lender: Path) -> None:
    """Given a CSV with text in one number cell, then that row is named without the cell, the others have the answers they have without it, and the exit code is 1."""
    header, *rows = (lender / "pool.csv").read_text().splitlines()
    cells = rows[7].split(",")
    bad = [*rows[:7], ",".join(["s3cret", *cells[1:]]), *rows[8:]]
    (lender / "bad.csv").write_text("\n".join([header, *bad, ""]))
    done = recommend(lender, source="bad.csv")
    assert done.exit_code == 1
    column = header.split(",")[0].strip('"')
    assert f"row 7: WrongFeatureType: column {column} of row 7 (from 0) is no number\n" in done.stderr
    assert "1 not answerable" in done.stderr
    assert "s3cret" not in done.output
    good = {line for line in recommend(lender).stdout.splitlines() if json.loads(line)["decision_id"] != "7"}
    assert set(done.stdout.splitlines()) == good


def test_faults_of_rows_are_bounded_and_the_others_are_answered(lender: Path) -> None:
    """Given rows with broken values and hostile ids, then each is told in one short line, and the good rows are answered."""
    header, *rows = (lender / "pool.csv").read_text().splitlines()
    names = [name.strip('"') for name in header.split(",")]
    good = [{n: float(c) if c else None for n, c in zip(names, row.split(","), strict=True)} for row in rows[:40]]
    bad = {**good[0], names[0]: "a word", "decision_id": "\u001b[2J\n" + "x" * 100_000}
    (lender / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*good, *[bad] * 50, *good]))
    done = recommend(lender, "--target-column", "target", source="rows.jsonl")
    assert done.exit_code == 1, done.output
    told = done.stderr.splitlines()
    assert len(told) == 22
    assert all(line.isprintable() and len(line) < 600 for line in told)
    assert told[-2] == "... and 30 more"
    assert told[-1].endswith(", 50 not answerable")
    assert done.stdout.count("\n") % 2 == 0
    assert done.stdout.count("\n") > 0


def rows_of(folder: Path) -> tuple[list[str], list[dict[str, float | None]]]:
    """The columns of the pool without its target, and its rows."""
    header, *lines = (folder / "pool.csv").read_text().splitlines()
    names = [name.strip('"') for name in header.split(",")][:-1]
    cells = [line.split(",")[: len(names)] for line in lines]
    return names, [{n: float(c) if c else None for n, c in zip(names, row, strict=True)} for row in cells]


def write_rows(folder: Path, form: str, rows: list[dict[str, Any]]) -> str:
    """Write rows of features as CSV or JSONL; an override is JSON in a cell of CSV."""
    path = folder / f"given.{form}"
    if form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(rows[0])
            table.writerows([json.dumps(c) if isinstance(c, dict) else c for c in row.values()] for row in rows)
    return path.name


def whole_rows(folder: Path, rows: list[dict[str, Any]]) -> str:
    """The same rows as whole decisions."""
    model = json.loads((folder / "bundle" / "manifest.json").read_text())
    (folder / "whole.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "decision_id": str(number),
                    "model_id": model["model_id"],
                    "model_version": model["model_version"],
                    "outcome": "declined",
                    "features": {n: v for n, v in row.items() if n != "policy_overrides"},
                    "policy_overrides": row["policy_overrides"],
                }
            )
            + "\n"
            for number, row in enumerate(rows)
        )
    )
    return "whole.jsonl"


def moved(done: Result) -> set[str]:
    """The features that any answer tells anybody to change."""
    answers = [json.loads(line)["recommendation"] for line in done.stdout.splitlines()]
    return {action["feature"] for answer in answers for tier in answer["tiers"] for action in tier["actions"]}


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_an_override_in_a_row_of_features_is_honoured(lender: Path, form: str) -> None:
    """Given rows of features that say a feature cannot change, then nobody is told to change it, and the answers are those of whole decisions."""
    names, rows = rows_of(lender)
    free = recommend(lender, source=write_rows(lender, form, list(rows)))
    declined = {json.loads(line)["decision_id"] for line in free.stdout.splitlines()}
    some = [row for number, row in enumerate(rows) if str(number) in declined][:40]
    assert names[0] in moved(free)
    held = [{**row, "policy_overrides": {names[0]: "immutable"}} for row in some]
    done = recommend(lender, source=write_rows(lender, form, held))
    assert done.exit_code == 0, done.stderr
    assert "not used" not in done.stderr
    assert moved(done)
    assert names[0] not in moved(done)
    assert done.stdout == recommend(lender, source=whole_rows(lender, held)).stdout


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_an_override_that_cannot_be_is_a_fault_of_its_row(lender: Path, form: str) -> None:
    """Given overrides of an unknown feature and to an unknown label, then their rows are named, and the other is answered."""
    names, rows = rows_of(lender)
    declined = json.loads(recommend(lender).stdout.splitlines()[0])["decision_id"]
    said = {"bad-1": {"nothing": "immutable"}, "bad-2": {names[0]: "frozen"}, "good": None}
    given = [
        {"decision_id": name, **rows[int(declined)], "policy_overrides": override} for name, override in said.items()
    ]
    done = recommend(lender, source=write_rows(lender, form, given))
    assert done.exit_code == 1
    assert "row bad-1: OverrideRefused: a policy override names a feature that the model does not have" in done.stderr
    assert f"row bad-2: OverrideRefused: the policy override of {names[0]} is not one of" in done.stderr
    assert [json.loads(line)["decision_id"] for line in done.stdout.splitlines()] == ["good"]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_columns_of_no_use_are_named_once(lender: Path, form: str) -> None:
    """Given columns that are nothing of a row, then one line of standard error names them, in bounds, and the answers are the same."""
    _, rows = rows_of(lender)
    plain = recommend(lender, source=write_rows(lender, form, [{"decision_id": "d", **row} for row in rows[:50]]))
    assert "not used" not in plain.stderr
    more = [{"note": "x", "decision_id": "d", **row, "branch": "y"} for row in rows[:50]]
    done = recommend(lender, source=write_rows(lender, form, more))
    assert done.stdout == plain.stdout
    assert done.exit_code == 0
    assert done.stderr.splitlines()[:-1] == ["  not used      the input's columns note, branch"]
    many = [{**row, **{f"note {number}": "x" for number in range(30)}} for row in rows[:2]]
    [line, _] = recommend(lender, source=write_rows(lender, form, many)).stderr.splitlines()
    assert line.endswith("note 18, note 19 and more")


def test_columns_that_come_late_are_named_too(lender: Path) -> None:
    """Given JSONL whose rows have ever more keys of no use, then each is named once, in the order of the file."""
    _, rows = rows_of(lender)
    keys = [f"note {number}" for number in range(20)]
    more = [{**row, **dict.fromkeys(keys[: number + 1], "x")} for number, row in enumerate(rows[:20])]
    [line, _] = recommend(lender, source=write_rows(lender, "jsonl", more)).stderr.splitlines()
    assert line.endswith(f"the input's columns {', '.join(keys)}")


def test_a_misspelt_column_of_overrides_is_refused(lender: Path) -> None:
    """Given a CSV with a column `overrides`, then the command exits 2 with one line that has the right name, and answers nobody."""
    _, rows = rows_of(lender)
    done = recommend(lender, source=write_rows(lender, "csv", [{**row, "overrides": ""} for row in rows[:5]]))
    assert (done.exit_code, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert "column overrides looks like policy_overrides" in line
