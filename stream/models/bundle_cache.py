"""Published bundles in Redis, so that a worker needs no object store at every start. Redis is a cache: the bundle is the truth.

A bundle's files lie in pieces under keys that name their content, so a key never holds anything else:

    coach:bundle:<bundle sha256>:<file sha256>:<first byte>-<end>    one piece of one file
    coach:bundle:<bundle sha256>:manifest                            hash: manifest (manifest.json), chunk_bytes

The manifest is written last, after each piece was read back and compared, so a bundle without one is not there yet.
What comes out is checked against the digests again. A piece that does not match counts as absent, with an error in
the log: the worker then takes the bundle from its URI and publishes it anew, which heals the cache.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import redis

from stream.bundle.fetch import BUNDLE_BYTES_MAX
from stream.bundle.manifest_fields import are_files
from stream.bundle.sources import check_size
from stream.errors import CorruptionError, RedisUnavailable
from stream.runtime.clients import redis_errors

log = logging.getLogger(__name__)

MANIFEST_FILE: Final = "manifest.json"
CHUNK_BYTES: Final = 16 << 20
CHUNK_BYTES_MIN: Final = 1 << 10
CHUNK_BYTES_MAX: Final = 64 << 20  # Redis answers nobody else while it copies one
MANIFEST_BYTES_MAX: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    sha256: str
    size_bytes: int


def publish_bundle(
    client: redis.Redis,
    bundle_dir: Path,
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    chunk_bytes: int = CHUNK_BYTES,
) -> str:
    """Put a bundle into Redis and give its digest. What is there already and right is left; what is wrong is replaced.

    `progress` hears of bytes done and in all.
    Any number of publishers may do this at once, with different `chunk_bytes` too: no key has two right contents.
    Raises: CorruptionError when a file is not what the manifest says or Redis gives back other bytes than it was
    given; RedisUnavailable, also when it has no memory left.
    """
    if not CHUNK_BYTES_MIN <= chunk_bytes <= CHUNK_BYTES_MAX:
        message = f"chunk_bytes must be {CHUNK_BYTES_MIN} to {CHUNK_BYTES_MAX}"
        raise ValueError(message)
    manifest = (bundle_dir / MANIFEST_FILE).read_bytes()
    bundle_sha256 = hashlib.sha256(manifest).hexdigest()
    files = _files(manifest)
    done, total = 0, sum(file.size_bytes for file in files)
    for file in files:
        digest = hashlib.sha256()
        with (bundle_dir / file.path).open("rb") as content:
            for start, end in _pieces(file.size_bytes, chunk_bytes):
                piece = content.read(end - start)
                digest.update(piece)
                _put(client, _piece_key(bundle_sha256, file, start, end), piece)
                done += len(piece)
                progress(done, total)
            if digest.hexdigest() != file.sha256 or content.read(1):
                message = f"{bundle_dir / file.path} is not what its manifest says; build or fetch the bundle again"
                raise CorruptionError(message)
    with redis_errors("publishing a manifest"):
        client.hset(
            _manifest_key(bundle_sha256), mapping={"manifest": manifest, "chunk_bytes": str(chunk_bytes).encode()}
        )
    return bundle_sha256


def fetch_bundle(client: redis.Redis, bundle_sha256: str, into: Path, *, bytes_max: int = BUNDLE_BYTES_MAX) -> bool:
    """Copy a bundle out of Redis to the directory `into`, which comes to be in one step, whole and checked.

    Returns False, and leaves nothing behind, when the cache does not hold all of it as it should be. A directory that
    is there already holds the bundle if its manifest is right, whoever fetched it. Raises: RedisUnavailable;
    BundleUnavailable where it is too large; CorruptionError when `into` is something else.
    """
    if into.exists():
        return _is_there(into, bundle_sha256)
    with redis_errors("fetching a manifest"):
        index = cast("dict[bytes, bytes]", client.hgetall(_manifest_key(bundle_sha256)))
    if not index:
        return False
    manifest, size = index.get(b"manifest", b""), index.get(b"chunk_bytes", b"")
    chunk_bytes = int(size) if size.isdigit() else 0
    right = hashlib.sha256(manifest).hexdigest() == bundle_sha256 and CHUNK_BYTES_MIN <= chunk_bytes <= CHUNK_BYTES_MAX
    if not right:
        return _corrupt(_manifest_key(bundle_sha256))
    into.parent.mkdir(parents=True, exist_ok=True)
    files = _files(manifest)
    check_size({one.path: {"sha256": one.sha256, "bytes": one.size_bytes} for one in files}, into, bytes_max)
    with tempfile.TemporaryDirectory(prefix=f".{into.name}.", dir=into.parent) as scratch:
        whole = Path(scratch) / "bundle"
        whole.mkdir()
        for file in files:
            if not _fetch_file(client, bundle_sha256, file, chunk_bytes, whole):
                return False
        (whole / MANIFEST_FILE).write_bytes(manifest)
        try:
            whole.replace(into)
        except OSError:  # another process was faster: a directory that is not empty cannot be replaced
            return _is_there(into, bundle_sha256)
    return True


def holds_bundle(client: redis.Redis, bundle_sha256: str) -> bool:
    """Whether a bundle was published to the cache; pieces evicted since do not show. Raises: RedisUnavailable."""
    with redis_errors("looking for a bundle"):
        return bool(client.exists(_manifest_key(bundle_sha256)))


def _piece_key(bundle_sha256: str, file: _File, start: int, end: int) -> str:
    return f"coach:bundle:{bundle_sha256}:{file.sha256}:{start}-{end}"


def _manifest_key(bundle_sha256: str) -> str:
    return f"coach:bundle:{bundle_sha256}:manifest"


def _pieces(size_bytes: int, chunk_bytes: int) -> Iterator[tuple[int, int]]:
    for start in range(0, size_bytes, chunk_bytes):
        yield start, min(start + chunk_bytes, size_bytes)


def _files(manifest: bytes) -> list[_File]:
    """List the files of a manifest, each inside the bundle's directory, with a digest and a size.

    Raises: CorruptionError when the manifest is none, or would reach outside.
    """
    if len(manifest) > MANIFEST_BYTES_MAX:
        message = f"the bundle's manifest is larger than {MANIFEST_BYTES_MAX} bytes; build the bundle again"
        raise CorruptionError(message)
    try:
        entries: Any = json.loads(manifest)["files"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        message = "the bundle's manifest is none of ours; build the bundle again"
        raise CorruptionError(message) from error
    if not are_files(entries):
        message = "the bundle's manifest names a file outside the bundle or without a digest; build the bundle again"
        raise CorruptionError(message)
    return [_File(path, entry["sha256"], entry["bytes"]) for path, entry in sorted(entries.items())]


def _put(client: redis.Redis, key: str, piece: bytes) -> None:
    with redis_errors("publishing a bundle"):
        if client.get(key) == piece:
            return
        client.set(key, piece)
        back = client.get(key)
    if back is None:
        message = f"Redis dropped {key} at once: it evicts (maxmemory too small?), or somebody deletes this bundle"
        raise RedisUnavailable(message)
    if back != piece:
        message = f"Redis gave back other bytes than it was given for {key}"
        raise CorruptionError(message)


def _fetch_file(client: redis.Redis, bundle_sha256: str, file: _File, chunk_bytes: int, whole: Path) -> bool:
    target = whole / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with target.open("wb") as out:
        for start, end in _pieces(file.size_bytes, chunk_bytes):
            key = _piece_key(bundle_sha256, file, start, end)
            with redis_errors("fetching a bundle"):
                piece = cast("bytes | None", client.get(key))
            if piece is None:
                return False
            if len(piece) != end - start:
                return _corrupt(key)
            digest.update(piece)
            out.write(piece)
    if digest.hexdigest() != file.sha256:
        return _corrupt(_piece_key(bundle_sha256, file, 0, file.size_bytes))
    return True


def _is_there(into: Path, bundle_sha256: str) -> bool:
    manifest = into / MANIFEST_FILE
    if manifest.is_file() and hashlib.sha256(manifest.read_bytes()).hexdigest() == bundle_sha256:
        return True
    message = f"{into} exists and is not the bundle {bundle_sha256[:12]}; remove it"
    raise CorruptionError(message)


def _corrupt(key: str) -> bool:
    """Say loudly that a key holds what it should not; for the caller that means absent."""
    log.error("leaf_cache.corrupt", extra={"key": key, "what_next": "taken as absent; publishing again replaces it"})
    return False
