from __future__ import annotations

import random
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from stream.wire.avro_records import decode
from tests.service.lender import Lender, records
from tests.service.room import command, room, wait_until
from tests.service.stack import Stack

pytestmark = [pytest.mark.service, pytest.mark.chaos, pytest.mark.timeout(400)]


@pytest.mark.nightly  # the storm below kills workers too
@pytest.mark.parametrize("decisions", [2_000])
def test_decisions_with_a_worker_killed_and_restarted(
    stack: Stack, heloc: Lender, tmp_path: Path, decisions: int
) -> None:
    """Given HELOC decisions and two workers, when one is killed in the middle and restarted, then every decline has an audit record and a recommendation, duplicates are equal in body and bytes, approved ones have none, `coach audit verify` passes over the topic, and the lag ends at 0."""
    numbers = list(range(decisions))
    declined = {f"heloc-{number}" for number in numbers if not heloc.approved(number)}
    with room(stack, tmp_path, partitions=4) as here:
        here.publish(heloc)
        first, second = here.worker(wait=False), here.worker(wait=False)
        first.until("worker.assigned")
        second.until("worker.assigned")
        here.send(records(heloc, numbers))
        second.until("decision.ended", count=150, timeout_s=120)
        second.kill()
        assert here.lag() > 0, "the kill came too late to leave work behind"
        time.sleep(1)
        here.worker(wait=False)
        here.until_done(timeout_s=240)
        check_all_answered(here, declined)
        verified = command(here, "audit", "verify", "--topic", here.settings.topic_audit)
        assert verified.returncode == 0, verified.stdout + verified.stderr
        assert here.dead_letters() == []
        assert here.lag() == 0


def check_all_answered(here: Any, declined: set[str]) -> int:
    """Check at-least-once with equal duplicates on both topics; return how many duplicates there were."""
    bodies: dict[str, set[str]] = defaultdict(set)
    audits = here.values(here.settings.topic_audit)
    for value in audits:
        audit = decode(value)[1]
        bodies[audit["decision_id"]].add(audit["body_sha256"])
    answers: dict[str, set[bytes]] = defaultdict(set)
    for message in here.read(here.settings.topic_recommendations):
        answers[bytes(message.key()).decode()].add(bytes(message.value()))
    assert set(bodies) == declined
    assert set(answers) == declined
    assert all(len(equal) == 1 for equal in bodies.values())
    assert all(len(equal) == 1 for equal in answers.values())
    return len(audits) - len(bodies)


def test_a_storm_of_kills_and_stops_loses_nothing(stack: Stack, toy: Lender, tmp_path: Path) -> None:
    """Given a seeded storm of SIGKILL and SIGTERM over two workers and an outage of Redis, when it is over, then every decline is answered at least once with equal bytes, and everything is committed."""
    weather = random.Random(20261128)  # noqa: S311 - a storm, no secret
    numbers = list(range(675))
    declined = {f"toy-{number}" for number in numbers if not toy.approved(number)}
    with room(stack, tmp_path, partitions=4, batch_max="8", batch_s_max="0.05") as here:
        here.publish(toy)
        workers = [here.worker(wait=False) for _ in range(2)]
        workers[0].until("worker.assigned")
        for step in range(3):
            here.send(records(toy, numbers[225 * step : 225 * (step + 1)]))
            victim = weather.randrange(len(workers))
            wait_until(lambda: len(workers[victim].events("worker.assigned")) > 0, what="a worker has partitions")  # noqa: B023
            time.sleep(weather.random())
            if step % 2 == 0:
                workers[victim].kill()
            else:
                assert workers[victim].stop() == 0
            workers[victim] = here.worker(wait=False)
            if step == 1:
                stack.redis.down()
                time.sleep(1)
                stack.redis.up()
        here.until_done(timeout_s=180)
        check_all_answered(here, declined)
        assert here.dead_letters() == []
