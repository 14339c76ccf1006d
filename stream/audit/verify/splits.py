"""The decisive splits of an audit body, and what goes to which side at each: as the record says it, without the model.

Part of `audit.py`, and like it written apart from what writes records.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

OPERATORS: Final = {"xgboost": ("<", "not in"), "lightgbm": ("<=", "in")}  # what sends a number, a category to the left
ZERO_REACH: Final = 1.0000000180025095e-35  # LightGBM's zero is this, its 1e-35 in float32, and nearer
JUST_BELOW_ZERO: Final = math.nextafter(-ZERO_REACH, -math.inf)
Json: TypeAlias = Mapping[str, Any]
Sides: TypeAlias = frozenset[bool]  # which sides of a split values can go to, True is left; empty: it cannot be told
ANY, UNKNOWN = frozenset([True, False]), frozenset[bool]()
WHOLE: Final = re.compile(r"0|-?[1-9][0-9]*")  # the one spelling of an integer that is kept as a text


class MalformedBody(ValueError):
    """A field is not of the type that an audit record has there. The message names the field."""


class WrittenSplit(NamedTuple):
    """One row of the table of splits, as it was written: nothing in it can be trusted before `faults`."""

    feature: str
    operator: Any
    threshold: Any
    default_left: Any
    categories: Any
    zero_is_missing: Any

    @property
    def binding(self) -> tuple[Any, Any]:
        """What a feature's row must say where this split binds: the threshold and the categories."""
        return self.threshold, self.categories


class SplitTable:
    """The table of decisive splits, and what goes where at each."""

    def __init__(self, body: Json) -> None:
        self.library = str(body["library"])
        self.missing: Any = body.get("missing")
        self.decided: Json = body["decision"]["features"]
        self.given = body["splits"] is not None
        self.rows: list[WrittenSplit] = []
        if self.given:
            table = body["splits"]
            many = len(table["feature"])
            categories, zero = table.get("categories", [None] * many), table.get("zero_is_missing", [False] * many)
            columns = (*(table[key] for key in WrittenSplit._fields[:4]), categories, zero)
            self.rows = [WrittenSplit(*row) for row in zip(*columns, strict=True)]

    def faults(self) -> Iterator[str]:
        """Check that each split is one of this library on a feature of the decision, and so is the sentinel."""
        if self.missing is not None and (not is_number(self.missing) or self.library != "xgboost"):
            yield "the number that stands for missing is none, or the library has no such thing"
        for row in self.rows:
            of_number, of_category = OPERATORS[self.library]
            if row.feature not in self.decided or row.operator != (
                of_number if row.categories is None else of_category
            ):
                yield "splits: one is on a feature that was not decided on, or with an operator that is not the library's"
            if type(row.default_left) is not bool:
                yield "splits: one does not say where a missing value goes"
            if row.categories is None and not is_number(row.threshold):
                yield "splits: one on a number has no number for a threshold"
            if row.categories is not None and not (row.threshold is None and are_categories(row.categories)):
                yield "splits: one on a category has a threshold, or lists something else than words or numbers, once each"
            zero_fits = row.zero_is_missing is False or (self.library == "lightgbm" and row.categories is None)
            if type(row.zero_is_missing) is not bool or not zero_fits:
                yield "splits: one takes zero for missing, and this library does not on such a split"
        if len({(row.feature, row.categories is None) for row in self.rows}) > len({row.feature for row in self.rows}):
            yield "splits: one feature is a number to one split and a category to another"

    def row(self, split: int) -> WrittenSplit:
        """The table's row of this number. Raises: ValueError, IndexError where it has none."""
        if type(split) is not int or split < 0:
            raise ValueError
        return self.rows[split]

    def sides_of_value(self, split: int, value: object) -> Sides:
        """Tell where a value goes; of words at a split on numbers that cannot be told without features.toml."""
        row = self.row(split)
        if value is None or self._is_sentinel(value):
            return frozenset([row.default_left])
        if row.categories is not None:
            return frozenset([self._goes_left(row.categories, value)])
        if not isinstance(value, int | float):
            return UNKNOWN
        number = rounded(value, self.library)
        if row.zero_is_missing and abs(number) <= ZERO_REACH:
            return frozenset([row.default_left])
        threshold = _threshold(row)
        return frozenset([number < threshold if self.library == "xgboost" else number <= threshold])

    def sides_of(self, split: int, other: Json) -> Sides:
        """Tell where the other side of a ledger row goes: a whole cell, a value, or missing."""
        row = self.row(split)
        if other["missing"]:
            return frozenset([row.default_left])
        if other["categories"] is not None:
            if row.categories is None:
                return UNKNOWN
            # Where none is named, it is the cell of all that no split lists: so it is of any value in no list.
            return frozenset(self._goes_left(row.categories, one) for one in other["categories"] or [None])
        if other["cell"] is None:
            return self.sides_of_value(split, other["value"])
        return ANY if row.categories is not None else self._of_interval(row, other["cell"])

    def _goes_left(self, listed: list[Any], value: object) -> bool:
        return (is_category(value) and value in listed) == (self.library == "lightgbm")

    def _of_interval(self, row: WrittenSplit, cell: Json) -> Sides:
        low, high, threshold = cell["low"], cell["high"], _threshold(row)
        if cell["closed"] != ("low" if self.library == "xgboost" else "high"):
            return ANY
        if row.zero_is_missing and (low is None or low < ZERO_REACH) and (high is None or high >= -ZERO_REACH):
            is_zero = low is not None and high is not None and low >= JUST_BELOW_ZERO and high <= ZERO_REACH
            return frozenset([row.default_left]) if is_zero else ANY
        if high is not None and high <= threshold:
            return frozenset([True])
        if low is not None and low >= threshold:
            return frozenset([False])
        return ANY

    def _is_sentinel(self, value: object) -> bool:
        return self.missing is not None and is_number(value) and rounded(value, self.library) == self.missing  # type: ignore[arg-type]


def is_cell(cell: object) -> bool:
    """Whether it is an interval that holds something: one of its ends never belongs to it, so they differ."""
    if not isinstance(cell, dict) or cell.keys() != {"low", "high", "closed"} or cell["closed"] not in ("low", "high"):
        return False
    low, high = cell["low"], cell["high"]
    if not all(end is None or is_number(end) for end in (low, high)):
        return False
    return low is None or high is None or low < high


def _threshold(row: WrittenSplit) -> float:
    if row.threshold is None:
        raise TypeError
    return float(row.threshold)


def are_categories(listed: object) -> bool:
    """Whether these are words or numbers, not both, and once each."""
    if not isinstance(listed, list) or not all(map(is_category, listed)) or len(set(listed)) != len(listed):
        return False
    return len({isinstance(one, str) for one in listed}) <= 1


def is_category(value: object) -> bool:
    """Whether a JSON value can be a category: a word or a finite number."""
    return isinstance(value, str) or is_number(value)


def number_at(part: Json, key: str) -> float:
    """Give a field that must be a finite number. Raises: MalformedBody, KeyError."""
    if not is_number(part[key]):
        message = f"{key} is not a finite number"
        raise MalformedBody(message)
    return float(part[key])


def count_at(part: Json, key: str, least: int = 0) -> int:
    """Give a field that must be a whole number from `least` on, as JSON writes one. Raises: MalformedBody, KeyError."""
    value = part[key]
    if type(value) is not int or value < least:
        message = f"{key} is not a whole number from {least} on"
        raise MalformedBody(message)
    return value


def integer_at(part: Json, key: str) -> int:
    """Give a field that must be an integer of any size, as a text of digits alone. Raises: MalformedBody, KeyError."""
    return integer(part[key], key)


def integer(value: object, what: str) -> int:
    """Give an integer that must be a text of digits; `what` is what the message calls it. Raises: MalformedBody."""
    if not isinstance(value, str) or WHOLE.fullmatch(value) is None:
        message = f"{what} is not an integer written in digits alone"
        raise MalformedBody(message)
    return int(value)


def is_number(value: object) -> bool:
    """Whether a JSON value is a finite number."""
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


def rounded(value: float, library: str) -> float:
    """Round a number as the library holds it: float32 for XGBoost."""
    if library != "xgboost":
        return float(value)
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)
