"""What `--output` names: a file that comes into being whole, or a device, or standard output."""

from __future__ import annotations

import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeAlias

from stream.errors import ConfigurationError

Write: TypeAlias = Callable[[bytes], None]


@contextmanager
def written(output: Path | None) -> Iterator[Write]:
    """Give what writes to `output`, standard output where it is None.

    A regular file is written beside its place and renamed at the end: on any failure what was there stays as it was.
    Raises: ConfigurationError, also from the writing, where it cannot be written.
    """
    if output is None:
        yield _writer(sys.stdout.buffer, "standard output")
        with _told("standard output"):
            sys.stdout.buffer.flush()
        return
    name = f"--output {output}"
    place = _checked(output, name)
    replaces = not place.exists() or place.is_file()
    draft = place.with_name(f".coach-{secrets.token_hex(8)}.part") if replaces else place  # a device stays itself
    with _told(name):
        file = draft.open("xb" if replaces else "wb")
    try:
        yield _writer(file, name)
        with _told(name):
            file.close()
            if replaces:
                if place.exists():
                    shutil.copymode(place, draft)
                draft.replace(place)
    finally:
        with suppress(OSError):  # what could not be written has been told
            file.close()
        if replaces:
            draft.unlink(missing_ok=True)


def _checked(output: Path, name: str) -> Path:
    """The place itself, links followed."""
    with _told(name):
        place = output.resolve()
        if place.is_dir():
            message = f"{name} is a folder; name a file"
            raise ConfigurationError(message)
        if not place.parent.is_dir():
            message = f"{name}: there is no folder {output.parent}"
            raise ConfigurationError(message)
    return place


def _writer(file: IO[bytes], name: str) -> Write:
    def write(content: bytes) -> None:
        with _told(name):
            file.write(content)

    return write


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Turn what the operating system refuses into one line; a reader that left ends the command as click ends it."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        message = f"cannot write {name}: {error.strerror or error}"
        raise ConfigurationError(message) from error
