"""Rows of a file as decisions, for work without Kafka: CSV, CSV.gz, Parquet, JSONL or Avro.

A row is either a whole Decision (it has `features`), or flat: the features by name, beside them whatever of a
decision's own fields the file has as columns; a column that is a feature's is that feature, whatever its name. A flat
row without an outcome is declined or approved by the model. Its `policy_overrides` are an object, in a table a cell with
the JSON of one. Unused columns are skipped and reported; a misspelt `policy_overrides` is refused: without it the person
would be advised to change what the override says cannot change.
"""

from __future__ import annotations

import lzma
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, BinaryIO, Final

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from fastavro.schema import SchemaParseException, UnknownType

from stream.bundle.table_faults import without_cells
from stream.errors import ConfigurationError, InvalidDecision, MalformedRecord, PoisonError, WrongFeatureType, shown
from stream.events import Decision
from stream.wire.avro_records import LIBRARY_FAULTS
from stream.wire.decisions import decision_of, json_object

BATCH_ROWS: Final = 8_192
LINE_BYTES_MAX: Final = 1 << 20
OVERRIDES: Final = "policy_overrides"
OWN_COLUMNS: Final = (
    "decision_id", "event_time", "subject_ref", "outcome", "decline_basis", "margin", "probability", "threshold",
    "threshold_scale", "product", "jurisdiction", OVERRIDES,
)  # fmt: skip
_MEANT: Final = ("policyoverrides", "overrides")
_CLOSE: Final = 0.85  # share of common letters: `overide` is close, a lender's own `manual_override` is not
_CLOSE_CHARACTERS_MAX: Final = 64  # the comparison is quadratic, and a name may have a million characters
_TABLES: Final = (".csv", ".csv.gz", ".parquet", ".pq")  # what an object is in: a cell with its JSON
_NUMBERS: Final = ("margin", "probability", "threshold")
_MISSING_WORDS: Final = ("", "NA", "NaN", "nan", "null", "NULL", "N/A")
_TRUE: Final = ("True", "true", "TRUE")
_FALSE: Final = ("False", "false", "FALSE")
_AVRO_FILE_FAULTS: Final = (*LIBRARY_FAULTS, zlib.error, lzma.LZMAError, SchemaParseException, UnknownType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a file: the decision, or the error. `decided`: whether the row has its own outcome."""

    name: str  # the decision_id, else the row number from 0
    decision: Decision | PoisonError
    decided: bool
    not_used: tuple[str, ...] = ()  # of a flat row, the columns that are neither features nor its own


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatRows:
    """How flat rows become decisions: the model they are for, its features, and the words of those that have words."""

    model_id: str
    model_version: str
    features: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]]
    passed_over: frozenset[str] = frozenset()  # columns to ignore, even if named like a decision's field


def read_rows(path: Path, flat: FlatRows) -> Iterator[Row]:
    """Read a file's rows in order, in bounded batches.

    Raises: ConfigurationError for a file that cannot be read, or flat rows in which a feature has no column,
    or a column's name is a misspelt `policy_overrides`. (In JSONL and Avro, where each row has its own, the row is at fault.)
    """
    if not path.is_file():
        message = f"there is no file {path}"
        raise ConfigurationError(message)
    in_cells = path.name.lower().endswith(_TABLES)
    try:
        for number, fields in enumerate(_records(path, flat)):
            yield fields if isinstance(fields, Row) else _row(number, fields, flat, in_cells=in_cells)
    except (OSError, ValueError, pa.ArrowException) as error:
        message = f"cannot read {path}: {without_cells(error)}"
        raise ConfigurationError(message) from None  # the cause repeats the content


def _records(path: Path, flat: FlatRows) -> Iterator[Mapping[str, Any] | Row]:
    name = path.name.lower()
    if name.endswith((".jsonl", ".ndjson", ".json")):
        return _json_lines(path)
    if name.endswith(".avro"):
        return _avro(path)
    if name.endswith((".parquet", ".pq")):
        return _table(pyarrow.parquet.ParquetFile(path, page_checksum_verification=True), path, flat)
    if name.endswith((".csv", ".csv.gz")):
        return _csv(path, flat)
    message = f"{path}: the name must end in .csv, .csv.gz, .parquet, .jsonl or .avro"
    raise ConfigurationError(message)


def _json_lines(path: Path) -> Iterator[Mapping[str, Any] | Row]:
    with path.open("rb") as lines:
        number = 0
        while line := lines.readline(LINE_BYTES_MAX + 1):
            if not line.strip():
                continue
            try:
                yield _json_line(line, lines)
            except PoisonError as error:
                yield Row(name=str(number), decision=error, decided=True)
            number += 1


def _json_line(line: bytes, lines: BinaryIO) -> Mapping[str, Any]:
    if len(line) <= LINE_BYTES_MAX:
        return json_object(line)
    while line and not line.endswith(b"\n"):  # skip the rest, or it would count as rows
        line = lines.readline(LINE_BYTES_MAX)
    message = f"the line has more than {LINE_BYTES_MAX} bytes"
    raise MalformedRecord(message)


def _avro(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open("rb") as file:
        try:
            for record in fastavro.reader(file):
                if not isinstance(record, dict):
                    message = "its records are not Avro records"
                    raise ValueError(message)  # noqa: TRY004  (reported as "cannot read" below, with the path)
                yield record
        except _AVRO_FILE_FAULTS as error:
            message = f"cannot read {path}: it is no whole Avro object container file ({type(error).__name__})"
            raise ConfigurationError(message) from None


def _csv(path: Path, flat: FlatRows) -> Iterator[Mapping[str, Any] | Row]:
    numbers = {*flat.features, *(name for name in _NUMBERS if name not in flat.passed_over)} - flat.words.keys()
    with pyarrow.csv.open_csv(path) as reader:
        names = reader.schema.names
    _check_columns(names, path, flat)
    options = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    first = 0
    holds_truth: dict[str, bool] = {}  # per column, as the first batch with a cell in it shows
    with pyarrow.csv.open_csv(path, convert_options=options) as reader:
        for batch in reader:
            cells = {name: _cells(batch.column(k), name, flat) for k, name in enumerate(names)}
            faults: dict[int, str] = {}  # row of the batch -> its first column that is no number
            for name in (name for name in names if name in numbers):
                trimmed = pc.utf8_trim_whitespace(cells[name])
                if trimmed.null_count < len(trimmed):
                    holds_truth.setdefault(name, name in flat.features and _holds_truth(trimmed))
                cells[name], wrong = _doubles(_as_numbers(trimmed) if holds_truth.get(name) else trimmed)
                faults = dict.fromkeys(wrong, name) | faults
            for k, fields in enumerate(_rows_of(pa.RecordBatch.from_arrays([cells[name] for name in names], names))):
                yield _faulty(first + k, fields, faults[k], flat) if k in faults else fields
            first += batch.num_rows


def _cells(column: pa.Array, name: str, flat: FlatRows) -> pa.Array:
    """Turn the words for "missing" into nulls, unless they are a category of the column."""
    missing = [word for word in _MISSING_WORDS if word not in flat.words.get(name, ())]
    return pc.if_else(pc.is_in(column, pa.array(missing)), None, column)


def _holds_truth(column: pa.Array) -> bool:
    """Whether a column of texts says true and false: such words are there, and no number but 0 and 1.

    Elsewhere, as among incomes, such a word is a fault of its row.
    """
    words = pa.array([*_TRUE, *_FALSE])
    if not pc.any(pc.is_in(column, words)).as_py():
        return False
    return all(cell in words.to_pylist() or _number(cell) in (None, 0.0, 1.0) for cell in pc.unique(column).to_pylist())


def _as_numbers(column: pa.Array) -> pa.Array:
    said = pc.if_else(pc.is_in(column, pa.array(_TRUE)), "1", column)
    return pc.if_else(pc.is_in(said, pa.array(_FALSE)), "0", said)


def _doubles(column: pa.Array) -> tuple[pa.Array, list[int]]:
    """Texts as doubles, and the indices of those that are no number, which become nulls."""
    try:
        return column.cast(pa.float64()), []
    except pa.ArrowInvalid:
        cells = column.to_pylist()
        numbers = [_number(cell) for cell in cells]
        wrong = [k for k, cell in enumerate(cells) if cell is not None and numbers[k] is None]
        return pa.array(numbers, pa.float64()), wrong


def _number(cell: str | None) -> float | None:
    try:
        number: float | None = pa.scalar(cell, pa.string()).cast(pa.float64()).as_py()
    except pa.ArrowInvalid:
        return None
    return number


def _table(file: pyarrow.parquet.ParquetFile, path: Path, flat: FlatRows) -> Iterator[Mapping[str, Any]]:
    _check_columns(file.schema_arrow.names, path, flat)
    for batch in file.iter_batches(BATCH_ROWS):
        columns = [  # truth values of a feature as the numbers 1 and 0, which is how both libraries train on them
            column.cast(pa.float64()) if name in flat.features and pa.types.is_boolean(column.type) else column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        yield from _rows_of(pa.RecordBatch.from_arrays(columns, batch.schema.names))


def _rows_of(batch: pa.RecordBatch) -> Iterator[Mapping[str, Any]]:
    columns = {name: batch.column(k).to_pylist() for k, name in enumerate(batch.schema.names)}
    for k in range(batch.num_rows):
        yield {name: values[k] for name, values in columns.items()}


def _check_columns(names: list[str], path: Path, flat: FlatRows) -> None:
    if twice := {name for name in names if names.count(name) > 1}:
        message = f"{path} has two columns of the name {min(twice)}"
        raise ConfigurationError(message)
    flat_rows = "features" not in names or "features" in flat.features
    if flat_rows and (absent := [f for f in flat.features if f not in names]):
        message = f"{path} has no column for these features of the model: {', '.join(absent[:5])}"
        raise ConfigurationError(message)
    if flat_rows and (correction := misspelt(_unused(names, flat))):
        message = f"{path}: {correction}"
        raise ConfigurationError(message)


def _row(number: int, fields: Mapping[str, Any], flat: FlatRows, *, in_cells: bool) -> Row:
    own = _own(fields, flat)
    name, decided = _named(number, own)
    not_used: tuple[str, ...] = ()
    whole: dict[str, Any] = {"decision_id": name, **{key: _as_json(value) for key, value in own.items()}}
    if not _is_whole(fields, flat):
        whole |= {
            "decision_id": name,
            "model_id": flat.model_id,
            "model_version": flat.model_version,
            "outcome": own["outcome"] if decided else "declined",
            "features": {f: _missing_as_none(fields[f]) for f in flat.features if f in fields},
        }
        not_used = _unused(fields, flat)
    try:
        if correction := misspelt(not_used):
            raise InvalidDecision(correction)
        if in_cells and not _is_whole(fields, flat) and isinstance(cell := own.get(OVERRIDES), str):
            whole[OVERRIDES] = _overrides_of(cell)
        return Row(name=name, decision=decision_of(whole, timed=False), decided=decided, not_used=not_used)
    except PoisonError as error:
        return Row(name=name, decision=error, decided=decided, not_used=not_used)


def _faulty(number: int, fields: Mapping[str, Any], column: str, flat: FlatRows) -> Row:
    """A row of a CSV file with a text in place of a number."""
    name, decided = _named(number, _own(fields, flat))
    fault = WrongFeatureType if column in flat.features else InvalidDecision
    return Row(name=name, decision=fault(f"column {column} of row {number} (from 0) is no number"), decided=decided)


def _named(number: int, own: Mapping[str, Any]) -> tuple[str, bool]:
    """A row's name, and whether it has its own outcome."""
    given = own.get("decision_id")
    return str(number if given is None else given), own.get("outcome") is not None


def _is_whole(fields: Mapping[str, Any], flat: FlatRows) -> bool:
    return "features" in fields and "features" not in flat.features


def _own(fields: Mapping[str, Any], flat: FlatRows) -> Mapping[str, Any]:
    """The decision's fields of a row: all of a whole decision, the non-features of a flat row."""
    if _is_whole(fields, flat):
        return fields
    foreign = _foreign(flat)
    return {c: fields[c] for c in OWN_COLUMNS if c in fields and c not in foreign}


def _foreign(flat: FlatRows) -> frozenset[str]:
    """Columns that are never a decision's field, whatever their names."""
    return flat.passed_over.union(flat.features)


def _as_json(value: Any) -> Any:  # noqa: ANN401  (a cell of any type; decision_of checks it)
    """Parquet and Avro have times (one without a zone is refused, as text is), and Parquet's maps are lists of pairs."""
    if isinstance(value, datetime):
        return value.isoformat()
    return dict(value) if isinstance(value, list) and all(isinstance(pair, tuple) for pair in value) else value


def _missing_as_none(value: Any) -> Any:  # noqa: ANN401  (a cell of any type; decision_of checks it)
    return None if isinstance(value, float) and math.isnan(value) else value


def _unused(names: Iterable[str], flat: FlatRows) -> tuple[str, ...]:
    foreign = _foreign(flat)
    return tuple(name for name in names if name not in foreign and name not in OWN_COLUMNS)


def misspelt(names: Iterable[str]) -> str | None:
    """Correct the first of `names` that looks like `policy_overrides`; None if none does."""
    for name in names:
        if _is_close(name):
            return (
                f"column {shown(name)} looks like {OVERRIDES}, and that is the name to use; a misspelt one would "
                "change the answer unnoticed, so rename it if it is something else"
            )
    return None


def _overrides_of(cell: str) -> Mapping[str, Any] | None:
    """Read the JSON object in a cell; None for a blank cell. Raises: MalformedRecord, which does not repeat it."""
    if not cell.strip():
        return None
    try:
        return json_object(cell.encode())
    except MalformedRecord:
        message = f'column {OVERRIDES} is no JSON object such as {{"income": "immutable"}}, or has a key twice'
        raise MalformedRecord(message) from None  # the cause is about a whole decision


def _is_close(name: str) -> bool:
    if len(name) > _CLOSE_CHARACTERS_MAX:
        return False
    letters = "".join(c for c in name.casefold() if c.isalnum())
    return any(SequenceMatcher(None, letters, meant, autojunk=False).ratio() >= _CLOSE for meant in _MEANT)
