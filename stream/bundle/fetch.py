"""A bundle at a URI -> a folder on this host. fsspec knows file://, s3://, gs:// and more, as far as installed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import fsspec

from stream.bundle.folders import made_whole
from stream.bundle.manifest import MANIFEST, READ_BYTES, FileEntry, decode_manifest, digest_of
from stream.errors import BundleUnavailable, CorruptionError

MANIFEST_BYTES_MAX: Final = 16 << 20


def fetch_bundle(uri: str, into: Path, *, bundle_sha256: str | None = None) -> str:
    """Copy the bundle at `uri` to the folder `into`, whole or not at all, and give its digest.

    Raises: BundleUnavailable where it cannot be read, CorruptionError where it is not `bundle_sha256` or a file is
    not what its manifest says.
    """
    try:
        system, root = fsspec.core.url_to_fs(uri)
        content: bytes = system.cat_file(f"{root}/{MANIFEST}", 0, MANIFEST_BYTES_MAX)
    except (OSError, ValueError, ImportError) as error:
        raise _unavailable(uri, MANIFEST, error) from error
    found = digest_of(content)
    if bundle_sha256 is not None and found != bundle_sha256:
        message = f"the bundle at {uri} is {found[:12]}, not {bundle_sha256[:12]} as published; publish it again"
        raise CorruptionError(message)
    manifest = decode_manifest(content, uri)
    with made_whole(into) as draft:
        (draft / MANIFEST).write_bytes(content)
        for path, entry in sorted(manifest["files"].items()):
            (draft / path).parent.mkdir(parents=True, exist_ok=True)
            _copy(system, f"{root}/{path}", draft / path, entry, uri)
    return found


def _copy(system: Any, source: str, target: Path, entry: FileEntry, uri: str) -> None:  # noqa: ANN401 - fsspec has no types
    digest, left = hashlib.sha256(), entry["bytes"]
    try:
        with system.open(source, "rb") as content, target.open("wb") as out:
            while piece := content.read(READ_BYTES):
                left -= len(piece)
                if left < 0:
                    break
                digest.update(piece)
                out.write(piece)
    except (OSError, ValueError) as error:
        raise _unavailable(uri, target.name, error) from error
    if left != 0 or digest.hexdigest() != entry["sha256"]:
        message = f"{source} is not the file that the manifest names; build or publish the bundle again"
        raise CorruptionError(message)


def _unavailable(uri: str, name: str, error: Exception) -> BundleUnavailable:
    return BundleUnavailable(f"the bundle at {uri} cannot be read: {name}: {error}")
