"""What a worker's numbers say, driven by what happens to it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from stream.errors import KafkaUnavailable, PoisonError, RedisUnavailable
from stream.runtime.health import Vitals
from stream.worker.broker_watch import BrokerWatch
from stream.worker.metrics import DEPENDENCIES, METERS, follow_pipeline, worker_counters
from stream.worker.pipeline import BATCH, OUTAGES
from stream.worker.run import LOOP, beat
from tests.runtime.test_counters import scraped
from tests.worker.fakes import Bench, bench, inbound


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def numbers(here: Bench) -> dict[str, float]:
    """Each series as `name{its label values}`, for comparing."""
    return {f"{name}{[value for _, value in labels]}": one for (name, labels), one in scraped(here.counters).items()}


def test_each_decision_is_counted_once_by_what_became_of_it() -> None:
    """Given answered, approved and poison decisions, when they are through, then each is counted by outcome and status, the dead letter by stage and reason, the answer by its model and with its time until it was acknowledged."""

    async def story() -> None:
        async with bench() as here:
            await here.take(inbound(0), inbound(1, value=b"approve a"), inbound(2, value=b"poison"), inbound(3))
            await here.until(lambda: len(here.book.acked) == 4)
            await here.until(lambda: here.counters.total("decisions_total") == 4)
            found = numbers(here)
            assert found["coach_decisions_total['declined', 'ok']"] == 2
            assert found["coach_decisions_total['approved', 'not_needed']"] == 1
            assert found["coach_decisions_total['unread', 'dead_letter']"] == 1
            assert found["coach_dead_letters_total['PoisonError', 'answer']"] == 1
            assert found["coach_model_decisions_total['m', '1', '1']"] == 2
            assert found["coach_decision_duration_seconds_count[]"] == 2
            assert found["coach_decision_stage_duration_seconds_count['deliver']"] == 3
            assert found["coach_batch_decisions_sum[]"] == 4
            assert here.vitals.stalled() == []

    run(story())


def test_what_is_waited_for_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given Redis away, when the pipeline waits it out, then the outage is shown by its name and is over when it is back, and the batch is expected to give a sign of life only while it is under way."""
    expected: list[str] = []

    async def story() -> None:
        async with bench() as here:
            monkeypatch.setattr(here.vitals, "expect", lambda what, _within_s: expected.append(what))
            follow_pipeline(here.counters, here.pipeline, BrokerWatch(lambda: None))
            here.answerer.failures = [RedisUnavailable("away")] * 4
            await here.take(inbound(0), inbound(1, value=b"wait m w"))
            await here.until(lambda: here.pipeline.waiting_for)
            assert numbers(here)["coach_outage['redis']"] == 1
            await here.until(lambda: here.pipeline.parked == 1)
            found = numbers(here)
            assert {found[f"coach_outage['{one}']"] for one in DEPENDENCIES} == {0}
            assert (found["coach_parked_decisions[]"], found["coach_uncommitted_decisions[]"]) == (1, 1)
            assert found["coach_outage_pauses_total[]"] == 4

    run(story())
    assert set(expected) == {BATCH}


def test_a_batch_that_hangs_is_stalled_and_an_outage_is_not() -> None:
    """Given a delivery that never comes back, when its bound is over, then the process is not alive; while an outage is waited out, with its pauses, it is."""
    hangs = threading.Event()
    now_s = [0.0]

    def hang(_outputs: object) -> None:
        hangs.wait(10)

    async def story() -> None:
        async with bench() as here:
            here.vitals._clock = lambda: now_s[0]  # noqa: SLF001 - a test turns the clock
            here.delivery.down = True
            await here.take(inbound(0))
            await here.until(lambda: here.pipeline.waiting_for)
            for _ in range(3):
                pauses = here.counters.total("outage_pauses_total")
                await here.until(more_pauses_than(here, pauses + 1))
                assert here.vitals.stalled() == []
                now_s[0] += 200
            await here.until(lambda: here.vitals.stalled() == [])
            here.delivery.on_delivery = hang
            here.delivery.down = False
            await here.pause(0.2)
            now_s[0] += 5_000
            assert [BATCH in one for one in here.vitals.stalled()] == [True]
            hangs.set()
            await here.until(lambda: here.book.acked)
            await here.until(lambda: here.vitals.stalled() == [])

    run(story())


def test_an_event_loop_that_is_blocked_is_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given an event loop that beats, when something blocks it past its bound, then the process is not alive meanwhile, and is again when the loop goes on; a stop ends the expectation."""
    monkeypatch.setattr("stream.worker.run.LOOP_STALLED_AFTER_S", 0.2)
    monkeypatch.setattr("stream.worker.run.BEAT_EVERY_S", 0.01)
    vitals = Vitals()

    async def story() -> None:
        beating = asyncio.get_running_loop().create_task(beat(vitals))
        await asyncio.sleep(0.05)
        assert vitals.stalled() == []
        time.sleep(0.4)  # noqa: ASYNC251 - that is what must not be
        assert [LOOP in one for one in vitals.stalled()] == [True]
        await asyncio.sleep(0.05)
        assert vitals.stalled() == []
        beating.cancel()
        await asyncio.sleep(0.01)
        time.sleep(0.4)  # noqa: ASYNC251 - as above
        assert vitals.stalled() == []

    run(story())


def more_pauses_than(here: Bench, count: float) -> Callable[[], bool]:
    return lambda: here.counters.total("outage_pauses_total") > count


def test_every_error_that_makes_a_dead_letter_is_known_beforehand() -> None:
    """Given the error tree, when the counters begin, then each stage and reason of a dead letter is there at 0, so that the first one is a step that an alert sees."""

    def leaves(error: type[PoisonError]) -> set[tuple[str, str]]:
        return {(error.__name__, error.stage)}.union(*map(leaves, error.__subclasses__()))

    series = {
        tuple(value for _, value in labels) for (name, labels) in scraped(worker_counters()) if "dead_letters" in name
    }
    assert series >= leaves(PoisonError)


def test_each_outage_has_a_name_that_dashboards_know() -> None:
    """Given the kinds of outages, when named, then each name is one that the gauge always shows, and all else is `other`."""
    assert OUTAGES[KafkaUnavailable] == "kafka"
    assert {*OUTAGES.values(), "other"} == set(DEPENDENCIES)
    assert len({meter.name for meter in METERS}) == len(METERS)
