"""Reading an archive back: order, filters, hostile records, other stores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.audit.archive.layout import TAIL
from stream.audit.archive.read import Wanted, read_archive
from stream.audit.archive.target import Target
from stream.errors import ArchiveDamaged, ConfigurationError, DiskUnavailable, UnknownSchema
from stream.times import TIME_MS_MAX, TIME_MS_MIN, rfc3339
from stream.wire.avro_records import decode
from stream.wire.framing import SingleObject
from tests.audit.archive.topic import MemoryTopic, audit_record, plain_topic, sink_once, stored, work_on
from tests.examples import examples
from tests.wire.records import records

HOSTILE = [
    "../../etc",
    "a/b",
    "",
    "..",
    "é" * 90,
    "x" * 300,
    "NULL",
    "__HIVE_DEFAULT_PARTITION__",
    "%2e%2e",
    "a\0b",
    "A",
    "a",
]
EVENT_TIMES = [None, rfc3339(TIME_MS_MIN), rfc3339(TIME_MS_MAX), "1969-12-31T23:59:59.999Z", "2026-11-28T00:00:00.000Z"]


def test_it_comes_in_the_order_of_the_topic(tmp_path: Path) -> None:
    """Given two partitions with gaps and garbage, then all comes back by partition and offset, with what stood there."""
    first, second = plain_topic(20, gaps=(2, 8)), plain_topic(13, partition=1)
    topic = MemoryTopic(records=first.records | second.records)
    sink_once(topic, Target(str(tmp_path)), partitions=(1, 0))
    found = list(read_archive(f"file://{tmp_path}"))
    places = [one.stored for one in found]
    sent = [*first.records[0], *second.records[1]]
    assert [(one.partition, one.offset, one.timestamp_ms) for one in places] == [
        (one.partition, one.offset, one.timestamp_ms) for one in sent
    ]
    for one, was in zip(found, sent, strict=True):
        if isinstance(one.record, str):
            assert "cannot be decoded" in one.record
            assert was.value is not None
            assert was.value.startswith(b"garbage")
        else:
            assert one.record == decode(was.value or b"")[1]
        assert one.stored.where == f"audit[{one.stored.partition}]@{one.stored.offset}"


def test_days_and_models_are_chosen_by_what_the_records_say(tmp_path: Path) -> None:
    """Given records of hostile models and of all times there can be, when days and models are asked for, then exactly theirs come, and those without a time only when no day is named."""
    made = [
        audit_record(10 * number + turn, model_id=model, model_version=version, event_time=event_time)
        for number, (model, version) in enumerate([*((one, "1") for one in HOSTILE), *(("m", one) for one in HOSTILE)])
        for turn, event_time in enumerate(EVENT_TIMES)
    ]
    topic = MemoryTopic(records={0: [stored(offset, record) for offset, record in enumerate(made)]})
    sink_once(topic, Target(str(tmp_path / "a")), range_offsets=50)
    decisions = [one["body"]["decision"] for one in made]
    for wanted in HOSTILE:
        of_model = [n for n, one in enumerate(decisions) if one["model_id"] == wanted]
        assert [one.stored.offset for one in read_archive(str(tmp_path / "a"), Wanted(model_id=wanted))] == of_model
        of_version = [n for n, one in enumerate(decisions) if one["model_version"] == wanted]
        assert [
            one.stored.offset for one in read_archive(str(tmp_path / "a"), Wanted(model_version=wanted))
        ] == of_version
    for since, until in ((date.min, date.max), (date(1969, 12, 31), date(1969, 12, 31)), (date.min, date(1, 1, 1))):
        of_days = [
            n
            for n, one in enumerate(decisions)
            if one["event_time"] and since <= date.fromisoformat(one["event_time"][:10]) <= until
        ]
        found = [one.stored.offset for one in read_archive(str(tmp_path / "a"), Wanted(since=since, until=until))]
        assert found == of_days
        assert found
    assert len(list(read_archive(str(tmp_path / "a")))) == len(made)
    below = {path.resolve() for path in tmp_path.rglob("*.parquet")}
    assert all((tmp_path / "a").resolve() in path.parents for path in below)


@given(made=st.lists(records("AuditRecord"), min_size=1, max_size=4))
@settings(max_examples=examples(12))
def test_any_record_of_the_schema_comes_back(tmp_path_factory: pytest.TempPathFactory, made: list[Any]) -> None:
    """Given any records that the schema allows, then each comes back as its canonical JSON, or as bytes with a reason, and none is left out."""
    folder = tmp_path_factory.mktemp("any")
    topic = MemoryTopic(records={0: [stored(offset, record) for offset, record in enumerate(made)]})
    sink_once(topic, Target(str(folder)), range_offsets=3)
    found = list(read_archive(str(folder)))
    assert [one.stored.offset for one in found] == list(range(len(made)))
    for one, was in zip(found, topic.records[0], strict=True):
        assert isinstance(one.record, str) or one.record == decode(was.value or b"")[1]


@pytest.fixture
def memory() -> Iterator[str]:
    """A store that is no disk."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield "memory://bucket/audit"
    system.store.clear()


def test_a_store_that_is_no_disk_holds_the_same(memory: str, tmp_path: Path) -> None:
    """Given an object store, when a sink writes to it, dies and goes on, then it holds what a disk would, byte for byte."""
    topic = plain_topic(20)
    sink_once(topic, Target(str(tmp_path)))
    part = MemoryTopic(records={0: topic.records[0][:13]})
    sink_once(part, Target(memory))
    sink_once(topic, Target(memory))
    system = fsspec.filesystem("memory")
    held = {path.removeprefix("/bucket/audit/"): system.cat_file(path) for path in system.find("/bucket/audit")}
    assert held == {
        str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert [one.stored.offset for one in read_archive(memory)] == [
        one.stored.offset for one in read_archive(str(tmp_path))
    ]


def test_what_an_earlier_version_could_not_read_is_tried_again(tmp_path: Path) -> None:
    """Given bytes that were kept as unreadable, when they are read by who can decode them, then they are a record."""
    record = audit_record(1)

    class Earlier(SingleObject):
        """Knows no schema of today."""

        def decode(self, data: bytes, *, topic: str) -> Any:  # noqa: ARG002 - the interface's
            """Refuse."""
            raise UnknownSchema(topic)

    topic = MemoryTopic(records={0: [stored(0, record)]})
    work = work_on(topic, Target(str(tmp_path)))
    work.framing = Earlier()
    work.begin()
    work.take(topic.records[0][0])
    work.keep_tail(now=True)
    work.close()
    assert next(read_archive(str(tmp_path), framing=Earlier())).record == "cannot be decoded: audit"
    assert next(read_archive(str(tmp_path))).record == record


def test_a_missing_file_and_what_is_no_archive_are_told(tmp_path: Path) -> None:
    """Given no archive, an archive without a file, one whose range file is garbage, or no permission, then the error says which, and what to do."""
    with pytest.raises(ConfigurationError, match="there is no archive at"):
        next(read_archive(str(tmp_path)))
    sink_once(plain_topic(5), Target(str(tmp_path)))
    file = next(tmp_path.glob("day=*/*/*/*.parquet"))
    content = file.read_bytes()
    file.unlink()
    with pytest.raises(ArchiveDamaged, match="is missing"):
        list(read_archive(str(tmp_path)))
    file.write_bytes(content[:100])
    with pytest.raises(ArchiveDamaged, match="cannot be read as one of its files"):
        list(read_archive(str(tmp_path)))
    next(tmp_path.glob(f"_ranges/*/*/*{TAIL}")).write_text(json.dumps([1]))
    with pytest.raises(ArchiveDamaged, match="was it changed"):
        list(read_archive(str(tmp_path)))


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("s3://key:secret@bucket/x", "s3fs"),
        ("nowhere://x?sig=secret", "Protocol not known"),
        ("gs://b/x?token=secret", "gcsfs"),
    ],
)
def test_a_store_that_cannot_be_reached_is_named_without_secrets(uri: str, said: str) -> None:
    """Given a store whose package is not installed, or that nobody knows, then the error says what to install, and no secret."""
    with pytest.raises(ConfigurationError) as refused:
        Target(uri)
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_disk_that_refuses_is_named(tmp_path: Path) -> None:
    """Given a target below a file, when it is written, then the error is a disk's and says where."""
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskUnavailable, match="the archive at"):
        Target(str(tmp_path / "file" / "archive")).write("a", b"b")
