"""Bundles on this host: opened from the shared folder, which is filled from Redis, which is filled from the bundle's URI.

The bundle is the truth and Redis a cache: a worker with a local copy needs neither, and one that finds Redis empty
rebuilds it from the URI. Folders are named by the digest of the manifest and come into being by a rename, so several
workers share one mapped copy and none sees half of it.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Final

import redis

from stream.bundle.fetch import BUNDLE_BYTES_MAX
from stream.bundle.fetch import fetch_bundle as fetch_from_uri
from stream.bundle.open import open_bundle
from stream.bundle.sources import check_source
from stream.errors import (
    BundleLoading,
    BundleLost,
    BundleUnavailable,
    ConfigurationError,
    CorruptionError,
    DiskUnavailable,
    MachineMismatch,
    ModelNotPublished,
    RedisRefused,
    RedisUnavailable,
)
from stream.events import ModelPublished
from stream.models.bundle_cache import CHUNK_BYTES, publish_bundle
from stream.models.bundle_cache import fetch_bundle as fetch_from_redis
from stream.recourse.model import PublishedModel

log = logging.getLogger(__name__)

WRONG_FOR_S: Final = 10.0  # before a bundle that was not what its publication says is looked at again
LOST_FOR_S: Final = 5.0  # before a bundle that was nowhere is looked for again
LOST_FOR_MAX_S: Final = 60.0
LOOKING_SHARE: Final = 10  # a long look earns a rest this many times as long
LOADS_MAX: Final = 16  # bundles that are fetched or opened at once; a store that stays silent keeps one for itself
PROBE_BYTES: Final = 4096
ORIGINS: Final = ("memory", "disk", "redis", "uri")  # where a bundle may be found, the nearest first


def check_folder(folder: Path) -> None:
    """Make the folder of bundles; write and remove a file there. Raises: ConfigurationError that names the setting."""
    try:
        folder.expanduser().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder.expanduser()) as probe:
            probe.write(bytes(PROBE_BYTES))
            probe.flush()
    except (OSError, RuntimeError) as error:  # RuntimeError: ~ of a user without a home
        why = error.strerror or type(error).__name__ if isinstance(error, OSError) else str(error)
        message = f"COACH_BUNDLE_DIR={folder} cannot be used: {why}; name a folder that this user may write to"
        raise ConfigurationError(message) from error


class OpenBundles:
    """Keeps the `models_max` bundles that were asked for last open; used by one thread at a time."""

    def __init__(
        self,
        folder: Path,
        client: redis.Redis,
        *,
        models_max: int,
        sources: Sequence[str] = (),
        bytes_max: int = BUNDLE_BYTES_MAX,
        load_wait_s: float | None = None,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        """Nothing is opened yet.

        `load_wait_s`: how long `model` waits for a bundle to be fetched and opened, which goes on in a thread of its own;
        None: until it is done. `folder` is made when it is missing; `chunk_bytes` is the size of the pieces that Redis is refilled with;
        `sources`: the folders and URI prefixes that bundles may be fetched from, besides `folder`.
        """
        self._folder = folder.expanduser()
        self._client = client
        self._models_max = models_max
        self._sources = (str(self._folder), *sources)
        self._bytes_max = bytes_max
        self._load_wait_s = load_wait_s
        self._loads: dict[tuple[object, ...], Future[PublishedModel]] = {}
        self.loads_done = 0  # grows with each load that ends: who waits for one looks again
        self._chunk_bytes = chunk_bytes
        self._open: OrderedDict[str, PublishedModel] = OrderedDict()
        self._failed: dict[tuple[object, ...], tuple[float, ModelNotPublished]] = {}
        # Counts for /metrics, read by other threads; a key is never added or taken away.
        self.loaded = dict.fromkeys(ORIGINS, 0)
        self.evicted = 0
        self.cache_lookups = {"hit": 0, "miss": 0, "unavailable": 0}
        self.cache_rebuilds = {"done": 0, "failed": 0}

    def opened(self) -> list[str]:
        """The digests of the bundles that are open, the one asked for last at the end; any thread may ask."""
        return list(self._open)  # one step for CPython: no other thread comes between

    def model(self, published: ModelPublished, *, wait_s: float | None = None) -> PublishedModel:
        """Give the model of a publication, loading it where it is not open. `wait_s`: in place of `load_wait_s`.

        Raises: BundleLoading when that takes longer than `load_wait_s`, BundleLost when neither Redis nor its URI holds it,
        ModelNotPublished when what they hold is not what was
        published, or this machine computes something else with it: both concern the decisions of this model alone.
        RedisUnavailable when the URI does not give it and Redis does not answer, DiskUnavailable when it cannot be kept:
        both concern everyone.
        """
        digest = published["bundle_sha256"]
        found = self._open.get(digest)
        if found is None:
            found = self._load_unless_failed(published, self._load_wait_s if wait_s is None else wait_s)
            self._open[digest] = found
            while len(self._open) > self._models_max:
                self._open.popitem(last=False)
                self.evicted += 1
        else:
            try:
                _check_identity(found, published)
            except CorruptionError as wrong:
                message = f"{wrong}; then redrive"
                raise ModelNotPublished(message) from wrong
            self.loaded["memory"] += 1
        self._open.move_to_end(digest)
        return found

    def _load_unless_failed(self, published: ModelPublished, wait_s: float | None) -> PublishedModel:
        """Load; what was nowhere, or not what was published, is not tried again for a while."""
        what = (published["bundle_sha256"], published["bundle_uri"], *_name(published))
        until_s, known = self._failed.get(what, (0.0, None))
        began_s = time.monotonic()
        if known is not None and began_s < until_s:
            raise type(known)(str(known))
        self._failed.pop(what, None)
        try:
            found = self._loaded(what, published, wait_s)
            _check_identity(found, published)
        except (CorruptionError, ConfigurationError, MachineMismatch) as wrong:
            log.error("bundle.wrong", extra={"bundle_sha256": what[0], "why": str(wrong)})  # noqa: TRY400 - `why` says it
            error = ModelNotPublished(f"{wrong}; then redrive")
            self._failed[what] = (time.monotonic() + WRONG_FOR_S, error)
            raise error from wrong
        except BundleUnavailable as lost:
            log.error("bundle.lost", extra={"bundle_sha256": what[0], "why": str(lost)})  # noqa: TRY400 - `why` says it
            error = BundleLost(f"{lost}; publish it again, then redrive")
            took_s = time.monotonic() - began_s
            rest_s = min(max(LOST_FOR_S, LOOKING_SHARE * took_s), LOST_FOR_MAX_S)
            self._failed[what] = (time.monotonic() + rest_s, error)
            raise error from lost
        except OSError as error:
            message = f"COACH_BUNDLE_DIR={self._folder} cannot be used: {error.strerror or type(error).__name__}"
            raise DiskUnavailable(message) from error
        return found

    def _loaded(self, what: tuple[object, ...], published: ModelPublished, wait_s: float | None) -> PublishedModel:
        """Load in a thread, and wait for it for a while, but only once. Raises: BundleLoading; as `_load`."""
        load = self._loads.get(what)
        if load is not None:
            wait_s = None if wait_s is None else 0.0
        else:
            # What is done and nobody asked for again makes room: it is on the disk by now, or was told in the log.
            self._loads = {other: one for other, one in self._loads.items() if not one.done()}
            if len(self._loads) >= LOADS_MAX:
                message = f"{LOADS_MAX} other bundles are being fetched and none of their stores answers"
                raise BundleUnavailable(message)
            load = self._begin(what, published)
        if not wait([load], wait_s).done:
            message = f"the bundle of {published['model_id']} {published['model_version']} is still being fetched"
            raise BundleLoading(message)
        self._loads.pop(what, None)
        return load.result()

    def _begin(self, what: tuple[object, ...], published: ModelPublished) -> Future[PublishedModel]:
        load: Future[PublishedModel] = Future()

        def run() -> None:
            try:
                load.set_result(self._load(published))
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
                load.set_exception(error)
            self.loads_done += 1

        self._loads[what] = load
        threading.Thread(target=run, name="coach-bundle", daemon=True).start()
        return load

    def _load(self, published: ModelPublished) -> PublishedModel:
        started = time.perf_counter()
        folder = self._folder / published["bundle_sha256"]
        origin, model = "disk", None
        if folder.is_dir():
            try:
                model = open_bundle(folder)
            except (CorruptionError, BundleUnavailable) as damaged:  # the latter where the copy has no manifest
                aside = self._folder / f"damaged-{published['bundle_sha256']}-{time.time_ns()}"
                log.error("bundle.damaged", extra={"kept_at": str(aside), "why": str(damaged)})  # noqa: TRY400 - `why` says it
                folder.rename(aside)
        if model is None:
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
        redis_away: RedisUnavailable | None = None
        try:
            if fetch_from_redis(self._client, digest, folder, bytes_max=self._bytes_max):
                self.cache_lookups["hit"] += 1
                return "redis"
            self.cache_lookups["miss"] += 1
        except RedisUnavailable as away:
            if not isinstance(away, RedisRefused):  # what it refuses it does not hold for us
                redis_away = away
            self.cache_lookups["unavailable"] += 1
            log.warning("bundle.redis_away", extra={"why": str(away)})
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=self._folder, ignore_cleanup_errors=True) as space:
            fetched = Path(space) / "bundle"
            try:
                check_source(published["bundle_uri"], self._sources)
                fetch_from_uri(published["bundle_uri"], fetched, bundle_sha256=digest, bytes_max=self._bytes_max)
            except BundleUnavailable as away:
                if redis_away is not None:  # which may hold it
                    raise redis_away from away
                message = f"bundle {digest[:12]} of {published['model_id']} {published['model_version']} is not in Redis, and {away}"
                raise BundleUnavailable(message) from away
            try:
                publish_bundle(self._client, fetched, chunk_bytes=self._chunk_bytes)
                self.cache_rebuilds["done"] += 1
            except RedisUnavailable as away:
                self.cache_rebuilds["failed"] += 1
                log.warning("bundle.redis_not_refilled", extra={"why": str(away)})
            try:
                fetched.rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
                # another worker of this host was quicker, with the same bytes
        return "uri"


def _name(published: ModelPublished) -> tuple[str, str, int]:
    return published["model_id"], published["model_version"], published["revision"]


def _check_identity(model: PublishedModel, published: ModelPublished) -> None:
    ours = (model.identity["model_id"], model.identity["model_version"], model.identity["revision"])
    if ours != _name(published):
        message = f"the bundle published as {_name(published)} says that it is {ours}; publish it again"
        raise CorruptionError(message)
