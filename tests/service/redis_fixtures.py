"""A Redis for tests that need no Kafka: `redis-server` where it is installed, else the one that the demo carries."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from stream.demo.embedded.embedded_redis import EmbeddedRedis
from stream.errors import RedisUnavailable
from stream.runtime.clients import reach_redis, redis_client

START_MAX_S = 10.0
ANSWER_MAX_S = 5.0


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an empty Redis; in CI it must be the real one."""
    program = shutil.which("redis-server")
    if program:
        yield from _real_redis(program, tmp_path_factory.mktemp("redis"))
        return
    absent = "no redis-server here (apt-get install redis-server)"
    if os.environ.get("CI") == "true":
        pytest.fail(absent)
    print(f"\n{absent}: the tests of the leaf cache run on the embedded Valkey")
    with EmbeddedRedis() as server:
        yield server.url


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    """A client of a Redis that was emptied for this test."""
    with redis_client(redis_url, timeout_s=ANSWER_MAX_S) as connected:
        connected.flushall()
        yield connected


@pytest.fixture
def no_redis() -> Iterator[redis.Redis]:
    """A client of a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # bound and never listening: connections are refused
        with redis_client(f"redis://user:s3cr3t@127.0.0.1:{probe.getsockname()[1]}/0", timeout_s=0.2) as away:
            yield away


def _real_redis(program: str, folder: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)],
        stdout=subprocess.DEVNULL,
    )
    try:
        url = f"redis://127.0.0.1:{port}/0"
        _wait_for(url)
        yield url
    finally:
        server.terminate()
        server.wait(START_MAX_S)


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + START_MAX_S
    with redis_client(url, timeout_s=1.0) as client:
        while True:
            try:
                reach_redis(client)
            except RedisUnavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return
