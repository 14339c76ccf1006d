"""Which records repeat an earlier one: a redriven decision, or a duplicate of at-least-once delivery.

A record is known by digests of its content alone, so neither when nor how often a run was started matters. Those of a
finished chunk are kept with its result; those of all chunks before the one at work lie in a database of SQLite's that has
no name, on the disk past its cache, so memory is bounded whatever the number of records.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, TypeAlias

from stream.canonical import sha256
from stream.errors import DiskUnavailable, MalformedRecord
from stream.recourse.record.decision_record import decision_by_value
from stream.replay.judge.verdict import OF_THE_DELIVERY
from stream.replay.sources.records import Record, Stored

DIGITS: Final = 32  # 128 bits: of a billion records, two different ones are taken for equal with chance 2^-69
CACHE_KIB: Final = 8 * 1024

Noted: TypeAlias = Literal["new", "repeat", "conflict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Digests of a record, hex: of the decision's id, of the decision with all its content, and of what is counted."""

    name: str
    decision: str
    record: str

    def to_text(self) -> str:
        """As a chunk's file keeps it."""
        return self.name + self.decision + ("" if self.record == self.decision else self.record)


def keys_from(text: str) -> Keys:
    """Read back what `Keys.to_text` wrote. Raises: ValueError for anything else."""
    if len(text) not in (2 * DIGITS, 3 * DIGITS) or not set(text) <= set("0123456789abcdef"):
        message = "is no record's digests"
        raise ValueError(message)
    name, decision, record = text[:DIGITS], text[DIGITS : 2 * DIGITS], text[2 * DIGITS :]
    return Keys(name=name, decision=decision, record=record or decision)


def keys_of(record: Record, *, counts_answers: bool) -> Keys:
    """Give a record's digests.

    Where decisions are counted, one that is stored with its answer is the same as when it was sent, and whatever was
    answered is no matter. Where answers are counted (`counts_answers`), it takes an equal answer with an equal hash. What
    delivery adds (trace, envelope) is no content. Raises: MalformedRecord for what has no canonical spelling.
    """
    try:
        return _keys_of(record, counts_answers=counts_answers)
    except ValueError as error:
        message = f"the record has no canonical spelling: {error}"
        raise MalformedRecord(message) from error


def _keys_of(record: Record, *, counts_answers: bool) -> Keys:
    decision = record.decision if isinstance(record, Stored) else record
    its_digest = sha256(decision_by_value(decision))[:DIGITS]
    content: dict[str, Any] | None = None
    if counts_answers and isinstance(record, Stored):
        said = record.recommendation
        told = None if said is None else {key: one for key, one in said.items() if key not in OF_THE_DELIVERY}
        content = {"body": record.body, "body_sha256": record.body_sha256, "recommendation": told}
    return Keys(
        name=sha256(decision.decision_id)[:DIGITS],
        decision=its_digest,
        record=its_digest if content is None else sha256(content)[:DIGITS],
    )


class Seen:
    """The records so far, in the order of the source. To be used as a block."""

    def __init__(self) -> None:
        """Nothing yet. Raises: DiskUnavailable, as all methods do, when SQLite's temporary folder is full."""
        self._taken: list[Keys] = []
        with _told():
            self._database = sqlite3.connect("", isolation_level=None)
            self._database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            self._database.execute("PRAGMA journal_mode = OFF")
            self._database.execute("PRAGMA synchronous = OFF")
            self._database.execute("CREATE TABLE seen (key BLOB PRIMARY KEY) WITHOUT ROWID")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_why: object) -> None:
        self._database.close()

    def note(self, keys: Keys) -> Noted:
        """Take in the next record: new, equal to an earlier one, or of an id whose decision had other content."""
        name, decision, record = _rows(keys)
        with _told():
            if self._has(record):
                return "repeat"
            conflict = self._has(name) and not self._has(decision)
        self.know((keys,))
        self._taken.append(keys)
        return "conflict" if conflict else "new"

    def know(self, earlier: Iterable[Keys]) -> None:
        """Take in the records of a chunk that was finished before."""
        with _told():
            rows = ((one,) for keys in earlier for one in _rows(keys))
            self._database.execute("BEGIN")
            self._database.executemany("INSERT OR IGNORE INTO seen VALUES (?)", rows)
            self._database.execute("COMMIT")

    def taken(self) -> list[Keys]:
        """Give what was noted as no repeat since the last call, in its order: what a chunk's result keeps."""
        taken, self._taken = self._taken, []
        return taken

    def _has(self, key: bytes) -> bool:
        return self._database.execute("SELECT 1 FROM seen WHERE key = ?", (key,)).fetchone() is not None


def _rows(keys: Keys) -> tuple[bytes, bytes, bytes]:
    name, decision, record = map(bytes.fromhex, (keys.name, keys.decision, keys.record))
    return b"n" + name, b"d" + decision, b"r" + record


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        message = (
            f"this host's temporary folder (TMPDIR) cannot hold which decisions were seen ({error}); make room, and start "
            "again with the same --run-id to go on"
        )
        raise DiskUnavailable(message) from error
