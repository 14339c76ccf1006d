"""features.toml: what a person may change of each feature, by how much, and how we call it.

One table per feature of the model. `min`, `max` and `step` bound what we *suggest*, never what an applicant has;
`no_record` values mean "no record": the model gets them as they are, and nobody is told to reach them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, NoReturn, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from stream.errors import (
    ConfigurationError,
    MissingFeature,
    NonFiniteFeature,
    OverrideRefused,
    UnknownCategory,
    UnknownFeature,
    WrongFeatureType,
    shown,
)
from stream.events import Value
from stream.recourse.toml_files import read_toml

FeatureType: TypeAlias = Literal["number", "integer", "category"]
TYPES: tuple[FeatureType, ...] = ("number", "integer", "category")
KEYS = {
    "type", "mutability", "min", "max", "step", "no_record", "categories", "unit", "label", "reason", "cost", "group",
}  # fmt: skip
NAMES_SHOWN_MAX = 20
REASON_KEYS = {"code", "too_low", "too_high", "missing"}


class Mutability(IntEnum):
    """What a person can do with a feature (paper, section Feasibility). The values are what the compiled code sees."""

    MUTABLE = 0
    INCREASE_ONLY = 1
    DECREASE_ONLY = 2
    IMMUTABLE = 3


LABELS = {m.name.lower(): m for m in Mutability}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonTexts:
    """The code and the sentences that name this feature as a reason for a decline."""

    code: str
    too_low: str
    too_high: str
    missing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRule:
    """One table of features.toml, checked."""

    name: str
    type: FeatureType
    mutability: Mutability
    min: float = -math.inf
    max: float = math.inf
    step: float | None = None  # the grid of targets, counted from `min` where there is one, else from 0
    no_record: tuple[float, ...] = ()
    categories: tuple[str, ...] | None = None  # the words, in the order of the codes 0, 1, 2, ...
    unit: str | None = None
    label: str
    reason: ReasonTexts
    cost: float = 1.0  # of one scale unit
    group: str | None = None  # features of one group move together or not at all

    def is_unrecorded(self, value: float) -> bool:
        """Whether a value says that there is none: missing, or a sentinel for "no record"."""
        return math.isnan(value) or value in self.no_record

    def has_word(self, code: float) -> bool:
        """Whether a code can be said: any can where the rule lists no words."""
        return self.categories is None or (code.is_integer() and 0 <= code < len(self.categories))


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRules:
    """All tables, in the order of the model's features."""

    rules: tuple[FeatureRule, ...]
    index: Mapping[str, int] = field(repr=False)
    codes: tuple[Mapping[str, float] | None, ...] = field(repr=False)  # word -> code, where there are words

    @property
    def names(self) -> tuple[str, ...]:
        """The model's feature names, in its order."""
        return tuple(rule.name for rule in self.rules)

    def encode(self, features: Mapping[str, Value]) -> NDArray[np.float64]:
        """Turn a decision's features into the row that the model takes, aligned by name.

        Shape: (features,) float64; null is NaN, a word is its code.
        Raises: MissingFeature, UnknownFeature, WrongFeatureType, NonFiniteFeature, UnknownCategory.
        """
        if len(features) != len(self.rules) or any(rule.name not in features for rule in self.rules):
            self._refuse_other_names(features)
        row = np.empty(len(self.rules))
        for j, rule in enumerate(self.rules):
            row[j] = _encoded(rule, self.codes[j], features[rule.name])
        return row

    def _refuse_other_names(self, features: Mapping[str, Value]) -> None:
        if missing := [rule.name for rule in self.rules if rule.name not in features]:
            msg = f"features of the model are absent: {', '.join(missing[:5])}; send null where a value is not known"
            raise MissingFeature(msg)
        unknown = sum(name not in self.index for name in features)
        msg = f"{unknown} features are not of the model; send just those that features.toml lists"
        raise UnknownFeature(msg)

    def value_of(self, j: int, x: float) -> Value:
        """Say a row's value as the decision would have said it: a word where there are words, None for missing."""
        if math.isnan(x):
            return None
        words = self.rules[j].categories
        return x if words is None else words[int(x)]

    def mutabilities(self, overrides: Mapping[str, str]) -> NDArray[np.int8]:
        """The labels for one decision: those of features.toml, tightened by its overrides.

        Raises: OverrideRefused for an unknown feature or label, or one that would permit more than features.toml.
        """
        labels = np.array([rule.mutability for rule in self.rules], np.int8)
        for name, label in overrides.items():
            j, wanted = self.index.get(name), LABELS.get(label)
            if j is None:
                msg = "a policy override names a feature that the model does not have"
                raise OverrideRefused(msg)
            if wanted is None:
                msg = f"the policy override of {name} is not one of {', '.join(LABELS)}"
                raise OverrideRefused(msg)
            own = self.rules[j].mutability
            if own not in (wanted, Mutability.MUTABLE) and wanted != Mutability.IMMUTABLE:
                msg = f"the policy override of {name} would permit what features.toml forbids ({own.name.lower()})"
                raise OverrideRefused(msg)
            labels[j] = wanted
        return labels


def _encoded(rule: FeatureRule, codes: Mapping[str, float] | None, value: Value) -> float:
    if value is None:
        return math.nan
    if codes is not None:
        if not isinstance(value, str):
            msg = f"{rule.name} must be one of the words that features.toml lists, or null"
            raise WrongFeatureType(msg)
        if value not in codes:
            msg = f"{rule.name} holds a word that features.toml does not list; the model never saw it"
            raise UnknownCategory(msg)
        return codes[value]
    if not _is_number(value):
        msg = f"{rule.name} must be a number or null"
        raise WrongFeatureType(msg)
    number = _double(value)
    if not math.isfinite(number):
        msg = f"{rule.name} is not finite; send null where a value is not known"
        raise NonFiniteFeature(msg)
    return number


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _double(value: float) -> float:
    """Give a number as a double; NaN for an integer beyond all doubles."""
    try:
        return float(value)
    except OverflowError:
        return math.nan


def read_features(text: str, features: tuple[str, ...]) -> FeatureRules:
    """Read features.toml for a model with these features.

    Raises: ConfigurationError that names the table and the key.
    """
    tables = read_toml("features.toml", text)
    if missing := [name for name in features if name not in tables]:
        msg = f"features.toml has no table for: {_some(missing)}; add one per feature of the model"
        raise ConfigurationError(msg)
    if unknown := [name for name in tables if name not in features]:
        msg = f"features.toml has tables for features that the model does not have: {_some(unknown)}"
        raise ConfigurationError(msg)
    rules = tuple(_rule(name, tables[name]) for name in features)
    return FeatureRules(
        rules=rules,
        index={name: j for j, name in enumerate(features)},
        codes=tuple(
            None if rule.categories is None else {word: float(code) for code, word in enumerate(rule.categories)}
            for rule in rules
        ),
    )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    return ", ".join(shown(name) for name in names[:NAMES_SHOWN_MAX]) + more


class _Table:
    """One table while it is read: each getter checks one key and says which it was."""

    def __init__(self, name: str, table: object) -> None:
        if not isinstance(table, dict):
            msg = f'features.toml: "{shown(name)}" must be a table'
            raise ConfigurationError(msg)
        self.name, self.table = name, table
        if unknown := sorted(set(table) - KEYS):
            self.refuse(shown(unknown[0]), f"is not a known key; known are {', '.join(sorted(KEYS))}")

    def refuse(self, key: str, what: str) -> NoReturn:
        msg = f'features.toml: ["{shown(self.name)}"] {key} {what}'
        raise ConfigurationError(msg)

    def word(self, key: str, allowed: tuple[str, ...]) -> str:
        value = self.table.get(key)
        if value not in allowed:
            self.refuse(key, f"must be one of {', '.join(allowed)}")
        return str(value)

    def text(self, key: str) -> str | None:
        value = self.table.get(key)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            self.refuse(key, "must be a text that is not empty")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.table.get(key, default)
        if not _is_number(value) or math.isnan(number := _double(value)):
            self.refuse(key, "must be a number")
        return number


def _rule(name: str, raw: object) -> FeatureRule:
    table = _Table(name, raw)
    kind = table.word("type", TYPES)
    label = table.text("label") or name
    rule = FeatureRule(
        name=name,
        type=next(t for t in TYPES if t == kind),
        mutability=LABELS[table.word("mutability", tuple(LABELS))],
        min=table.number("min", -math.inf),
        max=table.number("max", math.inf),
        step=_step(table, kind),
        no_record=_no_record(table),
        categories=_categories(table, kind),
        unit=table.text("unit"),
        label=label,
        reason=_reason(table, name, label),
        cost=table.number("cost", 1.0),
        group=table.text("group"),
    )
    if rule.min > rule.max:
        table.refuse("min", "is above max")
    if not 0 < rule.cost < math.inf:
        table.refuse("cost", "must be above 0 and finite")
    return rule


def _step(table: _Table, kind: str) -> float | None:
    if kind == "integer" and not _whole_or_unbounded(table, "min"):  # targets are counted from it
        table.refuse("min", "must be whole for an integer")
    if "step" not in table.table:
        return 1.0 if kind == "integer" else None
    step = table.number("step", 0)
    if kind == "category":
        table.refuse("step", "has no meaning for a category")
    if not 0 < step < math.inf:
        table.refuse("step", "must be above 0 and finite")
    if kind == "integer" and not step.is_integer():
        table.refuse("step", "must be whole for an integer")
    return step


def _whole_or_unbounded(table: _Table, key: str) -> bool:
    bound = table.number(key, 0.0)
    return math.isinf(bound) or bound.is_integer()


def _no_record(table: _Table) -> tuple[float, ...]:
    values = table.table.get("no_record", [])
    values = values if isinstance(values, list) else [values]
    if not all(_is_number(v) and math.isfinite(_double(v)) for v in values):
        table.refuse("no_record", "must be a list of finite numbers")
    return tuple(float(v) for v in values)


def _categories(table: _Table, kind: str) -> tuple[str, ...] | None:
    words = table.table.get("categories")
    if words is None:
        return None
    if kind != "category":
        table.refuse("categories", 'needs type = "category"')
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        table.refuse("categories", "must be a list of words, in the order of the codes 0, 1, 2, ...")
    if len(set(words)) != len(words):
        table.refuse("categories", "lists a word twice")
    return tuple(words)


def _reason(table: _Table, name: str, label: str) -> ReasonTexts:
    raw = table.table.get("reason", {})
    if isinstance(raw, str):
        raw = {"code": raw}
    if not isinstance(raw, dict) or not all(isinstance(text, str) and text.strip() for text in raw.values()):
        table.refuse("reason", f"must be a table of texts with the keys {', '.join(sorted(REASON_KEYS))}")
    if unknown := sorted(set(raw) - REASON_KEYS):
        table.refuse(f"reason.{shown(unknown[0])}", f"is not a known key; known are {', '.join(sorted(REASON_KEYS))}")
    category = table.table.get("type") == "category"
    return ReasonTexts(
        code=raw.get("code", name),
        too_low=raw.get("too_low", f"{label}: not favourable" if category else f"{label}: too low"),
        too_high=raw.get("too_high", f"{label}: not favourable" if category else f"{label}: too high"),
        missing=raw.get("missing", f"{label}: no information"),
    )
