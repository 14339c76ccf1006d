"""What the folders and files of an archive are called, and which range of offsets each holds.

    _archive.json                                            which topic, and how long a range is
    _partitions/audit/00003.json                             that the archive has a partition 3 (see markers.py)
    _partitions/audit/00003.held.json                        that something of it was kept
    _ranges/audit/00003/begins.json                          the partition's first offset that the archive is to have
    _ranges/audit/00003/0000000000010000.json                one per range that is whole: its files, rows and digests
    _ranges/audit/00003/0000000000015000.tail.json           the same of the last range, which is not full yet
    _unreadable/audit-00003-0000000000010000.parquet         what stood on the topic and is no audit record, as bytes
    day=2026-11-28/model=consumer-loan/version=2026-10/audit-00003-0000000000010000-5f2a1c9e.parquet
    _drafts/                                                 files that are being written, on disks only

A reader's glob `day=*/**/*.parquet` finds records only, and DuckDB, Spark and pyarrow take the folders for columns. Ids
of models are texts that others chose. What a folder's name holds of them is for finding files quickly and may be cut;
the columns model_id and model_version hold them as they are.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Final
from urllib.parse import quote

FORMAT: Final = 1
ARCHIVE: Final = "_archive.json"
PARTITIONS: Final = "_partitions"
RANGES: Final = "_ranges"
UNREADABLE: Final = "_unreadable"
DRAFTS: Final = "_drafts"
BEGINS: Final = "begins.json"
DAY: Final = "day="
NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"  # what Hive, Spark, DuckDB and pyarrow read as null
WHOLE: Final = ".json"
TAIL: Final = ".tail.json"
HELD: Final = ".held.json"
PARQUET: Final = ".parquet"
VALUE_CHARACTERS_MAX: Final = 100  # of an id in a folder's name, once quoted; file systems take 255 bytes
TOPIC_CHARACTERS_MAX: Final = 120  # of the topic in a file's name; Kafka takes 249
SHORT_DIGEST: Final = 16
FILE_DIGEST: Final = 8
CUT_MARK: Final = "~"  # quoted text never has it
DRAFT_NAME: Final = re.compile(r"coach-[0-9a-f]{16}\.part|[0-9a-f]{16}")
DAY_MS: Final = 86_400_000
EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Range:
    """The offsets from `start` up to but not `end` of one partition. `start` is a multiple of the archive's length."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def where(self) -> str:
        """The range as messages name it: topic[partition]@first..last offset."""
        return f"{self.topic}[{self.partition}]@{self.start}..{self.end - 1}"


def range_of(topic: str, partition: int, offset: int, length: int) -> Range:
    """Give the range that an offset belongs to."""
    start = offset - offset % length
    return Range(topic=topic, partition=partition, start=start, end=start + length)


def day_of(event_time_ms: int | None) -> str:
    """Give the UTC day of a time in the folder's spelling; years are 1 to 9999."""
    if event_time_ms is None:
        return NO_DAY
    return date.fromordinal(EPOCH_ORDINAL + event_time_ms // DAY_MS).isoformat()


def quoted(text: str) -> str:
    """Give any text as a part of a folder's name: letters, digits, `.`, `-` and `_` as they are, all else as %XX.

    Readers of Hive paths turn %XX back. Too long, empty, or only dots: cut, with a digest of the whole.
    """
    plain = quote(text, safe="").replace("~", "%7E")
    if plain.strip(".") and len(plain) <= VALUE_CHARACTERS_MAX:
        return plain
    digest = hashlib.sha256(text.encode()).hexdigest()[:SHORT_DIGEST]
    kept = plain[: VALUE_CHARACTERS_MAX - SHORT_DIGEST - 1]
    while kept and kept[-1] != "%" and "%" in kept[-2:]:
        kept = kept[:-1]
    return f"{kept.rstrip('.%')}{CUT_MARK}{digest}"


def file_stem(of: Range) -> str:
    """Name what belongs to a range: topic, partition and first offset, so that names sort as offsets do."""
    topic = of.topic[:TOPIC_CHARACTERS_MAX]
    visible = topic if topic[0].isalnum() else f"topic{topic}"  # readers pass over names that begin with . or _
    return f"{visible}-{of.partition:05d}-{of.start:016d}"


def records_path(of: Range, event_time_ms: int | None, model_id: str, model_version: str) -> str:
    """Name the file for the records of a range that are of one day and one version of a model.

    The digest keeps two models apart whose folders a file system takes for one (capitals, accents, cut ids).
    """
    own = hashlib.sha256(f"{len(model_id)}:{model_id}{model_version}".encode()).hexdigest()[:FILE_DIGEST]
    folder = f"{DAY}{day_of(event_time_ms)}/model={quoted(model_id)}/version={quoted(model_version)}"
    return f"{folder}/{file_stem(of)}-{own}{PARQUET}"


def unreadable_path(of: Range) -> str:
    """Name the file for what a range holds that is no audit record."""
    return f"{UNREADABLE}/{file_stem(of)}{PARQUET}"


def ranges_folder(topic: str, partition: int) -> str:
    """Name the folder of one partition's range files."""
    return f"{RANGES}/{topic}/{partition:05d}"


def marker_path(of: Range, *, whole: bool) -> str:
    """Name the file that says what a range holds."""
    return f"{ranges_folder(of.topic, of.partition)}/{of.start:016d}{WHOLE if whole else TAIL}"


def begins_path(topic: str, partition: int) -> str:
    """Name the file that says where the archive begins in a partition."""
    return f"{ranges_folder(topic, partition)}/{BEGINS}"


def known_path(topic: str, partition: int, *, held: bool) -> str:
    """Name the file that says that the archive has a partition, or that something of it was kept."""
    return f"{PARTITIONS}/{topic}/{partition:05d}{HELD if held else WHOLE}"


def marked(names: Iterator[str] | list[str]) -> Iterator[tuple[int, bool]]:
    """Read (start, whether whole) out of the names of a partition's range files; other files are passed over.

    So is a name that means an offset and is not how a range file spells it: nobody would read that file.
    """
    for name in names:
        base = name.rpartition("/")[2]
        whole = base.endswith(WHOLE) and not base.endswith(TAIL)
        start = _number(base.removesuffix(TAIL).removesuffix(WHOLE), 16)
        if base.endswith(WHOLE) and start is not None:
            yield start, whole


def numbered(names: Iterator[str] | list[str], suffix: str = "") -> list[int]:
    """Read the partitions out of names that are a partition's number and a suffix; others are passed over."""
    found = (_number(name.removesuffix(suffix), 5) for name in names if name.endswith(suffix))
    return sorted(one for one in found if one is not None)


def _number(text: str, digits: int) -> int | None:
    """A number in this module's spelling of it, with leading zeros up to so many digits; None for any other text."""
    plain = text.isascii() and text.isdigit() and text == f"{int(text):0{digits}d}"
    return int(text) if plain else None


def day_in(path: str) -> date | None:
    """Read the day in a records file's path; None for records without a time. Raises: ValueError for any other path."""
    first = path.partition("/")[0]
    if not first.startswith(DAY):
        message = "is no path of records"
        raise ValueError(message)
    day = first.removeprefix(DAY)
    return None if day == NO_DAY else date.fromisoformat(day)
