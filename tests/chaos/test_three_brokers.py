from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.chaos.test_killed_workers import check_all_answered
from tests.kafka.brokers import Brokers, NoBrokers, free_ports
from tests.service.lender import Lender, records
from tests.service.redis_server import NoRedis, RealRedis
from tests.service.room import room
from tests.service.stack import REQUIRED, Stack

pytestmark = [pytest.mark.service, pytest.mark.chaos, pytest.mark.nightly, pytest.mark.timeout(600)]


def test_brokers_that_die_one_after_the_other_lose_nothing(toy: Lender, tmp_path: Path) -> None:
    """Given three brokers and two workers, when each broker is killed in turn and comes back while decisions flow, then every decline is answered at least once with equal bytes, and the lag ends at 0."""
    numbers = list(range(900))
    declined = {f"toy-{number}" for number in numbers if not toy.approved(number)}
    with ExitStack() as running:
        try:
            redis = running.enter_context(RealRedis(tmp_path / "redis"))
            kafka = running.enter_context(Brokers(tmp_path / "kafka", free_ports(3)))
        except (NoBrokers, NoRedis) as why:
            if REQUIRED:
                raise
            pytest.skip(f"NO REAL KAFKA: {why}")
        stack = Stack(kafka=kafka, redis=redis)
        here = running.enter_context(
            room(stack, tmp_path, partitions=4, replication=3, batch_max="16", delivery_timeout_s="10")
        )
        here.publish(toy)
        workers = [here.worker(wait=False) for _ in range(2)]
        for worker in workers:
            worker.until("worker.assigned")
        for number in (1, 2, 3):
            here.send(records(toy, numbers[300 * (number - 1) : 300 * number]))
            kafka.down(number)
            time.sleep(5)
            kafka.up(number)
            time.sleep(5)
        here.until_done(timeout_s=240)
        check_all_answered(here, declined)
        assert here.dead_letters() == []
        assert all(worker.alive for worker in workers)
