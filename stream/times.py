"""Times as the records carry them: whole milliseconds since 1970 in UTC in Avro, RFC 3339 in JSON."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_TEXT_MAX: Final = 64  # a time with 40 digits of fraction still fits; more is noise
_RFC3339: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]((?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60))(?:\.([0-9]+))?(?:[Zz]|([+-][0-9]{2}:[0-9]{2}))"
)
TIME_MS_MIN: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND  # the year 1
TIME_MS_MAX: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND  # the year 9999


def rfc3339(time_ms: int) -> str:
    """Write a time as `YYYY-MM-DDTHH:MM:SS.mmmZ`. Raises: ValueError before the year 1 and after 9999."""
    if not TIME_MS_MIN <= time_ms <= TIME_MS_MAX:
        message = "the time is before the year 1 or after 9999"
        raise ValueError(message)
    return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def time_ms(text: str) -> int:
    """Read RFC 3339 with a zone into milliseconds since 1970 in UTC; digits finer than a millisecond are cut off.

    Raises: ValueError that says what is wrong and never repeats the text.
    """
    found = _RFC3339.fullmatch(text) if len(text) <= _TEXT_MAX else None
    if found is None:
        message = "not RFC 3339 with a zone, such as 2026-11-27T10:15:00.250Z"
        raise ValueError(message)
    day, clock, fraction, zone = found.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{zone or '+00:00'}") - _EPOCH
    except ValueError:
        message = "no such day, time of day or zone (a leap second has no place in milliseconds since 1970)"
        raise ValueError(message) from None
    milliseconds = moment // _MILLISECOND + int((fraction or "").ljust(3, "0")[:3])
    if not TIME_MS_MIN <= milliseconds <= TIME_MS_MAX:
        message = "before the year 1 or after 9999 in UTC"
        raise ValueError(message)
    return milliseconds
