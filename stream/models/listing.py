"""What is published, whether the cache holds it, and which workers serve it: what `coach model list` shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from stream.errors import RedisUnavailable
from stream.models.bundle_cache import holds_bundle
from stream.models.model_table import PublicationAtEpoch
from stream.models.publishing import read_models
from stream.models.serving import Serving, announced
from stream.runtime.connections import connect_redis
from stream.runtime.settings import Settings

CacheState: TypeAlias = Literal["held", "absent", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One publication. `known_by` and `open_in` are names of workers; `current`: the latest of its model."""

    publication: PublicationAtEpoch
    cache: CacheState
    current: bool
    known_by: tuple[str, ...]
    open_in: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All publications in the order in which they were made, and the workers of the group that run now.

    `unknown` says why Redis could not be asked; then what only Redis knows is missing, and `workers` is None.
    """

    publications: tuple[Listed, ...]
    workers: tuple[Serving, ...] | None
    unknown: str | None = None


def list_models(settings: Settings) -> Listing:
    """Read the models topic; ask Redis about each publication. Raises: KafkaUnavailable, ConfigurationError."""
    publications = read_models(settings).publications()
    latest = {one.published["model_id"]: one.epoch for one in publications}  # they come in the order of their epochs
    client, unknown = connect_redis(settings), None
    workers: tuple[Serving, ...] | None
    held: dict[str, CacheState] = {}
    try:
        workers = tuple(announced(client, settings.group))
        for one in publications:
            digest = one.published["bundle_sha256"]
            held[digest] = "held" if holds_bundle(client, digest) else "absent"
    except RedisUnavailable as away:
        workers, held, unknown = None, {}, str(away)
    listed = [
        Listed(
            publication=one,
            cache=held.get(one.published["bundle_sha256"], "unknown"),
            current=latest[one.published["model_id"]] == one.epoch,
            known_by=tuple(each["worker"] for each in workers or () if each["models_epoch"] >= one.epoch),
            open_in=tuple(
                each["worker"] for each in workers or () if one.published["bundle_sha256"] in each["open_bundles"]
            ),
        )
        for one in publications
    ]
    return Listing(publications=tuple(listed), workers=workers, unknown=unknown)
