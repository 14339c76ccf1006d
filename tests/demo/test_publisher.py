"""The lender's side of the demo on a stack that runs elsewhere, as docker-compose.yml starts it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.demo.loans import own_data, write_loans
from tests.kafka.brokers import free_ports
from tests.service.room import command, room
from tests.service.stack import Stack

pytestmark = [pytest.mark.service, pytest.mark.timeout(180)]


def test_a_running_stack_is_given_a_model_and_decisions_again_and_again(stack: Stack, tmp_path: Path) -> None:
    """Given a worker at work, when the demo publishes and sends twice into one folder, then all declined ones of both runs are answered by one model, no decision of the second is taken for one of the first, and nothing is a dead letter."""
    loans = write_loans(tmp_path)
    arguments = ["demo", "--publish-only", *own_data(loans), "--rate", "2000", "--out", str(tmp_path / "demo")]
    with room(stack, tmp_path) as here:
        worker = here.worker()
        first = command(here, *arguments)
        assert first.returncode == 0, first.stderr
        assert "300 decisions" in first.stdout
        time.sleep(1.1)  # a run's ids have its second
        second = command(here, *arguments)
        assert second.returncode == 0, second.stderr
        assert "is in" in second.stdout
        here.until_done()
        worker.stop()
        totals = worker.events("worker.stopped")[0]
        declined = int(first.stdout.rsplit(" declined", 1)[0].split()[-1])
        answered = sum(count for name, count in totals.items() if name.startswith("decisions:declined/"))
        assert answered == 2 * declined == len({one["decision_id"] for one in here.recommendations()})
        assert totals["decisions:approved/not_needed"] == 2 * (300 - declined)
        assert here.dead_letters() == []
        assert {one["model_id"] for one in here.recommendations()} == {"demo"}


def test_what_cannot_be_is_said_in_one_line(stack: Stack, tmp_path: Path) -> None:
    """Given no --out, or no broker, when the demo is to publish, then it ends with 2 or 3 and one line that says which."""
    loans = write_loans(tmp_path)
    (nobody,) = free_ports(1)
    with room(stack, tmp_path) as here:
        done = command(here, "demo", "--publish-only", *own_data(loans))
        assert done.returncode == 2
        assert "--publish-only also needs --out" in done.stderr
        away = {"COACH_KAFKA_BROKERS": f"127.0.0.1:{nobody}", "COACH_START_WAIT_S": "1"}
        done = command(here, "demo", "--publish-only", *own_data(loans), "--out", str(tmp_path / "demo"), **away)
        assert done.returncode == 3
        assert done.stderr.strip().splitlines()[-1].startswith("coach: no Kafka broker answered")
