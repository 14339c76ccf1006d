from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from stream.errors import RedisUnavailable
from tests.service.faulty_redis import FaultyRedis


@pytest.fixture
def embedded() -> Iterator[FaultyRedis]:
    with FaultyRedis() as running:
        yield running


def test_it_speaks_the_protocol_and_runs_scripts(embedded: FaultyRedis) -> None:
    """Given an embedded Redis, when redis-py stores a value and runs a script on it, then both work."""
    with redis.Redis.from_url(embedded.url) as client:
        client.set("pointer", 7)
        assert client.eval("return redis.call('INCR', KEYS[1])", 1, "pointer") == 8


def test_an_outage_ends_with_an_empty_server_at_the_same_address(embedded: FaultyRedis) -> None:
    """Given a stored value, when the server goes down and comes up, then it is reachable as before and empty."""
    with redis.Redis.from_url(embedded.url, retry=None) as client:
        client.set("kept", 1)
        embedded.down()
        with pytest.raises(redis.ConnectionError):
            client.get("kept")
        embedded.up()
        assert client.get("kept") is None


def test_an_unknown_command_is_refused_by_name(embedded: FaultyRedis) -> None:
    """Given a running server, when its process is told nonsense, then the error names the command and it goes on."""
    with pytest.raises(RedisUnavailable, match="refuses `dance`"):
        embedded.command("dance")
    with redis.Redis.from_url(embedded.url) as client:
        assert client.ping()


def test_outside_its_block_it_says_that_it_is_not_running() -> None:
    """Given a server that was not entered, when its address is asked for, then the error says what to do."""
    with pytest.raises(RedisUnavailable, match="`with` block"):
        _ = FaultyRedis().url
