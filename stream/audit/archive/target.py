"""The place that an archive lies at: any file system that fsspec reaches, with files that come into being whole.

On a disk a file is written beside the others, brought to the disk and renamed. An object store shows an object only once
all of it is there. So a reader never meets half a file, and what `keep` returned from, a power cut does not take back.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import fsspec

from stream.audit.archive.layout import DRAFTS
from stream.bundle.atomic_folder import to_disk
from stream.bundle.uris import without_secrets
from stream.errors import (
    ArchiveDamaged,
    ArchiveUnavailable,
    ConfigurationError,
    DependencyError,
    DiskUnavailable,
    StreamError,
)

LOCAL: Final = frozenset({"file", "local"})
WHOLE_PUTS: Final = frozenset(  # an object is there with its last byte, or not at all
    {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oci", "ocilake", "oss", "memory"}
)
SYSTEM_FOLDER: Final = "lost+found"  # of the file system, where it is mounted at an archive's root; nobody may list it
DRAFTS_AGE_MAX_S: Final = 86_400.0  # an older one was left by a process that was killed


class Target:
    """One archive's root. Paths are relative to it, with `/` between parts."""

    def __init__(self, uri: str) -> None:
        """Find the file system of a URI or path. Raises: ConfigurationError for a URI no installed package serves."""
        self.shown = without_secrets(uri)
        try:
            self.system, root = fsspec.core.url_to_fs(uri)
        except ImportError as missing:
            raise self._without_package(missing) from missing
        except Exception as error:  # each store has errors of its own, and their texts may repeat the URI
            why = str(error) if str(error).startswith("Protocol not known") else type(error).__name__
            message = f"the archive at {self.shown} cannot be opened: {why}; expected a folder or a URI such as s3://bucket/audit"
            raise ConfigurationError(message) from error
        self._root = str(root).rstrip("/")
        protocol = self.system.protocol
        self._protocols = frozenset((protocol,) if isinstance(protocol, str) else protocol)
        self.local = bool(self._protocols & LOCAL)
        self.unavailable: type[DependencyError] = DiskUnavailable if self.local else ArchiveUnavailable

    def full(self, path: str) -> str:
        """A path as the file system takes it."""
        return f"{self._root}/{path}"

    def keep(self, draft: Path, path: str) -> None:
        """Put a finished local file at `path`, or move it there. Raises: DiskUnavailable, ArchiveUnavailable."""
        with self._store_errors(f"{path} cannot be written"):
            if self.local:
                self._rename(draft, path)
            elif self._protocols & WHOLE_PUTS:
                self.system.put_file(str(draft), self.full(path))
            else:
                beside = self.full(f"{DRAFTS}/{secrets.token_hex(8)}")
                for path_to_make in (self.full(path), beside):
                    self.system.makedirs(path_to_make.rpartition("/")[0], exist_ok=True)
                self.system.put_file(str(draft), beside)
                self.system.mv(beside, self.full(path))

    def write(self, path: str, content: bytes) -> None:
        """Put a small file at `path`. Raises: as `keep`."""
        with self.draft() as draft:
            with self._store_errors(f"{path} cannot be written"):
                draft.write_bytes(content)
            self.keep(draft, path)

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """Give the name of a local file to write to, which is gone afterwards: for `keep`. Raises: DiskUnavailable."""
        name = secrets.token_hex(8)
        folder = Path(self.full(DRAFTS)) if self.local else Path(tempfile.gettempdir())
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"the archive at {self.shown}: {folder.name} cannot be made: {error.strerror or error}"
            raise DiskUnavailable(message) from error
        draft = folder / f"coach-{name}.part"
        try:
            yield draft
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)

    def read(self, path: str) -> bytes | None:
        """Give a file's content; None where there is none. Raises: DiskUnavailable, ArchiveUnavailable."""
        with self._store_errors(f"{path} cannot be read"):
            try:
                content: bytes = self.system.cat_file(self.full(path))
            except FileNotFoundError:
                return None
            return content

    @contextmanager
    def local_copy(self, path: str) -> Iterator[Path]:
        """Give a file as one of this host: itself on a disk, else a copy that is gone afterwards.

        Raises: ArchiveDamaged where there is none; DiskUnavailable, ArchiveUnavailable.
        """
        if self.local:
            file = Path(self.full(path))
            if not file.is_file():
                raise self.missing(path)
            yield file
            return
        with self.draft() as draft:
            with self._store_errors(f"{path} cannot be read"):
                try:
                    self.system.get_file(self.full(path), str(draft))
                except FileNotFoundError as error:
                    raise self.missing(path) from error
            yield draft

    def missing(self, path: str) -> ArchiveDamaged:
        """The error for a file that should be there."""
        message = f"the archive at {self.shown}: {path} is missing; `coach audit verify` names all that is"
        return ArchiveDamaged(message)

    def names(self, folder: str) -> list[str]:
        """Name what is in a folder, sorted; none where it is missing. Raises: DiskUnavailable, ArchiveUnavailable."""
        found = self._listed(folder, detail=False)
        own = self.full(folder).strip("/")
        return sorted(
            {name.rstrip("/").rpartition("/")[2] for name in map(str, found) if name.strip("/") != own} - {""}
        )

    def walk(self, folder: str = "") -> Iterator[str]:
        """Name every file below a folder; a link is a file. Raises: DiskUnavailable, ArchiveUnavailable."""
        own = self.full(folder).rstrip("/")
        for one in sorted(self._listed(folder, detail=True), key=lambda entry: str(entry["name"])):
            name = str(one["name"]).rstrip("/")
            if name.strip("/") == own.strip("/"):
                continue  # some stores list an object that stands for the folder itself
            path = f"{folder}/{name.rpartition('/')[2]}".lstrip("/")
            if one["type"] == "directory" and not one.get("islink"):
                if path != SYSTEM_FOLDER:
                    yield from self.walk(path)
            else:
                yield path

    def _listed(self, folder: str, *, detail: bool) -> list[Any]:
        with self._store_errors(f"{folder or 'it'} cannot be listed"):
            self.system.invalidate_cache()
            try:
                return list(self.system.ls(self.full(folder).rstrip("/"), detail=detail))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def remove(self, path: str) -> None:
        """Take a file away, where there is one. Raises: DiskUnavailable, ArchiveUnavailable."""
        with self._store_errors(f"{path} cannot be removed"), suppress(FileNotFoundError):
            self.system.rm_file(self.full(path))

    def sweep(self) -> None:
        """Take away drafts that killed processes left long ago. What cannot be removed stays."""
        if not self.local:
            return
        folder = Path(self.full(DRAFTS))
        with suppress(OSError):
            for one in folder.iterdir():
                with suppress(OSError):
                    if one.stat().st_mtime < time.time() - DRAFTS_AGE_MAX_S:
                        one.unlink()

    def _rename(self, draft: Path, path: str) -> None:
        file = Path(self.full(path))
        made = _make_folders(file.parent)
        to_disk(draft)
        draft.replace(file)
        for folder in made:
            to_disk(folder)

    @contextmanager
    def _store_errors(self, what: str) -> Iterator[None]:
        """Turn whatever a store raises into one error of ours: each has its own, and their texts repeat URIs."""
        try:
            yield
        except StreamError:
            raise
        except ImportError as missing:
            raise self._without_package(missing) from missing
        except Exception as error:
            why = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
            message = f"the archive at {self.shown}: {what}: {why}"
            raise self.unavailable(message) from error

    def _without_package(self, missing: ImportError) -> ConfigurationError:
        """What fsspec says about a missing package is one sentence; s3fs and gcsfs are what it asks for."""
        said = " ".join(str(missing).split())
        return ConfigurationError(f"the archive at {self.shown} needs a package that is not installed: {said}")


def _make_folders(folder: Path) -> list[Path]:
    """Make a folder; return it and each one above it that got a new entry by that."""
    changed = [folder]
    while not folder.exists():
        folder = folder.parent
        changed.append(folder)
    changed[0].mkdir(parents=True, exist_ok=True)
    return changed
