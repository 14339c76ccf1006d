"""Which dead letters were sent back already, remembered in Redis for as long as their topic keeps them.

Redis may forget: then a letter is sent back once more, which costs an answer equal to the one that is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import redis

from stream.runtime.clients import redis_errors

KEY_PREFIX: Final = "coach:redriven:"
TTL_S: Final = 90 * 24 * 60 * 60  # as long as the dead letters' topic keeps a record


class Receipts:
    """Receipts of one dead letters' topic."""

    def __init__(self, client: redis.Redis, topic: str) -> None:
        """`topic` is the dead letters' own."""
        self._client = client
        self._key = f"{KEY_PREFIX}{topic}"

    def of(self, places: Sequence[str]) -> list[str | None]:
        """Give, for each place (partition:offset), the id of the redrive that sent it back last; None for none.

        Raises: RedisUnavailable.
        """
        if not places:
            return []
        with redis_errors("looking up redrive receipts"):
            found = cast("list[bytes | None]", self._client.hmget(self._key, list(places)))
        return [None if one is None else one.decode() for one in found]

    def write(self, places: Sequence[str], redrive_id: str) -> None:
        """Remember that these were sent back. Raises: RedisUnavailable."""
        with redis_errors("writing redrive receipts"):
            pipeline = self._client.pipeline(transaction=False)
            pipeline.hset(self._key, mapping=dict.fromkeys(places, redrive_id))
            pipeline.expire(self._key, TTL_S)
            pipeline.execute()
