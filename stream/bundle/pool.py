"""The training pool: a table in a file -> one float64 row per person, aligned with the model's features by name.

Messages name the file, the column and the row, never the content of a cell: it is personal data.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from stream.bundle.alignment import hint_of_spelling, some
from stream.bundle.table_faults import without_cells
from stream.errors import ConfigurationError, shown
from stream.forest.trees import Forest, Word
from stream.recourse.rules.features import FeatureRules

NO_VALUE: Final = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")  # missing, in a CSV
CSV_SUFFIXES: Final = (".csv", ".csv.gz")
PARQUET_SUFFIXES: Final = (".parquet", ".pq")
NO_DOUBLE: Final = "; if it is a category, list its words as `categories` in features.toml"
NO_WORDS: Final = (
    "; the model takes it for a category, but its file does not hold the words (perhaps because they are beyond ASCII, or the "
    "version that saved it is older): list them as `categories` in features.toml, in the order of the training categories"
)
WORDS_ARE_NUMBERS: Final = "; its training categories are numbers: write these, and 0 and 1 for false and true"

Rows = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """The pool as the model takes it. rows (n, features) float64, NaN for missing; `ignored` columns were not used.

    target: the target column as a pyarrow array (n,); claims: the lender's scores (n,) float64, NaN for an empty
    cell. Each is None where no such column was named.
    """

    rows: Rows
    sha256: str
    ignored: tuple[str, ...]
    target: Any = None  # pyarrow has no types
    claims: Rows | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The columns to read: features, those of them that hold words, and the two others."""

    features: tuple[str, ...]
    worded: frozenset[str]
    hints: Mapping[str, str]  # per feature, what to do where it holds text and should not
    target: str | None
    claim: str | None

    @property
    def numbers(self) -> frozenset[str]:
        return frozenset({*self.features, *([] if self.claim is None else [self.claim])}) - self.worded


def read_pool(
    path: Path,
    rules: FeatureRules,
    *,
    target_column: str | None,
    claim_column: str | None = None,
    missing: float | None = None,
) -> Pool:
    """Read a CSV, gzipped CSV or Parquet file; words become codes, and numbers equal to `missing` in float32 become NaN.

    Raises: ConfigurationError that names the file and the column.
    """
    for flag, name in (("target", target_column), ("claim", claim_column)):
        if name in rules.names:
            message = f"{name!r} is a feature of the model, so it cannot be the {flag} column"
            raise ConfigurationError(message)
    worded = frozenset(name for name, codes in zip(rules.names, rules.codes, strict=True) if _has_words(codes))
    hints = {
        rule.name: WORDS_ARE_NUMBERS if codes is not None else NO_WORDS if rule.is_category else NO_DOUBLE
        for rule, codes in zip(rules.rules, rules.codes, strict=True)
    }
    table, columns = _table(
        path, _Wanted(features=rules.names, worded=worded, hints=hints, target=target_column, claim=claim_column)
    )
    if table.num_rows == 0:
        message = f"pool {path} has no rows; give the data that the model was trained on"
        raise ConfigurationError(message)
    rows = np.empty((table.num_rows, len(rules.names)), np.float64)
    for j, name in enumerate(rules.names):
        column = table.column(name)
        if _has_words(rules.codes[j]):
            rows[:, j] = _codes(path, rules, j, _words(path, name, column), NO_VALUE)
            continue
        numbers = _numbers(path, name, column, hints[name])
        if rules.codes[j] is None:
            rows[:, j] = _without_sentinel(numbers, missing)
        else:  # a category equal to the sentinel stays a category, as in a decision
            rows[:, j] = _codes(path, rules, j, numbers.tolist(), (np.nan, np.nan if missing is None else missing))
    others = (target_column, claim_column)
    digest = hashlib.sha256(repr((tuple(rules.names), rows.shape)).encode())
    digest.update(np.ascontiguousarray(rows, "<f8").tobytes())
    return Pool(
        rows=rows,
        sha256=digest.hexdigest(),
        ignored=tuple(c for c in columns if c not in rules.index and c not in others),
        target=None if target_column is None else table.column(target_column),
        claims=None if claim_column is None else _numbers(path, claim_column, table.column(claim_column), ""),
    )


def check_range(forest: Forest, pool: Pool, path: Path) -> None:
    """Raises: ConfigurationError for a number beyond the range of the model's floats, which its library refuses."""
    for name, column in zip(forest.features, pool.rows.T, strict=True):
        with np.errstate(over="ignore"):
            beyond = np.isinf(column.astype(forest.dtype))
        if beyond.any():
            message = (
                f"pool {path}: column {name!r} holds a number beyond the range of {forest.dtype.name}, in which "
                f"{forest.library} computes, first in row {int(beyond.argmax())} (from 0); correct it, or leave the cell empty"
            )
            raise ConfigurationError(message)


def _has_words(codes: Mapping[Word, float] | None) -> bool:
    """Whether a feature's categories are words; training categories may be numbers as well."""
    return codes is not None and any(isinstance(word, str) for word in codes)


def _table(path: Path, wanted: _Wanted) -> tuple[pa.Table, list[str]]:
    """The wanted columns of the file, and the names of all."""
    try:
        if path.name.lower().endswith(CSV_SUFFIXES):
            return _csv(path, wanted)
        if path.name.lower().endswith(PARQUET_SUFFIXES):
            columns = list(pa_parquet.read_schema(path).names)
            return pa_parquet.read_table(path, columns=_found(path, columns, wanted)), columns
    except (OSError, ValueError, pa.ArrowException) as error:
        message = f"pool {path} cannot be read: {without_cells(error)}"
        raise ConfigurationError(message) from None  # the cause repeats the content
    message = f"pool {path} is none of {', '.join((*CSV_SUFFIXES, *PARQUET_SUFFIXES))}"
    raise ConfigurationError(message)


def _csv(path: Path, wanted: _Wanted) -> tuple[pa.Table, list[str]]:
    with pa_csv.open_csv(path) as reader:
        columns = list(reader.schema.names)
        # A column of true and false alone, as a DataFrame's booleans are written: both libraries train on 1 and 0.
        truths = {cell.name for cell in reader.schema if pa.types.is_boolean(cell.type)} & wanted.numbers - {
            wanted.claim
        }
    found = _found(path, columns, wanted)
    types = {name: pa.float64() if name in wanted.numbers else pa.string() for name in found}
    options = pa_csv.ConvertOptions(
        include_columns=found,
        column_types=types | dict.fromkeys(truths, pa.bool_()),
        null_values=list(NO_VALUE),
        strings_can_be_null=False,
    )
    try:
        return pa_csv.read_csv(path, convert_options=options), columns
    except pa.ArrowInvalid as error:
        at = re.search(r"In CSV column #(\d+)", str(error))
        if at is None:
            raise
        name = columns[int(at[1])]
        wrong = "is not UTF-8 text"
        if name in wanted.numbers:
            wrong = f"holds text where a number is due{wanted.hints.get(name, '')}"
        if name in truths:
            wrong = "holds true and false, and something else beside them; write 0 and 1"
        message = f"pool {path}: column {name!r} {wrong}"
        raise ConfigurationError(message) from None  # the cause repeats the cell


def _found(path: Path, columns: Sequence[str], wanted: _Wanted) -> list[str]:
    """The columns to read: each of the wanted ones, which is there, once."""
    if absent := [name for name in wanted.features if name not in columns]:
        spare = [name for name in columns if name not in wanted.features and name not in (wanted.target, wanted.claim)]
        beside = f", and has columns that are no features: {some(spare)}" if spare else ""
        message = (
            f"pool {path} lacks the model's features {some(absent)}{beside}; give the data that the model was trained on, with "
            f"its columns named as the model names its features{hint_of_spelling(absent, spare, 'column')}"
        )
        raise ConfigurationError(message)
    others = {"--target-column": wanted.target, "--claim-column": wanted.claim}
    for flag, name in others.items():
        if name is not None and name not in columns:
            message = f"pool {path} has no column {shown(name)!r}, which {flag} names; its columns are {some(columns)}"
            raise ConfigurationError(message)
    found = list(dict.fromkeys([*wanted.features, *(name for name in others.values() if name is not None)]))
    if twice := sorted({name for name in found if columns.count(name) > 1}):
        message = f"pool {path} has more than one column {some(twice)}; keep one of each"
        raise ConfigurationError(message)
    return found


def _numbers(path: Path, name: str, column: Any, hint: str) -> Rows:  # noqa: ANN401 - pyarrow has no types
    try:
        numbers: Rows = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        message = f"pool {path}: column {name!r} of type {column.type} does not fit into doubles{hint}"
        raise ConfigurationError(message) from None  # the cause repeats the cell
    if np.isinf(numbers).any():
        message = f"pool {path}: column {name!r} holds inf; no decision may, so leave those cells empty"
        raise ConfigurationError(message)
    return numbers


def _without_sentinel(numbers: Rows, missing: float | None) -> Rows:
    """The numbers with one bit pattern of NaN for missing values, the sentinel among them."""
    given = numbers.copy()
    given[np.isnan(numbers)] = np.nan
    if missing is not None:
        with np.errstate(over="ignore"):
            given[numbers.astype(np.float32) == np.float32(missing)] = np.nan
    return given


def _words(path: Path, name: str, column: Any) -> list[str | None]:  # noqa: ANN401 - pyarrow has no types
    try:
        words: list[str | None] = column.cast(pa.string()).to_pylist()
    except pa.ArrowException:
        message = f"pool {path}: column {name!r} of type {column.type} holds no words, but its categories are words"
        raise ConfigurationError(message) from None  # the cause may repeat a cell
    return words


def _codes(path: Path, rules: FeatureRules, j: int, cells: Sequence[Any], no_value: Sequence[Any]) -> Rows:
    """Turn categories, words or numbers, into codes. Values in `no_value` are missing unless they are categories."""
    known: Mapping[Any, float] = rules.codes[j] or {}
    code_of = {None: np.nan, **dict.fromkeys(no_value, np.nan), **known}
    values = [np.nan if value != value else value for value in cells]  # noqa: PLR0124 - one NaN, found by identity
    unknown = [index for index, value in enumerate(values) if value not in code_of]
    if unknown:
        count = len({values[index] for index in unknown})
        what = "a category" if count == 1 else f"{count} categories"
        message = (
            f"pool {path}: column {rules.names[j]!r} holds {what} that neither the model file nor `categories` of "
            f"features.toml lists, first in row {unknown[0]} (from 0); give the data that the model was trained on, and where "
            "it holds the codes themselves, leave `categories` out"
        )
        raise ConfigurationError(message)
    return np.array([code_of[value] for value in values], np.float64)
