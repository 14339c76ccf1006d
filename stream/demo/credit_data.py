"""A table of past credit applications and how they turned out: read, checked against features.toml, and split."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from stream.bundle.table_faults import without_cells
from stream.errors import ConfigurationError, PoisonError, shown
from stream.events import Value
from stream.recourse.rules.features import FeatureRules, read_features
from stream.recourse.rules.toml_files import read_toml

TRAINING_SHARE: Final = 0.7
SPLIT_SEED: Final = 20_261_127
NO_VALUE: Final = ["", "NA", "NaN", "nan", "null"]
NAMES_SHOWN_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CreditData:
    """Applications as a decider would state them, and as a model takes them.

    applications: one mapping of feature to value a row; matrix (rows, features) float64, words as codes, missing as NaN;
    favourable (rows,) bool.
    """

    rules: FeatureRules
    applications: list[dict[str, Value]]
    matrix: NDArray[np.float64]
    favourable: NDArray[np.bool_]

    def training_rows(self) -> NDArray[np.int64]:
        """Which rows the model learns from: the same TRAINING_SHARE of them on every machine, in ascending order."""
        # Raw words of the bit generator, whose stream NumPy keeps for good, which `permutation` does not promise.
        order = np.argsort(np.random.PCG64(SPLIT_SEED).random_raw(len(self.matrix)), kind="stable")
        return np.sort(order[: round(TRAINING_SHARE * len(order))])


def read_credit_data(
    path: Path, features_toml: str, *, target: str, favourable: str, leave_out: Collection[str] = ()
) -> CreditData:
    """Read CSV, CSV.gz or Parquet.

    `target` names the column of outcomes, which holds two values; `favourable` is the good one. Columns in `leave_out`
    are not features.
    Raises: ConfigurationError that names the file and the column, or the features that features.toml lacks.
    """
    table = _table(path)
    _all_there(path, table, [target, *leave_out], "is named on the command line")
    names = tuple(name for name in table.column_names if name != target and name not in leave_out)
    tables = list(read_toml("features.toml", features_toml))
    _all_there(path, table, tables, "has a table in features.toml")
    _check_tables(path, names, tables)
    rules = read_features(features_toml, names)
    columns: list[list[Value]] = [_values(path, table, rule.name, words=bool(rule.categories)) for rule in rules.rules]
    applications = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return CreditData(
        rules=rules,
        applications=applications,
        matrix=_encoded(path, rules, applications),
        favourable=_outcomes(path, table, target, favourable),
    )


def _check_tables(path: Path, names: Collection[str], tables: Collection[str]) -> None:
    if absent := [name for name in names if name not in tables]:
        more = " and more" if len(absent) > NAMES_SHOWN_MAX else ""
        message = (
            f"features.toml has no table for: {', '.join(map(shown, absent[:NAMES_SHOWN_MAX]))}{more}, of {path}; add "
            "one per feature, or leave a column that is no feature out with --exclude COLUMN"
        )
        raise ConfigurationError(message)


def _table(path: Path) -> pa.Table:
    try:
        if path.suffix == ".parquet":
            return pa.parquet.read_table(path)
        with pa.csv.open_csv(path) as reader:
            names = reader.schema.names
        as_text = pa.csv.ConvertOptions(
            column_types={name: pa.string() for name in names}, null_values=NO_VALUE, strings_can_be_null=True
        )
        return pa.csv.read_csv(path, convert_options=as_text)
    except (OSError, ValueError, pa.ArrowException) as error:
        message = f"cannot read {path}: {without_cells(error)}"
        raise ConfigurationError(message) from None  # the cause repeats the content


def _all_there(path: Path, table: pa.Table, wanted: Collection[str], why: str) -> None:
    absent = [name for name in wanted if name not in table.column_names]
    if absent:
        message = f"{path} has no column {', '.join(map(shown, absent[:NAMES_SHOWN_MAX]))}, which {why}"
        raise ConfigurationError(message)


def _values(path: Path, table: pa.Table, name: str, *, words: bool) -> list[Value]:
    kind = pa.string() if words else pa.float64()
    try:
        values: list[Value] = pa.compute.cast(table[name], kind).to_pylist()
    except pa.ArrowInvalid as error:
        message = f"{path}: column {name} holds something that is not a {'word' if words else 'number'}"
        hint = "" if words else "; list its words as `categories` in features.toml if it holds words"
        raise ConfigurationError(message + hint) from error
    return values


def _encoded(path: Path, rules: FeatureRules, applications: list[dict[str, Value]]) -> NDArray[np.float64]:
    matrix = np.empty((len(applications), len(rules.rules)))
    for i, application in enumerate(applications):
        try:
            matrix[i] = rules.encode(application)
        except PoisonError as error:
            message = f"{path}, row {i + 1}: {error}"
            raise ConfigurationError(message) from error
    return matrix


def _outcomes(path: Path, table: pa.Table, target: str, favourable: str) -> NDArray[np.bool_]:
    outcomes = [_as_word(value) for value in table[target].to_pylist()]
    found = sorted(set(outcomes))
    if len(found) != 2 or favourable not in found:  # noqa: PLR2004 - two outcomes, which the message says
        shown = ", ".join(found[:NAMES_SHOWN_MAX])
        message = (
            f"{path}: {target} must hold two values, one of which is {favourable!r}, the favourable one (--favourable); "
            f"it holds {shown or 'nothing'}"
        )
        raise ConfigurationError(message)
    return np.array([outcome == favourable for outcome in outcomes])


def _as_word(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "(nothing)" if value is None else str(value)
