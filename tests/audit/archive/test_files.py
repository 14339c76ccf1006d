"""Files of an archive: the same bytes for the same rows, one decision in one row group, and columns that come and go."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.audit.archive.columns import RECORDS, as_margin
from stream.audit.archive.layout import range_of
from stream.audit.archive.range_files import GROUP_ROWS, write_rows
from stream.audit.archive.range_spool import RangeSpool, SpoolRow
from stream.audit.archive.read import read_archive
from stream.audit.archive.rows import read_rows, row_of, suspect
from stream.audit.archive.target import Target
from stream.errors import ArchiveDamaged
from stream.wire.framing import SingleObject
from tests.audit.archive.topic import MemoryTopic, audit_record, sink_once, stored

COUNT = 350
OF = range_of("audit", 0, 0, 1_000)


@pytest.fixture(scope="module")
def rows() -> list[SpoolRow]:
    """Rows of one file, in the order of the topic, which is not that of the decisions."""
    numbers = random.Random(5).sample(range(10_000), COUNT)  # noqa: S311 - an order, no secret
    return [
        row_of(stored(offset, audit_record(number)), OF, SingleObject())[0] for offset, number in enumerate(numbers)
    ]


def written(rows: list[SpoolRow], file: Path) -> bytes:
    with RangeSpool() as spool:
        for row in rows:
            spool.add(row)
        (path,) = spool.paths
        entry = write_rows(spool.rows_of(path), file, path)
    assert (entry.rows, entry.bytes) == (len({row.offset for row in rows}), file.stat().st_size)
    return file.read_bytes()


def test_the_same_rows_are_the_same_bytes(rows: list[SpoolRow], tmp_path: Path) -> None:
    """Given the same rows in any order, some of them twice, when they are written, then the file is the same byte for byte."""
    shuffled = random.Random(6).sample(rows, len(rows))  # noqa: S311 - as above
    assert written(rows, tmp_path / "a") == written([*shuffled, *shuffled[:30]], tmp_path / "b")


def test_one_decision_is_found_by_statistics(rows: list[SpoolRow], tmp_path: Path) -> None:
    """Given a file of several row groups, when one decision is looked for, then the statistics leave one group to read, which holds it, and DuckDB finds it."""
    written(rows, tmp_path / "a.parquet")
    metadata = pq.read_metadata(tmp_path / "a.parquet")
    assert metadata.num_row_groups == -(-COUNT // GROUP_ROWS)
    for row in (rows[0], rows[99], rows[-1]):
        groups = []
        for number in range(metadata.num_row_groups):
            statistics = metadata.row_group(number).column(0).statistics
            assert metadata.row_group(number).column(0).path_in_schema == "decision_id"
            if statistics.min <= row.decision_id <= statistics.max:
                groups.append(number)
        assert len(groups) == 1
        found = pq.ParquetFile(tmp_path / "a.parquet").read_row_group(groups[0], columns=["decision_id"])
        assert row.decision_id in found.column(0).to_pylist()
        where = duckdb.ColumnExpression("decision_id") == duckdb.ConstantExpression(row.decision_id)
        asked = duckdb.read_parquet(str(tmp_path / "a.parquet")).filter(where).project("kafka_offset").fetchall()
        assert asked == [(row.offset,)]
    held = [metadata.row_group(0).column(at) for at in range(metadata.num_columns)]
    assert next(one for one in held if one.path_in_schema == "body").statistics is None


def test_an_older_file_and_a_newer_one_are_one_table(rows: list[SpoolRow], tmp_path: Path) -> None:
    """Given a file without some of today's columns and one with a column of tomorrow, when they are read with today's, then all records are there and what is not there is null."""
    written(rows[:120], tmp_path / "today.parquet")
    table = pq.ParquetFile(tmp_path / "today.parquet").read()
    older = table.drop_columns(["margin_short", "tiers", "library", "kafka_timestamp"])
    newer = table.append_column("of_tomorrow", pa.array(["x"] * len(table)))
    pq.write_table(older, tmp_path / "older.parquet")
    pq.write_table(newer, tmp_path / "newer.parquet")
    for name in ("today", "older", "newer"):
        read = list(read_rows(tmp_path / f"{name}.parquet", name))
        assert [one.record for one in read] == [one.record for one in read_rows(tmp_path / "today.parquet", "today")]
    view = duckdb.read_parquet(str(tmp_path / "*.parquet"), union_by_name=True)
    rows_of = view.aggregate(
        "count(*), count(margin_short), count(of_tomorrow), count(DISTINCT decision_id)"
    ).fetchall()
    assert rows_of == [(360, 240, 120, 120)]


def test_an_archive_of_several_versions_is_read_as_one(tmp_path: Path) -> None:
    """Given an archive one file of which an older version wrote, when it is read, then nothing is missing."""
    topic = MemoryTopic(records={0: [stored(offset, audit_record(offset)) for offset in range(12)]})
    sink_once(topic, Target(str(tmp_path)))
    file = min(tmp_path.glob("day=*/*/*/*.parquet"))
    table = pq.ParquetFile(file).read()
    pq.write_table(table.drop_columns(["reasons", "seal"]), file)
    assert [one.stored.offset for one in read_archive(str(tmp_path))] == list(range(12))
    assert RECORDS.names[: len(table.column_names)] == table.column_names


@given(number=st.integers(-(2**200), 2**200), log2=st.integers(-1100, 1000))
def test_a_contribution_is_rounded_once(number: int, log2: int) -> None:
    """Given any exact integer in any unit, then its margin is the nearest double, or null where there is none."""
    found = as_margin(str(number), log2)
    if found is None:
        assert abs(number) * 2.0**0 > 0
        assert number.bit_length() + log2 > 1023
    elif log2 < 0:
        assert found == number / 2**-log2
    else:
        assert found == float(number * 2**log2)
    assert as_margin("1", 10**9) is None


def test_a_wrong_hash_is_kept_and_told() -> None:
    """Given a record whose hash is not that of its body, then its row says so, and a good one does not."""
    good: Any = audit_record(3)
    for record, said in ((good, False), (good | {"body_sha256": "0" * 64}, True)):
        row, why = row_of(stored(0, record), OF, SingleObject())
        assert (suspect(row), why) == (said, "")
    row, why = row_of(stored(0, b"x"), OF, SingleObject())
    assert why
    assert not suspect(row)


def test_bytes_that_are_no_record_come_with_the_reason_or_not_at_all(tmp_path: Path) -> None:
    """Given a file of what is no audit record, when it is read, then each row has its reason; given one whose reason somebody took out, then the file is damaged."""
    file = tmp_path / "kept.parquet"
    written([row_of(stored(0, b"x"), OF, SingleObject())[0]], file)
    (read,) = read_rows(file, "kept")
    assert isinstance(read.record, str)
    assert read.record
    table = pq.read_table(file)
    empty = pa.nulls(1, table.schema.field("why").type)
    pq.write_table(table.set_column(table.schema.get_field_index("why"), "why", empty), file)
    with pytest.raises(ArchiveDamaged, match="kept of the archive"):
        list(read_rows(file, "kept"))
