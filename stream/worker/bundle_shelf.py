"""Bundles on this host: opened from the shared folder, which is filled from Redis, which is filled from the bundle's URI.

The bundle is the truth and Redis a cache: a worker with a local copy needs neither, and one that finds Redis empty
rebuilds it from the URI. Folders are named by the digest of the manifest and come into being by a rename, so several
workers share one mapped copy and none sees half of it.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import redis

from stream.bundle.fetch import fetch_bundle as fetch_from_uri
from stream.bundle.open import open_bundle
from stream.errors import (
    BundleUnavailable,
    ConfigurationError,
    CorruptionError,
    DependencyError,
    ModelNotPublished,
    RedisUnavailable,
)
from stream.events import ModelPublished
from stream.recourse.model import PublishedModel
from stream.wire.leaf_cache import fetch_bundle as fetch_from_redis
from stream.wire.leaf_cache import publish_bundle

log = logging.getLogger(__name__)

WRONG_FOR_S: Final = 10.0  # before a bundle that was not what its publication says is looked at again


class BundleShelf:
    """Keeps the `models_max` bundles that were asked for last open; used by one thread at a time."""

    def __init__(self, folder: Path, client: redis.Redis, *, models_max: int) -> None:
        """`folder` is made when it is missing."""
        self._folder = folder.expanduser()
        self._client = client
        self._models_max = models_max
        self._open: OrderedDict[str, PublishedModel] = OrderedDict()
        self._wrong: dict[tuple[object, ...], tuple[float, str]] = {}
        self.loaded = {"memory": 0, "disk": 0, "redis": 0, "uri": 0}

    def model(self, published: ModelPublished) -> PublishedModel:
        """Give the model of a publication, loading it where it is not open.

        Raises: BundleUnavailable when neither Redis nor the URI has it now; ModelNotPublished when what they have is
        not what was published, which concerns the decisions of this model alone.
        """
        digest = published["bundle_sha256"]
        found = self._open.get(digest)
        if found is None:
            found = self._load_unless_wrong(published)
            self._open[digest] = found
            while len(self._open) > self._models_max:
                self._open.popitem(last=False)
        else:
            self.loaded["memory"] += 1
        self._open.move_to_end(digest)
        return found

    def _load_unless_wrong(self, published: ModelPublished) -> PublishedModel:
        """Load; what turned out not to be what was published is not tried again for a while."""
        what = (published["bundle_sha256"], published["bundle_uri"], *_name(published))
        until_s, reason = self._wrong.get(what, (0.0, ""))
        if time.monotonic() < until_s:
            raise ModelNotPublished(reason)
        try:
            found = self._load(published)
            _check_identity(found, published)
        except (CorruptionError, ConfigurationError) as wrong:
            reason = f"{wrong}; then redrive"
            self._wrong[what] = (time.monotonic() + WRONG_FOR_S, reason)
            log.error("bundle.wrong", extra={"bundle_sha256": what[0], "why": str(wrong)})  # noqa: TRY400 - `why` says it
            raise ModelNotPublished(reason) from wrong
        self._wrong.pop(what, None)
        return found

    def _load(self, published: ModelPublished) -> PublishedModel:
        started = time.perf_counter()
        folder = self._folder / published["bundle_sha256"]
        origin = "disk"
        if folder.is_dir():
            try:
                model = open_bundle(folder)
            except CorruptionError as damaged:
                aside = self._folder / f"damaged-{published['bundle_sha256']}-{time.time_ns()}"
                log.error("bundle.damaged", extra={"kept_at": str(aside), "why": str(damaged)})  # noqa: TRY400 - `why` says it
                folder.rename(aside)
                origin = self._fetch(published, folder)
                model = open_bundle(folder)
        else:
            origin = self._fetch(published, folder)
            model = open_bundle(folder)
        self.loaded[origin] += 1
        log.info(
            "bundle.loaded",
            extra={
                "model_id": published["model_id"],
                "model_version": published["model_version"],
                "revision": published["revision"],
                "origin": origin,
                "elapsed_us": int((time.perf_counter() - started) * 1e6),
            },
        )
        return model

    def _fetch(self, published: ModelPublished, folder: Path) -> str:
        """Bring a bundle into `folder` from Redis, else from its URI, and then refill Redis; say from where."""
        self._folder.mkdir(parents=True, exist_ok=True)
        digest = published["bundle_sha256"]
        try:
            if fetch_from_redis(self._client, digest, folder):
                return "redis"
        except RedisUnavailable as away:
            log.warning("bundle.redis_away", extra={"why": str(away)})
        with self._workspace() as space:
            fetched = space / "bundle"
            try:
                fetch_from_uri(published["bundle_uri"], fetched, bundle_sha256=digest)
            except DependencyError as away:
                reason = f"bundle {digest[:12]} of {published['model_id']} {published['model_version']} is not in Redis, and {away}"
                raise BundleUnavailable(reason) from away
            self._refill(fetched)
            try:
                fetched.rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
                # another worker of this host was quicker, with the same bytes
        return "uri"

    def _refill(self, folder: Path) -> None:
        try:
            publish_bundle(self._client, folder)
        except RedisUnavailable as away:
            log.warning("bundle.redis_not_refilled", extra={"why": str(away)})

    @contextmanager
    def _workspace(self) -> Iterator[Path]:
        space = Path(tempfile.mkdtemp(prefix="fetching-", dir=self._folder))
        try:
            yield space
        finally:
            shutil.rmtree(space, ignore_errors=True)


def _name(published: ModelPublished) -> tuple[str, str, int]:
    return published["model_id"], published["model_version"], published["revision"]


def _check_identity(model: PublishedModel, published: ModelPublished) -> None:
    ours = (model.identity["model_id"], model.identity["model_version"], model.identity["revision"])
    if ours != _name(published):
        reason = f"the bundle published as {_name(published)} says that it is {ours}; publish it again"
        raise CorruptionError(reason)
