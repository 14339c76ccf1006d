from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.errors import (
    ConfigurationError,
    MissingFeature,
    NonFiniteFeature,
    OverrideRefused,
    UnknownCategory,
    UnknownFeature,
    WrongFeatureType,
)
from stream.events import Value
from stream.recourse.rules.feature_rule import LABELS, Mutability
from stream.recourse.rules.features import FeatureRules, read_features
from tests.recourse.lenders import FEATURES, RULES

GOOD = 'type = "number"\nmutability = "mutable"\n'


def table(more: str) -> str:
    return f"[income]\n{GOOD}{more}\n"


BOMBS = {
    "nested too deeply": "a = " + "[" * 50_000,
    "too many digits": table(f"min = {'9' * 5_000}"),
    "not valid TOML": "[income",
    "no table for: income, x0,": "",
}


@pytest.mark.parametrize("said", BOMBS)
def test_a_bomb_is_one_line(said: str) -> None:
    """Given a text that is made to break its reader, when read, then one bounded line says what is wrong."""
    with pytest.raises(ConfigurationError, match=said) as refused:
        read_features(BOMBS[said], ("income", *(f"x{i}" for i in range(500))))
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500


WRONG: dict[str, tuple[str, str]] = {  # the table -> the key that the message must name
    "an unknown key": (table("colour = 1"), "colour"),
    "no type": ('[income]\nmutability = "mutable"', "type"),
    "an unknown type": ('[income]\ntype = "float"\nmutability = "mutable"', "type"),
    "a type that is no text": ('[income]\ntype = 1\nmutability = "mutable"', "type"),
    "a type that is a list": ('[income]\ntype = ["number"]\nmutability = "mutable"', "type"),
    "no mutability": ('[income]\ntype = "number"', "mutability"),
    "an unknown mutability": ('[income]\ntype = "number"\nmutability = "fixed"', "mutability"),
    "a mutability in capitals": ('[income]\ntype = "number"\nmutability = "MUTABLE"', "mutability"),
    "a min that is a text": (table('min = "0"'), "min"),
    "a min that is a truth value": (table("min = false"), "min"),
    "a min that is not a number": (table("min = nan"), "min"),
    "a max that is a list": (table("max = [1]"), "max"),
    "a max too large for a double": (table(f"max = 1{'0' * 400}"), "max"),
    "min above max": (table("min = 2\nmax = 1"), "min"),
    "a step of zero": (table("step = 0"), "step"),
    "a negative step": (table("step = -1"), "step"),
    "an endless step": (table("step = inf"), "step"),
    "a step that is a text": (table('step = "1"'), "step"),
    "a step for a category": ('[income]\ntype = "category"\nmutability = "mutable"\nstep = 1', "step"),
    "half a step for an integer": ('[income]\ntype = "integer"\nmutability = "mutable"\nstep = 0.5', "step"),
    "a broken min for a stepped integer": (
        '[income]\ntype = "integer"\nmutability = "mutable"\nstep = 1\nmin = 0.5',
        "min",
    ),
    "a broken min for an integer": ('[income]\ntype = "integer"\nmutability = "mutable"\nmin = 0.5', "min"),
    "a word as no_record": (table('no_record = ["none"]'), "no_record"),
    "a truth value as no_record": (table("no_record = [true]"), "no_record"),
    "nan as no_record": (table("no_record = [nan]"), "no_record"),
    "a no_record too large for a double": (table(f"no_record = [1{'0' * 400}]"), "no_record"),
    "categories of a number": (table('categories = ["a"]'), "categories"),
    "an empty list of categories": (
        '[income]\ntype = "category"\nmutability = "mutable"\ncategories = []',
        "categories",
    ),
    "categories that are numbers": (
        '[income]\ntype = "category"\nmutability = "mutable"\ncategories = [1, 2]',
        "categories",
    ),
    "categories as one text": ('[income]\ntype = "category"\nmutability = "mutable"\ncategories = "ab"', "categories"),
    "a category twice": (
        '[income]\ntype = "category"\nmutability = "mutable"\ncategories = ["a", "b", "a"]',
        "categories",
    ),
    "a unit that is a number": (table("unit = 1"), "unit"),
    "an empty label": (table('label = " "'), "label"),
    "a group that is a list": (table('group = ["a"]'), "group"),
    "a reason that is a number": (table("reason = 1"), "reason"),
    "a reason of numbers": (table("reason = { code = 1 }"), "reason"),
    "an empty reason text": (table('reason = { code = "" }'), "reason"),
    "an empty reason": (table('reason = ""'), "reason"),
    "an unknown key of a reason": (table('reason = { colour = "red" }'), "reason.colour"),
    "a cost of zero": (table("cost = 0"), "cost"),
    "an endless cost": (table("cost = inf"), "cost"),
    "a cost that is a truth value": (table("cost = true"), "cost"),
    "a value where a table belongs": ("income = 1", "table"),
}


@pytest.mark.parametrize(("text", "key"), WRONG.values(), ids=WRONG)
def test_a_wrong_table_is_refused_by_name(text: str, key: str) -> None:
    """Given one wrong key in one table, when read, then a ConfigurationError names the file, the table and the key."""
    with pytest.raises(ConfigurationError) as refused:
        read_features(text, ("income",))
    message = str(refused.value)
    assert "features.toml" in message
    assert "income" in message
    assert key in message
    assert "\n" not in message


def test_text_that_is_not_toml_is_refused() -> None:
    """Given a file that is no TOML, when read, then a ConfigurationError says where it breaks."""
    with pytest.raises(ConfigurationError, match=r"features\.toml is not valid TOML: .* \(at "):
        read_features("[income", ("income",))


def test_a_feature_without_a_table_is_named() -> None:
    """Given a model with a feature that has no table, when read, then the error names that feature and no other."""
    with pytest.raises(ConfigurationError, match="no table for: age;"):
        read_features(table(""), ("income", "age"))


def test_a_table_without_a_feature_is_named() -> None:
    """Given a table of a feature that the model lacks, when read, then the error names it."""
    with pytest.raises(ConfigurationError, match="does not have: age"):
        read_features(table("") + f"[age]\n{GOOD}", ("income",))


def test_defaults() -> None:
    """Given the two required keys alone, when read, then targets are unbounded and the name is label and reason."""
    [rule] = read_features(table(""), ("income",)).rules
    assert (rule.min, rule.max, rule.step) == (-math.inf, math.inf, None)
    assert (rule.no_record, rule.categories, rule.unit, rule.group, rule.cost) == ((), None, None, None, 1.0)
    assert (rule.label, rule.reason.code) == ("income", "income")
    assert rule.mutability is Mutability.MUTABLE
    assert len({rule.reason.too_low, rule.reason.too_high, rule.reason.missing}) == 3


def test_an_integer_steps_by_one_unless_told_otherwise() -> None:
    """Given integers with and without a step, when read, then the step is what is given, else 1."""
    text = '[a]\ntype="integer"\nmutability="mutable"\n[b]\ntype="integer"\nmutability="mutable"\nstep=5\nmin=3\n'
    assert [rule.step for rule in read_features(text, ("a", "b")).rules] == [1.0, 5.0]


def test_a_lone_sentinel_needs_no_brackets() -> None:
    """Given no_record as one number, when read, then it is a list of that number."""
    assert read_features(table("no_record = -9"), ("income",)).rules[0].no_record == (-9.0,)


def test_rules_follow_the_order_of_the_model() -> None:
    """Given tables in another order than the model's features, when read, then they stand in the model's."""
    rules = read_features(RULES, FEATURES[::-1])
    assert rules.names == FEATURES[::-1]
    assert [rules.index[name] for name in rules.names] == list(range(len(FEATURES)))


# --- encode --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rules() -> FeatureRules:
    return read_features(RULES, FEATURES)


APPLICANT: dict[str, Value] = {
    "income": 2500.5, "share": 0.29, "age": 44, "accounts": -9, "debts": None, "purpose": "école", "region": 2,
    "limit": -0.0, "balance": 1e-300,
}  # fmt: skip
ROW = np.array([2500.5, 0.29, 44, -9, np.nan, 3, 2, -0.0, 1e-300])


@given(order=st.permutations(list(APPLICANT)))
def test_a_row_is_aligned_by_name(order: list[str]) -> None:
    """Given the features in any order, when encoded, then the row is the model's, bit for bit; null is NaN, a word its code."""
    row = read_features(RULES, FEATURES).encode({name: APPLICANT[name] for name in order})
    assert row.tobytes() == ROW.tobytes()


def test_value_of_gives_back_what_was_said(rules: FeatureRules) -> None:
    """Given an encoded row, when each value is said again, then it is the decision's own: the word, the number or null."""
    assert [rules.value_of(j, x) for j, x in enumerate(rules.encode(APPLICANT).tolist())] == list(APPLICANT.values())


REFUSED: dict[str, tuple[Mapping[str, Any], type[Exception]]] = {
    "a word for a number": ({"income": "2500"}, WrongFeatureType),
    "a number for a word": ({"purpose": 3}, WrongFeatureType),
    "a truth value for a number": ({"income": True}, WrongFeatureType),
    "a list for a number": ({"income": [1]}, WrongFeatureType),
    "a word that is not listed": ({"purpose": "yacht"}, UnknownCategory),
    "a word in other letters": ({"purpose": "Car"}, UnknownCategory),
    "inf": ({"income": math.inf}, NonFiniteFeature),
    "minus inf": ({"region": -math.inf}, NonFiniteFeature),
    "NaN": ({"age": math.nan}, NonFiniteFeature),
    "an integer beyond every double": ({"income": 10**400}, NonFiniteFeature),
    "one feature too many": ({"shoe size": 43}, UnknownFeature),
}


@pytest.mark.parametrize(("changes", "error"), REFUSED.values(), ids=REFUSED)
def test_what_the_model_never_saw_is_refused(
    rules: FeatureRules, changes: Mapping[str, Any], error: type[Exception]
) -> None:
    """Given one feature that the library would silently mis-route, when encoded, then the refusal is typed and keeps the value to itself."""
    with pytest.raises(error) as refused:
        rules.encode({**APPLICANT, **changes})
    assert type(refused.value) is error
    for value in changes.values():
        assert repr(value) not in str(refused.value)


def test_absent_is_not_null(rules: FeatureRules) -> None:
    """Given a decision without one feature, when encoded, then it is refused by that feature's name; null would do."""
    without = {name: value for name, value in APPLICANT.items() if name != "debts"}
    with pytest.raises(MissingFeature, match="debts"):
        rules.encode(without)
    with pytest.raises(MissingFeature, match="debts"):  # as many as the model has, but not the same
        rules.encode({**without, "shoe size": 43})


# --- overrides -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", LABELS)
@pytest.mark.parametrize("wanted", LABELS)
def test_an_override_only_tightens(own: str, wanted: str) -> None:
    """Given any label and any override, when applied, then it holds where each move it permits was permitted, else it is refused."""
    permits = {"mutable": {"up", "down"}, "increase_only": {"up"}, "decrease_only": {"down"}, "immutable": set()}
    rules = read_features(f'[income]\ntype = "number"\nmutability = "{own}"\n', ("income",))
    if permits[wanted] <= permits[own]:
        assert rules.mutabilities({"income": wanted}).tolist() == [LABELS[wanted]]
    else:
        with pytest.raises(OverrideRefused, match="income"):
            rules.mutabilities({"income": wanted})


def test_an_override_is_of_this_decision_alone(rules: FeatureRules) -> None:
    """Given an override, when the next decision has none, then the labels are those of features.toml again."""
    assert rules.mutabilities({"income": "immutable"})[0] == Mutability.IMMUTABLE
    assert rules.mutabilities({}).tolist() == [rule.mutability for rule in rules.rules]


@pytest.mark.parametrize(
    "override", [{"shoe size": "immutable"}, {"income": "frozen"}, {"income": "MUTABLE"}, {"income": ""}]
)
def test_an_override_that_means_nothing_is_refused(rules: FeatureRules, override: dict[str, str]) -> None:
    """Given an override of an unknown feature, or to an unknown label, when applied, then it is refused, not skipped."""
    with pytest.raises(OverrideRefused):
        rules.mutabilities(override)
