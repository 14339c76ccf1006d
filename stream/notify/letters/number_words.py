"""Writes numbers and dates in the words of a locale, without untrue rounding.

A target may be one floating-point step past a threshold, such as 31.500000000000007: the letter says "just over 31.5".
Any other long number is rounded away from the applicant's present value, and called "about".
"""

from __future__ import annotations

import datetime as dt
import tomllib
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import Any, Final

from stream.events import Action, Value

TIER_TITLES: Final = 3
DECIMALS_MAX: Final = 4  # numbers with no more are exact; from LARGE_FROM on, DECIMALS_MIN
DECIMALS_MIN: Final = 2
SIGNIFICANT: Final = 5
LARGE_FROM: Final = 100
GROUPED_FROM: Final = 1_000
GROUPED_WITHOUT_UNIT_FROM: Final = 10_000  # so that a year stays 2019
# The largest relative distance of a target from the threshold beside it (two floating-point steps), and the most decimals of
# such a threshold: in 64 bits, then in 32 bits.
NEXT_TO: Final = ((Decimal(2) ** -51, DECIMALS_MAX), (Decimal(2) ** -22, DECIMALS_MIN))


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The content of a locale's `words.toml`. `date` holds {day}, {month} and {year}; the phrases hold {number}.

    `ways`: titles of the first, second and third tier of a letter.
    """

    months: tuple[str, ...]
    date: str
    thousands: str
    decimal: str
    just_over: str
    just_under: str
    about: str
    not_known: str
    ways: tuple[str, ...]
    units_before: tuple[str, ...]
    units_close: tuple[str, ...]

    def day(self, moment: dt.date) -> str:
        """Write a date as the locale does, with its word for the month."""
        return self.date.format(day=moment.day, month=self.months[moment.month - 1], year=moment.year)


def read_words(text: str) -> Words:
    """Read a words.toml. Raises: ValueError that says what is wrong."""
    try:
        given: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = f"is no TOML: {error}"
        raise ValueError(message) from None
    except RecursionError:
        message = "is nested too deeply"
        raise ValueError(message) from None
    names = list(Words.__dataclass_fields__)
    if set(given) != set(names):
        differing = ", ".join(sorted(set(given) ^ set(names)))
        message = f"must have exactly {', '.join(names)}; missing or too many: {differing}"
        raise ValueError(message)
    for name, kind in Words.__dataclass_fields__.items():
        is_list = str(kind.type).startswith("tuple")
        texts = given[name] if is_list and isinstance(given[name], list) else [given[name]]
        if is_list != isinstance(given[name], list) or not all(isinstance(one, str) for one in texts):
            message = f"{name} must be {'a list of texts' if is_list else 'a text'}"
            raise ValueError(message)
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    words = Words(**fields)
    _check_phrases(words)
    return words


def _check_phrases(words: Words) -> None:
    if len(words.months) != 12 or len(set(words.months)) != 12:  # noqa: PLR2004 - months
        message = "months must be twelve different ones"
        raise ValueError(message)
    if len(words.ways) != TIER_TITLES or not all(way.strip() for way in words.ways):
        message = f"ways must be {TIER_TITLES} texts: what the first, the second and a third way to a yes is"
        raise ValueError(message)
    for name, wanted in (
        ("date", ("day", "month", "year")),
        *((phrase, ("number",)) for phrase in ("just_over", "just_under", "about")),
    ):
        phrase: str = getattr(words, name)
        rest = phrase
        for one in wanted:
            rest = rest.replace(f"{{{one}}}", "")
        if "{" in rest or "}" in rest or not all(f"{{{one}}}" in phrase for one in wanted):
            message = f"{name} must hold {', '.join(f'{{{one}}}' for one in wanted)} and no other braces"
            raise ValueError(message)


def before_and_after(action: Action, words: Words) -> tuple[str, str]:
    """Write an action's present and target value, each with its unit.

    For the direction `provide` the present value is the lender's code for a missing record, and is not shown.
    """
    after = _target(action, words)
    if action["direction"] == "provide":
        return words.not_known, after
    for decimals in (DECIMALS_MIN, DECIMALS_MAX, 8, 17):  # more only while both read the same
        before = _value(action["from"], action["unit"], words, decimals)
        if before != after:
            break
    return before, after


def _value(value: Value, unit: str | None, words: Words, decimals: int) -> str:
    if value is None:
        return words.not_known
    if isinstance(value, str):
        return value
    exact = _decimal(value)
    if not _is_short(exact):
        exact = _rounded(exact, max(decimals, _decimals_for(exact)), ROUND_HALF_EVEN)
    return _with_unit(exact, unit, words)


def _target(action: Action, words: Words) -> str:
    value = action["to"]
    if value is None or isinstance(value, str):
        return _value(value, None, words, DECIMALS_MIN)
    exact, unit, direction = _decimal(value), action["unit"], action["direction"]
    if _is_short(exact):
        return _with_unit(exact, unit, words)
    threshold = _next_to(exact)
    over = threshold is not None and exact > threshold
    if threshold is not None and direction != ("decrease" if over else "increase"):
        phrase = words.just_over if over else words.just_under
        return phrase.format(number=_with_unit(threshold, unit, words))
    how = {"increase": ROUND_CEILING, "decrease": ROUND_FLOOR}.get(direction, ROUND_HALF_EVEN)
    near = _rounded(exact, max(DECIMALS_MIN, _decimals_for(exact)), how)
    return words.about.format(number=_with_unit(near, unit, words))


def _next_to(exact: Decimal) -> Decimal | None:
    """The round threshold directly beside a target, or None."""
    for apart, decimals_max in NEXT_TO:
        for decimals in range(decimals_max + 1):
            near = _rounded(exact, decimals, ROUND_HALF_EVEN)
            if near and abs(exact - near) <= abs(near) * apart:
                return near
    return None


def _is_short(exact: Decimal) -> bool:
    return _decimals(exact) <= (DECIMALS_MAX if abs(exact) < LARGE_FROM else DECIMALS_MIN)


def _decimal(value: float) -> Decimal:
    return Decimal(repr(float(value)))


def _decimals(exact: Decimal) -> int:
    return max(0, -int(exact.normalize().as_tuple().exponent))


def _decimals_for(exact: Decimal) -> int:
    return max(0, SIGNIFICANT - 1 - exact.adjusted())


def _rounded(exact: Decimal, decimals: int, how: str) -> Decimal:
    step = Decimal(1).scaleb(-decimals)
    return (exact / step).to_integral_value(rounding=how) * step


def _with_unit(exact: Decimal, unit: str | None, words: Words) -> str:
    normal = exact.normalize() + 0  # no -0
    money = bool(unit) and unit in words.units_before
    text = f"{normal:f}"
    if money and _decimals(normal) == 1:
        text += "0"  # $7,420.50
    if abs(normal) >= (GROUPED_FROM if unit else GROUPED_WITHOUT_UNIT_FROM):
        whole, dot, part = text.partition(".")
        text = f"{int(whole):,}{dot}{part}"
    number = text.replace(",", "\0").replace(".", words.decimal).replace("\0", words.thousands)
    if not unit:
        return number
    if money:
        return f"-{unit}{number[1:]}" if number.startswith("-") else f"{unit}{number}"
    return f"{number}{unit}" if unit in words.units_close else f"{number} {unit}"


def last_whole_day(ends_at: dt.datetime) -> dt.date:
    """The last day, in the zone of `ends_at`, that is over by then: what "until" may promise."""
    return ends_at.date() - dt.timedelta(days=1)
