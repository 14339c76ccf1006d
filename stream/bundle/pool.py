"""The training pool: a table in a file -> one float64 row per person, aligned with the model's features by name."""

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

from stream.errors import ConfigurationError
from stream.recourse.features import FeatureRules

NO_VALUE: Final = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")  # how a CSV says missing
CSV_SUFFIXES: Final = (".csv", ".csv.gz")
PARQUET_SUFFIXES: Final = (".parquet", ".pq")
WORDS_SHOWN: Final = 3

Rows = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """The pool as the model takes it. rows (n, features) float64, NaN for missing; `ignored` columns were not used."""

    rows: Rows
    sha256: str
    ignored: tuple[str, ...]


def read_pool(path: Path, rules: FeatureRules, *, target_column: str | None) -> Pool:
    """Read a CSV, gzipped CSV or Parquet file; words become the codes that features.toml gives them.

    Raises: ConfigurationError that names the file and the column.
    """
    worded = {rule.name for rule in rules.rules if rule.categories is not None}
    table, columns = _table(path, rules.names, worded)
    if target_column is not None and target_column not in columns:
        message = f"pool {path} has no column {target_column!r}, which --target-column names"
        raise ConfigurationError(message)
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
    )


def _table(path: Path, names: Sequence[str], worded: set[str]) -> tuple[pa.Table, list[str]]:
    """The model's columns of the file, and the names of all."""
    try:
        if path.name.lower().endswith(CSV_SUFFIXES):
            return _csv(path, names, worded)
        if path.name.lower().endswith(PARQUET_SUFFIXES):
            columns = list(pa_parquet.read_schema(path).names)
            _check_columns(path, columns, names)
            return pa_parquet.read_table(path, columns=list(names)), columns
    except (OSError, pa.ArrowException) as error:
        message = f"pool {path} cannot be read: {' '.join(str(error).split())}"
        raise ConfigurationError(message) from error
    message = f"pool {path} is none of {', '.join((*CSV_SUFFIXES, *PARQUET_SUFFIXES))}"
    raise ConfigurationError(message)


def _csv(path: Path, names: Sequence[str], worded: set[str]) -> tuple[pa.Table, list[str]]:
    with pa_csv.open_csv(path) as reader:
        columns = list(reader.schema.names)
    _check_columns(path, columns, names)
    options = pa_csv.ConvertOptions(
        include_columns=list(names),
        column_types={name: pa.string() if name in worded else pa.float64() for name in names},
        null_values=list(NO_VALUE),
        strings_can_be_null=False,
    )
    try:
        return pa_csv.read_csv(path, convert_options=options), columns
    except pa.ArrowInvalid as error:
        found = re.search(r"In CSV column #(\d+)", str(error))
        if found is None:
            raise
        message = (
            f"pool {path}: column {columns[int(found[1])]!r} holds text where a number is due; "
            "if it is a category, list its words as `categories` in features.toml"
        )
        raise ConfigurationError(message) from error


def _check_columns(path: Path, columns: Sequence[str], names: Sequence[str]) -> None:
    if absent := [name for name in names if name not in columns]:
        message = f"pool {path} lacks the model's features {', '.join(map(repr, absent))}"
        raise ConfigurationError(message)
    if twice := sorted({name for name in names if columns.count(name) > 1}):
        message = f"pool {path} has more than one column {', '.join(map(repr, twice))}"
        raise ConfigurationError(message)


def _numbers(path: Path, name: str, column: Any) -> Rows:  # noqa: ANN401 - pyarrow has no types
    try:
        numbers: Rows = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException as error:
        message = (
            f"pool {path}: column {name!r} of type {column.type} does not fit into doubles; "
            "if it is a category, list its words as `categories` in features.toml"
        )
        raise ConfigurationError(message) from error
    if np.isinf(numbers).any():
        message = f"pool {path}: column {name!r} holds inf; no decision may, so leave those cells empty"
        raise ConfigurationError(message)
    return numbers


def _codes(path: Path, rules: FeatureRules, j: int, column: Any) -> Rows:  # noqa: ANN401 - pyarrow has no types
    """Turn words into codes. A CSV's empty cell or NA is missing, unless features.toml lists it as a word."""
    name, codes = rules.names[j], rules.codes[j] or {}
    try:
        words: list[str | None] = column.cast(pa.string()).to_pylist()
    except pa.ArrowException as error:
        message = f"pool {path}: column {name!r} of type {column.type} holds no words, but features.toml lists some"
        raise ConfigurationError(message) from error
    code_of: dict[str | None, float] = dict.fromkeys((None, *NO_VALUE), np.nan)
    code_of.update(codes)
    if unknown := sorted({word for word in words if word not in code_of} - {None}, key=str):
        shown = ", ".join(map(repr, unknown[:WORDS_SHOWN]))
        message = f"pool {path}: column {name!r} holds {len(unknown)} words that features.toml does not list: {shown}"
        raise ConfigurationError(message)
    return np.array([code_of[word] for word in words], np.float64)


def _digest(names: Sequence[str], rows: Rows) -> str:
    digest = hashlib.sha256(repr((tuple(names), rows.shape)).encode())
    one_nan = np.where(np.isnan(rows), np.nan, rows)  # of the many bit patterns of NaN
    digest.update(np.ascontiguousarray(one_nan, "<f8").tobytes())
    return digest.hexdigest()
