"""Remembers in Redis, for a limited time, the content first seen under each decision_id: the first content wins."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import redis

from stream.runtime.clients import is_refusal, redis_errors

log = logging.getLogger(__name__)

KEY_PREFIX: Final = "coach:decision:"


class DecisionDigests:
    """The digests of one group's decisions on one topic: what others decide, or read for another purpose, is no conflict."""

    def __init__(self, client: redis.Redis, *, cluster: str, topic: str, group: str, ttl_s: int) -> None:
        """`cluster`: the id of the Kafka cluster. None of the three names holds a colon."""
        self._client = client
        self._prefix = f"{KEY_PREFIX}{cluster}:{topic}:{group}:".encode()
        self._ttl_s = ttl_s
        self.unchecked = 0  # decisions whose content Redis would neither keep nor tell; for /metrics
        self._logged = ""

    def remember(self, decisions: Sequence[tuple[str, bytes]]) -> list[bool]:
        """Remember each (decision_id, digest of its canonical content), in one round trip.

        Returns, in order: whether the id stands for other content already, which makes this one a conflict. The time to
        live runs from the first content; a repeat does not extend it. An id may occur more than once in `decisions`. What
        Redis refuses (a key of another type, no permission, no memory) is counted, and its decision is no conflict:
        nobody waits for an answer because a check is not to be had.
        Raises: RedisUnavailable; then some may be remembered and some not, and asking again gives the same answers.
        """
        if not decisions:
            return []
        with redis_errors("remembering decision digests"):
            pipeline = self._client.pipeline(transaction=False)
            for decision_id, digest in decisions:
                key = self._prefix + decision_id.encode()
                # SET ... NX GET would be one command, from Redis 7.0 on only
                pipeline.set(key, digest, nx=True, ex=self._ttl_s)
                pipeline.get(key)
            answers = pipeline.execute(raise_on_error=False)
            for away in answers:
                if isinstance(away, Exception) and not is_refusal(away):
                    raise away
        return [
            self._is_other(kept, first, digest)
            for kept, first, (_, digest) in zip(answers[::2], answers[1::2], decisions, strict=True)
        ]

    def _is_other(self, kept: object, first: object, digest: bytes) -> bool:
        for refused in (kept, first):
            if isinstance(refused, Exception):
                self.unchecked += 1
                if str(refused) != self._logged:
                    self._logged = str(refused)
                    log.error("conflicts.unchecked", extra={"why": f"{type(refused).__name__}: {refused}"})
                return False
        return first not in (None, digest)  # None: it expired between the two commands
