"""Kafka and Redis for a test run: the real ones where they can be had, else the embedded ones, said in one loud line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from stream.runtime.connections import kafka_properties
from stream.runtime.kafka.topics import TopicKeeper
from stream.runtime.settings import Settings
from stream.runtime.topic_specs import topic_specs
from tests.kafka.brokers import Brokers, NoBrokers, free_ports
from tests.kafka.faulty_kafka import FaultyKafka
from tests.service.faulty_redis import FaultyRedis
from tests.service.redis_server import NoRedis, RealRedis

REQUIRED: Final = os.environ.get("CI") == "true" or os.environ.get("COACH_REQUIRE_REAL") == "1"


class GoesDown(Protocol):
    """A service that can be taken away and given back."""

    def down(self) -> None:
        """Take it away."""

    def up(self) -> None:
        """Give it back."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A running Kafka and Redis."""

    kafka: Brokers | FaultyKafka
    redis: RealRedis | FaultyRedis

    @property
    def real(self) -> bool:
        """Whether it is Apache Kafka."""
        return isinstance(self.kafka, Brokers)

    def create_topics(
        self, settings: Settings, *, partitions: int, replication: int = 1, sizes: Mapping[str, int] | None = None
    ) -> None:
        """Make the five topics; `sizes` are limits of single topics that differ from the settings'."""
        specs = topic_specs(settings, partitions=partitions)
        if isinstance(self.kafka, FaultyKafka):
            for spec in specs:
                self.kafka.create_topic(spec.name, spec.partitions)
            return
        keeper = TopicKeeper(kafka_properties(settings), timeout_s=20)
        changed = []
        for spec in specs:
            limit = (sizes or {}).get(spec.name)
            configuration: dict[str, Any] = dict(spec.configuration)
            if limit is not None:
                configuration["max.message.bytes"] = str(limit)
            changed.append(replace(spec, configuration=configuration))
        keeper.apply(changed, replication=replication, dry_run=False)


def start_real(directory: Path, stack: ExitStack) -> Stack:
    """Start Apache Kafka and Redis. Raises: NoBrokers, NoRedis."""
    redis = stack.enter_context(RealRedis(directory / "redis"))
    kafka = stack.enter_context(Brokers(directory / "kafka", free_ports(1)))
    return Stack(kafka=kafka, redis=redis)


def loud(config: pytest.Config, line: str) -> None:
    """Say something that nobody overlooks; one of several test processes leaves it to the first to say at the end."""
    output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if output is None:
        config.get_terminal_writer().line(f"\n>>> {line}", bold=True, red=True)
    else:
        output.setdefault("loud", []).append(line)


@pytest.fixture(scope="session")
def embedded_stack() -> Iterator[Stack]:
    """The embedded mock of Kafka, and the embedded Redis."""
    with FaultyKafka() as kafka, FaultyRedis() as redis:
        yield Stack(kafka=kafka, redis=redis)


@pytest.fixture(scope="session")
def real_stack_or_none(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Stack | None]:
    """Real Kafka and Redis; None, with one loud line, where they cannot be started; in CI that is a failure."""
    with ExitStack() as stack:
        found: Stack | None = None
        try:
            found = start_real(tmp_path_factory.mktemp("real"), stack)
        except (NoBrokers, NoRedis) as why:
            if REQUIRED:
                pytest.fail(f"real Kafka and Redis are required here (CI or COACH_REQUIRE_REAL=1): {why}")
            loud(pytestconfig, f"NO REAL KAFKA OR REDIS ({why}): the service tests run on the embedded ones")
        yield found


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest, real_stack_or_none: Stack | None) -> Stack:
    """The real ones, or else the embedded ones."""
    if real_stack_or_none is not None:
        return real_stack_or_none
    embedded: Stack = request.getfixturevalue("embedded_stack")
    return embedded


@pytest.fixture(params=[pytest.param("embedded", marks=pytest.mark.nightly), "real"])
def each_stack(request: pytest.FixtureRequest) -> Stack:
    """The real ones, or else the embedded ones, which `make nightly` tries in any case."""
    found: Stack = request.getfixturevalue("embedded_stack" if request.param == "embedded" else "stack")
    return found
