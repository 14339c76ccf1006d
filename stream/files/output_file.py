"""The target of `--output`: a file that appears whole or not at all, a device, or standard output."""

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
    """A function that writes to `output`, standard output where it is None.

    A regular file is written beside its place and renamed at the end: on any failure the old content stays.
    Raises: ConfigurationError, also from the writing, where it cannot be written.
    """
    if output is None:
        yield _writer(sys.stdout.buffer, "standard output")
        with _write_errors("standard output"):
            sys.stdout.buffer.flush()
        return
    name = f"--output {output}"
    path = _checked(output, name)
    replaces = not path.exists() or path.is_file()
    draft = path.with_name(f".coach-{secrets.token_hex(8)}.part") if replaces else path  # a device is not replaced
    with _write_errors(name):
        file = draft.open("xb" if replaces else "wb")
    try:
        yield _writer(file, name)
        with _write_errors(name):
            file.close()
            if replaces:
                if path.exists():
                    shutil.copymode(path, draft)
                draft.replace(path)
    finally:
        with suppress(OSError):  # already reported by the writing itself
            file.close()
        if replaces:
            draft.unlink(missing_ok=True)


def _checked(output: Path, name: str) -> Path:
    with _write_errors(name):
        path = output.resolve()
        if path.is_dir():
            message = f"{name} is a folder; name a file"
            raise ConfigurationError(message)
        if not path.parent.is_dir():
            message = f"{name}: there is no folder {output.parent}"
            raise ConfigurationError(message)
    return path


def _writer(file: IO[bytes], name: str) -> Write:
    def write(content: bytes) -> None:
        with _write_errors(name):
            file.write(content)

    return write


@contextmanager
def _write_errors(name: str) -> Iterator[None]:
    """Turn an OSError into a one-line error, but leave a closed pipe to click."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, RuntimeError) as error:  # the latter for a loop of symbolic links
        message = f"cannot write {name}: {getattr(error, 'strerror', None) or error}"
        raise ConfigurationError(message) from error
