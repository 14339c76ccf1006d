from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import fsspec
import numpy as np
import pytest
import redis
from fsspec.implementations.local import LocalFileSystem

from stream.bundle.manifest import read_manifest
from stream.demo.embedded.embedded_redis import EmbeddedRedis
from stream.errors import (
    BundleLoading,
    BundleLost,
    ConfigurationError,
    DiskUnavailable,
    ModelNotPublished,
    RedisUnavailable,
)
from stream.events import ModelPublished
from stream.models import open_bundles
from stream.models.bundle_cache import holds_bundle, publish_bundle
from stream.models.open_bundles import OpenBundles, check_folder
from stream.runtime.clients import redis_client
from tests.bundle.gate.test_kept_probes import put
from tests.models.test_model_table import published
from tests.service.lender import Lender, toy_lender
from tests.service.room import wait_until


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Lender:
    """The small lender."""
    return toy_lender(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedRedis]:
    """One Redis for the module."""
    with EmbeddedRedis() as running:
        yield running


@pytest.fixture
def client(server: EmbeddedRedis) -> redis.Redis:
    """An empty Redis."""
    found = redis_client(server.url, timeout_s=2)
    found.flushall()
    return found


def publication(lender: Lender, **changes: Any) -> ModelPublished:
    manifest, digest = read_manifest(lender.bundle)
    record = published(manifest["revision"], "2026-01-01T00:00:00Z", version=lender.version, sha256=digest)
    record["model_id"], record["bundle_uri"] = lender.name, lender.bundle.as_uri()
    return cast("ModelPublished", record | changes)


def test_a_bundle_comes_from_the_nearest_place_and_fills_the_ones_on_the_way(
    toy: Lender, client: redis.Redis, tmp_path: Path
) -> None:
    """Given a bundle at its URI alone, when it is asked for, then it comes from there and fills Redis; the next host gets it from Redis, and a second worker of one host from its disk."""
    record = publication(toy)
    origins = []
    for folder in ("host-a", "host-b", "host-b"):
        opened = OpenBundles(tmp_path / folder, client, models_max=2, sources=["/"])
        assert opened.model(record).identity["bundle_sha256"] == record["bundle_sha256"]
        opened.model(record)
        origins.append([name for name, count in opened.loaded.items() if count])
    assert origins == [["memory", "uri"], ["memory", "redis"], ["memory", "disk"]]
    assert holds_bundle(client, record["bundle_sha256"])
    assert not list((tmp_path / "host-a").glob("fetching-*"))


def test_a_damaged_copy_is_kept_aside_and_replaced(toy: Lender, client: redis.Redis, tmp_path: Path) -> None:
    """Given a local copy with one byte changed, when it is opened, then it is kept as evidence under another name, and a whole one is fetched."""
    record = publication(toy)
    OpenBundles(tmp_path, client, models_max=2, sources=["/"]).model(record)
    damaged = tmp_path / record["bundle_sha256"] / "features.toml"
    damaged.write_text(damaged.read_text() + "\n# changed\n")
    opened = OpenBundles(tmp_path, client, models_max=2, sources=["/"])
    opened.model(record)
    assert opened.loaded["redis"] == 1
    (aside,) = tmp_path.glob("damaged-*")
    assert (aside / "features.toml").read_text().endswith("# changed\n")


def test_a_bundle_that_is_nowhere_concerns_its_own_decisions_alone(
    toy: Lender, client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given neither Redis nor the URI has it, when asked for, then it is BundleLost, and not looked for again at once; when Redis does not answer, which may hold it, everything waits; with a local copy neither is needed."""
    away = publication(toy, bundle_uri=(tmp_path / "nowhere").as_uri())
    nobody = redis_client("redis://127.0.0.1:1/0", timeout_s=0.2)
    opened = OpenBundles(tmp_path / "a", client, models_max=2, sources=["/"])
    with pytest.raises(BundleLost, match="not in Redis, and the bundle at"):
        opened.model(away)
    publish_bundle(client, toy.bundle)
    with pytest.raises(BundleLost):
        opened.model(away)
    monkeypatch.setattr(open_bundles, "LOST_FOR_S", 0.0)
    monkeypatch.setattr(open_bundles, "LOOKING_SHARE", 0)
    client.flushall()
    again = OpenBundles(tmp_path / "a", client, models_max=2, sources=["/"])
    with pytest.raises(BundleLost):
        again.model(away)
    publish_bundle(client, toy.bundle)
    assert again.model(away).identity["bundle_sha256"] == away["bundle_sha256"]
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(RedisUnavailable):
        OpenBundles(tmp_path / "a", nobody, models_max=2, sources=["/"]).model(away)
    (tmp_path / "a").mkdir(exist_ok=True)
    shutil.copytree(toy.bundle, tmp_path / "a" / away["bundle_sha256"])
    held = OpenBundles(tmp_path / "a", nobody, models_max=2, sources=["/"]).model(away)
    assert held.identity["bundle_sha256"] == away["bundle_sha256"]


def test_another_bundle_at_the_uri_concerns_its_own_decisions_alone(
    toy: Lender, client: redis.Redis, tmp_path: Path
) -> None:
    """Given another bundle at the URI than was published, or one of another name, when asked for, then it is ModelNotPublished, which makes its decisions wait and nobody else's, and it is not fetched again at once."""
    other = toy_lender(tmp_path / "other", seed=5)
    swapped = publication(toy, bundle_uri=other.bundle.as_uri())
    opened = OpenBundles(tmp_path / "opened", client, models_max=2, sources=["/"])
    for _ in range(2):
        with pytest.raises(ModelNotPublished, match="publish it again; then redrive"):
            opened.model(swapped)
    with pytest.raises(ModelNotPublished, match="says that it is"):
        opened.model(publication(toy, model_id="somebody-else"))


def test_a_machine_that_computes_something_else_lets_the_decisions_of_that_model_wait(
    toy: Lender, client: redis.Redis, tmp_path: Path
) -> None:
    """Given a bundle whose builder got another margin for a probe, when it is asked for, then it is not answered with and says why, no copy is kept aside as damaged, and another model is served."""
    other = tmp_path / "other"
    shutil.copytree(toy.bundle, other)
    put(other, "margins", -np.load(other / "probes" / "margins.npy"))
    record = publication(toy, bundle_uri=other.as_uri(), bundle_sha256=read_manifest(other)[1])
    opened = OpenBundles(tmp_path / "opened", client, models_max=2, sources=["/"])
    for _ in range(2):
        with pytest.raises(
            ModelNotPublished, match=r"this machine .* gives another margin for \d+ of \d+ probes .*; then redrive"
        ):
            opened.model(record)
    assert not list((tmp_path / "opened").glob("damaged-*"))
    assert opened.model(publication(toy)).identity["model_id"] == toy.name


def test_an_open_bundle_under_another_name_is_refused_too(toy: Lender, client: redis.Redis, tmp_path: Path) -> None:
    """Given a bundle that is open, when a publication names it as another model's, then that model's decisions are refused."""
    opened = OpenBundles(tmp_path, client, models_max=2, sources=["/"])
    opened.model(publication(toy))
    with pytest.raises(ModelNotPublished, match="says that it is"):
        opened.model(publication(toy, model_id="somebody-else"))
    assert opened.model(publication(toy)).identity["model_id"] == toy.name


def test_a_folder_that_cannot_be_used_is_named(toy: Lender, client: redis.Redis, tmp_path: Path) -> None:
    """Given a file where the folder of bundles should be, when a worker starts, then it is a wrong setting; when it becomes so later, everything waits."""
    check_folder(tmp_path / "new")
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    for folder in (in_the_way, in_the_way / "below"):
        with pytest.raises(ConfigurationError, match="COACH_BUNDLE_DIR"):
            check_folder(folder)
        with pytest.raises(DiskUnavailable, match="COACH_BUNDLE_DIR"):
            OpenBundles(folder, client, models_max=2, sources=["/"]).model(publication(toy))


def test_redis_is_refilled_in_pieces_of_the_set_size(toy: Lender, client: redis.Redis, tmp_path: Path) -> None:
    """Given a size of pieces, when Redis is refilled from the URI, then none there is larger."""
    OpenBundles(tmp_path, client, models_max=2, sources=["/"], chunk_bytes=1024).model(publication(toy))
    pieces = [key for key in client.scan_iter() if not key.endswith(b":manifest")]
    assert max(client.strlen(key) for key in pieces) == 1024


def test_only_the_last_bundles_stay_open(toy: Lender, client: redis.Redis, tmp_path: Path) -> None:
    """Given room for one open bundle, when two take turns, then each is opened anew from disk and answers stay right."""
    other = toy_lender(tmp_path / "other", version="other", seed=5)
    for lender in (toy, other):
        publish_bundle(client, lender.bundle)
    opened = OpenBundles(tmp_path / "opened", client, models_max=1, sources=["/"])
    for lender in (toy, other, toy, other):
        assert opened.model(publication(lender)).identity["model_version"] == lender.version
    assert opened.loaded == {"memory": 0, "disk": 2, "redis": 2, "uri": 0}
    assert json.loads((other.bundle / "manifest.json").read_text())["model_version"] == "other"


class SilentStore(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Files of this host, behind a store that takes each request and says nothing until `speaks`."""

    protocol = "silent"
    speaks = threading.Event()

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **more: Any) -> bytes:
        """See fsspec."""
        self.speaks.wait(60)
        return bytes(super().cat_file(path, start=start, end=end, **more))


def test_a_store_that_stays_silent_holds_up_its_own_version_alone(
    toy: Lender, client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a bundle whose store takes the request and says nothing, when its model is asked for, then it is waited for once and briefly, other models are opened meanwhile, no more than so many silent stores are asked at once, and once the store answers the model is there."""
    fsspec.register_implementation("silent", SilentStore, clobber=True)
    record, digest = publication(toy, bundle_uri=f"silent://{toy.bundle}"), publication(toy)["bundle_sha256"]
    sources = ["/", f"silent://{toy.bundle}"]
    opened = OpenBundles(tmp_path / "opened", client, models_max=2, sources=sources, load_wait_s=0.05)
    with pytest.raises(BundleLoading, match="still being fetched"):
        opened.model(record)
    with pytest.raises(BundleLoading):
        opened.model(record)
    other = toy_lender(tmp_path / "other", version="other", seed=5)
    wait_until(lambda: opens(opened, publication(other)), what="the other model")
    monkeypatch.setattr(open_bundles, "LOADS_MAX", 1)
    with pytest.raises(BundleLost, match="1 other bundles are being fetched"):
        opened.model(publication(toy, bundle_sha256="0" * 64))
    done = opened.loads_done
    SilentStore.speaks.set()
    wait_until(lambda: opened.loads_done > done, what="the end of the load")
    assert opened.model(record).identity["bundle_sha256"] == digest


def test_a_load_that_nobody_asks_for_again_keeps_no_place(
    toy: Lender, client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given room for one load, and one that ended after its decisions were given up, when another model is asked for, then it is loaded."""
    monkeypatch.setattr(open_bundles, "LOADS_MAX", 1)
    other = toy_lender(tmp_path / "other", version="other", seed=5)
    opened = OpenBundles(tmp_path / "opened", client, models_max=2, sources=["/"], load_wait_s=0.0)
    with pytest.raises(BundleLoading):
        opened.model(publication(toy))
    wait_until(lambda: opened.loads_done == 1, what="the end of the load")
    assert opened.model(publication(other), wait_s=20).identity["model_version"] == "other"


def opens(opened: OpenBundles, record: ModelPublished) -> bool:
    """Whether a model is open by now."""
    try:
        opened.model(record)
    except BundleLoading:
        return False
    return True


def test_what_no_operator_named_is_never_asked_for(toy: Lender, client: redis.Redis, tmp_path: Path) -> None:
    """Given publications whose URIs lie outside of what the operator named, a local web server among them, when their models are asked for, then they are lost to their own decisions, nothing is asked of the address, and a bundle in Redis is served whatever its URI."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.3)
        web = f"http://127.0.0.1:{listener.getsockname()[1]}/bundle"
        opened = OpenBundles(tmp_path / "opened", client, models_max=2, sources=[str(tmp_path / "named")])
        for uri in (web, toy.bundle.as_uri(), f"simplecache::{web}"):
            with pytest.raises(BundleLost, match="COACH_BUNDLE_SOURCES"):
                opened.model(publication(toy, bundle_uri=uri))
        with pytest.raises(TimeoutError):
            listener.accept()
    publish_bundle(client, toy.bundle)
    held = OpenBundles(tmp_path / "opened", client, models_max=2).model(publication(toy, bundle_uri=web))
    assert held.identity["model_id"] == toy.name


def test_a_bundle_that_says_that_it_is_huge_is_lost_to_its_own_decisions(
    toy: Lender, client: redis.Redis, tmp_path: Path
) -> None:
    """Given a bundle larger than the bound, at its URI and then in Redis, when asked for, then it is BundleLost, names the bound, and leaves nothing on the disk."""
    for publish in (False, True):
        if publish:
            publish_bundle(client, toy.bundle)
        opened = OpenBundles(tmp_path / "opened", client, models_max=2, sources=["/"], bytes_max=1_000)
        with pytest.raises(BundleLost, match="COACH_BUNDLE_BYTES_MAX=1000"):
            opened.model(publication(toy))
    assert list((tmp_path / "opened").iterdir()) == []
