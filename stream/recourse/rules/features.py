"""features.toml: what a person may change of each feature, by how much, and how we call it.

One table per feature of the model. `min`, `max` and `step` bound what we *suggest*, never what an applicant has;
`no_record` values mean "no record": the model gets them as they are, and nobody is told to reach them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

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
from stream.recourse.rules.feature_rule import LABELS, TYPES, UNORDERED, FeatureRule, Mutability, ReasonTexts
from stream.recourse.rules.feature_table import FeatureTable, as_double, is_number
from stream.recourse.rules.toml_files import read_toml
from stream.recourse.rules.units import Unit, units_of

NAMES_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRules:
    """All tables, in the order of the model's features."""

    rules: tuple[FeatureRule, ...]
    index: Mapping[str, int] = field(repr=False)
    codes: tuple[Mapping[Word, float] | None, ...] = field(repr=False)  # word -> code, where there are words
    units: tuple[Unit, ...] = field(repr=False)  # features that move together

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
            message = (
                f"features of the model are absent: {', '.join(missing[:5])}; send null where a value is not known"
            )
            raise MissingFeature(message)
        unknown = sum(name not in self.index for name in features)
        message = f"{unknown} features are not of the model; send just those that features.toml lists"
        raise UnknownFeature(message)

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
                message = "a policy override names a feature that the model does not have"
                raise OverrideRefused(message)
            if wanted is None:
                message = f"the policy override of {name} is not one of {', '.join(LABELS)}"
                raise OverrideRefused(message)
            own = self.rules[j].mutability
            if own not in (wanted, Mutability.MUTABLE) and wanted != Mutability.IMMUTABLE:
                message = f"the policy override of {name} would permit what features.toml forbids ({own.name.lower()})"
                raise OverrideRefused(message)
            if self.rules[j].is_category and wanted not in UNORDERED:
                message = f"the policy override of {name} needs an order, and to the model its categories have none"
                raise OverrideRefused(message)
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
        message = f"{rule.name} is not finite; send null where a value is not known"
        raise NonFiniteFeature(message)
    if number != value:
        message = f"{rule.name} is an integer that no double holds exactly; send one that the model was trained on"
        raise WrongFeatureType(message)
    if rule.is_sentinel(number):
        return number
    if codes is not None:
        return _code(rule, codes, value)
    if rule.is_category and not (number.is_integer() and number >= 0):
        message = f"{rule.name} must be the code of a category, which is a whole number from 0 on, or null"
        raise UnknownCategory(message)
    return number


def _code(rule: FeatureRule, codes: Mapping[Word, float] | None, value: Word) -> float:
    """Look a category up. Raises: WrongFeatureType, UnknownCategory."""
    kind = float if codes is None or not isinstance(next(iter(codes)), str) else str
    if codes is None or not isinstance(value, (float, int) if kind is float else str) or isinstance(value, bool):
        wanted = (
            "a number" if codes is None else f"one of the {'numbers' if kind is float else 'words'} of its categories"
        )
        truth = "; for true and false write 1 and 0" if isinstance(value, bool) and kind is float else ""
        message = f"{rule.name} must be {wanted}, or null{truth}"
        raise WrongFeatureType(message)
    if value not in codes:
        message = (
            f"{rule.name} holds a category that neither features.toml nor the model file lists; the model never saw it"
        )
        raise UnknownCategory(message)
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
        message = f"features.toml has no table for: {_some(absent)}; add one per feature of the model"
        raise ConfigurationError(message)
    if unknown := [name for name in tables if name not in features]:
        message = f"features.toml has tables for features that the model does not have: {_some(unknown)}"
        raise ConfigurationError(message)
    rules = tuple(
        _rule(name, tables[name], known, is_category=listed or known is not None, missing=missing)
        for name, known, listed in zip(
            features, words or (None,) * len(features), is_category or (False,) * len(features), strict=True
        )
    )
    return rules_together(rules)


def rules_together(rules: tuple[FeatureRule, ...]) -> FeatureRules:
    """Put rules together, in the order of the model's features. Raises: as `units_of`."""
    return FeatureRules(
        rules=rules,
        index={rule.name: j for j, rule in enumerate(rules)},
        codes=tuple(
            None if rule.categories is None else {word: float(code) for code, word in enumerate(rule.categories)}
            for rule in rules
        ),
        units=units_of(rules),
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
