from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stream.notify.consumer import OpenOffsets
from tests.examples import examples


@settings(max_examples=examples(200))
@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 30))))
def test_only_what_is_settled_without_a_gap_is_committed(steps: list[tuple[bool, int]]) -> None:
    """Given records read in order and settled in any, when asked what to commit, then the first that is not settled, or the next to read."""
    offsets, read, settled = OpenOffsets(), 0, set[int]()
    for reads, number in steps:
        if reads:
            offsets.read(read)
            read += 1
        elif number < read:
            offsets.settle(number)
            settled.add(number)
        expected = next((offset for offset in range(read) if offset not in settled), read)
        assert offsets.safe == (expected if read else None)
        assert all((offset in offsets) == (offset not in settled) for offset in range(read))
