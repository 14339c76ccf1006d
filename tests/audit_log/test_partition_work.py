"""One partition's work: where it goes on, what retention takes, and sinks that get into each other's way."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stream.archive.layout import range_of
from stream.archive.markers import read_marker
from stream.archive.read import read_archive
from stream.archive.target import Target
from stream.audit_log.archive_check import ArchiveCheck
from stream.audit_log.check import Tally, check
from stream.errors import ArchiveDamaged, ConfigurationError, RecordsLost
from tests.archive.topic import MemoryTopic, audit_record, feed, files_of, plain_topic, sink_once, stored, work_on

LENGTH = 8


@pytest.fixture
def topic() -> MemoryTopic:
    """Twenty good records: two ranges and a half."""
    return MemoryTopic(records={0: [stored(offset, audit_record(offset)) for offset in range(20)]})


def first_of(topic: MemoryTopic, count: int) -> MemoryTopic:
    """The topic as it was when it had so many records."""
    return MemoryTopic(records={0: topic.records[0][:count]})


def offsets(folder: Path) -> list[int]:
    return [one.offset for one in read_archive(str(folder))]


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
