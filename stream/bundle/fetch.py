"""A bundle at a URI -> a folder on this host. fsspec supports file://, s3://, gs:// and more, as installed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import fsspec

from stream.bundle.atomic_folder import atomic_folder
from stream.bundle.manifest import MANIFEST, READ_BYTES, FileEntry, decode_manifest, digest_of
from stream.bundle.sources import check_size
from stream.bundle.uris import without_secrets
from stream.errors import BundleUnavailable, CorruptionError, DiskUnavailable

MANIFEST_BYTES_MAX: Final = 16 << 20
BUNDLE_BYTES_MAX: Final = 1 << 40  # where nobody sets a bound: only the disk is one


def fetch_bundle(uri: str, into: Path, *, bundle_sha256: str | None = None, bytes_max: int = BUNDLE_BYTES_MAX) -> str:
    """Copy the bundle at `uri` to the folder `into`, whole or not at all; return its digest.

    Raises: BundleUnavailable where it cannot be read or is too large, CorruptionError where it is not `bundle_sha256` or a file is
    not what its manifest says, DiskUnavailable where this host cannot keep it.
    """
    shown = without_secrets(uri)
    with _reading(shown, MANIFEST):
        system, root = fsspec.core.url_to_fs(uri)
        content: bytes = system.cat_file(f"{root}/{MANIFEST}", 0, MANIFEST_BYTES_MAX)
    found = digest_of(content)
    if bundle_sha256 is not None and found != bundle_sha256:
        message = f"the bundle at {shown} is {found[:12]}, not {bundle_sha256[:12]} as published; publish it again"
        raise CorruptionError(message)
    manifest = decode_manifest(content, shown)
    check_size(manifest["files"], into, bytes_max)
    try:
        with atomic_folder(into) as draft:
            (draft / MANIFEST).write_bytes(content)
            for path, entry in sorted(manifest["files"].items()):
                (draft / path).parent.mkdir(parents=True, exist_ok=True)
                _copy(system, f"{root}/{path}", draft / path, entry, shown)
    except OSError as error:  # errors of reading are BundleUnavailable already
        message = f"{into.parent} cannot keep a bundle: {error.strerror or type(error).__name__}"
        raise DiskUnavailable(message) from error
    return found


def _copy(system: Any, source: str, target: Path, entry: FileEntry, shown: str) -> None:  # noqa: ANN401 - fsspec has no types
    digest, left = hashlib.sha256(), entry["bytes"]
    with _reading(shown, target.name):
        content = system.open(source, "rb")
    with content, target.open("wb") as out:
        while True:
            with _reading(shown, target.name):
                piece = content.read(READ_BYTES)
            left -= len(piece)
            if not piece or left < 0:
                break
            digest.update(piece)
            out.write(piece)
    if left != 0 or digest.hexdigest() != entry["sha256"]:
        message = f"{target.name} at {shown} is not the file that the manifest names; build or publish the bundle again"
        raise CorruptionError(message)


@contextmanager
def _reading(shown: str, name: str) -> Iterator[None]:
    """Turn anything a store raises into BundleUnavailable; the texts of its own errors repeat URIs."""
    try:
        yield
    except Exception as error:
        safe = isinstance(error, ImportError) or str(error).startswith("Protocol not known")
        why = str(error) if safe else getattr(error, "strerror", None) or type(error).__name__
        message = f"the bundle at {shown} cannot be read: {name}: {why}"
        raise BundleUnavailable(message) from error
