from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.times import TIME_MS_MAX, TIME_MS_MIN, rfc3339, time_ms


@given(ms=st.integers(TIME_MS_MIN, TIME_MS_MAX))
def test_a_time_comes_back(ms: int) -> None:
    """Given any millisecond of the years 1 to 9999, when it is written and read, then it is the same."""
    text = rfc3339(ms)
    assert len(text) == len("2026-11-27T10:15:00.250Z")
    assert time_ms(text) == ms


@given(
    moment=st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31)),  # noqa: DTZ001 - the zone is drawn beside it
    minutes=st.integers(-23 * 60 - 59, 23 * 60 + 59),
)
def test_a_zone_only_moves_the_clock(moment: datetime, minutes: int) -> None:
    """Given a time in any zone, when it is read, then it is the same instant as in UTC, cut to milliseconds."""
    zoned = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    sign, size = "-" if minutes < 0 else "+", abs(minutes)
    text = f"{moment.isoformat(timespec='microseconds')}{sign}{size // 60:02}:{size % 60:02}"
    assert time_ms(text) == (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00z", 0),
        ("1970-01-01T00:00:00.5Z", 500),
        ("1970-01-01T00:00:00.25Z", 250),
        ("1970-01-01T00:00:00.0019Z", 1),
        ("1970-01-01T00:00:00.999999999999999999999Z", 999),
        ("1969-12-31T23:59:59.9999Z", -1),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:30:00-00:30", 0),
        ("1970-01-01T00:00:00-00:00", 0),
        ("2024-02-29T00:00:00Z", 1709164800000),
    ],
)
def test_digits_past_milliseconds_are_cut_off(text: str, ms: int) -> None:
    """Given RFC 3339 in its various spellings, when it is read, then finer digits are dropped, never rounded."""
    assert time_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "", "2031-05-06", "2031-05-06T10:15:00", "2031-05-06 10:15:00Z", "2031-05-06T10:15Z", "20261127T101500Z",
        "2031-05-06T10:15:00.Z", "2031-05-06T10:15:00,5Z", "2031-05-06T10:15:00+0100", "2031-05-06T10:15:00+01",
        "2031-05-06T10:15:00Z\n", " 2031-05-06T10:15:00Z", "2026-W48-5T10:15:00Z", "+02031-05-06T10:15:00Z",
        "2026-02-29T10:15:00Z", "2026-13-01T10:15:00Z", "2031-05-06T24:00:00Z", "2016-12-31T23:59:60Z",
        "2031-05-06T10:15:00+24:00", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01",
        "\u0968\u0966\u0968\u096c-\u0967\u0967-\u0968\u096dT\u0967\u0966:\u0967\u096b:\u0966\u0966Z", "2031-05-06T10:15:00." + "0" * 100 + "Z", "1764238500", "null",
    ],
)  # fmt: skip
def test_what_is_no_time_is_refused_without_repeating_it(text: str) -> None:
    """Given a text that is no RFC 3339 time with a zone, when it is read, then the refusal does not repeat it."""
    with pytest.raises(ValueError, match=r".") as refused:
        time_ms(text)
    assert not text or text not in str(refused.value)


@pytest.mark.parametrize("ms", [TIME_MS_MIN - 1, TIME_MS_MAX + 1, 2**62])
def test_a_time_outside_the_calendar_is_refused(ms: int) -> None:
    """Given milliseconds before the year 1 or after 9999, when they are written, then that is refused."""
    with pytest.raises(ValueError, match="before the year 1 or after 9999"):
        rfc3339(ms)
