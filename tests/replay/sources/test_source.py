"""Sources are cut the same way every time, and give each record once, whatever part of them is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.audit.archive.read import Wanted
from stream.audit.archive.rows import ReadRow
from stream.errors import ConfigurationError
from stream.replay.judge.verdict import Side, Verdict
from stream.replay.report.tally import ReplayTally, effort_bin, effort_of_bin, merged, tally_of
from stream.replay.sources import source as sources
from stream.replay.sources.archive_source import ArchivedRecords
from stream.replay.sources.records import Window, window_of
from stream.replay.sources.source import JsonlSource, chunks_of, snapshot_of
from stream.replay.sources.topic_source import read_offsets
from stream.runtime.kafka.inbound import Inbound
from stream.wire.framing import SINGLE_OBJECT, Framing
from tests.examples import examples

ranges = st.dictionaries(
    st.integers(0, 9), st.tuples(st.integers(0, 500), st.integers(0, 500)).map(sorted).map(tuple), max_size=4
)


@given(found=ranges, size=st.integers(1, 90))
def test_chunks_cover_a_range_once(found: dict[int, tuple[int, int]], size: int) -> None:
    """Given ranges of offsets, when cut into chunks, then these cover each offset once, in order, begin at multiples of their size but for the first, and are named in their order."""
    chunks = chunks_of(found, size)
    covered = [(one.part, offset) for one in chunks for offset in range(one.first, one.end)]
    assert covered == [(part, offset) for part, ends in sorted(found.items()) for offset in range(*ends)]
    assert all(one.first % size == 0 or one.first == found[one.part][0] for one in chunks)
    assert sorted(one.name for one in chunks) == [one.name for one in chunks]


@given(
    lines=st.lists(st.sampled_from([b"{}", b"", b"  ", b'{"a": 1}', b"x" * 300]), max_size=30),
    size=st.integers(1, 12),
    skip=st.integers(0, 3),
)
def test_lines_come_once_wherever_reading_begins(
    lines: list[bytes], size: int, skip: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Given a file with blank and overlong lines, when it is read from any chunk on, then each line that is not blank comes once, with its number, and an overlong one as what it is."""
    path = tmp_path_factory.mktemp("lines") / "input.jsonl"
    path.write_bytes(b"\n".join(lines))
    source = JsonlSource(path)
    kept = snapshot_of(source.snapshot().to_json())
    chunks = chunks_of(kept.ranges, size)
    found = [raw for read in source.read(chunks[skip:]) for raw in read.raws]
    first = skip * size
    present = path.read_bytes().split(b"\n")
    wanted = [number for number, line in enumerate(present) if line.strip() and number >= first]
    assert [raw.inbound.offset for raw in found] == wanted
    assert len(list(source.read(chunks[skip:]))) == len(chunks[skip:])
    source.check(kept)
    path.write_bytes(b"\n".join([*lines, b"more"]))
    with pytest.raises(ConfigurationError, match="--input"):
        source.check(kept)


def test_a_line_too_long_to_hold_is_one_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a line longer than what is read of one, when read, then it is one record that says so, the next line is the next, and its content still counts for what the file is."""
    monkeypatch.setattr(sources, "LINE_BYTES_MAX", 64)
    path = tmp_path / "input.jsonl"
    path.write_bytes(b"{}\n" + b"x" * 1_000 + b"\n{}\n")
    source = JsonlSource(path)
    kept = source.snapshot()
    [read] = source.read(chunks_of(kept.ranges, 10))
    assert [raw.where for raw in read.raws] == ["line 1", "line 2", "line 3"]
    assert "longer than" in str(read.raws[1].content)
    path.write_bytes(b"{}\n" + b"x" * 999 + b"y\n{}\n")
    with pytest.raises(ConfigurationError):
        source.check(kept)


class Archive:
    """Gives what an archive would, and remembers which days it was asked for."""

    def __init__(self, places: list[tuple[int, int]], topic: str = "audit") -> None:
        self.asked: list[Wanted] = []
        self._records = [
            ReadRow(
                stored=Inbound(
                    topic=topic, partition=part, offset=offset, timestamp_ms=1, key=None, value=None, first_seen_ms=0
                ),
                record="none",
            )
            for part, offset in sorted(places)
        ]

    def __call__(self, _uri: str, asked: Wanted, *, framing: Framing) -> Iterator[ReadRow]:  # noqa: ARG002 - the interface
        """Read."""
        self.asked.append(asked)
        return iter(self._records)


@given(
    places=st.sets(st.tuples(st.integers(0, 2), st.integers(0, 60)), max_size=40),
    more=st.sets(st.tuples(st.integers(0, 3), st.integers(61, 90)), max_size=10),
    size=st.integers(1, 20),
    done=st.sets(st.integers(0, 30)),
)
def test_an_archive_that_grows_gives_what_it_held(
    places: set[tuple[int, int]], more: set[tuple[int, int]], size: int, done: set[int]
) -> None:
    """Given an archive with holes that grows after a run began, when any of the run's chunks are read, then exactly the records that it held in them come, each once, and each chunk is given."""
    window = Window()
    before = ArchivedRecords("x", window=window, framing=SINGLE_OBJECT, reads=Archive(sorted(places)))
    kept = before.snapshot()
    assert kept.records == len(places)
    chunks = [one for place, one in enumerate(chunks_of(kept.ranges, size)) if place not in done]
    after = ArchivedRecords("x", window=window, framing=SINGLE_OBJECT, reads=Archive(sorted(places | more)))
    found = list(after.read(chunks))
    assert [read.chunk for read in found] == chunks
    for read in found:
        chunk, raws = read.chunk, read.raws
        wanted = sorted(offset for part, offset in places if part == chunk.part and chunk.first <= offset < chunk.end)
        assert [raw.inbound.offset for raw in raws] == wanted


def test_a_window_names_the_days_of_an_archive() -> None:
    """Given a window of times, when an archive is read, then it is asked for exactly the days that the window touches, and where it has none of them, what it holds is said."""
    archive = Archive([])
    window = window_of("2026-11-01T10:00:00Z", "2026-11-04T00:00:00Z")
    held = {"records": 7, "first": "2026-11-05", "last": "2026-11-06"}
    source = ArchivedRecords("x", window=window, framing=SINGLE_OBJECT, reads=archive, holds=lambda _: held)
    assert source.snapshot().says["left_out"] == held
    [asked] = archive.asked
    assert (asked.since, asked.until) == (date(2026, 11, 1), date(2026, 11, 3))


def test_offsets_are_read_as_they_are_written() -> None:
    """Given ranges with and without ends, when read, then each partition has its own; nonsense and a partition named twice are refused."""
    assert read_offsets("0:1-2, 3:-9,4:5-,5:-") == {0: (1, 2), 3: (None, 9), 4: (5, None), 5: (None, None)}
    for wrong in ("", "0", "0:1", "0:2-1-3", "0:1-2,0:3-4", "-1:0-1", "a:1-2", "0:1-" + "9" * 30):
        with pytest.raises(ConfigurationError, match="--offsets"):
            read_offsets(wrong)


sides = st.builds(
    Side,
    margin=st.floats(-30, 30),
    feasibility=st.sampled_from(["feasible", "infeasible", "not_model", "unknown"]),
    tiers=st.lists(
        st.tuples(st.sampled_from(["near", "mid", "far"]), st.floats(0, 1e6), st.tuples(st.sampled_from("abc"))),
        max_size=3,
    ).map(tuple),
)
verdicts = st.builds(
    Verdict,
    outcome=st.sampled_from(["still_declined", "newly_declined", "still_approved"]),
    decision_id=st.text(max_size=5),
    differs=st.lists(st.sampled_from(["reasons", "near: actions"]), unique=True).map(tuple),
    before=st.none() | sides,
    after=st.none() | sides,
)


@settings(max_examples=examples(40))
@given(found=st.lists(verdicts, max_size=20), cuts=st.sets(st.integers(0, 20)))
def test_tallies_add_up_in_any_grouping(found: list[Verdict], cuts: set[int]) -> None:
    """Given verdicts, when tallied in chunks of any sizes, kept as JSON and added up, then the sum is that of all at once."""
    whole = ReplayTally()
    for place, verdict in enumerate(found):
        whole.add(verdict, str(place))
    edges = [0, *sorted(one for one in cuts if one < len(found)), len(found)]
    parts = []
    for low, high in pairwise(edges):
        part = ReplayTally()
        for place in range(low, high):
            part.add(found[place], str(place))
        parts.append(tally_of(part.to_json()))
    assert merged(parts).to_json() == whole.to_json()


@given(effort=st.floats(1e-9, 1e9))
def test_an_efforts_bin_is_near_it(effort: float) -> None:
    """Given an effort, when it is told by its bin, then it is at most 4.5 % off."""
    assert abs(effort_of_bin(effort_bin(effort)) / effort - 1) < 0.045
