"""Which dead letters a filter takes, and what is read of the record within."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.dlq.dead_letter_reader import LetterFilter, StoredLetter, decision_id_of, matching_letters, redrives
from stream.events import DeadLetter
from stream.runtime.kafka.dead_letters import REDRIVE_HEADER
from stream.times import time_ms
from stream.wire.framing import SINGLE_OBJECT
from tests.schemas.example_files import good_examples, read_good

SEEN = "2026-11-28T00:00:00.000Z"


def letter(**changes: Any) -> DeadLetter:
    """A dead letter of a decision that waited for its model."""
    return cast("DeadLetter", {**read_good("DeadLetter", good_examples("DeadLetter")[0]), "last_seen": SEEN, **changes})


def stored(one: DeadLetter | str, *, decision_id: str | None = "d-1") -> StoredLetter:
    """A letter as it lies on its topic."""
    return StoredLetter(partition=3, offset=17, letter=one, decision_id=decision_id)


FITS: dict[str, tuple[Any, Any]] = {  # a filter's field -> a value that takes the letter, and one that does not
    "positions": (frozenset({"3:17", "0:0"}), frozenset({"3:18"})),
    "reasons": (frozenset({"ModelNotPublished"}), frozenset({"ClaimMismatch"})),
    "stage": ("resolve", "decode"),
    "key": (b"k", b"another"),
    "decision_id": ("d-1", "d-2"),
    "topic": ("decisions", "others"),
    "since_ms": (time_ms(SEEN), time_ms(SEEN) + 1),
    "until_ms": (time_ms(SEEN) + 1, time_ms(SEEN)),
    "retryable_only": (True, True),
}


@given(st.dictionaries(st.sampled_from(sorted(FITS)), st.booleans()))
def test_a_filter_takes_what_fits_all_of_its_fields(narrowed: dict[str, bool]) -> None:
    """Given a filter narrowed by any of its fields, each to a value that fits or to one that does not, then it takes the letter if and only if all fit."""
    fields = {name: FITS[name][0 if fits else 1] for name, fits in narrowed.items()}
    retryable = narrowed.get("retryable_only", True)
    one = letter(key=b"k", stage="resolve", error="ModelNotPublished", topic="decisions", retryable=retryable)
    assert LetterFilter(**fields).takes(stored(one), one) == all(narrowed.values())


def test_what_is_no_dead_letter_is_passed_over() -> None:
    """Given records that cannot be read among dead letters, then only the letters come."""
    one = letter()
    found = [stored("cannot be read: nonsense"), stored(one), stored("is a Notice, not a dead letter")]
    assert [kept for _, kept in matching_letters(found, LetterFilter())] == [one]


@pytest.mark.parametrize(
    ("value", "decision_id"),
    [
        (orjson.dumps({"decision_id": "d-9"}), "d-9"),
        (b'\n {"decision_id": "d-9"}', "d-9"),
        (b'{"decision_id": 9}', None),
        (b'{"decision_id": ', None),
        (b"[]", None),
        (b"\xc3\x01nothing", None),
        (b"", None),
        (None, None),
    ],
)
def test_the_decision_within_is_named_where_it_can_be_read(value: bytes | None, decision_id: str | None) -> None:
    """Given the value of any record that died, then its decision_id is read where it is one, and nothing is raised."""
    assert decision_id_of(letter(value=value), SINGLE_OBJECT) == decision_id


@given(st.lists(st.sampled_from([REDRIVE_HEADER, "traceparent", ""])))
def test_each_redrive_is_counted_by_its_header(names: list[str]) -> None:
    """Given a record with any headers, then it was sent back as often as it carries that header."""
    headers = [{"key": name, "value": b"x"} for name in names]
    assert redrives(letter(headers=headers)) == names.count(REDRIVE_HEADER)
