"""`coach audit verify` over an archive: what holds, and each promise broken in turn."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from stream.audit.archive.markers import sealed
from stream.audit.archive.target import Target
from stream.cli.main import coach
from tests.audit.archive.topic import MemoryTopic, audit_record, plain_topic, sink_once, stored

Json = Any
COUNT: Final = 20


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(coach, ["audit", "verify", *map(str, words)])


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sink is at work here that would settle anything."""
    for module in ("stray_files", "archive_check"):
        monkeypatch.setattr(f"stream.audit.{module}.SETTLE_S", 0.0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions of good records, three ranges each, the last one not full; one duplicate delivery."""
    folder = tmp_path_factory.mktemp("whole") / "archive"
    records: dict[int, list[Any]] = {0: [], 1: []}
    for number in range(COUNT):
        day = f"2026-11-{26 + number % 2}T10:15:00.250Z"
        records[0].append(stored(number, audit_record(number, event_time=day)))
        again = audit_record(0, event_time="2026-11-26T10:15:00.250Z") if number == 7 else audit_record(100 + number)
        records[1].append(stored(number, again, partition=1))
    sink_once(MemoryTopic(records=records), Target(str(folder)), partitions=(0, 1))
    return folder


@pytest.fixture
def archive(whole: Path, tmp_path: Path) -> Path:
    """The same, free to be spoilt."""
    return Path(shutil.copytree(whole, tmp_path / "archive"))


def files(archive: Path, start: int, partition: int = 0) -> list[Path]:
    return sorted(archive.glob(f"day=*/*/*/audit-{partition:05d}-{start:016d}-*.parquet"))


def marker(archive: Path, start: int, partition: int = 0, tail: str = "") -> Path:
    return archive / "_ranges" / "audit" / f"{partition:05d}" / f"{start:016d}{tail}.json"


def resealed(told: Json) -> bytes:
    """A range file that says this, as somebody would write it who knows the format."""
    return sealed({name: value for name, value in told.items() if name != "seal"})


def rewrite(
    archive: Path, file: Path, change: Callable[[pa.Table], pa.Table], *, group_rows: int | None = None
) -> None:
    """Change a file, and what its range file says of it, as somebody would who knows the format."""
    with file.open("rb") as content:
        table = change(pq.read_table(content))
    pq.write_table(table, file, row_group_size=group_rows)
    of = next(one for one in archive.glob("_ranges/*/*/*.json") if file.name in one.read_text())
    told = json.loads(of.read_text())
    for entry in told["files"]:
        if entry["path"] == str(file.relative_to(archive)):
            written = file.read_bytes()
            entry |= {"bytes": len(written), "rows": len(table), "sha256": hashlib.sha256(written).hexdigest()}
    of.write_bytes(resealed(told))


def with_column(name: str, value: object) -> Callable[[pa.Table], pa.Table]:
    """Put a value into a column's first row."""

    def change(table: pa.Table) -> pa.Table:
        values = table.column(name).to_pylist()
        place, field = table.schema.get_field_index(name), table.schema.field(name)
        return table.set_column(place, field, pa.array([value, *values[1:]], field.type))

    return change


def test_a_good_archive_verifies(whole: Path) -> None:
    """Given an archive as the sink left it, then all holds, duplicates are counted, and the exit code is 0."""
    done = run(whole)
    assert done.exit_code == 0, done.output
    assert done.stdout == "40 records, 0 wrong, 1 equal duplicates; 10 files of 6 ranges (4 whole), 0 broken promises\n"
    told = json.loads(run(f"file://{whole}", "--json").stdout)
    assert told == {
        "records": 40, "wrong": 0, "duplicates": 1, "answered_again": 0, "ranges": 6, "whole": 4, "files": 10,
        "unreadable": 0, "lost": 0, "gaps": 0, "broken": 0,
    }  # fmt: skip


def test_what_was_unreadable_is_wrong_and_named(tmp_path: Path) -> None:
    """Given an archive that keeps bytes that were no audit record, and offsets that hold nothing, then the former are wrong and the latter are counted."""
    sink_once(plain_topic(12, gaps=(2, 3)), Target(str(tmp_path / "a")))
    done = run(tmp_path / "a", "--json")
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert (told["records"], told["wrong"], told["unreadable"], told["gaps"], told["broken"]) == (12, 1, 1, 2, 0)
    assert "audit[0]@7: cannot be decoded: 9 bytes" in done.stderr


def retell(archive: Path, *, tail: str = "", **changes: Any) -> None:
    """Change what a range file says."""
    told = json.loads(marker(archive, 8).read_text()) | changes
    marker(archive, 8).unlink()
    marker(archive, 8, tail=tail).write_bytes(resealed(told))


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


SPOIL: Final[dict[str, Callable[[Path, Path], object]]] = {  # from the archive, and a file of its second range
    "a file is gone": lambda _, file: file.unlink(),
    "a byte is flipped": lambda _, file: flip(file),
    "a file is cut": lambda _, file: file.write_bytes(file.read_bytes()[:-20]),
    "a file is too many": lambda _, file: shutil.copy(file, file.with_name("more.parquet")),
    "a range's file lies twice": lambda _, file: shutil.copy(file, file.with_name(f"{file.stem[:-8]}00000000.parquet")),
    "a range file is gone": lambda archive, _: marker(archive, 8).unlink(),
    "a range file is edited": lambda archive, _: retell(archive, until=15),
    "a range is not whole": lambda archive, _: retell(archive, tail=".tail", whole=False, until=15),
    "a range is of elsewhere": lambda archive, _: shutil.copy(marker(archive, 8), marker(archive, 8, partition=1)),
    "records are lost": lambda archive, _: retell(archive, lost=[[9, 11]]),
}
SPOILT: Final = {
    "a file is gone": "is missing; `coach audit verify` names all that is",
    "a byte is flipped": "is not the file that its range file names by size and SHA-256",
    "a file is cut": "is not the file that its range file names by size and SHA-256",
    "a file is too many": "more.parquet: is a file that no range of the archive names",
    "a range's file lies twice": "00000000.parquet: is a file that no range of the archive names",
    "a range file is gone": "audit[0]@8..15: nothing says what was there",
    "a range file is edited": "is not what this software writes there; was it changed?",
    "a range is not whole": "is not whole, and later ranges are there: records from 15 on are missing",
    "a range is of elsewhere": "is not what this software writes there; was it changed?",
    "records are lost": "offsets 9 to 10 were deleted from the topic before they were kept",
}


@pytest.mark.parametrize(("how", "said"), SPOILT.items(), ids=SPOILT)
def test_a_broken_promise_is_named(archive: Path, how: str, said: str) -> None:
    """Given an archive of which one promise does not hold, then it is named by its place, the rest is checked, and the exit code is 1."""
    SPOIL[how](archive, files(archive, 8)[0])
    done = run(archive)
    assert done.exit_code == 1
    assert said in done.stderr
    assert ", 0 broken promises" not in done.stdout


COLUMNS: Final = {
    "status": "not_model_decline",
    "jurisdiction": "XX",
    "margin_short": -1.0,
    "event_time": 0,
    "reasons": [],
    "tiers": [],
    "envelope": "{}",
    "kafka_timestamp": 0,
}


@pytest.mark.parametrize(("column", "value"), COLUMNS.items(), ids=COLUMNS)
def test_a_column_must_say_what_its_record_says(archive: Path, column: str, value: object) -> None:
    """Given a column that was changed where the record was not, with the digests made anew, then it is named."""
    rewrite(archive, files(archive, 0)[0], with_column(column, value))
    done = run(archive)
    assert done.exit_code == 1
    assert column in done.stderr


@pytest.mark.parametrize("changed", [None, 0, -1])
def test_each_row_group_is_compared_with_its_own_records(archive: Path, changed: int | None) -> None:
    """Given a file of several row groups, as the sink writes of more than a hundred records, then it verifies; with one column changed in one row, the group of that row is named and no other."""
    file = max(files(archive, 0, 1), key=lambda one: pq.read_metadata(one).num_rows)
    rows = pq.read_metadata(file).num_rows

    def change(table: pa.Table) -> pa.Table:
        if changed is None:
            return table
        values = table.column("status").to_pylist()
        values[changed] = "another"
        column = table.schema.get_field_index("status")
        return table.set_column(column, table.schema.field(column), pa.array(values, table.schema.field(column).type))

    rewrite(archive, file, change, group_rows=2)
    assert pq.read_metadata(file).num_row_groups == -(-rows // 2) > 1
    done = run(archive)
    found = [line.split("row group ")[1].split()[0] for line in done.output.splitlines() if "row group" in line]
    assert found == ([] if changed is None else [str((changed % rows) // 2)])
    assert done.exit_code == (0 if changed is None else 1), done.output


def test_a_row_belongs_to_one_place(archive: Path) -> None:
    """Given files whose rows were doubled, put out of order, or moved, with the digests made anew, then each is named."""
    one, other, third = files(archive, 0)[0], files(archive, 8)[0], files(archive, 0, partition=1)[0]
    rewrite(archive, one, lambda table: pa.concat_tables([table, table.slice(0, 1)]))
    rewrite(archive, other, lambda table: table.take(list(reversed(range(len(table))))))
    rewrite(archive, third, with_column("kafka_offset", 99))
    done = run(archive)
    assert done.exit_code == 1
    for said in ("which is there already", "out of order", "[1]@99, which is outside of what its range file says"):
        assert said in done.stderr


def test_a_body_must_be_its_canonical_text(archive: Path) -> None:
    """Given a body that was spelt otherwise, or changed with its hashes made anew, then the record is wrong."""

    def spelt(table: pa.Table) -> pa.Table:
        return with_column("body", json.dumps(json.loads(table.column("body")[0].as_py())))(table)

    def forged(table: pa.Table) -> pa.Table:
        return with_column("body", table.column("body")[0].as_py().replace('"trees_used":', '"trees_used":1'))(table)

    rewrite(archive, files(archive, 0)[0], spelt)
    rewrite(archive, files(archive, 0)[1], forged)
    done = run(archive)
    assert done.exit_code == 1
    assert "the body is not kept as its canonical JSON" in done.stderr
    assert "body_sha256 is not the hash of the body" in done.stderr


def test_what_is_no_archive_is_a_matter_of_usage(tmp_path: Path) -> None:
    """Given a folder without an archive, one of a later format, or a store whose package is not installed, then one line says so and the exit code is 2."""
    assert run(tmp_path).exit_code == 2
    (tmp_path / "_archive.json").write_text('{"format":2}')
    done = run(tmp_path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "has format 2; this version reads 1" in done.stderr
    done = run("gs://user:secret@bucket/audit?token=secret")
    assert done.exit_code == 2
    assert "gcsfs" in done.stderr
    assert "secret" not in done.stderr


def test_a_damaged_range_file_hides_nothing_else(archive: Path) -> None:
    """Given a damaged range file, a file too many and a cut file elsewhere, then each is named, what holds is counted, and the last line is there."""
    marker(archive, 0).write_text("{")
    (archive / "notes.txt").write_text("a file")
    elsewhere = files(archive, 8, partition=1)[0]
    elsewhere.write_bytes(elsewhere.read_bytes()[:-20])  # of a flipped byte the records' faults could fill all lines
    done = run(archive)
    assert done.exit_code == 1
    assert "0000000000000000.json is not what this software writes there" in done.stderr
    assert "notes.txt: is none of the archive's files" in done.stderr
    assert (
        f"{files(archive, 8, partition=1)[0].relative_to(archive)}: is not the file that its range file" in done.stderr
    )
    for file in files(archive, 0):
        assert f"{file.relative_to(archive)}: is a file that no range of the archive names" in done.stderr
    assert " files of 6 ranges (" in done.stdout
