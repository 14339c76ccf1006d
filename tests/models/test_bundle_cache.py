from __future__ import annotations

import hashlib
import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis

from stream.errors import CorruptionError, RedisUnavailable
from stream.events import ModelPublished
from stream.models.bundle_cache import (
    CHUNK_BYTES_MAX,
    CHUNK_BYTES_MIN,
    fetch_bundle,
    holds_bundle,
    publish_bundle,
)
from tests.models.bundles import CONTENT, files_in, write_bundle

SMALL = CHUNK_BYTES_MIN


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle of several files, one of them empty, one in a folder."""
    folder = tmp_path / "bundle"
    write_bundle(folder)
    return folder


@pytest.mark.parametrize("chunk_bytes", [SMALL, 4096, CHUNK_BYTES_MAX])
def test_a_published_bundle_is_fetched_whole(
    client: redis.Redis, bundle: Path, tmp_path: Path, chunk_bytes: int
) -> None:
    """Given a bundle that was published in pieces of any size, when it is fetched, then every file is there, byte for byte."""
    seen: list[tuple[int, int]] = []
    digest = publish_bundle(client, bundle, chunk_bytes=chunk_bytes, progress=lambda *at: seen.append(at))
    assert fetch_bundle(client, digest, tmp_path / "new" / "copy")
    assert files_in(tmp_path / "new" / "copy") == files_in(bundle)
    assert list((tmp_path / "new").iterdir()) == [tmp_path / "new" / "copy"]
    size = sum(map(len, CONTENT.values()))
    assert seen[-1] == (size, size)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_what_nobody_published_is_not_fetched(client: redis.Redis, tmp_path: Path) -> None:
    """Given an empty cache, when a bundle is fetched, then the answer is no and nothing is left behind."""
    assert not fetch_bundle(client, "0" * 64, tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


def test_a_flushed_cache_holds_nothing_and_is_filled_again(client: redis.Redis, bundle: Path, tmp_path: Path) -> None:
    """Given a cache that was flushed, when the bundle is fetched, then the answer is no until it is published again."""
    digest = publish_bundle(client, bundle)
    client.flushall()
    assert not fetch_bundle(client, digest, tmp_path / "copy")
    publish_bundle(client, bundle)
    assert fetch_bundle(client, digest, tmp_path / "copy")


class _Dies(Exception):
    """Stands for a publisher that is killed."""


def test_a_half_written_bundle_is_never_fetched(client: redis.Redis, bundle: Path, tmp_path: Path) -> None:
    """Given a publisher that dies after any number of pieces, when the bundle is fetched, then the answer is no."""
    digest = hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest()
    pieces: list[tuple[int, int]] = []
    publish_bundle(client, bundle, chunk_bytes=SMALL, progress=lambda *at: pieces.append(at))
    for survived in range(1, len(pieces) + 1):
        client.flushall()
        left = survived

        def dying(_done: int, _total: int) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise _Dies

        with pytest.raises(_Dies):
            publish_bundle(client, bundle, chunk_bytes=SMALL, progress=dying)
        assert not fetch_bundle(client, digest, tmp_path / "copy")
        assert not (tmp_path / "copy").exists()
    publish_bundle(client, bundle, chunk_bytes=SMALL)
    assert fetch_bundle(client, digest, tmp_path / "copy")


def _pieces(client: redis.Redis, digest: str) -> list[bytes]:
    return sorted(key for key in client.scan_iter(f"coach:bundle:{digest}:*") if not key.endswith(b":manifest"))


def test_an_evicted_piece_makes_the_bundle_absent(client: redis.Redis, bundle: Path, tmp_path: Path) -> None:
    """Given a bundle of which Redis evicted any one piece, when it is fetched, then the answer is no; publishing mends it."""
    digest = publish_bundle(client, bundle, chunk_bytes=SMALL)
    for number, key in enumerate(_pieces(client, digest)):
        client.delete(key)
        assert not fetch_bundle(client, digest, tmp_path / "copy")
        publish_bundle(client, bundle, chunk_bytes=SMALL)
        assert fetch_bundle(client, digest, tmp_path / f"mended-{number}")


@pytest.mark.parametrize("damage", ["flip", "shorten", "lengthen", "empty"])
def test_a_damaged_piece_counts_as_absent_and_is_reported(
    client: redis.Redis, bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """Given a piece that is not what was written, when the bundle is fetched, then no, an error names the key, and publishing mends it."""
    digest = publish_bundle(client, bundle, chunk_bytes=SMALL)
    pieces = _pieces(client, digest)
    key = pieces[len(damage) % len(pieces)]
    right = client.get(key)
    assert isinstance(right, bytes)
    wrong = {
        "flip": bytes([right[0] ^ 1]) + right[1:], "shorten": right[:-1], "lengthen": right + b"x", "empty": b"",
    }[damage]  # fmt: skip
    client.set(key, wrong)
    with caplog.at_level(logging.ERROR):
        assert not fetch_bundle(client, digest, tmp_path / "copy")
    assert [record.message for record in caplog.records] == ["leaf_cache.corrupt"]
    assert not (tmp_path / "copy").exists()
    publish_bundle(client, bundle, chunk_bytes=SMALL)
    assert fetch_bundle(client, digest, tmp_path / "copy")


@pytest.mark.parametrize("field", ["manifest", "chunk_bytes"])
@pytest.mark.parametrize("wrong", [b"", b"{}", b"-1", b"0", b"x", b"999999999999"])
def test_a_damaged_manifest_counts_as_absent(
    client: redis.Redis, bundle: Path, tmp_path: Path, field: str, wrong: bytes
) -> None:
    """Given a manifest entry that is not what was written, when the bundle is fetched, then no, and publishing mends it."""
    digest = publish_bundle(client, bundle, chunk_bytes=SMALL)
    client.hset(f"coach:bundle:{digest}:manifest", field, wrong)
    assert not fetch_bundle(client, digest, tmp_path / "copy")
    publish_bundle(client, bundle, chunk_bytes=SMALL)
    assert fetch_bundle(client, digest, tmp_path / "copy")


def test_publishers_of_one_bundle_do_not_disturb_each_other(client: redis.Redis, bundle: Path, tmp_path: Path) -> None:
    """Given many publishers and fetchers of one bundle at once, in different pieces, then each fetch is whole or a no."""
    digest = hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest()
    starting = threading.Barrier(8)

    def publish(number: int) -> None:
        starting.wait(10)
        publish_bundle(client, bundle, chunk_bytes=SMALL * (1 + number % 3))

    def fetch(number: int) -> bool:
        starting.wait(10)
        return fetch_bundle(client, digest, tmp_path / f"copy-{number}")

    with ThreadPoolExecutor(8) as pool:
        publishing = [pool.submit(publish, number) for number in range(4)]
        fetching = [pool.submit(fetch, number) for number in range(4)]
        for done in publishing:
            done.result(30)
        fetched = [done.result(30) for done in fetching]
    for number, whole in enumerate(fetched):
        copy = tmp_path / f"copy-{number}"
        assert copy.exists() == whole
        assert not whole or files_in(copy) == files_in(bundle)
    assert fetch_bundle(client, digest, tmp_path / "last")


def test_fetchers_into_one_folder_share_it(client: redis.Redis, bundle: Path, tmp_path: Path) -> None:
    """Given several workers of a host that fetch into one folder at once, then all succeed and nothing is left over."""
    digest = publish_bundle(client, bundle, chunk_bytes=SMALL)
    shared = tmp_path / "opened" / digest
    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(lambda _: fetch_bundle(client, digest, shared), range(6)))
    assert files_in(shared) == files_in(bundle)
    assert list(shared.parent.iterdir()) == [shared]


def test_a_folder_that_is_something_else_is_not_touched(client: redis.Redis, bundle: Path, tmp_path: Path) -> None:
    """Given a folder that holds other files, when a bundle is fetched into it, then that is refused and they stay."""
    digest = publish_bundle(client, bundle)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep", encoding="utf-8")
    with pytest.raises(CorruptionError, match="is not the bundle"):
        fetch_bundle(client, digest, tmp_path / "mine")
    assert files_in(tmp_path / "mine") == {"notes.txt": b"keep"}


def test_a_bundle_that_is_not_what_its_manifest_says_is_not_published(
    client: redis.Redis, bundle: Path, tmp_path: Path
) -> None:
    """Given a bundle with a changed, cut or longer file, when it is published, then that is refused and it cannot be fetched."""
    digest = hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest()
    right = (bundle / "model.json").read_bytes()
    for wrong in (right[:-1] + b"x", right[:-1], right + b"x", b""):
        (bundle / "model.json").write_bytes(wrong)
        with pytest.raises(CorruptionError, match=r"model\.json is not what its manifest says"):
            publish_bundle(client, bundle, chunk_bytes=SMALL)
        assert not fetch_bundle(client, digest, tmp_path / "copy")


@pytest.mark.parametrize(
    "manifest",
    [
        b"", b"[]", b"{}", b'{"files": []}', b'{"files": {"a": 1}}', b"\xff",
        *(
            json.dumps({"files": {path: {"sha256": "0" * 64, "bytes": 0}}}).encode()
            for path in ("../evil", "/etc/evil", "a/../../evil", "", "manifest.json")
        ),
        b'{"files": {"a": {"sha256": "short", "bytes": 0}}}',
        b'{"files": {"a": {"sha256": "' + b"0" * 64 + b'", "bytes": -1}}}',
        b'{"files": {"a": {"sha256": "' + b"0" * 64 + b'", "bytes": true}}}',
        b'{"files": {"a": {"sha256": "' + b"x" * 64 + b'", "bytes": 1}}}',
        b'{"files": {"a": {"sha256": "' + b"0" * 64 + b'", "bytes": 0}, "a/b": {"sha256": "' + b"0" * 64 + b'", "bytes": 0}}}',
        b'{"files": ' * 100_000,
    ],
)  # fmt: skip
def test_a_manifest_that_reaches_outside_or_is_none_is_refused(
    client: redis.Redis, tmp_path: Path, manifest: bytes
) -> None:
    """Given a manifest that is none or names files outside the bundle, published or in the cache, then it is refused."""
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "manifest.json").write_bytes(manifest)
    with pytest.raises(CorruptionError, match="manifest"):
        publish_bundle(client, tmp_path / "bundle")
    digest = hashlib.sha256(manifest).hexdigest()
    client.hset(f"coach:bundle:{digest}:manifest", mapping={"manifest": manifest, "chunk_bytes": b"4096"})
    with pytest.raises(CorruptionError, match="manifest"):
        fetch_bundle(client, digest, tmp_path / "copy")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("chunk_bytes", [0, SMALL - 1, CHUNK_BYTES_MAX + 1])
def test_a_piece_has_a_sensible_size(client: redis.Redis, bundle: Path, chunk_bytes: int) -> None:
    """Given pieces that are too small or too large for Redis, when a bundle is published, then that is refused."""
    with pytest.raises(ValueError, match="chunk_bytes must be"):
        publish_bundle(client, bundle, chunk_bytes=chunk_bytes)


def test_a_redis_that_is_away_is_a_dependency_error(no_redis: redis.Redis, bundle: Path, tmp_path: Path) -> None:
    """Given no Redis, when the cache is used, then each call says so, without the password, and leaves nothing behind."""
    for call in (
        lambda: publish_bundle(no_redis, bundle),
        lambda: fetch_bundle(no_redis, "0" * 64, tmp_path / "copy"),
    ):
        with pytest.raises(RedisUnavailable, match="Redis failed while") as away:
            call()
        assert "s3cr3t" not in str(away.value)
    assert not (tmp_path / "copy").exists()


def test_a_redis_without_memory_is_a_dependency_error(client: redis.Redis, bundle: Path, tmp_path: Path) -> None:
    """Given a Redis that takes no more, when a bundle is published, then Redis is unavailable and nothing can be fetched."""
    client.config_set("maxmemory", "1")
    try:
        with pytest.raises(RedisUnavailable, match="memory"):
            publish_bundle(client, bundle)
    finally:
        client.config_set("maxmemory", "0")
    digest = hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest()
    assert not fetch_bundle(client, digest, tmp_path / "copy")


class _Evicts(redis.Redis):
    """A Redis so short of memory that a piece is evicted as soon as it is written."""

    def set(self, name: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        """Write, and evict."""
        super().set(name, value, *args, **kwargs)
        return self.delete(name)


class _Damages(redis.Redis):
    """A Redis that gives back other bytes than it was given."""

    def set(self, name: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        """Write something else."""
        return super().set(name, value[::-1] + b"x", *args, **kwargs)


def test_a_piece_is_read_back_before_anybody_relies_on_it(client: redis.Redis, bundle: Path, tmp_path: Path) -> None:
    """Given a Redis that loses or damages what it takes, when a bundle is published, then that is noticed at once."""
    digest = hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest()
    with pytest.raises(RedisUnavailable, match="evicts"):
        publish_bundle(_Evicts(connection_pool=client.connection_pool), bundle)
    with pytest.raises(CorruptionError, match="other bytes"):
        publish_bundle(_Damages(connection_pool=client.connection_pool), bundle)
    assert not holds_bundle(client, digest)
    assert not fetch_bundle(client, digest, tmp_path / "copy")


def test_the_cache_says_what_was_published_to_it(client: redis.Redis, bundle: Path) -> None:
    """Given a bundle, when it is published and evicted, then the cache says that it holds it in between."""
    digest = hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest()
    assert not holds_bundle(client, digest)
    publish_bundle(client, bundle)
    assert holds_bundle(client, digest)
    client.delete(f"coach:bundle:{digest}:manifest")
    assert not holds_bundle(client, digest)


def _published(revision: int, **change: Any) -> ModelPublished:
    published: ModelPublished = {
        "model_id": "m", "model_version": "1", "revision": revision, "bundle_uri": "file:///b",
        "bundle_sha256": "0" * 64, "library": "xgboost", "library_version": "3.2.0", "format_version": 1,
        "objective": "binary:logistic", "link": "logit", "approve": "above", "threshold": 0.5,
        "threshold_scale": "probability", "cutoff_margin": 0.0, "trees_used": 3,
        "features": [{"name": "a", "type": "number"}], "effective_from": "2026-11-27T10:15:00.250Z",
        "published_at": "2026-11-27T10:15:00.250Z", "approved_by": None, "supersedes": None,
    }  # fmt: skip
    return published | change  # type: ignore[return-value]
