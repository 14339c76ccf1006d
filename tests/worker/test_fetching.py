"""Gaps in a log, told from what else moves a reader's position; and which offsets may be committed past."""

# ruff: noqa: SLF001 - what is tried here is what aiokafka calls, and what it keeps for that

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import Fetcher
from hypothesis import given
from hypothesis import strategies as st

from stream.worker.fetching import EmptyRanges, WatchfulFetcher

PARTITION = TopicPartition("decisions", 0)


@dataclass
class State:
    """A partition's state, as far as the fetcher looks at it."""

    position: int
    has_valid_position: bool = True


class Assignment:
    """aiokafka's assignment of one partition."""

    active = True

    def __init__(self, position: int) -> None:
        self.state = State(position)

    def state_value(self, _partition: TopicPartition) -> State:
        """See aiokafka."""
        return self.state


@pytest.mark.parametrize(
    ("position", "log_begins", "reassigned", "told"),
    [
        (70, 70, False, [(60, 70)]),  # the head was deleted
        (0, 0, False, [(60, 0)]),  # made anew
        (50, 70, False, []),  # sought back meanwhile: the next fetch says the rest
        (60, 70, False, []),
        (60, 60, False, []),
        (70, 70, True, []),  # another assignment's question
    ],
)
def test_a_gap_is_told_where_the_log_s_beginning_gave_the_position(
    monkeypatch: pytest.MonkeyPatch,
    position: int,
    log_begins: int,
    reassigned: bool,  # noqa: FBT001 - a parameter of cases
    told: list[tuple[int, int]],
) -> None:
    """Given a fetch that was out of range, when the position is valid again, then it is a gap if the log's beginning gave it, and nothing where somebody sought or the partition was assigned anew."""

    async def nothing(*_given: Any) -> bool:
        return False

    async def begins(*_given: Any) -> dict[TopicPartition, tuple[int, None]]:
        return {PARTITION: (log_begins, None)}

    monkeypatch.setattr(Fetcher, "_update_fetch_positions", nothing)
    monkeypatch.setattr(Fetcher, "_proc_offset_request", begins)
    found: list[tuple[int, int]] = []
    fetcher: Any = WatchfulFetcher.__new__(WatchfulFetcher)
    fetcher.on_gap = lambda _partition, expected, now: found.append((expected, now))
    fetcher._log_begins = {}
    asked_by, now = Assignment(60), Assignment(position)
    fetcher._out_of_range = {PARTITION: (asked_by if reassigned else now, 60)}

    async def story() -> None:
        await fetcher._proc_offset_request(1, {})
        await fetcher._update_fetch_positions(now, 1, [PARTITION])
        await fetcher._update_fetch_positions(now, 1, [PARTITION])

    asyncio.run(story())
    assert found == told


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=30), st.integers(0, 20))
def test_what_is_passed_over_is_empty_to_its_end(spans: list[tuple[int, bool]], steps: int) -> None:
    """Given a log of records and empty ranges, when an offset is passed, then every offset passed over is empty, the next one is not known to be, and asking again from there gives the same."""
    ranges, empty, at = EmptyRanges(), set(), 0
    for length, is_empty in spans:
        if is_empty:
            ranges.add(PARTITION, at, at + length)
            empty |= set(range(at, at + length))
        at += length
    starts = [0, *(sum(length for length, _ in spans[: n + 1]) for n in range(len(spans)))]
    offset = starts[min(steps, len(starts) - 1)]
    past = ranges.past(PARTITION, offset)
    assert set(range(offset, past)) <= empty
    assert past not in empty
    assert ranges.past(PARTITION, past) == past
    ranges.forget(PARTITION)
    assert ranges.past(PARTITION, offset) == offset
