from __future__ import annotations

import time

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream.errors import RedisUnavailable
from stream.worker.decision_digests import KEY_PREFIX, remember
from tests.examples import examples

HOUR_S = 3_600
arrivals = st.lists(st.tuples(st.sampled_from(["d-1", "d-2", "d-3", "ü"]), st.sampled_from([b"A" * 32, b"B" * 32])))


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(arrivals, max_size=4))
def test_the_first_content_of_an_id_wins(client: redis.Redis, batches: list[list[tuple[str, bytes]]]) -> None:
    """Given ids that come again, within a batch or later, then exactly those with other content than first are conflicts."""
    client.flushall()
    first: dict[str, bytes] = {}
    for batch in batches:
        expected = [first.setdefault(decision_id, digest) != digest for decision_id, digest in batch]
        assert remember(client, batch, HOUR_S) == expected


def test_a_digest_is_forgotten_after_its_time(client: redis.Redis) -> None:
    """Given an id whose time to live is over, when it comes with other content, then that is no conflict any more."""
    assert remember(client, [("d-1", b"A")], 1) == [False]
    assert remember(client, [("d-1", b"B")], 1) == [True]
    time.sleep(1.1)
    assert remember(client, [("d-1", b"B")], 1) == [False]


def test_a_repeat_does_not_extend_the_time(client: redis.Redis) -> None:
    """Given an id that comes again, then its time to live still runs from the first time."""
    remember(client, [("d-1", b"A")], 50)
    remember(client, [("d-1", b"A")], HOUR_S)
    left_s = client.ttl(KEY_PREFIX + b"d-1")
    assert 0 < left_s <= 50


def test_no_decisions_need_no_redis(no_redis: redis.Redis) -> None:
    """Given an empty batch, then nobody is asked."""
    assert remember(no_redis, [], HOUR_S) == []


def test_a_redis_that_is_away_is_a_dependency_error(no_redis: redis.Redis) -> None:
    """Given no Redis, when digests are to be remembered, then that is said."""
    with pytest.raises(RedisUnavailable, match="remembering decision digests"):
        remember(no_redis, [("d-1", b"A")], HOUR_S)
