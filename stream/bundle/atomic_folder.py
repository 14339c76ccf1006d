"""Folders and files that appear whole or not at all: written beside their place, brought to the disk, then renamed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from stream.errors import ConfigurationError

FILE_MODE: Final = 0o666  # of a new file before the umask, as `open` has it
FOLDER_MODE: Final = 0o755  # a temporary folder is its owner's alone; a finished one is like any other


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Give a temporary folder to fill; it becomes `folder` at the end, or is removed if filling it failed.

    Raises: ConfigurationError where `folder` is there already and not empty, or its parent cannot be written.
    """
    refuse_occupied(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        message = f"cannot write beside {folder}: {error.strerror or error}"
        raise ConfigurationError(message) from error
    try:
        yield draft
        for path in draft.rglob("*"):
            to_disk(path)
        draft.chmod(FOLDER_MODE)
        try:
            draft.rename(folder)
        except OSError as error:
            refuse_occupied(folder)  # another process was faster
            message = f"cannot put the finished folder at {folder}: {error.strerror or error}"
            raise ConfigurationError(message) from error
        to_disk(folder.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def atomic_file(path: Path, content: bytes, *, draft: Path, mode: int = FILE_MODE) -> None:
    """Write `content` to `draft`, a name beside `path`, and rename it over `path`. Raises: OSError; no draft stays."""
    try:
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    to_disk(path.parent)


def refuse_occupied(folder: Path) -> None:
    """Raise ConfigurationError where something is at `folder` already that a new one would replace."""
    try:
        occupied = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        message = f"cannot look at {folder}: {error.strerror or error}"
        raise ConfigurationError(message) from error
    if occupied:
        message = f"{folder} exists and is not empty; remove it or choose another place"
        raise ConfigurationError(message)


def to_disk(path: Path) -> None:
    """Flush a file or folder so that it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
