"""features.toml: what a person may change of each feature, by how much, and how we call it.

One table per feature of the model. `min`, `max` and `step` bound what we *suggest*, never what an applicant has;
`no_record` values mean "no record": the model gets them as they are, and nobody is told to reach them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Literal, TypeAlias

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
from stream.forest.trees import ZERO_IS_MISSING, Forest, Word
from stream.recourse.features_table import FeatureTable, as_double, is_number
from stream.recourse.toml_files import read_toml
from stream.recourse.unit_rules import units_of

FeatureType: TypeAlias = Literal["number", "integer", "category"]
TYPES: tuple[FeatureType, ...] = ("number", "integer", "category")
NAMES_SHOWN_MAX = 20


class Mutability(IntEnum):
    """What a person can do with a feature (paper, section Feasibility). The values are what the compiled code sees."""

    MUTABLE = 0
    INCREASE_ONLY = 1
    DECREASE_ONLY = 2
    IMMUTABLE = 3


LABELS = {m.name.lower(): m for m in Mutability}
UNORDERED = (Mutability.MUTABLE, Mutability.IMMUTABLE)  # the labels that need no order of the values


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
    categories: tuple[Word, ...] | None = None  # all words or all numbers, in the order of the codes 0, 1, 2, ...
    unit: str | None = None
    label: str
    reason: ReasonTexts
    cost: float = 1.0  # of one scale unit
    group: str | None = None  # its features take only combinations that people have; in one, some may stay
    follows: str | None = None  # the feature without which this one never moves, and to whose moves it is held
    factor: float = 0.0  # how far it then moves for each 1 of the other
    ratio_of: tuple[str, str] | None = None  # the features of which it is the first over the second
    ratio_factor: float = 1.0  # times this
    moves: str | None = None  # the one of the two that moves
    is_category: bool = False  # whether the model takes it for a category, so that its codes have no order
    missing: float | None = None  # the number that stands for missing in the model, which reads float32

    def is_unrecorded(self, value: float) -> bool:
        """Whether a value says that there is none: missing, by the model's sentinel too, or one for "no record"."""
        return math.isnan(value) or value in self.no_record or self.is_sentinel(value)

    def is_unordered_from(self, own: float) -> bool:
        """Whether a move from this value has no length: among categories, and from no value."""
        return self.type == "category" or self.is_unrecorded(own)

    @property
    def is_immutable(self) -> bool:
        """Whether nobody can change it, whatever a decision overrides."""
        return self.mutability == Mutability.IMMUTABLE

    def is_sentinel(self, value: float) -> bool:
        """Whether the model takes a number for missing."""
        if self.missing is None:
            return False
        with np.errstate(over="ignore"):
            return float(np.float32(value)) == self.missing

    def has_word(self, code: float) -> bool:
        """Whether a decision can say a code: where there are no words, any, but of the model's categories a whole one."""
        if self.categories is None:
            return not self.is_category or (code.is_integer() and code >= 0)
        return code.is_integer() and 0 <= code < len(self.categories)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRules:
    """All tables, in the order of the model's features."""

    rules: tuple[FeatureRule, ...]
    index: Mapping[str, int] = field(repr=False)
    codes: tuple[Mapping[Word, float] | None, ...] = field(repr=False)  # word -> code, where there are words

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
        """Say a row's value as the decision said it: a word where there are words, None for NaN, else the number."""
        if math.isnan(x):
            return None
        rule = self.rules[j]
        return x if rule.categories is None or not rule.has_word(x) else rule.categories[int(x)]

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
            if self.rules[j].is_category and wanted not in UNORDERED:
                msg = f"the policy override of {name} needs an order, and to the model its categories have none"
                raise OverrideRefused(msg)
            labels[j] = wanted
        return labels


def _encoded(rule: FeatureRule, codes: Mapping[Word, float] | None, value: Value) -> float:
    if value is None:
        return math.nan
    if not is_number(value):
        return _code(rule, codes, value)
    if codes is not None and value in codes:
        return codes[value]
    number = as_double(value)
    if not math.isfinite(number):
        msg = f"{rule.name} is not finite; send null where a value is not known"
        raise NonFiniteFeature(msg)
    if number != value:
        msg = f"{rule.name} is an integer that no double holds exactly; send one that the model was trained on"
        raise WrongFeatureType(msg)
    if rule.is_sentinel(number):
        return number
    if codes is not None:
        return _code(rule, codes, value)
    if rule.is_category and not (number.is_integer() and number >= 0):
        msg = f"{rule.name} must be the code of a category, which is a whole number from 0 on, or null"
        raise UnknownCategory(msg)
    return number


def _code(rule: FeatureRule, codes: Mapping[Word, float] | None, value: Word) -> float:
    """Look a category up. Raises: WrongFeatureType, UnknownCategory."""
    kind = float if codes is None or not isinstance(next(iter(codes)), str) else str
    if codes is None or not isinstance(value, (float, int) if kind is float else str) or isinstance(value, bool):
        wanted = (
            "a number" if codes is None else f"one of the {'numbers' if kind is float else 'words'} of its categories"
        )
        truth = "; for true and false write 1 and 0" if isinstance(value, bool) and kind is float else ""
        msg = f"{rule.name} must be {wanted}, or null{truth}"
        raise WrongFeatureType(msg)
    if value not in codes:
        msg = (
            f"{rule.name} holds a category that neither features.toml nor the model file lists; the model never saw it"
        )
        raise UnknownCategory(msg)
    return codes[value]


def read_features(
    text: str,
    features: tuple[str, ...],
    *,
    words: Sequence[tuple[Word, ...] | None] = (),
    is_category: Sequence[bool] = (),
    missing: float | None = None,
) -> FeatureRules:
    """Read features.toml for a model with these features.

    words, is_category: what the model file says of each, as in `Forest`; empty where nobody knows the model. missing:
    the sentinel of `Forest`.
    Raises: ConfigurationError that names the table and the key; where features move together, as `units_of`.
    """
    tables = read_toml("features.toml", text)
    if absent := [name for name in features if name not in tables]:
        msg = f"features.toml has no table for: {_some(absent)}; add one per feature of the model"
        raise ConfigurationError(msg)
    if unknown := [name for name in tables if name not in features]:
        msg = f"features.toml has tables for features that the model does not have: {_some(unknown)}"
        raise ConfigurationError(msg)
    rules = tuple(
        _rule(name, tables[name], known, is_category=listed or known is not None, missing=missing)
        for name, known, listed in zip(
            features, words or (None,) * len(features), is_category or (False,) * len(features), strict=True
        )
    )
    units_of(rules)
    return FeatureRules(
        rules=rules,
        index={name: j for j, name in enumerate(features)},
        codes=tuple(
            None if rule.categories is None else {word: float(code) for code, word in enumerate(rule.categories)}
            for rule in rules
        ),
    )


def rules_for(forest: Forest, text: str) -> FeatureRules:
    """Read features.toml for a model, with all that its file says of its features. Raises: as `read_features`.

    Where the model takes zero for missing at every split on a feature, zero is one of its `no_record` values.
    """
    read = read_features(
        text, forest.features, words=forest.words, is_category=forest.is_category, missing=forest.missing
    )
    rules = tuple(
        replace(rule, no_record=(*rule.no_record, 0.0))
        if _zero_is_missing(forest, j) and 0.0 not in rule.no_record
        else rule
        for j, rule in enumerate(read.rules)
    )
    return replace(read, rules=rules)


def _zero_is_missing(forest: Forest, feature: int) -> bool:
    kinds = forest.kind[forest.split_feature == feature]
    return len(kinds) > 0 and bool((kinds == ZERO_IS_MISSING).all())


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    return ", ".join(shown(name) for name in names[:NAMES_SHOWN_MAX]) + more


def _rule(
    name: str, raw: object, words: tuple[Word, ...] | None, *, is_category: bool, missing: float | None
) -> FeatureRule:
    table = FeatureTable(name, raw)
    kind = table.word("type", TYPES)
    label = table.text("label") or name
    mutability = LABELS[table.word("mutability", tuple(LABELS))]
    categories = table.categories(kind, words, of_model=is_category)
    if is_category and kind != "category":
        table.refuse("type", 'must be "category", for the model takes it for one')
    if is_category and mutability not in UNORDERED:
        table.refuse("mutability", "must be mutable or immutable, for to the model its categories have no order")
    rule = FeatureRule(
        name=name,
        type=next(t for t in TYPES if t == kind),
        mutability=mutability,
        min=table.number("min", -math.inf),
        max=table.number("max", math.inf),
        step=table.step(kind),
        no_record=table.no_record(categories),
        categories=categories,
        unit=table.text("unit"),
        label=label,
        reason=ReasonTexts(**table.reason(label, of_model=is_category)),
        cost=table.number("cost", 1.0),
        **table.together(),
        is_category=is_category,
        missing=missing,
    )
    if rule.min > rule.max:
        table.refuse("min", "is above max")
    if not 0 < rule.cost < math.inf:
        table.refuse("cost", "must be above 0 and finite")
    if categories is not None and missing is not None and rule.has_word(missing):
        table.refuse("categories", "holds a word whose code is the number that stands for missing; choose another one")
    return rule
