"""Who serves what: each worker says in Redis, every few seconds, how far it read the models and which bundles it has open.

    coach:serving:<group>:<worker>    JSON of `Serving`, gone by itself soon after its worker is

It is for people who look (`coach model list`: what is published, what the cache holds, who serves it); no answer depends
on it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypedDict, cast

import orjson
import redis

from stream.errors import RedisUnavailable
from stream.models.bundle_cache import holds_bundle
from stream.models.model_table import PublicationAtEpoch
from stream.models.publishing import read_models
from stream.runtime.clients import redis_errors
from stream.runtime.connections import connect_redis
from stream.runtime.settings import Settings

KEY_PREFIX: Final = "coach:serving:"
SCAN_COUNT: Final = 500
CacheState: TypeAlias = Literal["held", "absent", "unknown"]


class Serving(TypedDict):
    """What one worker says of itself."""

    worker: str
    software_version: str
    since: str  # when it started, RFC 3339
    models_epoch: int  # the latest publication that it knows; -1 for none
    open_bundles: list[str]  # their digests, the one asked for last at the end
    partitions: list[int]


def announce(client: redis.Redis, group: str, serving: Serving, *, ttl_s: int) -> None:
    """Say what a worker serves; it holds for `ttl_s`. Raises: RedisUnavailable."""
    with redis_errors("saying what this worker serves"):
        client.set(_key(group, serving["worker"]), orjson.dumps(serving), ex=ttl_s)


def withdraw(client: redis.Redis, group: str, worker: str) -> None:
    """Say that a worker serves no more. Raises: RedisUnavailable."""
    with redis_errors("saying that this worker serves no more"):
        client.delete(_key(group, worker))


def announced(client: redis.Redis, group: str) -> list[Serving]:
    """What the workers of a group say of themselves now, by name. Raises: RedisUnavailable."""
    literal = re.sub(r"([*?\[\]\\^])", r"\\\1", group)  # Redis' patterns would take the name for more than itself
    with redis_errors("looking up which workers serve what"):
        keys: Sequence[bytes] = sorted(client.scan_iter(match=f"{KEY_PREFIX}{literal}:*", count=SCAN_COUNT))
        values = cast("list[bytes | None]", client.mget(keys)) if keys else []
    return [cast("Serving", orjson.loads(value)) for value in values if value is not None]  # None: it ended meanwhile


def _key(group: str, worker: str) -> str:
    return f"{KEY_PREFIX}{group}:{worker}"


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
