from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet
import pytest

from stream.errors import (
    ConfigurationError,
    InvalidDecision,
    MalformedRecord,
    NonFiniteFeature,
    UnknownOutcome,
    WrongFeatureType,
)
from stream.events import Decision
from stream.files.decision_files import LINE_BYTES_MAX, FlatRows, Row, read_rows
from stream.wire.decisions import decision_of
from stream.wire.schema_files import current_schemas
from tests.records import decision_dict

FLAT = FlatRows(
    model_id="m", model_version="1", features=("income", "purpose", "region"), words={"purpose": ("car", "NA"), "region": ("N", "S")}
)  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {"decision_id": "d-1", "income": 1200.5, "purpose": "car", "region": "N", "outcome": "declined"},
    {"decision_id": "d-2", "income": None, "purpose": "NA", "region": None, "outcome": "approved"},
    {"decision_id": "d-3", "income": -0.25, "purpose": None, "region": "S", "outcome": None},
]
WHOLE: dict[str, Any] = {
    "decision_id": "d-4711", "event_time": "2026-11-27T10:15:00.250Z", "model_id": "m", "model_version": "1",
    "features": {"income": 24.0, "purpose": "car", "region": None}, "outcome": "declined", "threshold": 0.5,
    "threshold_scale": "probability", "policy_overrides": {"income": "immutable"},
}  # fmt: skip
FLAT_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Row",
        "fields": [
            {"name": "decision_id", "type": "string"},
            {"name": "income", "type": ["null", "double"]},
            *({"name": name, "type": ["null", "string"]} for name in ("purpose", "region", "outcome")),
        ],
    }
)


def _csv_text(rows: list[dict[str, Any]]) -> str:
    lines = [",".join("" if cell is None else str(cell) for cell in row.values()) for row in rows]
    return "\n".join([",".join(rows[0]), *lines, ""])


def _write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text(_csv_text(rows), "utf-8")


def _write_gz(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_bytes(gzip.compress(_csv_text(rows).encode()))


def _write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path, write_page_checksum=True)


def _write_jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def _write_avro(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("wb") as file:
        fastavro.writer(file, FLAT_SCHEMA, rows, codec="deflate")


WRITERS: Mapping[str, Callable[[Path, list[dict[str, Any]]], None]] = {
    "rows.csv": _write_csv,
    "rows.csv.gz": _write_gz,
    "rows.parquet": _write_parquet,
    "rows.jsonl": _write_jsonl,
    "rows.avro": _write_avro,
}


def _decisions(rows: list[Row]) -> list[Decision]:
    decisions = [row.decision for row in rows]
    assert all(isinstance(decision, Decision) for decision in decisions), decisions
    return decisions  # type: ignore[return-value]


@pytest.mark.parametrize("name", WRITERS)
def test_flat_rows_are_the_same_decisions_from_every_format(tmp_path: Path, name: str) -> None:
    """Given features by name, with missing cells and "NA" as a word of one of them, then each format gives the same decisions."""
    WRITERS[name](tmp_path / name, ROWS)
    rows = list(read_rows(tmp_path / name, FLAT))
    assert [(row.name, row.decided) for row in rows] == [("d-1", True), ("d-2", True), ("d-3", False)]
    decisions = _decisions(rows)
    assert [dict(decision.features) for decision in decisions] == [
        {"income": 1200.5, "purpose": "car", "region": "N"},
        {"income": None, "purpose": "NA", "region": None},
        {"income": -0.25, "purpose": None, "region": "S"},
    ]
    assert [decision.outcome for decision in decisions] == ["declined", "approved", "declined"]
    assert {(decision.model_id, decision.model_version, decision.event_time_ms) for decision in decisions} == {
        ("m", "1", None)
    }


def test_rows_without_an_id_are_numbered(tmp_path: Path) -> None:
    """Given rows without decision_id, when they are read, then their names are their numbers from 0."""
    _write_csv(tmp_path / "rows.csv", [{"income": 1, "purpose": "car", "region": "N"}] * 3)
    assert [row.name for row in read_rows(tmp_path / "rows.csv", FLAT)] == ["0", "1", "2"]


def test_every_way_to_leave_a_cell_out_is_missing(tmp_path: Path) -> None:
    """Given the usual words for a missing value, also quoted, then they are missing where they are no word of the column."""
    (tmp_path / "rows.csv").write_text(
        'income,purpose,region\n,,\nNA,NA,NA\nNaN,"","null"\n"N/A",nan,NULL\n 7 ,car,N\n', "utf-8"
    )
    features = [decision.features for decision in _decisions(list(read_rows(tmp_path / "rows.csv", FLAT)))]
    assert [row["income"] for row in features] == [None, None, None, None, 7.0]
    assert [row["purpose"] for row in features] == [None, "NA", None, None, "car"]
    assert [row["region"] for row in features] == [None, None, None, None, "N"]


def test_not_a_number_in_parquet_is_missing(tmp_path: Path) -> None:
    """Given NaN in a column of a flat Parquet file, as data frames have it, when it is read, then it is missing."""
    _write_parquet(tmp_path / "rows.parquet", [{"income": float("nan"), "purpose": "car", "region": "N"}])
    (decision,) = _decisions(list(read_rows(tmp_path / "rows.parquet", FLAT)))
    assert decision.features["income"] is None


def test_an_infinite_cell_is_a_fault_of_its_row_alone(tmp_path: Path) -> None:
    """Given inf in one row, when the file is read, then that row is refused by type and the next one is a decision."""
    (tmp_path / "rows.csv").write_text("income,purpose,region\ninf,car,N\n1,car,N\n", "utf-8")
    first, second = read_rows(tmp_path / "rows.csv", FLAT)
    assert isinstance(first.decision, NonFiniteFeature)
    assert isinstance(second.decision, Decision)


def _write_whole_jsonl(path: Path) -> None:
    path.write_text(json.dumps(WHOLE) + "\n\n", "utf-8")


def _write_whole_avro(path: Path) -> None:
    whole = decision_dict(decision_of(WHOLE)) | {"event_time": datetime(2026, 11, 27, 10, 15, 0, 250_000, UTC)}
    with path.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(dict(current_schemas()["Decision"].document)), [whole])


def _write_whole_parquet(path: Path) -> None:
    texts = pa.map_(pa.string(), pa.string())
    table = pa.Table.from_pylist([WHOLE])
    overrides = pa.array([list(WHOLE["policy_overrides"].items())], texts)
    table = table.set_column(table.schema.get_field_index("policy_overrides"), "policy_overrides", overrides)
    times = pa.array([datetime(2026, 11, 27, 10, 15, 0, 250_000, UTC)], pa.timestamp("ms", "UTC"))
    table = table.set_column(table.schema.get_field_index("event_time"), "event_time", times)
    pyarrow.parquet.write_table(table, path)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("whole.jsonl", _write_whole_jsonl),
        ("whole.avro", _write_whole_avro),
        ("whole.parquet", _write_whole_parquet),
    ],
)
def test_whole_decisions_are_read_as_from_the_topic(tmp_path: Path, name: str, write: Callable[[Path], None]) -> None:
    """Given whole decisions in a file, with the format's own times and maps, then they are those that the topic would give."""
    write(tmp_path / name)
    (row,) = read_rows(tmp_path / name, FLAT)
    assert row == Row(name="d-4711", decision=decision_of(WHOLE), decided=True)


def test_features_that_are_no_object_are_a_fault_of_the_row(tmp_path: Path) -> None:
    """Given a whole decision whose features are a list, when it is read, then the row says so."""
    (tmp_path / "rows.jsonl").write_text(json.dumps(WHOLE | {"features": [1, 2]}), "utf-8")
    (row,) = read_rows(tmp_path / "rows.jsonl", FLAT)
    assert isinstance(row.decision, InvalidDecision)


def test_a_feature_of_the_wrong_type_is_a_fault_of_its_row(tmp_path: Path) -> None:
    """Given true for a feature, when the row is read, then it is refused by type and named by its id."""
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROWS[0] | {"income": True}), "utf-8")
    (row,) = read_rows(tmp_path / "rows.jsonl", FLAT)
    assert row.name == "d-1"
    assert isinstance(row.decision, WrongFeatureType)


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.parquet"])
def test_a_feature_without_a_column_is_named(tmp_path: Path, name: str) -> None:
    """Given a table without a column for a feature, when it is read, then the message names the feature and no row is given."""
    WRITERS[name](tmp_path / name, [{"decision_id": "d", "income": 1.0, "purpose": "car"}])
    with pytest.raises(ConfigurationError, match=r"no column for these features of the model: region"):
        next(read_rows(tmp_path / name, FLAT))


OWN_NAMES = ("decision_id", "outcome", "margin", "threshold_scale", "product", "features")


@pytest.mark.parametrize("form", ["rows.csv", "rows.parquet", "rows.jsonl"])
def test_a_feature_may_have_the_name_of_a_field(tmp_path: Path, form: str) -> None:
    """Given a model whose features are called as a decision's own fields are, then the columns are the features."""
    flat = FlatRows(model_id="m", model_version="1", features=OWN_NAMES, words={})
    WRITERS[form](tmp_path / form, [{name: float(k) for k, name in enumerate(OWN_NAMES)}] * 2)
    rows = list(read_rows(tmp_path / form, flat))
    assert [(row.name, row.decided) for row in rows] == [("0", False), ("1", False)]
    (decision, _) = _decisions(rows)
    assert decision.features == {name: float(k) for k, name in enumerate(OWN_NAMES)}
    assert (decision.margin, decision.product, decision.outcome) == (None, None, "declined")


def test_an_outcome_of_no_word_is_a_fault_of_its_row(tmp_path: Path) -> None:
    """Given an outcome that is an empty text, when the row is read, then it is refused and not taken as declined."""
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROWS[0] | {"outcome": ""}), "utf-8")
    (row,) = read_rows(tmp_path / "rows.jsonl", FLAT)
    assert isinstance(row.decision, UnknownOutcome)


def test_column_names_that_are_not_utf8_are_one_line(tmp_path: Path) -> None:
    """Given a CSV in another encoding, when it is read, then the message says that it is not UTF-8."""
    (tmp_path / "rows.csv").write_bytes(b"income,purpose,region,m\xfcll\n1,car,N,2\n")
    with pytest.raises(ConfigurationError, match=r"rows\.csv: it is not UTF-8 text"):
        list(read_rows(tmp_path / "rows.csv", FLAT))


def test_a_column_that_comes_twice_is_refused(tmp_path: Path) -> None:
    """Given two columns of one name, when the file is read, then that is refused, for either could be meant."""
    (tmp_path / "rows.csv").write_text("income,purpose,region,income\n1,car,N,2\n", "utf-8")
    with pytest.raises(ConfigurationError, match="two columns of the name income"):
        next(read_rows(tmp_path / "rows.csv", FLAT))


@pytest.mark.parametrize("cell", ["s3cret", "O's3cret's", "12 s3cret", "0x1F5s3cret", "true"])
def test_a_cell_that_is_no_number_is_a_fault_of_its_row_alone(tmp_path: Path, cell: str) -> None:
    """Given a word where a number should be, then its row says column and number and not the cell, and the others are decisions."""
    (tmp_path / "rows.csv").write_text(
        f"decision_id,income,purpose,region,threshold\na,10,car,N,\nb,{cell},car,N,{cell}\nc,,car,N,{cell}\nd,7.5,car,N,0.5\n",
        "utf-8",
    )
    first, feature, own, last = read_rows(tmp_path / "rows.csv", FLAT)
    assert isinstance(feature.decision, WrongFeatureType)
    assert isinstance(own.decision, InvalidDecision)
    assert str(feature.decision) == "column income of row 1 (from 0) is no number"
    assert str(own.decision) == "column threshold of row 2 (from 0) is no number"
    assert [row.name for row in (first, feature, own, last)] == ["a", "b", "c", "d"]
    assert [decision.features["income"] for decision in _decisions([first, last])] == [10, 7.5]


def test_a_faulty_cell_in_a_later_batch_has_its_row_s_number(tmp_path: Path) -> None:
    """Given a file of several batches with a word in a late row, then that row is named by its number in the file."""
    lines = [f"1,car,N,{'x' * 1_000}"] * 3_000
    lines[2_500] = "many,car,N,x"
    (tmp_path / "rows.csv").write_text("\n".join(["income,purpose,region,note", *lines, ""]), "utf-8")
    faults = [row for row in read_rows(tmp_path / "rows.csv", FLAT) if not isinstance(row.decision, Decision)]
    assert [(row.name, str(row.decision)) for row in faults] == [
        ("2500", "column income of row 2500 (from 0) is no number")
    ]


def test_true_and_false_are_one_and_zero(tmp_path: Path) -> None:
    """Given a column of truth values, as data frames write them, then they are 1 and 0; another word in it is a fault of its row."""
    said = ["True", "false", " TRUE ", "", "0", "perhaps"]
    (tmp_path / "rows.csv").write_text(
        "\n".join(["income,purpose,region", *(f"{cell},car,N" for cell in said), ""]), "utf-8"
    )
    *rows, other = read_rows(tmp_path / "rows.csv", FLAT)
    assert [decision.features["income"] for decision in _decisions(rows)] == [1, 0, 1, None, 0]
    assert isinstance(other.decision, WrongFeatureType)
    _write_parquet(
        tmp_path / "rows.parquet", [{"income": truth, "purpose": "car", "region": "N"} for truth in (True, None, False)]
    )
    decisions = _decisions(list(read_rows(tmp_path / "rows.parquet", FLAT)))
    assert [decision.features["income"] for decision in decisions] == [1, None, 0]


def test_a_truth_value_of_json_says_what_to_write(tmp_path: Path) -> None:
    """Given true in a JSON row, then it is refused by type and told to be 1."""
    _write_jsonl(tmp_path / "rows.jsonl", [{"income": True, "purpose": "car", "region": "N"}])
    (row,) = read_rows(tmp_path / "rows.jsonl", FLAT)
    assert isinstance(row.decision, WrongFeatureType)
    assert "for true and false write 1 and 0" in str(row.decision)


def test_a_row_with_a_cell_too_many_is_not_repeated(tmp_path: Path) -> None:
    """Given a line of a CSV file with too many cells, then the message says how many there should be and shows none."""
    (tmp_path / "rows.csv").write_text("income,purpose,region\n1,car,N,s3cret'\n", "utf-8")
    with pytest.raises(ConfigurationError, match="Expected 3 columns") as refused:
        list(read_rows(tmp_path / "rows.csv", FLAT))
    assert "s3cret" not in str(refused.value)


def test_a_line_over_the_limit_is_one_fault(tmp_path: Path) -> None:
    """Given a JSON line longer than a decision may be, then it is one row that is refused, and its neighbours are read."""
    good = json.dumps(ROWS[0])
    huge = json.dumps(ROWS[0] | {"purpose": "x" * (2 * LINE_BYTES_MAX)})
    (tmp_path / "rows.jsonl").write_text(f"{good}\n{huge}\n{good}\n", "utf-8")
    rows = list(read_rows(tmp_path / "rows.jsonl", FLAT))
    assert [row.name for row in rows] == ["d-1", "1", "d-1"]
    assert isinstance(rows[1].decision, MalformedRecord)
    assert f"more than {LINE_BYTES_MAX} bytes" in str(rows[1].decision)
    assert len(_decisions([rows[0], rows[2]])) == 2


def test_a_line_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    """Given a JSON line of exactly as many bytes as allowed, with its end of line, then it is a decision."""
    filler = LINE_BYTES_MAX - len(json.dumps(ROWS[0] | {"filler": ""})) - 1
    (tmp_path / "rows.jsonl").write_text(
        json.dumps(ROWS[0] | {"filler": "x" * filler}) + "\n" + json.dumps(ROWS[1]), "utf-8"
    )
    assert len(_decisions(list(read_rows(tmp_path / "rows.jsonl", FLAT)))) == 2


@pytest.mark.parametrize("line", ["{", "[1]", '{"income": NaN}', '{"income": 1, "income": 2}', "\x00"])
def test_a_line_that_is_no_json_object_is_a_fault_of_its_row(tmp_path: Path, line: str) -> None:
    """Given a broken line between two good ones, when the file is read, then only that row is refused, by its number."""
    good = json.dumps(ROWS[0])
    (tmp_path / "rows.jsonl").write_text(f"{good}\n{line}\n{good}\n", "utf-8")
    rows = list(read_rows(tmp_path / "rows.jsonl", FLAT))
    assert isinstance(rows[1].decision, MalformedRecord)
    assert rows[1].name == "1"
    assert len(_decisions([rows[0], rows[2]])) == 2


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.parquet", "rows.avro"])
@pytest.mark.parametrize("damage", ["empty", "cut", "cut_short", "noise", "flipped"])
def test_a_broken_file_is_a_configuration_error(tmp_path: Path, name: str, damage: str) -> None:
    """Given a file that is empty, cut off or damaged in the middle, then it is refused with its name, by no other error."""
    path = tmp_path / name
    rows = [row | {"decision_id": f"{number:08}"} for number in range(400) for row in ROWS]
    WRITERS[name](path, rows)
    whole = path.read_bytes()
    middle = len(whole) // 2
    path.write_bytes(
        {
            "empty": b"",
            "cut": whole[:middle],
            "cut_short": whole[:-3],
            "noise": b"\x93" * 200,
            "flipped": whole[:middle]
            + bytes(byte ^ 0xFF for byte in whole[middle : middle + 40])
            + whole[middle + 40 :],
        }[damage]
    )
    with pytest.raises(ConfigurationError, match=rf"{name}"):
        list(read_rows(path, FLAT))


def test_avro_whose_items_are_no_records_is_refused(tmp_path: Path) -> None:
    """Given an Avro file of texts, when it is read, then it is refused with its name."""
    with (tmp_path / "rows.avro").open("wb") as file:
        fastavro.writer(file, "string", ["a"])
    with pytest.raises(ConfigurationError, match=r"rows\.avro"):
        list(read_rows(tmp_path / "rows.avro", FLAT))


@pytest.mark.parametrize(
    ("name", "said"),
    [("rows.xlsx", "must end in .csv"), ("nowhere.csv", "there is no file"), ("empty.csv", "cannot read")],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, said: str) -> None:
    """Given a file of another kind, none, or an empty one, when it is read, then the message says so with its path."""
    if name != "nowhere.csv":
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(ConfigurationError, match=said) as refused:
        list(read_rows(tmp_path / name, FLAT))
    assert name in str(refused.value)
