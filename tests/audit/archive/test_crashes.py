"""Whatever dies when: the archive becomes what it would have become undisturbed, byte for byte, with each record once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.audit.archive.read import read_archive
from stream.audit.archive.target import Target
from stream.errors import ConfigurationError, DiskUnavailable
from tests.audit.archive.topic import (
    DyingTarget,
    MemoryTopic,
    PhotographedTarget,
    Stopped,
    feed,
    files_of,
    plain_topic,
    sink_once,
    work_on,
)
from tests.examples import examples

COUNT = 18
GAPS = (3, 4, 14, 15, 16)


@pytest.fixture(scope="module")
def topic() -> MemoryTopic:
    """Three ranges, the last one not full, with gaps within and at the edges of ranges."""
    return plain_topic(COUNT, gaps=GAPS)


@pytest.fixture(scope="module")
def undisturbed(topic: MemoryTopic, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    totals = sink_once(topic, Target(str(folder)))
    assert (totals.records + totals.unreadable, totals.ranges) == (COUNT, 2)
    assert Counter(one.stored.offset for one in read_archive(str(folder))) == Counter(
        one.offset for one in topic.records[0]
    )
    return files_of(folder)


@pytest.mark.parametrize("tail_every", [0, 3])
def test_a_death_between_any_two_steps_changes_nothing(
    topic: MemoryTopic, undisturbed: dict[str, str], tmp_path: Path, tail_every: int
) -> None:
    """Given a sink that dies before or after any of its steps, when another one begins, then the files are those of an undisturbed run."""
    alive = PhotographedTarget(str(tmp_path / "alive"), tmp_path / "album")
    sink_once(topic, alive, tail_every=tail_every)
    assert files_of(tmp_path / "alive") == undisturbed
    assert len(alive.photographs) >= 2 * len(undisturbed)  # each file on its way, and there
    for number, folder in enumerate(alive.photographs[:: 3 if tail_every else 1]):
        seen = glob_offsets(folder)
        assert max(Counter(seen).values(), default=1) == 1, f"in photograph {number} a reader sees a record twice"
        sink_once(topic, Target(str(folder)), tail_every=2)
        assert files_of(folder) == undisturbed, f"from photograph {number}"


def glob_offsets(folder: Path) -> list[int]:
    """What a reader's glob finds, whatever the range files say."""
    if not any(folder.glob("day=*")):
        return []
    found = duckdb.read_parquet(f"{folder}/day=*/**/*.parquet").project("kafka_offset").fetchall()
    return [offset for (offset,) in found]


@given(deaths=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 4), st.integers(1, COUNT + 10)), max_size=6))
@settings(max_examples=examples(15))
def test_many_deaths_in_a_row_change_nothing(
    topic: MemoryTopic,
    undisturbed: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    deaths: list[tuple[int, int, int]],
) -> None:
    """Given sinks that die one after the other, each seeing more or less of the topic, when one lives, then the files are those of an undisturbed run."""
    folder = tmp_path_factory.mktemp("deaths")
    for steps, tail_every, seen in deaths:
        part = MemoryTopic(records={0: [one for one in topic.records[0] if one.offset < seen]})
        work = None
        try:
            work = work_on(part, DyingTarget(str(folder), steps=steps))
            feed(part, work, tail_every=tail_every)
            work.keep_tail(now=True)
        except Stopped:
            pass
        except ConfigurationError as shrank:  # which no real topic does
            assert "the topic was made anew or cut" in str(shrank)  # noqa: PT017 - it need not happen
        finally:
            if work is not None:
                work.close()
    sink_once(topic, Target(str(folder)))
    assert files_of(folder) == undisturbed


def test_what_was_shown_is_never_shown_no_more(topic: MemoryTopic, tmp_path: Path) -> None:
    """Given a tail of many records, when a new sink has read only some of them again, then its tail does not replace the longer one."""
    folder = tmp_path / "archive"
    part = MemoryTopic(records={0: topic.records[0][:8]})
    sink_once(part, Target(str(folder)))
    before = files_of(folder)
    work = work_on(part, Target(str(folder)))
    feed(part, work, tail_every=1, until=5)
    work.keep_tail(now=True)
    assert files_of(folder) == before
    work.close()


class FullAtTimes(Target):
    """A disk that is full at every other step."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._turn = 0

    def keep(self, draft: Path, path: str) -> None:
        """Refuse, then do."""
        self._turn += 1
        if self._turn % 2:
            msg = "the disk is full"
            raise DiskUnavailable(msg)
        super().keep(draft, path)


def test_a_disk_that_is_full_at_times_changes_nothing(
    topic: MemoryTopic, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    """Given a disk that refuses every other file, when each step is tried again, then the files are those of an undisturbed run."""

    def until_done(doing: Callable[[], Any]) -> Any:
        for _ in range(20):
            with suppress(DiskUnavailable):
                return doing()
        raise AssertionError

    sink_once(MemoryTopic(records={0: []}), Target(str(tmp_path)))
    sink_once(topic, FullAtTimes(str(tmp_path)), tail_every=3, wait_out=until_done)
    assert files_of(tmp_path) == undisturbed
