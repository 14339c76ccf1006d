"""What was seen first under a name, for as many names as there are: on this host's disk, past a small cache."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import Final

from stream.errors import DiskUnavailable

CACHE_KIB: Final = 32 * 1024


class Seen:
    """Names, and what each was first seen with. SQLite's temporary database: it is gone with the object."""

    def __init__(self) -> None:
        """Nothing was seen. Raises: DiskUnavailable."""
        try:
            self._database = sqlite3.connect("", isolation_level=None)
            self._database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            self._database.execute("PRAGMA journal_mode = OFF")
            self._database.execute("CREATE TABLE seen (name TEXT PRIMARY KEY, digest TEXT, place TEXT) WITHOUT ROWID")
        except sqlite3.Error as error:
            raise _full(error) from error

    def first(self, name: str, digest: str, place: str) -> tuple[str, str]:
        """Remember (digest, place) under a name that is new; return what is remembered under it.

        Raises: DiskUnavailable when the temporary folder is full.
        """
        try:
            if self._database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", (name, digest, place)).rowcount:
                return digest, place
            found: tuple[str, str] = self._database.execute(
                "SELECT digest, place FROM seen WHERE name = ?", (name,)
            ).fetchone()
        except sqlite3.Error as error:
            raise _full(error) from error
        return found

    def __del__(self) -> None:
        with suppress(AttributeError):  # it never came to be
            self._database.close()


def _full(error: sqlite3.Error) -> DiskUnavailable:
    message = f"this host's temporary folder (TMPDIR) cannot hold what verifying has to remember: {error}"
    return DiskUnavailable(message)
