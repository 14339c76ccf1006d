from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.events import Action
from stream.notify.letters.number_words import Words, before_and_after, last_whole_day, read_words
from stream.notify.letters.templates import shipped_folder

ENGLISH = read_words((shipped_folder() / "en" / "words.toml").read_text("utf-8"))


def action(start: Any, end: Any, unit: str | None = None, direction: str = "") -> Action:
    numbers = isinstance(start, float) and isinstance(end, float)
    direction = direction or (("increase" if end > start else "decrease") if numbers else "change")
    return {
        "feature": "f", "label": "F", "direction": direction, "from": start, "to": end, "unit": unit,
        "binding_threshold": None, "contribution": "0",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("start", "end", "unit", "texts"),
    [
        (48.0, 36.0, "months", ("48 months", "36 months")),
        (12500.0, 9800.0, "EUR", ("12,500 EUR", "9,800 EUR")),
        (12500.0, 9800.0, "$", ("$12,500", "$9,800")),
        (7420.5, -5.0, "$", ("$7,420.50", "-$5")),
        (2019.0, 12019.0, None, ("2019", "12,019")),
        (0.35, 0.4, "%", ("0.35%", "0.4%")),
        (2790.4204666536452, 3996.4775, "EUR", ("2,790.42 EUR", "about 3,996.48 EUR")),
        (31.5, 31.500000000000007, None, ("31.5", "just over 31.5")),
        (40.0, 31.499998092651367, "points", ("40 points", "just under 31.5 points")),
        (1.0, 3.123456789, None, ("1", "about 3.1235")),
        (5.0, 3.123456789, None, ("5", "about 3.1234")),
        (447.051, 392.186214, "EUR", ("447.05 EUR", "about 392.18 EUR")),
        (20.0, 31.499998092651367, None, ("20", "about 31.5")),
        (None, 12.0, "years", ("no information", "12 years")),
        ("car (new)", "repairs", None, ("car (new)", "repairs")),
        (-0.0, 1.0, None, ("0", "1")),
        (1e-7, 1e15, None, ("0.0000001", "1,000,000,000,000,000")),
    ],
)
def test_values_are_told_as_people_write_them(start: Any, end: Any, unit: str | None, texts: tuple[str, str]) -> None:
    """Given where an action begins and leads, when it is told, then in few digits, with its unit, and true in each word."""
    assert before_and_after(action(start, end, unit, "provide" if start is None else ""), ENGLISH) == texts


VALUES = st.one_of(st.none(), st.floats(-1e9, 1e9), st.integers(-9, -1).map(float), st.text(min_size=1))


@given(one=VALUES, other=VALUES, end=st.floats(-1e9, 1e9), unit=st.sampled_from([None, "%", "$", "months"]))
def test_where_nothing_is_recorded_no_value_is_told(one: Any, other: Any, end: float, unit: str | None) -> None:
    """Given an action that provides what was not recorded, when told, then whatever stands there in its place, a code or a word or nothing, the step is the same, and begins at no information."""
    texts = before_and_after(action(one, end, unit, "provide"), ENGLISH)
    assert texts == before_and_after(action(other, end, unit, "provide"), ENGLISH)
    assert texts[0] == ENGLISH.not_known == "no information"


def number_in(text: str) -> Decimal:
    return Decimal(re.sub(r"[^0-9.-]", "", text.replace(",", "")))


@given(
    start=st.floats(-1e9, 1e9),
    end=st.floats(-1e9, 1e9),
    narrow=st.booleans(),
)
def test_what_is_told_is_never_short_of_the_target(start: float, end: float, narrow: bool) -> None:  # noqa: FBT001 - drawn
    """Given any move, when it is told, then the number reaches the target or says on which side of it the target lies, and lies close to it; and it differs from where the move begins."""
    if narrow:
        start, end = float(np.float32(start)), float(np.float32(end))
    if start == end:
        return
    before, after = before_and_after(action(start, end), ENGLISH)
    shown, exact = number_in(after), Decimal(repr(end))
    assert before != after
    assert abs(shown - exact) <= Decimal("0.0001") * abs(exact)
    if after.startswith("just over"):
        assert exact > shown
    elif after.startswith("just under"):
        assert exact < shown
    elif end > start:
        assert shown >= exact
    else:
        assert shown <= exact


@given(exact=st.floats(-1e6, 1e6), up=st.booleans())
def test_the_number_next_to_a_round_one_is_told_by_the_round_one(exact: float, up: bool) -> None:  # noqa: FBT001 - drawn
    """Given a target one step of the machine's numbers past a threshold of two decimals, when told, then as just over or just under the threshold."""
    threshold = round(exact, 2)
    end = float(np.nextafter(threshold, np.inf if up else -np.inf))
    if not threshold or repr(end) == repr(threshold) or len(repr(end)) < 10:
        return
    _, after = before_and_after(action(threshold - 7 if up else threshold + 7, end), ENGLISH)
    assert after.startswith("just over" if up else "just under")
    assert number_in(after) == Decimal(repr(threshold))


def test_until_a_day_promises_no_hour_too_many() -> None:
    """Given an end in the middle of a day, or at its first moment, when the last whole day is asked, then it is over by then."""
    assert last_whole_day(datetime(2027, 2, 25, 10, 15, tzinfo=UTC)) == date(2027, 2, 24)
    assert last_whole_day(datetime(2027, 3, 1, tzinfo=UTC)) == date(2027, 2, 28)


def test_another_language_writes_numbers_its_own_way() -> None:
    """Given a locale with a comma for decimals, when a number and a day are told, then in its way."""
    german = (shipped_folder() / "en" / "words.toml").read_text("utf-8")
    german = german.replace('thousands = ","', 'thousands = "."').replace('decimal = "."', 'decimal = ","')
    german = german.replace("{day} {month}", "{day}. {month}").replace('"March"', '"März"')
    words = read_words(german)
    assert before_and_after(action(12500.75, 9800.0, "EUR"), words) == ("12.500,75 EUR", "9.800 EUR")
    assert words.day(date(2027, 3, 1)) == "1. März 2027"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("months = [", "mouths = ["), "months, mouths"),
        (('"January", ', ""), "twelve"),
        (("{number}", "{count}"), "just_over must hold {number}"),
        (('thousands = ","', "thousands = 3"), "thousands must be a text"),
        (("[", "("), "is no TOML"),
        (('    "goes furthest, with the most room to spare",\n', ""), "ways must be 3 texts"),
        (('"goes furthest, with the most room to spare"', '" "'), "ways must be 3 texts"),
    ],
)
def test_unusable_words_are_refused(change: tuple[str, str], message: str) -> None:
    """Given a words.toml with a fault, when read, then the error says which."""
    with pytest.raises(ValueError, match=re.escape(message)):
        read_words((shipped_folder() / "en" / "words.toml").read_text("utf-8").replace(*change))


def test_words_are_frozen() -> None:
    """Given the words of a locale, then they are a value."""
    assert isinstance(ENGLISH, Words)
    assert hash(ENGLISH) == hash(read_words((shipped_folder() / "en" / "words.toml").read_text("utf-8")))
