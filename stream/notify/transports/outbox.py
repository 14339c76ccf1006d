"""Letters as files: print-ready HTML in the outbox, or text and HTML in a folder that another system empties.

Files are written atomically, and a letter's name is fixed: writing it twice leaves one file.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Final

from stream.bundle.atomic_folder import atomic_file
from stream.errors import ConfigurationError, DiskUnavailable
from stream.notify.notices.notice import Letter
from stream.notify.transports.transport import Package, Transport

SLUG_CHARACTERS_MAX: Final = 48
ID_CHARACTERS: Final = 16  # of the notice_id; keeps names of decisions apart
BY_HAND: Final = "by-hand"  # the folder of letters without an address
# Marks of a folder's owner, so that previews and real letters are never mixed.
LETTERS_MARK: Final = ".coach-letters"
PREVIEW_MARK: Final = ".coach-preview"
INDEX: Final = "index.html"  # the list of previews; the notifier writes no such file
LETTER: Final = re.compile(rf".*-[0-9a-f]{{{ID_CHARACTERS}}}\.(html|txt)")
FOLDER_MODE: Final = 0o750
FILE_MODE: Final = 0o640  # a letter is personal


def file_name(decision_id: str, notice_id: str) -> str:
    """Name a letter's file, without its ending: the harmless characters of the decision, and the start of the notice_id."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in decision_id)
    return f"{kept[:SLUG_CHARACTERS_MAX]}-{notice_id[:ID_CHARACTERS]}"


class Outbox(Transport):
    """Print-ready letters; those without an address go to a subfolder.

    Raises: ConfigurationError where the folder holds a preview, DiskUnavailable.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.expanduser()
        claim_for_letters(self._folder, "COACH_NOTIFY_OUTBOX")
        check_folder(self._folder / BY_HAND)

    def send(self, package: Package) -> str:
        """See `Transport`."""
        name = f"{file_name(package.decision_id, package.notice_id)}.html"
        path = f"{BY_HAND}/{name}" if package.needs_address else name
        write_whole(self._folder / path, package.letter.html)
        return path


class Files(Transport):
    """Text and HTML of each letter. Raises: as `Outbox`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.expanduser()
        claim_for_letters(self._folder, "COACH_NOTIFY_FILES")

    def send(self, package: Package) -> str:
        """See `Transport`. The text is written last: where it exists, the letter is complete."""
        name = file_name(package.decision_id, package.notice_id)
        write_letter(self._folder, name, package.letter)
        return f"{name}.txt"


def write_letter(folder: Path, name: str, letter: Letter) -> None:
    """Write HTML, then text with the subject above it. Raises: DiskUnavailable."""
    write_whole(folder / f"{name}.html", letter.html)
    write_whole(folder / f"{name}.txt", f"{letter.subject}\n\n{letter.text}")


def count_without_address(folder: Path) -> int:
    """Count the letters of an outbox that need an address; 0 where the folder cannot be read."""
    try:
        with os.scandir(folder.expanduser() / BY_HAND) as entries:
            return sum(one.name.endswith(".html") and not one.name.startswith(".") for one in entries)
    except OSError:
        return 0


def refuse_preview(folder: Path, setting: str) -> None:
    """Refuse a folder for letters that holds a preview. Raises: ConfigurationError."""
    folder = folder.expanduser()
    found = next((name for name in (PREVIEW_MARK, INDEX) if (folder / name).exists()), None)
    if found is not None:
        message = (
            f"{setting}={folder}: holds a preview ({found}), that is, letters to a made-up person; "
            "name another folder for real letters, or remove this one"
        )
        raise ConfigurationError(message)


def claim_for_letters(folder: Path, setting: str) -> None:
    """Create and mark a folder for real letters. Raises: ConfigurationError where it holds a preview, DiskUnavailable."""
    refuse_preview(folder, setting)
    check_folder(folder)
    _mark(folder / LETTERS_MARK, "Letters to applicants are written here, by `coach notify`.\n")


def claim_for_previews(folder: Path) -> None:
    """Create and mark a folder for previews. Raises: ConfigurationError where it holds real letters, DiskUnavailable."""
    is_preview = any((folder / name).exists() for name in (PREVIEW_MARK, INDEX))
    is_outbox = any((folder / name).exists() for name in (LETTERS_MARK, BY_HAND))
    if is_outbox or (not is_preview and _has_letters(folder)):
        message = f"--out {folder}: holds letters to applicants, which a preview would mix with made-up ones; name another folder"
        raise ConfigurationError(message)
    check_folder(folder)
    _mark(folder / PREVIEW_MARK, "Letters to a made-up person, by `coach notify preview`: none of them may be sent.\n")


def _has_letters(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(LETTER.fullmatch(one.name) for one in entries)
    except OSError:  # not there yet; an unreadable one fails when written to
        return False


def _mark(path: Path, text: str) -> None:
    if not path.exists():
        write_whole(path, text)


def check_folder(folder: Path) -> None:
    """Create a folder, and check that it is writable. Raises: DiskUnavailable."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
        probe = folder / f".coach-{secrets.token_hex(8)}.part"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        message = f"letters cannot be written to {folder}: {error.strerror or error}"
        raise DiskUnavailable(message) from error


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically: a draft beside it, fsync, rename. Raises: DiskUnavailable."""
    draft = path.with_name(f".coach-{secrets.token_hex(8)}.part")
    try:
        atomic_file(path, text.encode(), draft=draft, mode=FILE_MODE)
    except OSError as error:
        message = f"a letter cannot be written to {path.parent}: {error.strerror or error}"
        raise DiskUnavailable(message) from error
