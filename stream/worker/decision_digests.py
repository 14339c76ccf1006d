"""Remembers in Redis, for a limited time, the content first seen under each decision_id: the first content wins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import redis

from stream.runtime.clients import redis_errors

KEY_PREFIX: Final = b"coach:decision:"


def remember(client: redis.Redis, decisions: Sequence[tuple[str, bytes]], ttl_s: int) -> list[bool]:
    """Remember each (decision_id, digest of its canonical content), in one round trip.

    Returns, in order: whether the id stands for other content already, which makes this one a conflict. The time to
    live runs from the first content; a repeat does not extend it. An id may occur more than once in `decisions`.
    Raises: RedisUnavailable; then some may be remembered and some not, and asking again gives the same answers.
    """
    if not decisions:
        return []
    with redis_errors("remembering decision digests"):
        pipeline = client.pipeline(transaction=False)
        for decision_id, digest in decisions:
            key = KEY_PREFIX + decision_id.encode()
            pipeline.set(key, digest, nx=True, ex=ttl_s)  # SET ... NX GET would be one command, from Redis 7.0 on only
            pipeline.get(key)
        answers = pipeline.execute()
    return [
        first not in (None, digest)  # None: it expired between the two commands
        for first, (_, digest) in zip(answers[1::2], decisions, strict=True)
    ]
