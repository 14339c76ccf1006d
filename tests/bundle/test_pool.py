from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from stream.bundle.pool import read_pool
from stream.errors import ConfigurationError
from stream.recourse.rules.features import FeatureRules, read_features
from tests.bundle.inputs import write_table


def rules_of(**categories: list[str] | None) -> FeatureRules:
    tables = []
    for name, words in categories.items():
        kind = "number" if words is None else "category"
        tables.append(f'[{name}]\ntype = "{kind}"\nmutability = "mutable"\n')
        if words is not None:
            tables.append(f"categories = {words!r}\n")
    return read_features("".join(tables), tuple(categories))


def test_columns_are_taken_by_name_and_the_others_reported(tmp_path: Path) -> None:
    """Given a CSV with columns in any order and some more, rows follow the model's order and the rest is named."""
    path = tmp_path / "pool.csv"
    path.write_text("note,b,target,a\nx,1,0,2\ny,3,1,4.5\n")
    pool = read_pool(path, rules_of(a=None, b=None), target_column="target")
    assert pool.rows.tolist() == [[2, 1], [4.5, 3]]
    assert pool.ignored == ("note",)


@pytest.mark.parametrize("cell", ["", "NA", "NaN", "null", "N/A"])
def test_a_cell_without_a_value_is_missing(tmp_path: Path, cell: str) -> None:
    """Given any of the usual words for no value, number and category are missing."""
    path = tmp_path / "pool.csv"
    path.write_text(f"a,b\n1,car\n{cell},{cell}\n")
    pool = read_pool(path, rules_of(a=None, b=["car"]), target_column=None)
    assert np.isnan(pool.rows).tolist() == [[False, False], [True, True]]


def test_a_word_that_features_toml_lists_is_never_missing(tmp_path: Path) -> None:
    """Given a category called NA, its cells are that category, while an empty cell is missing."""
    path = tmp_path / "pool.csv"
    path.write_text('a,b\n1,NA\n2,"none"\n3,""\n')
    rows = read_pool(path, rules_of(a=None, b=["none", "NA"]), target_column=None).rows
    assert rows[:2, 1].tolist() == [1, 0]
    assert np.isnan(rows[2, 1])


def test_what_stands_for_missing_is_missing_and_its_neighbours_are_not(tmp_path: Path) -> None:
    """Given a sentinel, a cell that float32 rounds to it is missing, its neighbours in float32 are numbers, and a category has words for none of this."""
    path = tmp_path / "pool.csv"
    cells = [-999.0, float(np.nextafter(-999.0, 0)), float(np.nextafter(np.float32(-999), np.float32(0))), 1e39, 5.0]
    path.write_text("a,b\n" + "".join(f"{cell!r},car\n" for cell in cells))
    rows = read_pool(path, rules_of(a=None, b=["car"]), target_column=None, missing=-999.0).rows
    assert np.isnan(rows[:, 0]).tolist() == [True, True, False, False, False]
    assert rows[:, 1].tolist() == [0.0] * 5
    assert not np.isnan(read_pool(path, rules_of(a=None, b=["car"]), target_column=None).rows).any()


@pytest.mark.parametrize("name", ["pool.csv", "pool.parquet"])
def test_categories_that_are_numbers_become_their_codes(tmp_path: Path, name: str) -> None:
    """Given training categories 20, 10 and 2.5 in a model file, then cells with these numbers are 0, 1 and 2, empty ones and the sentinel missing, and another number is refused."""
    rules = read_features(
        '[a]\ntype = "category"\nmutability = "mutable"\n',
        ("a",),
        words=((20.0, 10.0, 2.5),),
        is_category=(True,),
        missing=-999.0,
    )
    write_table(tmp_path / name, pa.table({"a": pa.array([10.0, 20.0, 2.5, None, -999.0])}))
    rows = read_pool(tmp_path / name, rules, target_column=None, missing=-999.0).rows[:, 0]
    assert rows[:3].tolist() == [1, 0, 2]
    assert np.isnan(rows[3:]).all()
    write_table(tmp_path / name, pa.table({"a": pa.array([10.0, 7.0])}))
    with pytest.raises(
        ConfigurationError, match=r"column 'a' holds a category that neither the model file .* in row 1 "
    ):
        read_pool(tmp_path / name, rules, target_column=None, missing=-999.0)


def test_a_category_that_looks_like_the_sentinel_is_a_category(tmp_path: Path) -> None:
    """Given training categories -1, 0 and 5 and a sentinel that is one of them, then its cells are that category, as in a decision, and only empty ones are missing."""
    for sentinel in (5.0, -1.0):
        toml = '[a]\ntype = "category"\nmutability = "mutable"\n'
        rules = read_features(toml, ("a",), words=((-1.0, 0.0, 5.0),), is_category=(True,))
        write_table(tmp_path / "pool.parquet", pa.table({"a": pa.array([5.0, -1.0, 0.0, None])}))
        rows = read_pool(tmp_path / "pool.parquet", rules, target_column=None, missing=sentinel).rows[:, 0]
        assert rows[:3].tolist() == [rules.encode({"a": word})[0] for word in (5.0, -1.0, 0.0)]
        assert np.isnan(rows[3])


def test_words_of_the_model_file_are_read_as_words(tmp_path: Path) -> None:
    """Given training categories in a model file that features.toml does not list, then the pool's words become their codes."""
    rules = read_features(
        '[a]\ntype = "category"\nmutability = "mutable"\n', ("a",), words=(("NA", "10"),), is_category=(True,)
    )
    path = tmp_path / "pool.csv"
    path.write_text('a\n10\nNA\n""\n')
    rows = read_pool(path, rules, target_column=None).rows[:, 0]
    assert rows[:2].tolist() == [1, 0]
    assert np.isnan(rows[2])


def test_every_missing_cell_is_one_nan(tmp_path: Path) -> None:
    """Given NaN of several bit patterns in Parquet, then the rows hold one of them."""
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF8DEADBEEF0000], np.uint64)
    write_table(tmp_path / "pool.parquet", pa.table({"a": pa.array(bits.view(np.float64))}))
    rows = read_pool(tmp_path / "pool.parquet", rules_of(a=None), target_column=None).rows
    assert rows.tobytes() == np.full(3, np.nan).tobytes()


def test_numbers_keep_every_bit(tmp_path: Path) -> None:
    """Given decimals of doubles, a CSV gives back the doubles."""
    values = np.random.default_rng(2).normal(size=500) * 10.0 ** np.arange(-250, 250)
    path = tmp_path / "pool.csv"
    path.write_text("a\n" + "\n".join(map(repr, values.tolist())) + "\n")
    assert read_pool(path, rules_of(a=None), target_column=None).rows[:, 0].tobytes() == values.tobytes()


def test_parquet_columns_of_any_number_type_are_read(tmp_path: Path) -> None:
    """Given whole numbers, float32 and booleans in Parquet, each becomes its double, null missing."""
    table = pa.table(
        {
            "a": pa.array([1, None], pa.int64()),
            "b": pa.array([0.1, 2], pa.float32()),
            "c": pa.array([True, False]),
            "d": pa.array(["x", "y"]).dictionary_encode(),
        }
    )
    write_table(tmp_path / "pool.parquet", table)
    rows = read_pool(tmp_path / "pool.parquet", rules_of(a=None, b=None, c=None, d=["y", "x"]), target_column=None).rows
    assert rows[0].tolist() == [1, float(np.float32(0.1)), 1, 1]
    assert np.isnan(rows[1, 0])


WRONG = {
    "lacks the model's features 'b'": "a\n1\n",
    "more than one column 'a'": "a,b,a\n1,2,3\n",
    "column 'b' holds text": "a,b\n1,2\n3,many\n",
    "column 'a' holds inf": "a,b\ninf,2\n",
    "has no rows": "a,b\n",
    "cannot be read": "",
}


@pytest.mark.parametrize("what", WRONG)
def test_a_table_that_does_not_fit_is_refused_by_column(tmp_path: Path, what: str) -> None:
    """Given a CSV that cannot be the model's pool, the error names the file and the column."""
    path = tmp_path / "pool.csv"
    path.write_text(WRONG[what])
    with pytest.raises(ConfigurationError, match=rf"pool\.csv.*{re.escape(what)}") as refusal:
        read_pool(path, rules_of(a=None, b=None), target_column=None)
    assert "\n" not in str(refusal.value)


def test_words_that_features_toml_lacks_are_named(tmp_path: Path) -> None:
    """Given words that have no code, the error counts them, says where the first is, and repeats none."""
    path = tmp_path / "pool.csv"
    path.write_text("b\ncar\nboat\nplane\n")
    with pytest.raises(ConfigurationError, match=r"column 'b' holds 2 categories .* first in row 1 ") as refused:
        read_pool(path, rules_of(b=["car"]), target_column=None)
    assert "boat" not in str(refused.value)


LEAKY: dict[str, bytes] = {
    "a word where a number is due": b"a,b\n1,2\n3,s3cret\n",
    "a cell too many": b"a,b\n1,2,s3cret'\n",
    "a cell that is not UTF-8": b"a,b,c\n1,2,s3cret\xfc\n",
    "a header that is not UTF-8": b"a,b,s3cret\xfc\n1,2,3\n",
}


@pytest.mark.parametrize("what", LEAKY)
def test_no_message_repeats_a_cell(tmp_path: Path, what: str) -> None:
    """Given a CSV that cannot be read because of one cell, the error is one line that does not repeat the cell."""
    path = tmp_path / "pool.csv"
    path.write_bytes(LEAKY[what])
    with pytest.raises(ConfigurationError, match=r"pool .*pool\.csv") as refused:
        read_pool(path, rules_of(a=None, b=None), target_column="c" if b"c\n" in LEAKY[what] else None)
    assert "s3cret" not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_target_column_is_there_once(tmp_path: Path) -> None:
    """Given a target column that is absent or there twice, the error names it."""
    path = tmp_path / "pool.csv"
    path.write_text("a,t,t\n1,0,1\n")
    with pytest.raises(ConfigurationError, match="more than one column 't'"):
        read_pool(path, rules_of(a=None), target_column="t")
    with pytest.raises(ConfigurationError, match="no column 'u', which --target-column names"):
        read_pool(path, rules_of(a=None), target_column="u")


def test_parquet_columns_that_hold_no_number_or_no_word_are_refused(tmp_path: Path) -> None:
    """Given a list where a number is due, a list where a word is due, or a whole number past 2^53, the column is named."""
    path = tmp_path / "pool.parquet"
    write_table(path, pa.table({"a": pa.array([[1]])}))
    with pytest.raises(ConfigurationError, match="column 'a' of type list"):
        read_pool(path, rules_of(a=None), target_column=None)
    with pytest.raises(ConfigurationError, match="column 'a' of type list"):
        read_pool(path, rules_of(a=["x"]), target_column=None)
    write_table(path, pa.table({"a": pa.array([2**53 + 1])}))
    with pytest.raises(ConfigurationError, match="column 'a' of type int64 does not fit"):
        read_pool(path, rules_of(a=None), target_column=None)
