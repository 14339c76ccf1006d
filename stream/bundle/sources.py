"""Which bundles a worker may fetch: from where, and how large. Whoever can publish must not name any address of the network."""

from __future__ import annotations

import posixpath
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from stream.bundle.manifest import FileEntry
from stream.bundle.uris import without_secrets
from stream.errors import BundleUnavailable

FILES_MAX: Final = 10_000  # of one bundle; a shadow has seven
DISK_SPARE_BYTES: Final = 64 << 20  # left free for all else on the disk
LOCAL: Final = ("", "file", "local")  # schemes of fsspec's local files


def check_source(uri: str, allowed: Sequence[str]) -> None:
    """Refuse a URI that lies below none of the allowed ones, which are folders of this host or URI prefixes.

    Local paths are compared after symbolic links are followed. Raises: BundleUnavailable.
    """
    where = _parts(uri)
    if where is None or not any(where[: len(prefix)] == prefix for prefix in map(_parts, allowed) if prefix):
        message = (
            f"the bundle at {without_secrets(uri)} may not be fetched, for it lies neither below COACH_BUNDLE_DIR nor below one "
            "of COACH_BUNDLE_SOURCES; add its folder or prefix there, or publish the bundle again, which puts it into Redis"
        )
        raise BundleUnavailable(message)


def _parts(uri: str) -> tuple[str, ...] | None:
    """Scheme, host and folders of a URI; None for one that is read otherwise than it looks (chained, with `..`)."""
    scheme, found, rest = uri.partition("://")
    if "::" in uri:
        return None
    if not found or scheme in LOCAL:
        return ("file", *Path(rest if found else uri).expanduser().resolve().parts)
    split = urlsplit(uri)
    path = unquote(split.path)
    if "@" in split.netloc or ".." in path.split("/") or "\\" in path:
        return None
    return split.scheme, split.netloc, *(one for one in posixpath.normpath(f"/{path}").split("/") if one)


def check_size(files: Mapping[str, FileEntry], into: Path, bytes_max: int) -> None:
    """Refuse a bundle that is too large for this host, by what its manifest says, before a byte is copied.

    `into`: the folder that is to keep it, whose parent exists. Raises: BundleUnavailable.
    """
    total = sum(entry["bytes"] for entry in files.values())
    free = shutil.disk_usage(into.parent).free - DISK_SPARE_BYTES
    if len(files) > FILES_MAX or total > bytes_max or total > free:
        message = (
            f"the bundle says that it holds {total} bytes in {len(files)} files; this host takes at most {FILES_MAX} files, "
            f"COACH_BUNDLE_BYTES_MAX={bytes_max} bytes, and what is free at {into.parent}: {max(0, free)} bytes"
        )
        raise BundleUnavailable(message)
