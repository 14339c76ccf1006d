"""Names in an archive, made of texts that outsiders chose."""

from __future__ import annotations

import re
from datetime import date
from pathlib import PurePosixPath
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream.audit.archive.layout import (
    day_in,
    day_of,
    marked,
    marker_path,
    quoted,
    range_of,
    records_path,
    unreadable_path,
)
from stream.times import TIME_MS_MAX, TIME_MS_MIN, rfc3339

ids = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
SAFE = re.compile(r"[A-Za-z0-9._%~-]{1,100}")


@given(text=ids)
@example("")
@example("..")
@example("/../../etc/passwd")
@example("a" * 101)
@example("é" * 40)
@example("con:fig*?[x]\0\n")
@example("~")
def test_any_id_is_one_safe_folder(text: str) -> None:
    """Given any id, when it is quoted, then it is one part of a path, never . or .., of at most 100 plain characters."""
    name = quoted(text)
    assert SAFE.fullmatch(name)
    assert name.strip(".")
    if "~" not in name:
        assert unquote(name) == text


@given(one=ids, other=ids)
@example("a/b", "a%2Fb")
@example("x" * 120, "x" * 121)
@example("", "..")
def test_two_ids_never_share_a_folder(one: str, other: str) -> None:
    """Given two different ids, then their folders differ; where a file system takes two folders for one, the files differ."""
    assert (quoted(one) == quoted(other)) == (one == other)
    of = range_of("audit", 0, 5, 10)
    paths = [PurePosixPath(records_path(of, 0, text, "1")) for text in (one, other)]
    assert (paths[0].name == paths[1].name) == (one == other)


def test_model_and_version_are_not_run_together() -> None:
    """Given ids that are equal once they are written one after the other, then their files differ."""
    of = range_of("audit", 0, 5, 10)
    assert records_path(of, 0, "ab", "c") != records_path(of, 0, "a", "bc")
    assert records_path(of, 0, "ab", "c").rpartition("/")[2] != records_path(of, 0, "a", "bc").rpartition("/")[2]


@given(time_ms=st.integers(TIME_MS_MIN, TIME_MS_MAX))
@example(TIME_MS_MIN)
@example(TIME_MS_MAX)
@example(-1)
@example(0)
@example(86_399_999)
def test_a_day_is_that_of_the_time_in_utc(time_ms: int) -> None:
    """Given any time that a record can carry, then its folder is its day in UTC, and is read back."""
    assert day_of(time_ms) == rfc3339(time_ms)[:10]
    path = records_path(range_of("audit", 0, 5, 10), time_ms, "m", "1")
    assert day_in(path) == date.fromisoformat(day_of(time_ms))


def test_no_time_has_a_folder_of_its_own() -> None:
    """Given a record without a time, then it lies where readers of Hive's paths see null."""
    path = records_path(range_of("audit", 3, 25, 10), None, "m", "1")
    assert path.startswith("day=__HIVE_DEFAULT_PARTITION__/model=m/version=1/audit-00003-0000000000000020-")
    assert day_in(path) is None
    with pytest.raises(ValueError, match="no path of records"):
        day_in("_ranges/audit")


@given(offset=st.integers(0, 2**62), length=st.integers(1, 10**6))
def test_ranges_are_aligned_and_follow_each_other(offset: int, length: int) -> None:
    """Given any offset, then its range holds it, begins at a multiple of its length, and ends where the next one begins."""
    of = range_of("audit", 0, offset, length)
    assert of.start <= offset < of.end == of.start + length
    assert of.start % length == 0


def test_range_files_are_read_back_from_their_names() -> None:
    """Given names of range files among others, then start and completeness come back."""
    of = range_of("audit", 3, 25, 10)
    names = [
        marker_path(of, whole=True),
        marker_path(range_of("audit", 3, of.end, 10), whole=False),
        "x.json",
        "0.parquet",
        "٣.json",
    ]
    assert list(marked(names)) == [(20, True), (30, False)]
    assert unreadable_path(of) == "_unreadable/audit-00003-0000000000000020.parquet"


@pytest.mark.parametrize("topic", ["_audit", ".audit", "-a", "a" * 249])
def test_a_topic_of_any_name_gives_files_that_readers_see(topic: str) -> None:
    """Given a topic whose name begins with what readers pass over, or is as long as Kafka allows, then its files begin plainly and fit a file system."""
    name = records_path(range_of(topic, 99_999, 2**62, 10), 0, "m", "1").rpartition("/")[2]
    assert name[0].isalnum()
    assert len(name.encode()) <= 255
