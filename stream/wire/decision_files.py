"""Rows of a file as decisions, for work without Kafka: CSV, CSV.gz, Parquet, JSONL or Avro.

A row is either a whole Decision (it has `features`), or flat: the features by name, beside them whatever of a
decision's own fields the file has as columns. A flat row without an outcome is declined or approved by the model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from stream.errors import ConfigurationError, PoisonError
from stream.events import Decision
from stream.wire.decisions import decision_of, json_object

BATCH_ROWS: Final = 8_192
LINE_BYTES_MAX: Final = 1 << 20
_OWN_COLUMNS: Final = (
    "decision_id", "event_time", "subject_ref", "outcome", "decline_basis", "margin", "probability", "threshold",
    "threshold_scale", "product", "jurisdiction",
)  # fmt: skip
_QUOTED: Final = re.compile(r"'[^']*'")  # what pyarrow quotes is a cell's content: it stays out of messages
_MISSING_WORDS: Final = ["", "NA", "NaN", "nan", "null", "NULL", "N/A"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a file: the decision, or why it is none. `decided` says whether the row brought its own outcome."""

    name: str  # the decision_id, else the row number from 0
    decision: Decision | PoisonError
    decided: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatRows:
    """How flat rows become decisions: the model they are for, its features, and the words of those that have words."""

    model_id: str
    model_version: str
    features: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]]


def read_rows(path: Path, flat: FlatRows) -> Iterator[Row]:
    """Read a file's rows in order, in bounded batches.

    Raises: ConfigurationError for a file that cannot be read, or flat rows in which a feature has no column.
    """
    if not path.is_file():
        msg = f"there is no file {path}"
        raise ConfigurationError(msg)
    try:
        for number, fields in enumerate(_records(path, flat)):
            yield fields if isinstance(fields, Row) else _row(number, fields, flat)
    except (OSError, ValueError, pa.ArrowException) as error:
        msg = f"cannot read {path}: {_QUOTED.sub('(value not shown)', str(error))}"
        raise ConfigurationError(msg) from error


def _records(path: Path, flat: FlatRows) -> Iterator[Mapping[str, Any] | Row]:
    name = path.name.lower()
    if name.endswith((".jsonl", ".ndjson", ".json")):
        return _json_lines(path)
    if name.endswith(".avro"):
        return _avro(path)
    if name.endswith((".parquet", ".pq")):
        return _table(pyarrow.parquet.ParquetFile(path), path, flat)
    if name.endswith((".csv", ".csv.gz")):
        return _csv(path, flat)
    msg = f"{path}: the name must end in .csv, .csv.gz, .parquet, .jsonl or .avro"
    raise ConfigurationError(msg)


def _json_lines(path: Path) -> Iterator[Mapping[str, Any] | Row]:
    with path.open("rb") as lines:
        number = 0
        while line := lines.readline(LINE_BYTES_MAX):
            if line.strip():
                try:
                    yield json_object(line)
                except PoisonError as error:
                    yield Row(name=str(number), decision=error, decided=True)
                number += 1


def _avro(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open("rb") as file:
        for record in fastavro.reader(file):
            if not isinstance(record, dict):
                msg = "its records are not Avro records"
                raise ValueError(msg)  # noqa: TRY004  (said as "cannot read" by the caller, with the path)
            yield record


def _csv(path: Path, flat: FlatRows) -> Iterator[Mapping[str, Any]]:
    texts = {*flat.words, *(c for c in _OWN_COLUMNS if c not in ("margin", "probability", "threshold"))}
    types: dict[str, pa.DataType] = dict.fromkeys(flat.features, pa.float64())
    types |= dict.fromkeys(texts, pa.string())
    listed = {word for words in flat.words.values() for word in words}  # "NA" can be a category's word
    nulls = [word for word in _MISSING_WORDS if word not in listed]
    options = pyarrow.csv.ConvertOptions(
        column_types=types, null_values=nulls, strings_can_be_null=True, quoted_strings_can_be_null=True
    )
    with pyarrow.csv.open_csv(path, convert_options=options) as reader:
        _check_columns(reader.schema.names, path, flat)
        for batch in reader:
            yield from _rows_of(batch)


def _table(file: pyarrow.parquet.ParquetFile, path: Path, flat: FlatRows) -> Iterator[Mapping[str, Any]]:
    _check_columns(file.schema_arrow.names, path, flat)
    for batch in file.iter_batches(BATCH_ROWS):
        yield from _rows_of(batch)


def _rows_of(batch: pa.RecordBatch) -> Iterator[Mapping[str, Any]]:
    columns = {name: batch.column(k).to_pylist() for k, name in enumerate(batch.schema.names)}
    for k in range(batch.num_rows):
        yield {name: values[k] for name, values in columns.items()}


def _check_columns(names: list[str], path: Path, flat: FlatRows) -> None:
    if "features" not in names and (absent := [f for f in flat.features if f not in names]):
        msg = f"{path} has no column for these features of the model: {', '.join(absent[:5])}"
        raise ConfigurationError(msg)


def _row(number: int, fields: Mapping[str, Any], flat: FlatRows) -> Row:
    given, decided = fields.get("decision_id"), fields.get("outcome") is not None
    name = str(number if given is None else given)
    try:
        if isinstance(fields.get("features"), Mapping):
            return Row(name=name, decision=decision_of({"decision_id": name, **fields}, timed=False), decided=decided)
        own: dict[str, Any] = {c: fields[c] for c in _OWN_COLUMNS if c in fields and c not in flat.features}
        if isinstance(own.get("event_time"), datetime):  # Parquet has times; without a zone it is refused as text is
            own["event_time"] = own["event_time"].isoformat()
        whole = {
            **own,
            "decision_id": name,
            "model_id": flat.model_id,
            "model_version": flat.model_version,
            "outcome": own.get("outcome") or "declined",
            "features": {f: _missing_as_none(fields[f]) for f in flat.features if f in fields},
        }
        return Row(name=name, decision=decision_of(whole, timed=False), decided=decided)
    except PoisonError as error:
        return Row(name=name, decision=error, decided=decided)


def _missing_as_none(value: Any) -> Any:  # noqa: ANN401  (a cell of any type; decision_of checks it)
    return None if isinstance(value, float) and math.isnan(value) else value
