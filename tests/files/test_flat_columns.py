"""Overrides and other columns of flat rows, in every format that has them."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from stream.cli.recommend import EXAMPLE
from stream.errors import ConfigurationError, InvalidDecision, MalformedRecord, PoisonError
from stream.events import Decision
from stream.files.decision_files import FlatRows, Row, misspelt, read_rows
from stream.wire.decisions import decision_of

FLAT = FlatRows(model_id="credit", model_version="1", features=("income", "tax"), words={})
OVERRIDES = {"income": "immutable"}
DOC = (Path(__file__).resolve().parents[2] / "docs" / "features.md").read_text("utf-8")
FORMS = ("rows.csv", "rows.parquet", "rows.jsonl")


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows as each format has them; an object is JSON in a CSV cell, and a struct in Parquet."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    elif path.suffix == ".parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(rows[0])
            for row in rows:
                table.writerow([json.dumps(cell) if isinstance(cell, dict) else cell for cell in row.values()])
    return path


def read(path: Path, flat: FlatRows = FLAT) -> list[Row]:
    return list(read_rows(path, flat))


def overrides(rows: list[Row]) -> list[Any]:
    """Per row its overrides, or the kind of its fault."""
    return [
        dict(row.decision.policy_overrides) if isinstance(row.decision, Decision) else type(row.decision)
        for row in rows
    ]


@pytest.mark.parametrize("form", FORMS)
def test_overrides_of_flat_rows_are_read(tmp_path: Path, form: str) -> None:
    """Given rows of features with and without overrides, then each decision has its own, and no column is left over."""
    rows = [
        {"decision_id": "a", "income": 2.0, "tax": 4.0, "policy_overrides": OVERRIDES},
        {"decision_id": "b", "income": 2.0, "tax": 4.0, "policy_overrides": None},
    ]
    found = read(write(tmp_path / form, rows))
    assert overrides(found) == [OVERRIDES, {}]
    assert [row.not_used for row in found] == [(), ()]


@pytest.mark.parametrize("cell", ["", "  ", "NA", '""'])
def test_an_empty_cell_is_no_override(tmp_path: Path, cell: str) -> None:
    """Given a cell of overrides that is empty in one of the ways of CSV, then the row has none."""
    (tmp_path / "rows.csv").write_text(f"income,tax,policy_overrides\n2,4,{cell}\n", "utf-8")
    assert overrides(read(tmp_path / "rows.csv")) == [{}]


def test_a_text_in_parquet_is_read_as_a_cell_of_csv(tmp_path: Path) -> None:
    """Given Parquet whose overrides are JSON in a column of texts, then they are read."""
    path = write(tmp_path / "rows.parquet", [{"income": 2.0, "tax": 4.0, "policy_overrides": json.dumps(OVERRIDES)}])
    assert overrides(read(path)) == [OVERRIDES]


@pytest.mark.parametrize(
    ("cell", "fault"),
    [
        ("immutable s3cret", MalformedRecord),
        ('{"income": "s3cret"', MalformedRecord),
        ('["s3cret"]', MalformedRecord),
        ('{"income": "immutable", "income": "s3cret"}', MalformedRecord),
        ('{"income": 1}', InvalidDecision),
        ('{"income": null}', InvalidDecision),
    ],
)
def test_a_cell_that_is_no_object_of_texts_is_a_fault_of_its_row(
    tmp_path: Path, cell: str, fault: type[PoisonError]
) -> None:
    """Given a broken cell of overrides between good ones, then its row alone is refused, by type, column and id, without the cell."""
    good = json.dumps(OVERRIDES)
    rows = [
        {"decision_id": name, "income": 2, "tax": 4, "policy_overrides": said}
        for name, said in (("a", good), ("b", cell), ("c", good))
    ]
    found = read(write(tmp_path / "rows.csv", rows))
    assert overrides(found) == [OVERRIDES, fault, OVERRIDES]
    assert found[1].name == "b"
    assert "policy_overrides" in str(found[1].decision)
    assert "s3cret" not in str(found[1].decision)


@pytest.mark.parametrize("said", ['{"income": "immutable"}', 1, {"income": 1}, ["income"]])
def test_overrides_in_json_are_checked_as_in_a_whole_decision(tmp_path: Path, said: object) -> None:
    """Given overrides in JSON that are no object of texts, then the row has the very fault of a whole decision."""
    whole = {
        "decision_id": "a", "model_id": "credit", "model_version": "1", "outcome": "declined",
        "features": {"income": 2, "tax": 4}, "policy_overrides": said,
    }  # fmt: skip
    with pytest.raises(InvalidDecision) as expected:
        decision_of(whole, timed=False)
    flat = {"decision_id": "a", "income": 2, "tax": 4, "policy_overrides": said}
    [row] = read(write(tmp_path / "rows.jsonl", [flat]))
    assert (row.name, type(row.decision), str(row.decision)) == ("a", InvalidDecision, str(expected.value))


@pytest.mark.parametrize("form", FORMS)
def test_columns_of_no_use_are_named(tmp_path: Path, form: str) -> None:
    """Given columns that are nothing of a row, then it names them in order, and none that is a feature, its own or passed over."""
    rows = [{"note": "x", "income": 2.0, "decision_id": "a", "tax": 4.0, "branch": "y", "target": 1}]
    flat = FlatRows(
        model_id="credit", model_version="1", features=("income", "tax"), words={}, passed_over=frozenset({"target"})
    )
    [row] = read(write(tmp_path / form, rows), flat)
    assert row.not_used == ("note", "branch")
    assert isinstance(row.decision, Decision)


MISSPELT = ("overrides", "override", "policy_override", "Policy-Overrides", "policyOverrides", "polciy_overides", " policy_overrides ")  # fmt: skip


@pytest.mark.parametrize("name", MISSPELT)
def test_misspelt_overrides_are_refused_with_the_right_name(tmp_path: Path, name: str) -> None:
    """Given a key that is nearly the right one, then a table is refused, and of JSONL the row, with the right name."""
    row = {"decision_id": "a", "income": 2.0, "tax": 4.0, name: OVERRIDES}
    for form in ("rows.csv", "rows.parquet"):
        with pytest.raises(ConfigurationError, match=rf"{form}: column .* looks like policy_overrides"):
            read(write(tmp_path / form, [row]))
    [found] = read(write(tmp_path / "rows.jsonl", [row]))
    assert isinstance(found.decision, InvalidDecision)
    assert "looks like policy_overrides" in str(found.decision)


def test_other_names_are_not_taken_for_overrides() -> None:
    """Given names that lenders have, and one of a million characters, then none is taken for misspelt overrides."""
    names = ["policy", "policy_number", "manual_override", "override_reason", "overdrafts", "overdue", "", "x" * 10**6]
    assert misspelt(names) is None


@pytest.mark.parametrize("form", FORMS)
def test_a_feature_or_a_target_may_have_such_a_name(tmp_path: Path, form: str) -> None:
    """Given a model with a feature `policy_overrides` and a target column `overrides`, then they are what they are."""
    flat = FlatRows(
        model_id="m", model_version="1", features=("policy_overrides",), words={}, passed_over=frozenset({"overrides"})
    )
    [row] = read(write(tmp_path / form, [{"policy_overrides": 2.0, "overrides": 1.0}]), flat)
    assert isinstance(row.decision, Decision)
    assert row.decision.features == {"policy_overrides": 2.0}
    assert overrides([row]) == [{}]


@pytest.mark.parametrize("shown_by", ["docs", "help"])
def test_the_examples_of_rows_are_read(tmp_path: Path, shown_by: str) -> None:
    """Given the rows that docs/features.md and `coach recommend --help` show, then each is a decision with its override."""
    if shown_by == "docs":
        [table] = re.findall(r"^```csv\n(.*?)^```", DOC, re.DOTALL | re.MULTILINE)
        lines = re.findall(r"^```json\n(.*?)^```", DOC, re.DOTALL | re.MULTILINE)
    else:
        told = [line.strip() for line in EXAMPLE.splitlines()]
        lines = [line for line in told if line.startswith("{")]
        first = told.index("income,tax,policy_overrides")
        table = "\n".join([*told[first : first + 2], ""])
    (tmp_path / "rows.csv").write_text(table, "utf-8")
    (tmp_path / "rows.jsonl").write_text("\n".join(line.strip() for line in lines), "utf-8")
    first_row, *others = read(tmp_path / "rows.csv")
    assert overrides([first_row, *others]) == [OVERRIDES, *({} for _ in others)]
    found = read(tmp_path / "rows.jsonl")
    assert overrides(found) == [OVERRIDES, OVERRIDES]
    assert [row.decided for row in found] == [False, True]
