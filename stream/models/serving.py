"""Who serves what: each worker says in Redis, every few seconds, how far it read the models and which bundles it has open.

    coach:serving:<group>:<worker>    JSON of `Serving`, gone by itself soon after its worker is

It is for people who look (`coach model list`); no answer depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypedDict, cast

import orjson
import redis

from stream.runtime.clients import redis_errors

KEY_PREFIX: Final = "coach:serving:"
SCAN_COUNT: Final = 500


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
    with redis_errors("looking up which workers serve what"):
        keys: Sequence[bytes] = sorted(client.scan_iter(match=f"{KEY_PREFIX}{_literal(group)}:*", count=SCAN_COUNT))
        values = cast("list[bytes | None]", client.mget(keys)) if keys else []
    return [cast("Serving", orjson.loads(value)) for value in values if value is not None]  # None: it ended meanwhile


def _key(group: str, worker: str) -> str:
    return f"{KEY_PREFIX}{group}:{worker}"


def _literal(text: str) -> str:
    """Keep Redis' patterns from taking a name for more than itself."""
    return re.sub(r"([*?\[\]\\^])", r"\\\1", text)
