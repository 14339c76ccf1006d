"""One partition's work: where it goes on, what retention takes, and sinks that get into each other's way."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.audit.archive.layout import range_of
from stream.audit.archive.markers import Identity, read_marker, write_identity
from stream.audit.archive.read import read_archive
from stream.audit.archive.target import Target
from stream.audit.archive_check import ArchiveCheck
from stream.audit.record_check import Tally, check
from stream.audit.sink.partition_work import missing_of
from stream.errors import ArchiveDamaged, ConfigurationError, RecordsLost
from tests.audit.archive.topic import MemoryTopic, audit_record, feed, files_of, plain_topic, sink_once, stored, work_on

LENGTH = 8


@pytest.fixture
def topic() -> MemoryTopic:
    """Twenty good records: two ranges and a half."""
    return MemoryTopic(records={0: [stored(offset, audit_record(offset)) for offset in range(20)]})


def first_of(topic: MemoryTopic, count: int) -> MemoryTopic:
    """The topic as it was when it had so many records."""
    return MemoryTopic(records={0: topic.records[0][:count]})


def offsets(folder: Path) -> list[int]:
    return [one.stored.offset for one in read_archive(str(folder))]


def faults(folder: Path) -> list[str]:
    archive = ArchiveCheck(str(folder), sleep=lambda _: None)
    return list(check(archive.read(), Tally()))


def test_the_archive_alone_says_where_to_go_on(topic: MemoryTopic, tmp_path: Path) -> None:
    """Given an archive of two whole ranges and a tail, when a sink begins, then it reads from the tail's start on; at another place it begins at the topic's."""
    sink_once(topic, Target(str(tmp_path / "a")))
    for folder, position in (("a", 16), ("b", 0)):
        work = work_on(topic, Target(str(tmp_path / folder)))
        assert (work.begin(), work.committable) == (position, position)
        work.close()


def test_a_new_archive_begins_with_what_the_topic_still_has(topic: MemoryTopic, tmp_path: Path) -> None:
    """Given a topic whose first records are gone for long, when an archive is made, then it begins there, within its range, and all holds."""
    topic.low[0] = 11
    totals = sink_once(topic, Target(str(tmp_path)))
    assert (totals.records, totals.lost) == (9, 0)
    assert offsets(tmp_path) == list(range(11, 20))
    assert faults(tmp_path) == []
    marker = read_marker(Target(str(tmp_path)), range_of("audit", 0, 8, LENGTH), whole=True)
    assert marker is not None
    assert marker.first == 11


def test_a_quiet_partition_outlives_the_retention_of_its_tail(topic: MemoryTopic, tmp_path: Path) -> None:
    """Given a tail whose first records the topic deleted since, when a sink begins, then it takes them back from the archive, and in the end the files are those of an undisturbed sink."""
    sink_once(topic, Target(str(tmp_path / "undisturbed")))
    for seen, low in ((12, 10), (12, 12), (20, 18), (5, 3)):
        folder = tmp_path / f"{seen}-{low}"
        sink_once(first_of(topic, seen), Target(str(folder)))
        topic.low[0] = low
        totals = sink_once(topic, Target(str(folder)))
        assert totals.lost == 0
        assert files_of(folder) == files_of(tmp_path / "undisturbed")


@pytest.mark.parametrize(("seen", "low"), [(12, 14), (12, 19), (3, 18), (0, 2), (16, 17)])
def test_a_loss_is_told_and_a_person_accepts_it(topic: MemoryTopic, tmp_path: Path, seen: int, low: int) -> None:
    """Given records deleted before the archive had them, when a sink begins, then it refuses and names them; once accepted, the rest is kept, the lost are named for ever, and the next sink goes on."""
    sink_once(first_of(topic, seen), Target(str(tmp_path)))
    topic.low[0] = low
    before = files_of(tmp_path)
    with pytest.raises(RecordsLost, match=f"offsets {seen} to {low - 1} of audit partition 0"):
        sink_once(topic, Target(str(tmp_path)))
    assert files_of(tmp_path) == before
    totals = sink_once(topic, Target(str(tmp_path)), accept_loss=True)
    assert totals.lost == low - seen
    assert sink_once(topic, Target(str(tmp_path))).lost == 0
    assert offsets(tmp_path) == [*range(seen), *range(low, 20)]
    told = faults(tmp_path)
    assert told
    assert all("were deleted from the topic before they were kept" in fault for fault in told)


def test_a_tail_that_a_death_spoilt_is_no_source(topic: MemoryTopic, tmp_path: Path) -> None:
    """Given a tail whose file is not what its range file says, when the topic no longer has its records, then they are lost, and said to be; as long as it has them, it is read again."""
    sink_once(first_of(topic, 12), Target(str(tmp_path / "a")))
    file = next((tmp_path / "a").glob("day=*/*/*/*-0000000000000008-*.parquet"))
    file.write_bytes(file.read_bytes()[:-1])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    topic.low[0] = 10
    with pytest.raises(RecordsLost, match="offsets 8 to 9"):
        sink_once(topic, Target(str(tmp_path / "a")))
    topic.low[0] = 8
    sink_once(topic, Target(str(tmp_path / "b")))
    assert faults(tmp_path / "b") == []


def test_a_hole_is_filled_while_the_topic_has_it(topic: MemoryTopic, tmp_path: Path) -> None:
    """Given a range file that was removed, when a sink begins, then it reads that range again, leaps over what is whole, and the files are as before."""
    sink_once(topic, Target(str(tmp_path)))
    before = files_of(tmp_path)
    next(tmp_path.glob("_ranges/*/*/0000000000000000.json")).unlink()
    work = work_on(topic, Target(str(tmp_path)))
    assert work.begin() == 0
    for one in topic.records[0][:10]:
        work.take(one)
    assert work.seek_to == 16
    work.take(topic.records[0][10])
    work.reached(20)
    assert (work.position, work.totals.records) == (16, 8)
    work.close()
    sink_once(topic, Target(str(tmp_path)))
    assert files_of(tmp_path) == before


def test_a_lost_beginning_is_told_and_made_do_without(topic: MemoryTopic, tmp_path: Path) -> None:
    """Given an archive that no longer says where it begins, then that is named, and a sink goes on from what there is."""
    sink_once(topic, Target(str(tmp_path)))
    next(tmp_path.glob("_ranges/*/*/begins.json")).unlink()
    assert [fault.split(": ", 1)[1] for fault in faults(tmp_path)] == [
        "is missing: nothing says where the archive begins"
    ]
    assert sink_once(topic, Target(str(tmp_path))).records == 4


def test_ends_of_transactions_fill_ranges_too(tmp_path: Path) -> None:
    """Given ranges that hold nothing but gaps, within the topic and at its end, then they are whole without a file, and all holds."""
    records = [stored(offset, audit_record(offset)) for offset in (0, 1, 30)]
    topic = MemoryTopic(records={0: records}, high={0: 50})
    totals = sink_once(topic, Target(str(tmp_path)))
    assert (totals.records, totals.ranges, totals.tails) == (3, 6, 1)
    assert offsets(tmp_path) == [0, 1, 30]
    assert faults(tmp_path) == []
    assert sink_once(topic, Target(str(tmp_path))).ranges == 0


def test_a_sink_that_slept_spoils_nothing(topic: MemoryTopic, tmp_path: Path) -> None:
    """Given a sink that slept while another one made its range whole, when it wakes up, then it writes no tail over it."""
    sleeper = work_on(first_of(topic, 4), Target(str(tmp_path)))
    feed(first_of(topic, 4), sleeper)
    sink_once(topic, Target(str(tmp_path)))
    before = files_of(tmp_path)
    sleeper.keep_tail(now=True)
    sleeper.close()
    assert files_of(tmp_path) == before


class SleepyTarget(Target):
    """Falls asleep before its n-th step, and wakes up when another sink has done everything."""

    def __init__(self, uri: str, topic: MemoryTopic, step: int) -> None:
        super().__init__(uri)
        self._uri, self._topic, self.left = uri, topic, step

    def _step(self) -> None:
        self.left -= 1
        if self.left == -1:
            sink_once(self._topic, Target(self._uri))

    def keep(self, draft: Path, path: str) -> None:
        """Perhaps after a sleep."""
        self._step()
        super().keep(draft, path)

    def remove(self, path: str) -> None:
        """Perhaps after a sleep."""
        self._step()
        super().remove(path)

    def read(self, path: str) -> bytes | None:
        """Perhaps after a sleep."""
        self._step()
        return super().read(path)


@pytest.mark.parametrize("seen", [4, 8, 11])
def test_wherever_a_sink_slept_the_next_one_mends_what_it_spoilt(topic: MemoryTopic, tmp_path: Path, seen: int) -> None:
    """Given a sink that fell asleep before any of its steps while another one made everything whole, when it wakes up and goes on, then the next sink leaves the files of an undisturbed one."""
    sink_once(topic, Target(str(tmp_path / "undisturbed")))
    step, slept = 0, True
    while slept:
        folder = tmp_path / str(step)
        sleepy = SleepyTarget(str(folder), topic, step)
        sleeper = work_on(topic, sleepy)
        feed(topic, sleeper, tail_every=3, until=seen)
        sleeper.keep_tail(now=True)
        sleeper.close()
        slept = sleepy.left < 0
        sink_once(topic, Target(str(folder)))
        assert files_of(folder) == files_of(tmp_path / "undisturbed"), f"slept before step {step}"
        step += 1
    assert step > 15


def test_another_topic_is_not_mixed_in(topic: MemoryTopic, tmp_path: Path) -> None:
    """Given an archive, when the topic was made anew, has another range length, or the archive lost its own name, then nothing is written."""
    sink_once(topic, Target(str(tmp_path)))
    before = files_of(tmp_path)
    with pytest.raises(ConfigurationError, match="was made anew or cut"):
        sink_once(first_of(topic, 3), Target(str(tmp_path)))
    with pytest.raises(ConfigurationError, match="its ranges have 8 offsets, and COACH_SINK_RANGE_OFFSETS=9"):
        work_on(topic, Target(str(tmp_path)), range_offsets=9)
    assert work_on(topic, Target(str(tmp_path)), range_offsets=0).identity.range_offsets == LENGTH
    assert files_of(tmp_path) == before
    (tmp_path / "_archive.json").unlink()
    with pytest.raises(ArchiveDamaged, match="has lost its _archive"):
        work_on(topic, Target(str(tmp_path)))


def test_a_slow_store_is_written_to_less_often(topic: MemoryTopic, tmp_path: Path) -> None:
    """Given a store on which a tail takes seconds, then the next tail waits ten times as long; on a quick one it waits for its bound."""
    now = [0.0]

    class Slow(Target):
        def keep(self, draft: Path, path: str) -> None:
            """Take seconds."""
            now[0] += 20.0
            super().keep(draft, path)

    work = work_on(topic, Slow(str(tmp_path)), clock=lambda: now[0], tail_s=5.0)
    work.begin()
    records = iter(topic.records[0])
    for waits_s, tails in ((1.0, 0), (5.0, 1), (50.0, 1), (200.0, 1), (600.0, 2)):
        work.take(next(records))
        now[0] += waits_s
        work.keep_tail()
        assert work.totals.tails == tails
    work.close()


def test_a_topic_in_an_archive_of_plain_records_is_counted(tmp_path: Path) -> None:
    """Given garbage among records, then totals say how many of each there were."""
    totals = sink_once(plain_topic(20), Target(str(tmp_path)))
    assert (totals.records, totals.unreadable, totals.suspect) == (18, 2, 0)


def exchange(folder: Path) -> None:
    """Put another archive's name in its place."""
    (folder / "_archive.json").unlink()
    write_identity(Target(str(folder)), Identity(topic="audit", range_offsets=LENGTH, topic_id="two"))


WIPED: Final[
    dict[str, tuple[Callable[[Path], object], str]]
] = {  # what somebody did to an archive under a sink, and what it says is lost
    "all": (shutil.rmtree, "lost _archive.json"),
    "its name": (lambda folder: (folder / "_archive.json").unlink(), "lost _archive.json"),
    "its ranges": (lambda folder: shutil.rmtree(folder / "_ranges"), "lost _ranges/audit/00000/"),
    "another": (exchange, "there is another archive now"),
}


@pytest.mark.parametrize("wiped", WIPED)
@pytest.mark.parametrize("seen", [3, 12])
def test_an_archive_that_goes_away_under_a_sink_is_missed(
    topic: MemoryTopic, tmp_path: Path, wiped: str, seen: int
) -> None:
    """Given a sink in its first range or a later one, when the archive is wiped under it, then it writes nothing more and says what is gone and what to do, at its next range, its next tail, or its end."""
    how, said = WIPED[wiped]
    for then in ("a range", "a tail", "the end"):
        folder = tmp_path / then
        work = work_on(topic, Target(str(folder)))
        feed(topic, work, until=seen)
        if then == "the end":
            work.keep_tail(now=True)
        how(folder)
        before = files_of(folder) if folder.exists() else {}
        go_on = partial(work.reached, 20) if then == "a range" else partial(work.keep_tail, now=True)
        with pytest.raises(ArchiveDamaged, match=said) as told:
            go_on()
        assert "start the sink" in str(told.value)
        assert (files_of(folder) if folder.exists() else {}) == before
        work.close()


def test_a_lost_range_file_is_told_as_what_it_is(topic: MemoryTopic, tmp_path: Path) -> None:
    """Given a whole range without its range file, when the topic no longer has it nor some of what is kept, then only that range is said to be missing, with its place and what to do; accepted, the file that is left is named with how to mend it."""
    sink_once(topic, Target(str(tmp_path)))
    before = files_of(tmp_path)
    lost = tmp_path / "_ranges" / "audit" / "00000" / "0000000000000000.json"
    content = lost.read_bytes()
    lost.unlink()
    topic.low[0] = 18
    with pytest.raises(RecordsLost, match="offsets 0 to 7 of audit partition 0 are not in the archive") as told:
        sink_once(topic, Target(str(tmp_path)))
    assert "_ranges/audit/00000/0000000000000000.json was there and is gone: put it back" in str(told.value)
    assert any("0000000000000000.json is missing or damaged: put that back" in fault for fault in faults(tmp_path))
    assert sink_once(topic, Target(str(tmp_path)), accept_loss=True).lost == 8
    assert any("put an older copy of the range file in that place" in fault for fault in faults(tmp_path))
    lost.write_bytes(content)
    sink_once(topic, Target(str(tmp_path)))
    assert files_of(tmp_path) == before
    assert faults(tmp_path) == []


def test_a_partition_whose_folder_is_gone_is_filled_again_or_told(topic: MemoryTopic, tmp_path: Path) -> None:
    """Given an archive that lost a partition's ranges and its beginning, when the topic has all of it, then a sink makes it whole; when it has not, then the sink refuses and says what to do."""
    sink_once(topic, Target(str(tmp_path)))
    before = files_of(tmp_path)
    shutil.rmtree(tmp_path / "_ranges")
    sink_once(topic, Target(str(tmp_path)))
    assert files_of(tmp_path) == before
    shutil.rmtree(tmp_path / "_ranges")
    topic.low[0] = 5
    with pytest.raises(ArchiveDamaged, match="_ranges/audit/00000 is gone; the topic has nothing below offset 5"):
        sink_once(topic, Target(str(tmp_path)))
    (tmp_path / "_partitions" / "audit" / "00000.held.json").unlink()
    assert sink_once(topic, Target(str(tmp_path))).records == 15


@given(first=st.integers(0, 40), end=st.integers(0, 60), there=st.sets(st.integers(0, 8)))
def test_what_is_missing_is_what_no_range_has(first: int, end: int, there: set[int]) -> None:
    """Given any ranges, then the spans named as missing hold each offset that no other range has, and no more, and never touch."""
    spans = missing_of(first, end, {LENGTH * one: "whole" for one in there}, LENGTH)
    found = [offset for start, until in spans for offset in range(start, until)]
    assert found == [at for at in range(first, end) if at // LENGTH not in there or at // LENGTH == first // LENGTH]
    assert all(until < start for (_, until), (start, _) in pairwise(spans))
