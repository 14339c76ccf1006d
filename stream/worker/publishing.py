"""Publishes a bundle: checked, put into Redis, announced on the models topic, pointed to. In this order.

Workers hear of it by the topic, whose offset is the publication's epoch. Nothing is announced that Redis did not give
back byte for byte. A rollback is a new publication.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from stream.bundle.fetch import fetch_bundle
from stream.bundle.manifest import Manifest, read_manifest
from stream.bundle.open import open_bundle
from stream.errors import ConfigurationError, KafkaUnavailable
from stream.events import ModelPublished
from stream.wire.avro_records import encode
from stream.wire.leaf_cache import flip_pointer, publish_bundle
from stream.wire.times import rfc3339
from stream.worker.connections import connect_redis, kafka_properties
from stream.worker.model_reader import ModelReader
from stream.worker.model_table import ModelTable, Publication, models_key
from stream.worker.settings import Settings

POLL_S: Final = 0.1
WAIT_MIN_S: Final = 1.0

Progress: TypeAlias = Callable[[int, int], None]  # (bytes done, bytes in all)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be published, and on whose word."""

    uri: str
    effective_from_ms: int | None = None  # None: from now on
    approved_by: str | None = None
    supersedes: str | None = None


def publish(settings: Settings, request: Request, *, progress: Progress = lambda _done, _total: None) -> Publication:
    """Publish a bundle; return its publication with the epoch.

    Raises: BundleUnavailable or CorruptionError when there is no whole bundle at the URI; ConfigurationError when its
    revision is published with other content; KafkaUnavailable, RedisUnavailable.
    """
    with _bundle_at(request.uri) as (folder, uri):
        manifest, bundle_sha256 = read_manifest(folder)
        open_bundle(folder)  # every file is what the manifest says, and this build can use it
        published = _record(manifest, bundle_sha256, uri, request)
        properties = kafka_properties(settings)
        _refuse_other_content(read_models(settings), published)
        client = connect_redis(settings)
        publish_bundle(client, folder, progress=progress, chunk_bytes=settings.redis_chunk_bytes)
        epoch = _announce(properties, settings, published)
        flip_pointer(client, published["model_id"], published, epoch)
    return ModelTable().learn(published, epoch)


def read_models(settings: Settings) -> ModelTable:
    """Read all publications.

    Raises: KafkaUnavailable.
    """
    table = ModelTable()
    reader = ModelReader(kafka_properties(settings), topic=settings.topic_models, table=table)
    try:
        reader.read_to_end(max(settings.start_wait_s, WAIT_MIN_S))
    finally:
        reader.stop()
    return table


def _record(manifest: Manifest, bundle_sha256: str, uri: str, request: Request) -> ModelPublished:
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
        "effective_from": rfc3339(now_ms if request.effective_from_ms is None else request.effective_from_ms),
        "published_at": rfc3339(now_ms),
        "approved_by": request.approved_by,
        "supersedes": request.supersedes,
    }


@contextmanager
def _bundle_at(uri: str) -> Iterator[tuple[Path, str]]:
    """Give the bundle's folder on this host, and the URI by which workers will find it."""
    if "://" not in uri:
        folder = Path(uri).expanduser().resolve()
        yield folder, folder.as_uri()
        return
    space = Path(tempfile.mkdtemp(prefix="coach-publish-"))
    try:
        fetch_bundle(uri, space / "bundle")
        yield space / "bundle", uri
    finally:
        shutil.rmtree(space, ignore_errors=True)


def _refuse_other_content(table: ModelTable, published: ModelPublished) -> None:
    """A revision means one bundle for ever: answers already given name it."""
    key = _key(published)
    for known in table.publications():
        if _key(known.published) == key and known.published["bundle_sha256"] != published["bundle_sha256"]:
            reason = (
                f"{key} is published already (epoch {known.epoch}) with another bundle; build this one with --revision "
                f"{published['revision'] + 1} or higher"
            )
            raise ConfigurationError(reason)


def _key(published: ModelPublished) -> str:
    return models_key(published["model_id"], published["model_version"], published["revision"]).decode()


def _announce(properties: Mapping[str, Any], settings: Settings, published: ModelPublished) -> int:
    """Write the publication to the models topic, and return its offset there once all replicas have it."""
    producer = Producer(
        {
            **properties,
            "enable.idempotence": True,
            "acks": "all",
            "message.timeout.ms": int(settings.delivery_timeout_s * 1000),
        }
    )
    reports: list[tuple[KafkaError | None, Message]] = []
    try:
        producer.produce(
            settings.topic_models,
            key=_key(published).encode(),
            value=encode("ModelPublished", published),
            partition=0,
            on_delivery=lambda error, message: reports.append((error, message)),
        )
    except KafkaException as error:
        reason = f"topic {settings.topic_models} does not take the publication: {error.args[0].str()}"
        raise ConfigurationError(reason) from error
    while not reports:  # bounded by message.timeout.ms
        producer.poll(POLL_S)
    failed, message = reports[0]
    if failed is not None:
        reason = f"topic {settings.topic_models} did not take the publication: {failed.str()}; publish again"
        raise KafkaUnavailable(reason)
    return int(message.offset() or 0)
