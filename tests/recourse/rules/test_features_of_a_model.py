"""features.toml beside what the model file says: training categories, codes without words, and the sentinel."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.errors import (
    ConfigurationError,
    NonFiniteFeature,
    OverrideRefused,
    UnknownCategory,
    WrongFeatureType,
)
from stream.events import Value
from stream.forest.trees import SavedNode, Word, build_forest
from stream.recourse.rules.features import FeatureRules, read_features, rules_for
from tests.recourse.lenders import kind as kind_of

WORDS: tuple[Word, ...] = ("car", "house", "école")
YEARS: tuple[Word, ...] = (2004.0, 2001.0, 2010.5)


def table(*more: str, kind: str = "category", mutability: str = "mutable") -> str:
    return "\n".join(["[a]", f'type = "{kind}"', f'mutability = "{mutability}"', *more])


def read(text: str, words: tuple[Word, ...] | None = None, *, missing: float | None = None) -> FeatureRules:
    return read_features(text, ("a",), words=(words,), is_category=(True,), missing=missing)


@pytest.mark.parametrize("words", [WORDS, YEARS])
@pytest.mark.parametrize("said", ["left out", "the same"])
def test_the_models_own_words_hold(words: tuple[Word, ...], said: str) -> None:
    """Given training categories in the model file, words or numbers, a decision says them, and rows hold their codes, whether features.toml lists them or not."""
    lines = [] if said == "left out" else [f"categories = {list(words)!r}"]
    rules = read(table(*lines), words)
    for code, word in enumerate(words):
        assert rules.encode({"a": word}).tolist() == [code]
        assert rules.value_of(0, float(code)) == word
    assert math.isnan(rules.encode({"a": None})[0])
    with pytest.raises(UnknownCategory):
        rules.encode({"a": "yacht" if words is WORDS else 1999.0})
    with pytest.raises(WrongFeatureType):
        rules.encode({"a": 0.0 if words is WORDS else "2004"})


@given(words=st.lists(st.text(max_size=3) | st.just("x"), min_size=1, max_size=6, unique=True).map(tuple))
def test_a_word_goes_to_its_code_and_back(words: tuple[str, ...]) -> None:
    """Given any words, encode() and value_of() invert each other."""
    rules = read(table(), words)
    assert [rules.value_of(0, float(rules.encode({"a": word})[0])) for word in words] == list(words)


OTHER: dict[str, tuple[list[Word], str]] = {
    "another order": (["house", "car", "école"], "at place 0 (from 0) there is 'house' and in the model 'car'"),
    "one too few": (["car", "house"], "at place 2 (from 0) there is nothing and in the model 'école'"),
    "one too many": (["car", "house", "école", "boat"], "at place 3 (from 0) there is 'boat' and in the model nothing"),
    "numbers": ([1, 2, 3], "at place 0 (from 0) there is 1.0 and in the model 'car'"),
}


@pytest.mark.parametrize(("listed", "said"), OTHER.values(), ids=OTHER)
def test_other_words_than_the_models_are_refused(listed: list[Word], said: str) -> None:
    """Given words that are not the training categories in their order, the error names the first difference and what to do."""
    with pytest.raises(ConfigurationError) as refused:
        read(table(f"categories = {listed!r}"), WORDS)
    assert said in str(refused.value)
    assert "leave `categories` out" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (table(kind="number"), 'type must be "category"'),
        (table(kind="integer"), 'type must be "category"'),
        (table(mutability="increase_only"), "mutability must be mutable or immutable"),
        (table(mutability="decrease_only"), "mutability must be mutable or immutable"),
        (table('categories = ["a", 1]'), "categories must be a list of words"),
        (table("categories = [inf, 1]"), "categories holds a number that is not finite"),
        (table("categories = [1, 1.0]"), "categories lists a word twice"),
        (table("categories = [false, true]"), "categories holds true or false"),
        (table("categories = [3, 1]", "no_record = 7"), "no_record holds a number that is none"),
    ],
)
def test_what_a_category_of_the_model_cannot_be_is_refused(text: str, named: str) -> None:
    """Given a feature that the model takes for a category, a table that takes it for something else is refused by its key."""
    with pytest.raises(ConfigurationError) as refused:
        read(text)
    assert named in str(refused.value)


def test_an_override_of_a_category_has_no_direction() -> None:
    """Given a category of the model, an override to a direction is refused, for its codes have no order; immutable is fine."""
    rules = read(table())
    assert rules.mutabilities({"a": "immutable"}).tolist() == [3]
    for label in ("increase_only", "decrease_only"):
        with pytest.raises(OverrideRefused, match="none"):
            rules.mutabilities({"a": label})


BARE: list[tuple[Any, type[Exception] | None]] = [
    (0, None), (3.0, None), (-0.0, None), (2**53, None),
    (3.7, UnknownCategory), (-1, UnknownCategory), (-0.5, UnknownCategory),
    ("car", WrongFeatureType), (True, WrongFeatureType), (math.inf, NonFiniteFeature),
    (2**53 + 1, WrongFeatureType), (10**400, NonFiniteFeature),
]  # fmt: skip


@pytest.mark.parametrize(("value", "error"), BARE)
def test_a_code_is_a_whole_number(value: Any, error: type[Exception] | None) -> None:
    """Given a category without words, a decision's number is its code: whole and from 0 on, or refused without its value."""
    rules = read(table())
    if error is None:
        assert rules.value_of(0, float(rules.encode({"a": value})[0])) == value
        return
    with pytest.raises(error) as refused:
        rules.encode({"a": value})
    assert type(refused.value) is error
    assert repr(value) not in str(refused.value)


def test_an_integer_that_no_double_holds_is_refused() -> None:
    """Given an integer between two doubles for a number, it is refused and not rounded; the next double is taken."""
    rules = read_features(table(kind="number"), ("a",))
    with pytest.raises(WrongFeatureType, match="no double"):
        rules.encode({"a": 2**53 + 1})
    assert rules.encode({"a": 2**53}).tolist() == [2.0**53]


@pytest.mark.parametrize(
    ("kind", "words"), [("number", None), ("category", None), ("category", WORDS), ("category", YEARS)]
)
def test_a_decision_may_hold_the_sentinel(kind: str, words: tuple[Word, ...] | None) -> None:
    """Given a number that stands for missing, any feature may hold it: it means that there is no record, and is said as it was."""
    rules = read_features(
        table(kind=kind), ("a",), words=(words,), is_category=(kind == "category",), missing=-999.0
    )  # fmt: skip
    said: dict[str, Value] = {"a": -999.0}
    x = float(rules.encode(said)[0])
    assert (x, rules.value_of(0, x), rules.rules[0].is_unrecorded(x)) == (-999.0, -999.0, True)
    assert rules.rules[0].is_unrecorded(math.nextafter(-999.0, 0.0))  # float32 reads both alike
    assert not rules.rules[0].is_unrecorded(1.0)
    assert not rules.rules[0].is_unrecorded(1e300)


def test_a_sentinel_that_is_the_code_of_a_word_is_refused() -> None:
    """Given missing = 0 and words, whose first has code 0, the table is refused: nobody could tell that word from missing."""
    with pytest.raises(ConfigurationError, match="stands for missing"):
        read(table(), WORDS, missing=0.0)


def test_no_record_of_a_number_for_a_word_is_its_code() -> None:
    """Given categories that are numbers, `no_record` names them as decisions do, and the row's code means no record."""
    rules = read(table("no_record = [2010.5]"), YEARS)
    assert rules.rules[0].no_record == (2.0,)
    assert rules.rules[0].is_unrecorded(float(rules.encode({"a": 2010.5})[0]))


@pytest.mark.parametrize(
    ("given_texts", "low"),
    [
        ("", "a: not favourable"),
        ('too_low = "L"', "L"),
        ('too_high = "H"', "H"),
        ('too_low = "L", too_high = "H"', "L"),
    ],
)
def test_a_category_has_one_text(given_texts: str, low: str) -> None:
    """Given a category of the model, which is never too low or too high, both texts are the one that was given."""
    reason = read(table(f"reason = {{ {given_texts} }}")).rules[0].reason
    assert (reason.too_low, reason.too_high) == (low, low)


@pytest.mark.parametrize(
    ("splits", "no_record"), [([True, True], (-9.0, 0.0)), ([True, False], (-9.0,)), ([False], (-9.0,)), ([], (-9.0,))]
)
def test_zero_is_no_record_where_every_split_takes_it_for_missing(
    splits: list[bool], no_record: tuple[float, ...]
) -> None:
    """Given splits of which all, some or none take zero for missing, zero joins the feature's no_record in the first case alone."""
    trees = [
        [
            SavedNode(number=0, feature=0, value=3.0, left=1, right=2, zero_is_missing=is_missing),
            SavedNode(number=0, value=1.0),
            SavedNode(number=1, value=2.0),
        ]
        for is_missing in splits
    ] or [[SavedNode(number=0, value=1.0)]]
    forest = build_forest(trees, kind_of("lightgbm", ("a",)))
    assert rules_for(forest, table("no_record = [-9]", kind="number")).rules[0].no_record == no_record
    said = rules_for(forest, table("no_record = [0]", kind="number")).rules[0].no_record
    assert said == (0.0,)


def test_an_unknown_category_is_told_of_both_places() -> None:
    """Given words in the model file alone, a word beyond them is refused as listed in neither place."""
    with pytest.raises(UnknownCategory, match=r"neither features\.toml nor the model file lists"):
        read(table(), WORDS).encode({"a": "yacht"})
