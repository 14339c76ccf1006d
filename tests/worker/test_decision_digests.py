from __future__ import annotations

import time
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream.errors import RedisUnavailable
from stream.worker.decision_digests import KEY_PREFIX, DecisionDigests
from tests.examples import examples

HOUR_S = 3_600
arrivals = st.lists(st.tuples(st.sampled_from(["d-1", "d-2", "d-3", "ü"]), st.sampled_from([b"A" * 32, b"B" * 32])))


def digests(
    client: redis.Redis, *, cluster: str = "c", topic: str = "decisions", group: str = "g", ttl_s: int = HOUR_S
) -> DecisionDigests:
    """Those of one group."""
    return DecisionDigests(client, cluster=cluster, topic=topic, group=group, ttl_s=ttl_s)


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(arrivals, max_size=4))
def test_the_first_content_of_an_id_wins(client: redis.Redis, batches: list[list[tuple[str, bytes]]]) -> None:
    """Given ids that come again, within a batch or later, then exactly those with other content than first are conflicts."""
    client.flushall()
    first: dict[str, bytes] = {}
    for batch in batches:
        expected = [first.setdefault(decision_id, digest) != digest for decision_id, digest in batch]
        assert digests(client).remember(batch) == expected


def test_a_digest_is_forgotten_after_its_time(client: redis.Redis) -> None:
    """Given an id whose time to live is over, when it comes with other content, then that is no conflict any more."""
    assert digests(client, ttl_s=1).remember([("d-1", b"A")]) == [False]
    assert digests(client, ttl_s=1).remember([("d-1", b"B")]) == [True]
    time.sleep(1.1)
    assert digests(client, ttl_s=1).remember([("d-1", b"B")]) == [False]


def test_a_repeat_does_not_extend_the_time(client: redis.Redis) -> None:
    """Given an id that comes again, then its time to live still runs from the first time."""
    digests(client, ttl_s=50).remember([("d-1", b"A")])
    digests(client).remember([("d-1", b"A")])
    left_s = client.ttl(f"{KEY_PREFIX}c:decisions:g:d-1")
    assert 0 < left_s <= 50


def test_no_decisions_need_no_redis(no_redis: redis.Redis) -> None:
    """Given an empty batch, then nobody is asked."""
    assert digests(no_redis).remember([]) == []


def test_a_redis_that_is_away_is_a_dependency_error(no_redis: redis.Redis) -> None:
    """Given no Redis, when digests are to be remembered, then that is said."""
    with pytest.raises(RedisUnavailable, match="remembering decision digests"):
        digests(no_redis).remember([("d-1", b"A")])


@pytest.mark.parametrize("scope", [{"cluster": "d"}, {"topic": "others"}, {"group": "h"}])
def test_what_another_group_topic_or_cluster_decides_is_no_conflict(client: redis.Redis, scope: dict[str, Any]) -> None:
    """Given two groups, topics or clusters that share one Redis, when they use the same ids for other contents, then neither conflicts with the other, and each with itself."""
    assert digests(client).remember([("d-1", b"A")]) == [False]
    assert digests(client, **scope).remember([("d-1", b"B"), ("d-1", b"A")]) == [False, True]
    assert digests(client).remember([("d-1", b"B")]) == [True]


def test_a_key_of_another_type_holds_up_nobody(client: redis.Redis) -> None:
    """Given a key of another type under one id, when a batch is remembered, then that decision is no conflict and is counted, and the others are remembered as ever."""
    client.rpush(f"{KEY_PREFIX}c:decisions:g:d-1", b"a list")
    kept = digests(client)
    assert kept.remember([("d-1", b"A"), ("d-2", b"A"), ("d-2", b"B")]) == [False, False, True]
    assert kept.unchecked == 1


def test_a_redis_without_memory_or_permission_holds_up_nobody(client: redis.Redis, redis_url: str) -> None:
    """Given a Redis that is full, and one that refuses the command, when decisions are remembered, then none is a conflict, each is counted, and once it takes them again conflicts are found."""
    kept = digests(client)
    client.config_set("maxmemory", 1)
    try:
        assert kept.remember([("d-1", b"A"), ("d-1", b"B")]) == [False, False]
        assert kept.unchecked == 2
    finally:
        client.config_set("maxmemory", 0)
    client.acl_setuser("reader", enabled=True, nopass=True, keys=["*"], commands=["+get", "+ping"])
    reader = redis.Redis.from_url(redis_url, username="reader", password="any")  # noqa: S106 - a user without one
    try:
        refused = digests(reader)
        assert refused.remember([("d-1", b"A")]) == [False]
        assert refused.unchecked == 1
    finally:
        reader.close()
        client.acl_deluser("reader")
    assert kept.remember([("d-1", b"A"), ("d-1", b"B")]) == [False, True]
    assert kept.unchecked == 2
