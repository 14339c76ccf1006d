from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from stream.demo.credit_data import CreditData, read_credit_data
from stream.errors import ConfigurationError

INCOME = """
[income]
type = "number"
mutability = "mutable"
"""
FEATURES = (
    INCOME
    + """
[purpose]
type = "category"
mutability = "immutable"
categories = ["car", "house"]
"""
)
CSV = "purpose,income,ok\nhouse,1.5,1\ncar,,0\n,3,1\n"


def read(
    path: Path, features: str = FEATURES, target: str = "ok", favourable: str = "1", **more: list[str]
) -> CreditData:
    return read_credit_data(path, features, target=target, favourable=favourable, **more)


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "loans.csv"
    path.write_text(CSV)
    return path


def test_a_column_without_a_table_is_named_with_both_ways_out(tmp_path: Path) -> None:
    """Given a column that features.toml does not describe, then the message names it, the table, and --exclude."""
    path = tmp_path / "loans.csv"
    path.write_text("customer,purpose,income,ok\n7,house,1.5,1\n8,car,,0\n")
    with pytest.raises(ConfigurationError, match=r"no table for: customer, .*--exclude COLUMN"):
        read(path)
    assert read(path, leave_out=["customer"]).rules.names == ("purpose", "income")


@pytest.mark.parametrize("content", [b"purpose,income,ok,s3cret\xfc\n", b"purpose,income,ok\ncar,1,0,s3cret\n"])
def test_a_file_that_cannot_be_read_is_not_repeated(tmp_path: Path, content: bytes) -> None:
    """Given a file in another encoding or with a cell too many, then the message names the file and no cell."""
    path = tmp_path / "loans.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"cannot read .*loans\.csv") as refused:
        read(path)
    assert "s3cret" not in str(refused.value)


def test_words_become_codes_and_gaps_become_missing(csv: Path) -> None:
    """Given words, numbers and empty cells, when read, then the matrix holds codes and NaN, the applications words and None."""
    data = read(csv)
    assert data.rules.names == ("purpose", "income")
    assert data.applications == [
        {"purpose": "house", "income": 1.5},
        {"purpose": "car", "income": None},
        {"purpose": None, "income": 3.0},
    ]
    expected = np.array([[1.0, 1.5], [0.0, np.nan], [np.nan, 3.0]])
    assert data.matrix.tobytes() == expected.tobytes()
    assert data.favourable.tolist() == [True, False, True]


def test_the_three_forms_of_a_table_are_one(csv: Path, tmp_path: Path) -> None:
    """Given the same table as CSV, CSV.gz and Parquet, when read, then the matrices are the same, bit by bit."""
    packed = tmp_path / "loans.csv.gz"
    packed.write_bytes(gzip.compress(CSV.encode()))
    parquet = tmp_path / "loans.parquet"
    table = {"purpose": ["house", "car", None], "income": [1.5, None, 3.0], "ok": [1, 0, 1]}
    pa.parquet.write_table(pa.table(table), parquet)
    one, two, three = (read(path) for path in (csv, packed, parquet))
    assert one.matrix.tobytes() == two.matrix.tobytes() == three.matrix.tobytes()
    assert one.applications == two.applications == three.applications
    assert one.favourable.tolist() == three.favourable.tolist()


def test_a_feature_without_a_table_is_named(csv: Path) -> None:
    """Given a column that features.toml does not describe, when read, then the error names it."""
    with pytest.raises(ConfigurationError, match="no table for: purpose"):
        read(csv, INCOME)


def test_a_table_without_a_column_is_named(csv: Path) -> None:
    """Given a table in features.toml without its column, when read, then the error names file and column."""
    more = FEATURES + '\n[age]\ntype = "integer"\nmutability = "immutable"\n'
    with pytest.raises(ConfigurationError, match=r"loans\.csv has no column age"):
        read(csv, more)


def test_a_column_that_is_left_out_needs_no_table(csv: Path) -> None:
    """Given a column that is left out by name, when read, then it is no feature and features.toml needs no table for it."""
    assert read(csv, INCOME, leave_out=["purpose"]).rules.names == ("income",)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("house,1.5", "house,much"), "column income holds something that is not a number"),
        (
            ("house,1.5", "boat,1.5"),
            "row 1: purpose holds a category that neither features.toml nor the model file lists",
        ),
        ((",3,1", ",3,2"), "ok must hold two values"),
        (("purpose,income,ok", "purpose,income,good"), "has no column ok"),
        ((CSV, ""), "cannot read"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(csv: Path, change: tuple[str, str], complaint: str) -> None:
    """Given a broken table, when read, then the error says what is wrong and where."""
    csv.write_text(CSV.replace(*change))
    with pytest.raises(ConfigurationError, match=complaint) as raised:
        read(csv)
    assert "\n" not in str(raised.value)


def test_a_target_of_words_needs_the_favourable_one_by_name(csv: Path) -> None:
    """Given outcomes `good` and `bad`, when the favourable one is named, then it counts as 1; when not, the error lists both."""
    csv.write_text(CSV.replace(",1\n", ",good\n").replace(",0\n", ",bad\n"))
    assert read(csv, favourable="good").favourable.tolist() == [True, False, True]
    with pytest.raises(ConfigurationError, match="it holds bad, good"):
        read(csv)


def test_the_split_is_the_same_on_every_machine(tmp_path: Path) -> None:
    """Given a table, when it is split twice, then 70 % of its rows are for training, the same ones both times."""
    path = tmp_path / "many.csv"
    path.write_text("income,purpose,ok\n" + "".join(f"{i},car,{i % 2}\n" for i in range(100)))
    first, second = read(path).training_rows(), read(path).training_rows()
    assert first.tolist() == second.tolist()
    assert len(first) == 70
    assert first[:6].tolist() == FIRST_TRAINING_ROWS


FIRST_TRAINING_ROWS = [0, 1, 2, 3, 5, 6]
