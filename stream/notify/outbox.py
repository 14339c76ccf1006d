"""Letters as files: print-ready HTML in the outbox, or text and HTML in a folder that another system empties.

A file is whole or not there, and the same letter has the same name: writing it twice leaves one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import Final

from stream.errors import DiskUnavailable
from stream.notify.record import Channel
from stream.notify.transport import Package

SLUG_CHARACTERS_MAX: Final = 48
ID_CHARACTERS: Final = 16  # of the notice_id, so that two decisions never share a name
BY_HAND: Final = "by-hand"  # the folder of letters whose address somebody has to find out
FOLDER_MODE: Final = 0o750
FILE_MODE: Final = 0o640  # a letter is personal


def file_name(package: Package) -> str:
    """Name a letter's file, without its ending: the decision, as far as it is harmless, and a part of the notice_id."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in package.decision_id)
    return f"{kept[:SLUG_CHARACTERS_MAX]}-{package.notice_id[:ID_CHARACTERS]}"


class Outbox:
    """Print-ready letters; those without an address are in a folder of their own."""

    channel: Channel = "print"

    def __init__(self, folder: Path) -> None:
        """Make the folder. Raises: DiskUnavailable."""
        self._folder = folder.expanduser()
        check_folder(self._folder)
        check_folder(self._folder / BY_HAND)

    def send(self, package: Package) -> str:
        """See `Transport`."""
        name = f"{file_name(package)}.html"
        place = f"{BY_HAND}/{name}" if package.by_hand else name
        write_whole(self._folder / place, package.letter.html)
        return place

    def close(self) -> None:
        """Nothing is held."""


class Files:
    """Text and HTML of each letter."""

    channel: Channel = "files"

    def __init__(self, folder: Path) -> None:
        """Make the folder. Raises: DiskUnavailable."""
        self._folder = folder.expanduser()
        check_folder(self._folder)

    def send(self, package: Package) -> str:
        """See `Transport`. The text comes last: where it is, all of the letter is."""
        name = file_name(package)
        write_whole(self._folder / f"{name}.html", package.letter.html)
        write_whole(self._folder / f"{name}.txt", f"{package.letter.subject}\n\n{package.letter.text}")
        return f"{name}.txt"

    def close(self) -> None:
        """Nothing is held."""


def check_folder(folder: Path) -> None:
    """Make a folder, and see that files can be made in it.

    Raises: DiskUnavailable.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
        probe = folder / f".coach-{secrets.token_hex(8)}.part"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        msg = f"letters cannot be written to {folder}: {error.strerror or error}"
        raise DiskUnavailable(msg) from error


def write_whole(place: Path, text: str) -> None:
    """Write a file beside its place, bring it to the disk, and rename it.

    Raises: DiskUnavailable.
    """
    draft = place.with_name(f".coach-{secrets.token_hex(8)}.part")
    try:
        with open(draft, "xb", opener=lambda path, flags: os.open(path, flags, FILE_MODE)) as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(place)
        _sync_folder(place.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        msg = f"a letter cannot be written to {place.parent}: {error.strerror or error}"
        raise DiskUnavailable(msg) from error


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut."""
    held = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(held)
    finally:
        os.close(held)
