"""Whatever is added to an archive, removed from it, moved in it or altered: `coach audit verify` names it."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream.audit.archive.layout import DRAFTS
from stream.audit.archive.target import Target
from stream.audit.archive_check import ArchiveCheck
from stream.audit.record_check import Tally, check
from stream.errors import ArchiveDamaged
from tests.audit.archive.topic import MemoryTopic, audit_record, files_of, sink_once, stored
from tests.examples import examples

LENGTH: Final = 4
PARTITIONS: Final = (0, 1, 2)  # nothing is on the last one


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of two partitions with two ranges each, the last one not full, and of an empty one."""
    folder = tmp_path_factory.mktemp("whole") / "archive"
    records = {number: [stored(at, audit_record(at), partition=number) for at in range(6)] for number in (0, 1)}
    topic = MemoryTopic(records=records | {2: []})
    sink_once(topic, Target(str(folder)), partitions=PARTITIONS, range_offsets=LENGTH)
    assert faults(folder) == []
    return folder


def faults(folder: Path) -> list[str]:
    """What `coach audit verify` says."""
    try:
        archive = ArchiveCheck(str(folder), sleep=lambda _: None)
    except ArchiveDamaged as damaged:
        return [str(damaged)]
    return list(check(archive.read(), Tally()))


def tells_of(said: list[str], path: str) -> bool:
    """Whether a file is named, or the range that it is of."""
    shown = path if path.isprintable() else ascii(path)[1:-1]
    names = {shown}
    for found in re.finditer(r"(?:audit-|audit/)(\d{5})[-/](\d{16})", path):
        partition, start = int(found[1]), int(found[2])
        names |= {f"audit[{partition}]@{start}..", f"audit-{partition:05d}-{start:016d}"}
    return any(name in fault for fault in said for name in names)


FOLDERS: Final = (
    "", "day=2026-11-26", "day=x", "day=x/a.parquet", "day=x/model=y", "day=x/model=y/version=z", "day=x/a/b/c/d/e", "_ranges",
    "_ranges/audit", "_ranges/audit/00000", "_ranges/audit/1", "_ranges/audit/00009", "_ranges/audit2/00000", "_partitions",
    "_partitions/audit", "_unreadable", "_unreadable/a", DRAFTS, f"{DRAFTS}/a", ".hidden", "elsewhere",
)  # fmt: skip
NAMES: Final = (
    "forged.parquet", "x.json", "begins.json", "0000000000000000.json", "0000000000000000.tail.json", "4.json", "00000.json",
    "0000000000000003.json", "00000.held.json", "audit-00000-0000000000000000-00000000.parquet", "coach-0.part", ".crc",
    "_archive.json", "audit-00000-0000000000000000.parquet", "a\nb", "caf\udce9.parquet", "_SUCCESS",
)  # fmt: skip


@given(
    folder=st.sampled_from(FOLDERS),
    name=st.sampled_from(NAMES)
    | st.text("abc.=_-~% é\x1b", min_size=1, max_size=12).filter(lambda one: one.strip(".")),
    like=st.integers(0, 40) | st.none(),
)
@example(folder="day=2026-11-26/model=credit", name="forged.parquet", like=0)
@example(folder="_ranges/audit/1", name="0000000000000000.json", like=1)
@settings(max_examples=examples(25))
def test_a_file_that_was_added_anywhere_is_named(whole: Path, folder: str, name: str, like: int | None) -> None:
    """Given an archive to which a file was added at any depth, with any name, a copy of one of its own or not, then it is named, and nothing else."""
    with tempfile.TemporaryDirectory() as place:
        archive = Path(shutil.copytree(whole, Path(place) / "archive"))
        added = archive / folder / name
        if added.exists() or added.is_symlink():
            return
        added.parent.mkdir(parents=True, exist_ok=True)
        own = sorted(path for path in archive.rglob("*") if path.is_file())
        added.write_bytes(b"x" if like is None else own[like % len(own)].read_bytes())
        said = faults(archive)
        path = str(added.relative_to(archive))
        assert tells_of(said, path), (path, said)


@given(
    which=st.integers(0, 100),
    how=st.sampled_from(["removed", "moved", "altered", "cut", "longer"]),
    at=st.floats(0, 0.999),
)
@settings(max_examples=examples(25))
def test_a_file_that_was_removed_moved_or_altered_is_named(whole: Path, which: int, how: str, at: float) -> None:
    """Given an archive one file of which was removed, moved, changed in one bit, cut or made longer, then it is named."""
    with tempfile.TemporaryDirectory() as place:
        archive = Path(shutil.copytree(whole, Path(place) / "archive"))
        own = sorted(files_of(archive))
        path = own[which % len(own)]
        file, content = archive / path, bytearray((archive / path).read_bytes())
        if how == "removed":
            file.unlink()
        elif how == "moved":
            file.rename(file.with_name(f"{file.name}.old"))
            assert tells_of(faults(archive), path if path == "_archive.json" else f"{path}.old")
        else:
            content[int(at * len(content))] ^= 1 << which % 7
            cut = int(at * len(content))
            file.write_bytes({"altered": content, "cut": content[:cut], "longer": content + b" "}[how])
        assert tells_of(faults(archive), path), (path, how, faults(archive))


@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_partition_that_was_removed_is_missed(whole: Path, tmp_path: Path, partition: int) -> None:
    """Given an archive of which all of one partition was removed, records or none, then that is named; also when its first offset is still told."""
    archive = Path(shutil.copytree(whole, tmp_path / "archive"))
    for file in archive.glob(f"day=*/*/*/audit-{partition:05d}-*"):
        file.unlink()
    ranges = archive / "_ranges" / "audit" / f"{partition:05d}"
    for file in ranges.glob("0*.json"):
        file.unlink()
    assert bool(faults(archive)) is (partition != 2)
    shutil.rmtree(ranges)
    assert any(f"_ranges/audit/{partition:05d}" in fault for fault in faults(archive))


def test_what_a_reader_would_count_is_what_is_named(whole: Path, tmp_path: Path) -> None:
    """Given a file that DuckDB's glob reads beside the folders of models, then the archive does not verify, and does once it is gone."""
    archive = Path(shutil.copytree(whole, tmp_path / "archive"))
    one = next(archive.glob("day=*/*/*/*.parquet"))
    forged = one.parent.parent / "forged.parquet"
    shutil.copy(one, forged)
    read = duckdb.read_parquet(f"{archive}/day=*/**/*.parquet", hive_partitioning=False, union_by_name=True)
    assert len(read.fetchall()) > 12
    assert [fault.split(": ")[0] for fault in faults(archive)] == [str(forged.relative_to(archive))]
    forged.unlink()
    (archive / "lost+found").mkdir()
    (archive / DRAFTS / "coach-0123456789abcdef.part").write_text("a draft")
    assert faults(archive) == []
