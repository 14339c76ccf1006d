"""A local index of the `notices` topic: which letters were sent. It holds hashes only, and can be rebuilt.

SQLite's lock is held while the process lives, so a second notifier on the same file is refused.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stream.errors import ConfigurationError, DiskUnavailable
from stream.notify.notices.notice import notice_id
from stream.times import time_ms

log = logging.getLogger(__name__)

FORMAT: Final = "1"  # raised when the tables change: older files are rebuilt
LOCK_WAIT_S: Final = 1.0
DONE: Final = frozenset({"sent", "printed"})
TABLES: Final = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE read_to (partition INTEGER PRIMARY KEY, next INTEGER NOT NULL);
CREATE TABLE notice (id BLOB PRIMARY KEY, answer BLOB NOT NULL, done INTEGER NOT NULL, begun_ms INTEGER)
    WITHOUT ROWID;
CREATE TABLE withheld (id BLOB NOT NULL, answer BLOB NOT NULL, PRIMARY KEY (id, answer)) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNotice:
    """The state of one notice. `begun_ms`: when (Unix ms) an attempt without a recorded outcome began, or None."""

    answer: str
    done: bool
    begun_ms: int | None


class NoticeIndex:
    """The index in one SQLite file, for one thread. `topic` includes its cluster.

    A file of another topic or format, or a broken one, is rebuilt.

    Raises: ConfigurationError where another notifier holds the file, DiskUnavailable.
    """

    def __init__(self, path: Path, *, topic: str) -> None:
        self._path = path.expanduser()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._open(topic)
        except OSError as error:
            message = f"COACH_NOTIFY_STATE={self._path}: {error.strerror or error}"
            raise DiskUnavailable(message) from error

    def close(self) -> None:
        """Close the file, which releases its lock."""
        self._file.close()

    def known(self, one: str) -> KnownNotice | None:
        """The state of a notice; None before its first attempt."""
        row = self._ask("SELECT answer, done, begun_ms FROM notice WHERE id = ?", bytes.fromhex(one))
        return None if row is None else KnownNotice(answer=row[0].hex(), done=bool(row[1]), begun_ms=row[2])

    def is_withheld(self, one: str, answer: str) -> bool:
        """Whether this different answer was already reported."""
        row = self._ask("SELECT 1 FROM withheld WHERE id = ? AND answer = ?", bytes.fromhex(one), bytes.fromhex(answer))
        return row is not None

    def add(self, notices: Iterable[Mapping[str, Any]], read_to: Mapping[int, int] | None = None) -> None:
        """Add notices, in the topic's order, and the next offsets to read, in one transaction. Raises: DiskUnavailable."""
        try:
            with self._file:
                for notice in notices:
                    self._add(notice)
                self._file.executemany(
                    "INSERT INTO read_to VALUES (?, ?) ON CONFLICT (partition) DO UPDATE SET next = excluded.next",
                    list((read_to or {}).items()),
                )
        except sqlite3.Error as error:
            raise self._broken(error) from error

    def read_to(self) -> dict[int, int]:
        """The next offset to read, by partition."""
        return dict(self._file.execute("SELECT partition, next FROM read_to").fetchall())

    def clear(self) -> None:
        """Forget everything: the topic was recreated."""
        with self._file:
            for table in ("read_to", "notice", "withheld"):
                self._file.execute(f"DELETE FROM {table}")  # noqa: S608 - constant names

    @property
    def count(self) -> int:
        """How many notices are sent or printed."""
        row = self._ask("SELECT count(*) FROM notice WHERE done")
        return 0 if row is None else int(row[0])

    def _add(self, notice: Mapping[str, Any]) -> None:
        one = bytes.fromhex(notice_id(notice["decision_id"], notice["kind"]))
        answer, status = bytes.fromhex(notice["recommendation_sha256"]), notice["status"]
        if status == "withheld_different_answer":
            self._file.execute("INSERT OR IGNORE INTO withheld VALUES (?, ?)", (one, answer))
            return
        # A sent notice stays sent, with its first answer. `failed` ends the attempt before it, unless the connection was
        # lost during one: then the applicant may have the letter.
        begun = status == "sending" or (status == "failed" and notice["duplicate_possible"])
        self._file.execute(
            "INSERT INTO notice VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
            "answer = excluded.answer, done = excluded.done, begun_ms = excluded.begun_ms WHERE notice.done = 0",
            (one, answer, status in DONE, time_ms(notice["recorded_at"]) if begun else None),
        )

    def _open(self, topic: str) -> sqlite3.Connection:
        for _ in range(2):
            file = sqlite3.connect(self._path, timeout=LOCK_WAIT_S)
            try:
                # Locked until this process ends; lost rows are read again from the topic.
                file.executescript(
                    "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                )
                file.execute("BEGIN EXCLUSIVE")
                file.execute("COMMIT")
                if self._is_current(file, topic):
                    return file
                file.close()
            except sqlite3.DatabaseError as error:
                file.close()
                if isinstance(error, sqlite3.OperationalError):
                    raise self._refused(error) from error
                log.warning("notify.state_broken", extra={"path": str(self._path), "why": str(error)})
            for ending in ("", "-wal", "-shm", "-journal"):
                self._path.with_name(self._path.name + ending).unlink(missing_ok=True)
        message = f"COACH_NOTIFY_STATE={self._path}: cannot be rebuilt"
        raise DiskUnavailable(message)

    def _is_current(self, file: sqlite3.Connection, topic: str) -> bool:
        wanted = {"format": FORMAT, "topic": topic}
        with suppress(sqlite3.OperationalError):  # no such table: the file is new
            return dict(file.execute("SELECT name, value FROM about").fetchall()) == wanted
        if file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            message = f"COACH_NOTIFY_STATE={self._path}: is an SQLite file of another program; name another one"
            file.close()
            raise ConfigurationError(message)
        file.executescript(f"BEGIN; {TABLES} COMMIT;")
        with file:
            file.executemany("INSERT INTO about VALUES (?, ?)", wanted.items())
        return True

    def _refused(self, error: sqlite3.OperationalError) -> Exception:
        if "locked" in str(error) or "busy" in str(error):
            message = f"COACH_NOTIFY_STATE={self._path}: another notifier on this host holds it; give each one a file of its own"
            return ConfigurationError(message)
        return self._broken(error)

    def _broken(self, error: sqlite3.Error) -> DiskUnavailable:
        return DiskUnavailable(f"COACH_NOTIFY_STATE={self._path}: {error}; it may be deleted, and is then rebuilt")

    def _ask(self, question: str, *given: bytes) -> tuple[Any, ...] | None:
        try:
            row: tuple[Any, ...] | None = self._file.execute(question, given).fetchone()
        except sqlite3.Error as error:
            raise self._broken(error) from error
        return row
