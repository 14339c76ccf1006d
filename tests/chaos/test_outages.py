from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.chaos.test_killed_workers import check_all_answered
from tests.service.lender import Lender, record, records, toy_lender
from tests.service.room import room, wait_until
from tests.service.stack import Stack

pytestmark = [pytest.mark.service, pytest.mark.chaos, pytest.mark.timeout(240)]


def test_an_outage_of_redis_is_waited_out_and_the_cache_rebuilt(stack: Stack, toy: Lender, tmp_path: Path) -> None:
    """Given Redis killed while decisions come, when it is back, empty, then they are answered with nothing lost, and a worker without a local copy rebuilds the cache from the bundle."""
    declined = toy.declined(40)
    with room(stack, tmp_path, partitions=2) as here:
        here.publish(toy)
        worker = here.worker()
        here.send(records(toy, declined[:10]))
        here.until_done()
        stack.redis.down()
        here.send(records(toy, declined[10:30]))
        worker.until("outage.waiting")
        assert here.lag() > 0
        stack.redis.up()
        here.until_done()
        assert worker.stop() == 0
        shutil.rmtree(here.settings.bundle_dir)
        here.send(records(toy, declined[30:]))
        fresh = here.worker()
        here.until_done()
        assert [one["origin"] for one in fresh.events("bundle.loaded")] == ["uri"]
        shutil.rmtree(here.settings.bundle_dir)
        third = here.worker()
        assert [one["origin"] for one in third.events("bundle.loaded")] == ["redis"]
        check_all_answered(here, {f"toy-{number}" for number in declined})
        assert here.dead_letters() == []


def test_an_outage_of_the_broker_is_waited_out(stack: Stack, toy: Lender, tmp_path: Path) -> None:
    """Given the broker killed while decisions are being answered, when it is back, then every decline is answered and committed by the same worker."""
    declined = toy.declined(200)
    with room(stack, tmp_path, partitions=2, batch_max="8", delivery_timeout_s="5") as here:
        here.publish(toy)
        worker = here.worker()
        here.send(records(toy, declined))
        worker.until("decision.ended", count=20)
        stack.kafka.down(1)
        time.sleep(8)
        assert worker.alive
        stack.kafka.up(1)
        here.until_done(timeout_s=120)
        check_all_answered(here, {f"toy-{number}" for number in declined})
        assert worker.alive, worker.log.read_text()[-2000:]


def test_a_version_that_nobody_published_stalls_nobody(stack: Stack, toy: Lender, tmp_path: Path) -> None:
    """Given decisions of unpublished versions that may wait for minutes, when others come on their partitions, then those are answered before those end, a second worker joins without waiting, and a version published meanwhile is answered; with a short wait the other is a retryable dead letter that names it."""
    declined = toy.declined(60)
    with room(stack, tmp_path, partitions=2, model_wait_s="600") as here:
        here.publish(toy)
        first = here.worker()
        here.send(records(toy, declined[:1]))
        first.until("decision.ended")
        here.send([record(toy.decision(declined[1], decision_id="never", model_version="never"))])
        soon = toy.decision(declined[2], decision_id="soon", model_version="soon", margin=None, probability=None)
        here.send([record(soon)])
        for count, number in enumerate(declined[3:23]):
            here.send(records(toy, [number]))
            first.until("decision.ended", count=count + 2, timeout_s=10)
        second = here.worker()
        assert here.dead_letters() == []
        here.publish(toy_lender(tmp_path / "soon", version="soon"))
        wait_until(
            lambda: b"soon" in {one.key() for one in here.read(here.settings.topic_recommendations)}, what="soon"
        )
        assert here.lag() > 0
        assert [one.stop() for one in (first, second)] == [0, 0]
        here.worker(COACH_MODEL_WAIT_S="1")
        here.until_done()
        (letter,) = here.dead_letters()
        assert (letter["key"], letter["error"], letter["retryable"]) == (b"never", "ModelNotPublished", True)
        assert "version never of model toy" in letter["message"]
        check_all_answered(here, {f"toy-{n}" for n in [declined[0], *declined[3:23]]} | {"soon"})


def test_models_are_read_again_whole_after_a_restart(stack: Stack, toy: Lender, tmp_path: Path) -> None:
    """Given two versions published, when a worker restarts after all was committed, then it knows both, reads the topic from its beginning, and answers decisions of the older one."""
    older = toy_lender(tmp_path / "older", version="older", seed=8)
    declined, old_declined = toy.declined(4), older.declined(4)
    with room(stack, tmp_path, partitions=2) as here:
        here.publish(older)
        here.publish(toy)
        worker = here.worker()
        here.send([record(older.decision(old_declined[0], decision_id="old-1"))])
        here.until_done()
        assert worker.stop() == 0
        again = here.worker()
        assert len(again.events("models.learned")) == 2
        here.send([record(older.decision(old_declined[1], decision_id="old-2")), record(toy.decision(declined[1]))])
        here.until_done()
        assert {(one["decision_id"], one["model_version"]) for one in here.recommendations()} == {
            ("old-1", "older"), ("old-2", "older"), (f"toy-{declined[1]}", "2026-10"),
        }  # fmt: skip
        wait_until(lambda: again.alive, what="it runs")
