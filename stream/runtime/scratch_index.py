"""An index of names on this host's disk: memory stays bounded however many names it holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final

from stream.errors import DiskUnavailable

CACHE_KIB: Final = 32 * 1024


def scratch_database(cache_kib: int) -> sqlite3.Connection:
    """Open a database without a name, on the disk past its cache; SQLite deletes it when it is closed, by any thread."""
    database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    for pragma in (f"cache_size = -{cache_kib}", "journal_mode = OFF", "synchronous = OFF"):
        database.execute(f"PRAGMA {pragma}")
    return database


@contextmanager
def scratch_errors(message: str) -> Iterator[None]:
    """Turn each failure of SQLite within the block into DiskUnavailable; `message` has a field `{error}`."""
    try:
        yield
    except sqlite3.Error as error:
        raise DiskUnavailable(message.format(error=error)) from error


class ScratchIndex:
    """Names, each with the digest and `where` it was first stored with. SQLite deletes the database with the object.

    `message` is the text of DiskUnavailable, with a field `{error}`; every method raises it when the temporary folder is
    full.
    """

    def __init__(
        self,
        message: str = "this host's temporary folder (TMPDIR) cannot hold what verifying has to remember: {error}",
        *,
        cache_kib: int = CACHE_KIB,
    ) -> None:
        self._message = message
        with self._disk():
            self._database = scratch_database(cache_kib)
            self._database.execute("CREATE TABLE seen (name PRIMARY KEY, digest TEXT, place TEXT) WITHOUT ROWID")

    def first(self, name: str, digest: str, where: str) -> tuple[str, str]:
        """Store (digest, where) under a new name; return what the name was first stored with."""
        with self._disk():
            if self._database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", (name, digest, where)).rowcount:
                return digest, where
            found: tuple[str, str] = self._database.execute(
                "SELECT digest, place FROM seen WHERE name = ?", (name,)
            ).fetchone()
            return found

    def add(self, names: Iterable[bytes]) -> None:
        """Store names alone, in one transaction."""
        with self._disk():
            self._database.execute("BEGIN")
            self._database.executemany("INSERT OR IGNORE INTO seen (name) VALUES (?)", ((name,) for name in names))
            self._database.execute("COMMIT")

    def __contains__(self, name: bytes) -> bool:
        with self._disk():
            return self._database.execute("SELECT 1 FROM seen WHERE name = ?", (name,)).fetchone() is not None

    def close(self) -> None:
        """Close the database, which frees its disk space; may be called again."""
        with suppress(AttributeError):  # the connection failed
            self._database.close()

    __del__ = close

    def _disk(self) -> AbstractContextManager[None]:
        return scratch_errors(self._message)
