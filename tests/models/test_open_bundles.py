from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import redis

from stream.bundle.manifest import read_manifest
from stream.demo.embedded.embedded_redis import EmbeddedRedis
from stream.errors import BundleLost, ConfigurationError, DiskUnavailable, ModelNotPublished, RedisUnavailable
from stream.events import ModelPublished
from stream.models import open_bundles
from stream.models.bundle_cache import holds_bundle, publish_bundle
from stream.models.open_bundles import OpenBundles, check_folder
from stream.runtime.clients import redis_client
from tests.bundle.gate.test_kept_probes import put
from tests.models.test_model_table import published
from tests.service.lender import Lender, toy_lender


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
        opened = OpenBundles(tmp_path / folder, client, models_max=2)
        assert opened.model(record).identity["bundle_sha256"] == record["bundle_sha256"]
        opened.model(record)
        origins.append([name for name, count in opened.loaded.items() if count])
    assert origins == [["memory", "uri"], ["memory", "redis"], ["memory", "disk"]]
    assert holds_bundle(client, record["bundle_sha256"])
    assert not list((tmp_path / "host-a").glob("fetching-*"))


def test_a_damaged_copy_is_kept_aside_and_replaced(toy: Lender, client: redis.Redis, tmp_path: Path) -> None:
    """Given a local copy with one byte changed, when it is opened, then it is kept as evidence under another name, and a whole one is fetched."""
    record = publication(toy)
    OpenBundles(tmp_path, client, models_max=2).model(record)
    damaged = tmp_path / record["bundle_sha256"] / "features.toml"
    damaged.write_text(damaged.read_text() + "\n# changed\n")
    opened = OpenBundles(tmp_path, client, models_max=2)
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
    opened = OpenBundles(tmp_path / "a", client, models_max=2)
    with pytest.raises(BundleLost, match="not in Redis, and the bundle at"):
        opened.model(away)
    publish_bundle(client, toy.bundle)
    with pytest.raises(BundleLost):
        opened.model(away)
    monkeypatch.setattr(open_bundles, "LOST_FOR_S", 0.0)
    monkeypatch.setattr(open_bundles, "LOOKING_SHARE", 0)
    client.flushall()
    again = OpenBundles(tmp_path / "a", client, models_max=2)
    with pytest.raises(BundleLost):
        again.model(away)
    publish_bundle(client, toy.bundle)
    assert again.model(away).identity["bundle_sha256"] == away["bundle_sha256"]
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(RedisUnavailable):
        OpenBundles(tmp_path / "a", nobody, models_max=2).model(away)
    (tmp_path / "a").mkdir(exist_ok=True)
    shutil.copytree(toy.bundle, tmp_path / "a" / away["bundle_sha256"])
    held = OpenBundles(tmp_path / "a", nobody, models_max=2).model(away)
    assert held.identity["bundle_sha256"] == away["bundle_sha256"]


def test_another_bundle_at_the_uri_concerns_its_own_decisions_alone(
    toy: Lender, client: redis.Redis, tmp_path: Path
) -> None:
    """Given another bundle at the URI than was published, or one of another name, when asked for, then it is ModelNotPublished, which makes its decisions wait and nobody else's, and it is not fetched again at once."""
    other = toy_lender(tmp_path / "other", seed=5)
    swapped = publication(toy, bundle_uri=other.bundle.as_uri())
    opened = OpenBundles(tmp_path / "opened", client, models_max=2)
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
    opened = OpenBundles(tmp_path / "opened", client, models_max=2)
    for _ in range(2):
        with pytest.raises(
            ModelNotPublished, match=r"this machine .* gives another margin for \d+ of \d+ probes .*; then redrive"
        ):
            opened.model(record)
    assert not list((tmp_path / "opened").glob("damaged-*"))
    assert opened.model(publication(toy)).identity["model_id"] == toy.name


def test_an_open_bundle_under_another_name_is_refused_too(toy: Lender, client: redis.Redis, tmp_path: Path) -> None:
    """Given a bundle that is open, when a publication names it as another model's, then that model's decisions are refused."""
    opened = OpenBundles(tmp_path, client, models_max=2)
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
            OpenBundles(folder, client, models_max=2).model(publication(toy))


def test_redis_is_refilled_in_pieces_of_the_set_size(toy: Lender, client: redis.Redis, tmp_path: Path) -> None:
    """Given a size of pieces, when Redis is refilled from the URI, then none there is larger."""
    OpenBundles(tmp_path, client, models_max=2, chunk_bytes=1024).model(publication(toy))
    pieces = [key for key in client.scan_iter() if not key.endswith(b":manifest")]
    assert max(client.strlen(key) for key in pieces) == 1024


def test_only_the_last_bundles_stay_open(toy: Lender, client: redis.Redis, tmp_path: Path) -> None:
    """Given room for one open bundle, when two take turns, then each is opened anew from disk and answers stay right."""
    other = toy_lender(tmp_path / "other", version="other", seed=5)
    for lender in (toy, other):
        publish_bundle(client, lender.bundle)
    opened = OpenBundles(tmp_path / "opened", client, models_max=1)
    for lender in (toy, other, toy, other):
        assert opened.model(publication(lender)).identity["model_version"] == lender.version
    assert opened.loaded == {"memory": 0, "disk": 2, "redis": 2, "uri": 0}
    assert json.loads((other.bundle / "manifest.json").read_text())["model_version"] == "other"
