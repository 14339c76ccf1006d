"""Contacts from a file: CSV, read whole and reread when it changes, or an SQLite table, queried each time."""

from __future__ import annotations

import csv
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from stream.errors import ConfigurationError, ContactRefused, DiskUnavailable
from stream.notify.contacts.contact import COLUMNS, REQUIRED, Contact, Contacts, read_contact

log = logging.getLogger(__name__)

Stamp: TypeAlias = tuple[int, int, int]  # when it changed (ns), bytes, inode

KEY: Final = "subject_ref"
BUSY_S: Final = 5.0  # while another process writes the SQLite file
SETTLED_S: Final = 60.0  # a CSV that lacks pseudonyms of the former one is taken after so long without a change
MISSING_SHARE_MAX: Final = 0.2  # of the former pseudonyms, in a file that was replaced by rename
ROWS_MAX: Final = 5_000_000  # of a CSV, which is held in memory


class CsvContacts(Contacts):
    """A CSV file with a heading, reread at the next look-up after a change; a broken one is logged and not taken.

    A file that is written in place may be read half-written, cut between two lines. So a file that lacks pseudonyms of the
    former one is taken only after `SETTLED_S` without a change; until then the former contacts serve. A file replaced by
    rename is complete, and waits only where it lacks more than `MISSING_SHARE_MAX` of them.

    `clock`: seconds. Raises: ConfigurationError with the line that is wrong.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._stamp = self._present()
        self._known = _read_csv(path)
        self._taken = self._stamp  # of the file whose contacts serve now
        self._held: dict[str, Contact] | None = None  # read, and not taken yet
        self._since_s = 0.0

    def find(self, subject_ref: str) -> Contact | None:
        """See `Contacts`."""
        stamp = self._present()
        if stamp != self._stamp:
            self._stamp, self._since_s, self._held = stamp, self._clock(), None
            self._read(stamp)
        elif self._held is not None and self._clock() - self._since_s >= SETTLED_S:
            self._take(self._held, stamp)
        return self._known.get(subject_ref)

    def _read(self, stamp: Stamp | None) -> None:
        try:
            new = _read_csv(self._path)
        except ConfigurationError as wrong:  # the former contacts serve on
            log.error("notify.contacts_not_taken", extra={"why": str(wrong)})  # noqa: TRY400 - the message says it all
            return
        missing = len(self._known.keys() - new.keys())
        is_other_file = stamp is not None and self._taken is not None and stamp[-1] != self._taken[-1]
        if missing > len(self._known) * (MISSING_SHARE_MAX if is_other_file else 0):
            self._held = new
            log.warning(
                "notify.contacts_held",
                extra={
                    "count": len(new),
                    "former": len(self._known),
                    "missing": missing,
                    "what_next": f"it may be half-written: the former contacts serve until it has not changed for {SETTLED_S:.0f} s; "
                    "replace the file by rename",
                },
            )
            return
        self._take(new, stamp)

    def _take(self, new: dict[str, Contact], stamp: Stamp | None) -> None:
        self._known, self._taken, self._held = new, stamp, None
        log.info("notify.contacts_read", extra={"count": len(new)})

    def check(self) -> str:
        """See `Contacts`."""
        return f"{len(self._known)} contacts in {self._path}"

    def _present(self) -> Stamp | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


class SqliteContacts(Contacts):
    """An SQLite table `contacts` with the key subject_ref; opened read-only for each look-up, so changes apply at once.

    Raises: ConfigurationError where there is no such table.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._count = self._ask("SELECT count(*) AS n FROM contacts")[0]["n"]
            self._columns = {str(row["name"]) for row in self._ask("PRAGMA table_info(contacts)")}
        except (sqlite3.Error, OSError) as error:
            message = (
                f"COACH_NOTIFY_CONTACTS={path}: {_kind(error)}; expected an SQLite file with a table named contacts"
            )
            raise ConfigurationError(message) from None
        missing = {KEY, *REQUIRED} - self._columns
        if missing:
            message = f"COACH_NOTIFY_CONTACTS={path}: the table contacts has no column {', '.join(sorted(missing))}"
            raise ConfigurationError(message)

    def find(self, subject_ref: str) -> Contact | None:
        """See `Contacts`."""
        try:
            rows = self._ask("SELECT * FROM contacts WHERE subject_ref = ? LIMIT 2", subject_ref)
        except (sqlite3.Error, OSError) as error:
            message = f"the contacts in {self._path} cannot be read: {_kind(error)}"
            raise DiskUnavailable(message) from None
        if not rows:
            return None
        try:
            if len(rows) > 1:
                message = "the pseudonym occurs twice in the table"
                raise ValueError(message)  # noqa: TRY301 - as the faults of a row
            return read_contact({name: _utf8(name, rows[0][name]) for name in COLUMNS if name in self._columns})
        except ValueError as wrong:
            message = f"the contact of this applicant in {self._path.name} is unusable: {wrong}"
            raise ContactRefused(message) from None

    def check(self) -> str:
        """See `Contacts`."""
        return f"{self._count} contacts in {self._path}"

    def _ask(self, question: str, *given: str) -> list[sqlite3.Row]:
        with closing(sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_S)) as file:
            file.row_factory = sqlite3.Row
            # One row that is not UTF-8 must not fail the whole file.
            file.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
            return file.execute(question, given).fetchall()


def _utf8(name: str, value: object) -> object:
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            message = f"{name} is not UTF-8"
            raise ValueError(message) from None
    return value


def _kind(error: sqlite3.Error | OSError) -> str:
    """Name an error without the library's message, which may hold a row's values."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return getattr(error, "sqlite_errorname", None) or type(error).__name__


def _read_csv(path: Path) -> dict[str, Contact]:
    known: dict[str, Contact] = {}
    with _refusing(path), path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        heading = reader.fieldnames or []
        missing = [name for name in (KEY, *REQUIRED) if name not in heading]
        if missing:
            message = f"line 1: there is no column {', '.join(missing)}"
            raise ValueError(message)
        for row in reader:
            where = f"line {reader.line_num}"
            if None in row or None in row.values():
                message = f"{where}: has another number of fields than the heading"
                raise ValueError(message)
            try:
                contact = read_contact(row)
            except ValueError as wrong:
                message = f"{where}: {wrong}"
                raise ValueError(message) from None
            if not row[KEY] or row[KEY] in known:
                message = f"{where}: {KEY} is empty or occurs twice"
                raise ValueError(message)
            known[row[KEY]] = contact
            if len(known) > ROWS_MAX:
                message = f"has more than {ROWS_MAX} rows; put them into an SQLite file"
                raise ValueError(message)
    return known


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Raise ConfigurationError with the file's path for any fault of it."""
    try:
        yield
    except OSError as error:
        message = f"COACH_NOTIFY_CONTACTS={path}: cannot be read: {error.strerror or type(error).__name__}"
        raise ConfigurationError(message) from error
    except UnicodeDecodeError:
        message = f"COACH_NOTIFY_CONTACTS={path}: is not UTF-8"
        raise ConfigurationError(message) from None
    except (ValueError, csv.Error) as wrong:
        message = f"COACH_NOTIFY_CONTACTS={path}: {wrong}"
        raise ConfigurationError(message) from None
