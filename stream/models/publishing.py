"""Publishes a bundle: checked, put into Redis, announced on the models topic. In this order.

Workers hear of it by the topic, whose offset is the publication's epoch. Nothing is announced that Redis did not give
back byte for byte. A rollback is a new publication.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from stream.bundle.fetch import fetch_bundle
from stream.bundle.manifest import Manifest, read_manifest
from stream.bundle.open import open_bundle
from stream.bundle.uris import has_secrets, without_secrets
from stream.errors import ConfigurationError, KafkaUnavailable
from stream.events import ModelPublished
from stream.models.bundle_cache import publish_bundle
from stream.models.model_reader import ModelReader
from stream.models.model_table import ModelTable, PublicationAtEpoch, models_key
from stream.runtime.connections import connect_redis, framing_of, kafka_properties, once_answered
from stream.runtime.kafka.topics import TopicKeeper
from stream.runtime.settings import Settings
from stream.times import rfc3339
from stream.wire.framing import Framing
from stream.wire.schema_files import RecordName

POLL_S: Final = 0.1
WAIT_MIN_S: Final = 1.0
# A worker reads `models` as it grows, and opens a bundle within seconds. A revision effective at once would not be known
# to every worker for the decisions of these seconds, and which of two revisions answered them would be chance.
LEAD_MS: Final = 10_000
BEGINNING_MS: Final = 0  # 1970: no decision that a machine took by a model is older


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRequest:
    """What is to be published, and on whose word."""

    uri: str
    effective_from_ms: int | None = None  # None: as `effective_from` finds it
    approved_by: str | None = None
    supersedes: str | None = None


def publish(
    settings: Settings,
    request: PublishRequest,
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    say_why: Callable[[str], None] = lambda _why: None,
) -> PublicationAtEpoch:
    """Publish a bundle; return its publication with the epoch.

    `progress` hears of bytes done and in all; `tell`, why the publication is effective from when it is.
    Raises: BundleUnavailable or CorruptionError when there is no whole bundle at the URI; MachineMismatch when this
    machine computes something else with it than the builder's did; ConfigurationError when its
    revision is published with other content, the URI has a secret in it or names no folder, or there is no topic for
    it; KafkaUnavailable, RedisUnavailable, RegistryUnavailable, DiskUnavailable.
    """
    if has_secrets(request.uri):
        message = (
            f"the bundle's URI {without_secrets(request.uri)} has a user, password or signature in it, and topic models would "
            "show it to all its readers; give workers their access by their own environment, and publish it without"
        )
        raise ConfigurationError(message)
    with _bundle_at(request.uri) as (folder, uri):
        manifest, bundle_sha256 = read_manifest(folder)
        open_bundle(folder)  # every file is what the manifest says, and every probe gives what it gave
        framing = framing_of(settings)
        writes: dict[str, RecordName] = {settings.topic_models: "ModelPublished"}
        once_answered(lambda: framing.prepare(writes=writes), settings)
        table = read_models(settings, framing)
        since_ms, why = effective_from(table, manifest, request)
        published = _record(manifest, bundle_sha256, uri, as_before(table, manifest, request), since_ms)
        _refuse_other_content(table, published)
        say_why(why)
        client = connect_redis(settings)
        publish_bundle(client, folder, progress=progress, chunk_bytes=settings.redis_chunk_bytes)
        epoch = _announce(settings, published, framing)
    return ModelTable().learn(published, epoch)


def read_models(settings: Settings, framing: Framing | None = None) -> ModelTable:
    """Read all publications. Raises: KafkaUnavailable, RegistryUnavailable; ConfigurationError for a missing topic."""
    wait_s = max(settings.start_wait_s, WAIT_MIN_S)
    if settings.topic_models not in TopicKeeper(kafka_properties(settings), timeout_s=wait_s).partitions():
        message = (
            f"the brokers at {settings.kafka_brokers} have no topic {settings.topic_models}; create it with "
            "`coach topics apply`"
        )
        raise ConfigurationError(message)
    table = ModelTable()
    reader = ModelReader(
        kafka_properties(settings), topic=settings.topic_models, table=table, framing=framing or framing_of(settings)
    )
    try:
        reader.read_to_end(wait_s)
    finally:
        reader.stop()
    return table


def effective_from(table: ModelTable, manifest: Manifest, request: PublishRequest) -> tuple[int, str]:
    """From when on a publication answers decisions, and why: as asked, else by what is published already.

    The first publication of a model version answers whatever names the version. A revision published again keeps its
    time, so that what is answered does not change. A new revision changes nothing for decisions already taken, and
    becomes effective `LEAD_MS` from now.
    """
    if request.effective_from_ms is not None:
        return request.effective_from_ms, "as asked"
    version = manifest["model_id"], manifest["model_version"]
    known = [
        one for one in table.publications() if (one.published["model_id"], one.published["model_version"]) == version
    ]
    for one in known:
        if one.published["revision"] == manifest["revision"]:
            return one.effective_from_ms, f"as when it was published before (epoch {one.epoch})"
    if not known:
        return BEGINNING_MS, "the first publication of its model version answers every decision that names it"
    now_ms = time.time_ns() // 1_000_000
    return now_ms + LEAD_MS, f"a new revision of a published version, in {LEAD_MS // 1_000} s, when all workers know it"


def as_before(table: ModelTable, manifest: Manifest, request: PublishRequest) -> PublishRequest:
    """What was said of a revision when it was published before holds on, unless it is said anew.

    The topic keeps the last record of a revision: an approval that it did not repeat would be gone.
    """
    known = table.known(models_key(manifest["model_id"], manifest["model_version"], manifest["revision"]))
    if known is None:
        return request
    return replace(
        request,
        approved_by=request.approved_by or known.published["approved_by"],
        supersedes=request.supersedes or known.published.get("supersedes"),
    )


def _record(
    manifest: Manifest, bundle_sha256: str, uri: str, request: PublishRequest, effective_from_ms: int
) -> ModelPublished:
    now_ms = time.time_ns() // 1_000_000
    return {
        "model_id": manifest["model_id"],
        "model_version": manifest["model_version"],
        "revision": manifest["revision"],
        "bundle_uri": uri,
        "bundle_sha256": bundle_sha256,
        "library": manifest["library"],
        "library_version": manifest["library_version"],
        "format_version": manifest["format_version"],
        "objective": manifest["objective"],
        "link": manifest["link"],
        "approve": manifest["approve"],
        "threshold": manifest["threshold"],
        "threshold_scale": manifest["threshold_scale"],
        "cutoff_margin": manifest["cutoff_margin"],
        "trees_used": manifest["trees_used"],
        "features": manifest["features"],
        "effective_from": rfc3339(effective_from_ms),
        "published_at": rfc3339(now_ms),
        "approved_by": request.approved_by,
        "supersedes": request.supersedes,
    }


@contextmanager
def _bundle_at(uri: str) -> Iterator[tuple[Path, str]]:
    """Give the bundle's folder on this host, and the URI by which workers will find it."""
    if "://" not in uri:
        folder = Path(uri).expanduser().resolve()
        if not folder.is_dir():
            message = f"no bundle at {folder}: there is no such folder; build one with `coach bundle build --out {uri}`"
            raise ConfigurationError(message)
        yield folder, folder.as_uri()
        return
    with tempfile.TemporaryDirectory(prefix="coach-publish-", ignore_cleanup_errors=True) as space:
        fetch_bundle(uri, Path(space) / "bundle")
        yield Path(space) / "bundle", uri


def _refuse_other_content(table: ModelTable, published: ModelPublished) -> None:
    """A revision means one bundle for ever: answers already given name it."""
    key = _key(published)
    known = table.known(key)
    if known is not None and known.published["bundle_sha256"] != published["bundle_sha256"]:
        message = (
            f"{key.decode()} is published already (epoch {known.epoch}) with another bundle; build this one with --revision "
            f"{published['revision'] + 1} or higher"
        )
        raise ConfigurationError(message)


def _key(published: ModelPublished) -> bytes:
    return models_key(published["model_id"], published["model_version"], published["revision"])


def _announce(settings: Settings, published: ModelPublished, framing: Framing) -> int:
    """Write the publication to the models topic, and return its offset there once all replicas have it."""
    producer = Producer(
        {
            **kafka_properties(settings),
            "enable.idempotence": True,
            "acks": "all",
            "message.timeout.ms": int(settings.delivery_timeout_s * 1000),
        }
    )
    reports: list[tuple[KafkaError | None, Message]] = []
    try:
        producer.produce(
            settings.topic_models,
            key=_key(published),
            value=framing.encode("ModelPublished", published, topic=settings.topic_models),
            partition=0,
            on_delivery=lambda error, record: reports.append((error, record)),
        )
    except KafkaException as error:
        message = f"topic {settings.topic_models} does not take the publication: {error.args[0].str()}"
        raise ConfigurationError(message) from error
    while not reports:  # bounded by message.timeout.ms
        producer.poll(POLL_S)
    failed, record = reports[0]
    if failed is not None:
        message = f"topic {settings.topic_models} did not take the publication: {failed.str()}; publish again"
        raise KafkaUnavailable(message)
    return int(record.offset() or 0)
