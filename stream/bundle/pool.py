"""The training pool: a table in a file -> one float64 row per person, aligned with the model's features by name.

Messages name the file, the column and the row, and never what is in a cell: it is a person's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from stream.bundle.table_faults import without_cells
from stream.errors import ConfigurationError, shown
from stream.recourse.features import FeatureRules

NO_VALUE: Final = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")  # how a CSV says missing
CSV_SUFFIXES: Final = (".csv", ".csv.gz")
PARQUET_SUFFIXES: Final = (".parquet", ".pq")
NAMES_SHOWN_MAX: Final = 10
NO_DOUBLE: Final = "; if it is a category, list its words as `categories` in features.toml"

Rows = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """The pool as the model takes it. rows (n, features) float64, NaN for missing; `ignored` columns were not used.

    target: the target column as a pyarrow array (n,), None where none was named.
    """

    rows: Rows
    sha256: str
    ignored: tuple[str, ...]
    target: Any = None  # pyarrow has no types


def read_pool(path: Path, rules: FeatureRules, *, target_column: str | None) -> Pool:
    """Read a CSV, gzipped CSV or Parquet file; words become the codes that features.toml gives them.

    Raises: ConfigurationError that names the file and the column.
    """
    worded = {rule.name for rule in rules.rules if rule.categories is not None}
    table, columns = _table(path, rules.names, worded, target_column)
    if target_column in rules.names:
        message = f"{target_column!r} is a feature of the model, so it cannot be the target column"
        raise ConfigurationError(message)
    if table.num_rows == 0:
        message = f"pool {path} has no rows; give the data that the model was trained on"
        raise ConfigurationError(message)
    rows = np.empty((table.num_rows, len(rules.names)), np.float64)
    for j, rule in enumerate(rules.rules):
        column = table.column(rule.name)
        rows[:, j] = _numbers(path, rule.name, column) if rule.categories is None else _codes(path, rules, j, column)
    return Pool(
        rows=rows,
        sha256=_digest(rules.names, rows),
        ignored=tuple(c for c in columns if c not in rules.index and c != target_column),
        target=None if target_column is None else table.column(target_column),
    )


def _table(path: Path, names: Sequence[str], worded: set[str], target_column: str | None) -> tuple[pa.Table, list[str]]:
    """The model's columns of the file with the target column, and the names of all."""
    try:
        if path.name.lower().endswith(CSV_SUFFIXES):
            return _csv(path, names, worded, target_column)
        if path.name.lower().endswith(PARQUET_SUFFIXES):
            columns = list(pa_parquet.read_schema(path).names)
            wanted = _wanted(path, columns, names, target_column)
            return pa_parquet.read_table(path, columns=wanted), columns
    except (OSError, ValueError, pa.ArrowException) as error:
        message = f"pool {path} cannot be read: {without_cells(error)}"
        raise ConfigurationError(message) from None  # the cause repeats the content
    message = f"pool {path} is none of {', '.join((*CSV_SUFFIXES, *PARQUET_SUFFIXES))}"
    raise ConfigurationError(message)


def _csv(path: Path, names: Sequence[str], worded: set[str], target_column: str | None) -> tuple[pa.Table, list[str]]:
    with pa_csv.open_csv(path) as reader:
        columns = list(reader.schema.names)
    wanted = _wanted(path, columns, names, target_column)
    numbers = set(names) - worded
    options = pa_csv.ConvertOptions(
        include_columns=wanted,
        column_types={name: pa.float64() if name in numbers else pa.string() for name in wanted},
        null_values=list(NO_VALUE),
        strings_can_be_null=False,
    )
    try:
        return pa_csv.read_csv(path, convert_options=options), columns
    except pa.ArrowInvalid as error:
        found = re.search(r"In CSV column #(\d+)", str(error))
        if found is None:
            raise
        name = columns[int(found[1])]
        wrong = f"holds text where a number is due{NO_DOUBLE}" if name in numbers else "is not UTF-8 text"
        message = f"pool {path}: column {name!r} {wrong}"
        raise ConfigurationError(message) from None  # the cause repeats the cell


def _wanted(path: Path, columns: Sequence[str], names: Sequence[str], target_column: str | None) -> list[str]:
    """The columns to read: the model's and the target's, each of which is there, once."""
    if absent := [name for name in names if name not in columns]:
        message = f"pool {path} lacks the model's features {_some(absent)}"
        raise ConfigurationError(message)
    if target_column is not None and target_column not in columns:
        message = f"pool {path} has no column {shown(target_column)!r}, which --target-column names"
        raise ConfigurationError(message)
    wanted = list(dict.fromkeys([*names, *([] if target_column is None else [target_column])]))
    if twice := sorted({name for name in wanted if columns.count(name) > 1}):
        message = f"pool {path} has more than one column {_some(twice)}"
        raise ConfigurationError(message)
    return wanted


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    return ", ".join(map(repr, names[:NAMES_SHOWN_MAX])) + more


def _numbers(path: Path, name: str, column: Any) -> Rows:  # noqa: ANN401 - pyarrow has no types
    try:
        numbers: Rows = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        message = f"pool {path}: column {name!r} of type {column.type} does not fit into doubles{NO_DOUBLE}"
        raise ConfigurationError(message) from None  # the cause repeats the cell
    if np.isinf(numbers).any():
        message = f"pool {path}: column {name!r} holds inf; no decision may, so leave those cells empty"
        raise ConfigurationError(message)
    return numbers


def _codes(path: Path, rules: FeatureRules, j: int, column: Any) -> Rows:  # noqa: ANN401 - pyarrow has no types
    """Turn words into codes. A CSV's empty cell or NA is missing, unless features.toml lists it as a word."""
    name, codes = rules.names[j], rules.codes[j] or {}
    try:
        words: list[str | None] = column.cast(pa.string()).to_pylist()
    except pa.ArrowException:
        message = f"pool {path}: column {name!r} of type {column.type} holds no words, but features.toml lists some"
        raise ConfigurationError(message) from None  # the cause may repeat a cell
    code_of: dict[str | None, float] = dict.fromkeys((None, *NO_VALUE), np.nan)
    code_of.update(codes)
    if unknown := {word for word in words if word not in code_of}:
        first = next(i for i, word in enumerate(words) if word in unknown)
        what = "a word" if len(unknown) == 1 else f"{len(unknown)} words"
        message = (
            f"pool {path}: column {name!r} holds {what} that `categories` of features.toml does not list, first in "
            f"row {first} (from 0); where the pool holds the codes themselves, leave `categories` out"
        )
        raise ConfigurationError(message)
    return np.array([code_of[word] for word in words], np.float64)


def _digest(names: Sequence[str], rows: Rows) -> str:
    digest = hashlib.sha256(repr((tuple(names), rows.shape)).encode())
    one_nan = np.where(np.isnan(rows), np.nan, rows)  # of the many bit patterns of NaN
    digest.update(np.ascontiguousarray(one_nan, "<f8").tobytes())
    return digest.hexdigest()
