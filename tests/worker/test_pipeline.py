from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Coroutine
from typing import Any

import pytest

from stream.errors import ConfigurationError, CorruptionError, KafkaUnavailable, RedisUnavailable
from stream.wire.avro_records import decode
from stream.worker import pipeline
from tests.worker.fakes import Bench, bench, inbound


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def reasons(here: Bench) -> list[str]:
    return [str(decode(value)[1]["error"]) for value in here.delivery.values("decisions.dlq")]


def test_outputs_are_acknowledged_in_their_order_and_only_then_the_offsets() -> None:
    """Given declined, approved and poison decisions, when a batch is worked through, then audit records come first, then recommendations, then dead letters, and no offset is acked before the last of them."""

    async def story() -> None:
        async with bench() as here:
            acked_at_delivery: list[int] = []
            here.delivery.on_delivery = lambda _outputs: acked_at_delivery.append(len(here.book.acked))
            await here.take(inbound(0), inbound(1, value=b"approve a"), inbound(2, value=b"poison"), inbound(3))
            await here.until(lambda: len(here.book.acked) == 4)
            topics = [one.topic for one in here.delivery.delivered]
            assert topics == ["audit", "audit", "recommendations", "recommendations", "decisions.dlq"]
            assert acked_at_delivery == [0, 0, 0]
            assert here.book.committed() == [0, 1, 2, 3]

    run(story())


def test_a_dead_letter_holds_the_original_byte_for_byte() -> None:
    """Given a record that cannot be read, when it is dead-lettered, then key, value and headers are the original's."""

    async def story() -> None:
        async with bench() as here:
            poison = inbound(7, value=b"\x00\xff poison \xfe")
            await here.take(poison)
            await here.until(lambda: here.book.acked)
            name, letter = decode(here.delivery.values("decisions.dlq")[0])
            assert name == "DeadLetter"
            assert (letter["key"], letter["value"]) == (poison.key, poison.value)
            assert [(one["key"], one["value"]) for one in letter["headers"]] == list(poison.headers)
            assert (letter["topic"], letter["partition"], letter["offset"]) == ("decisions", 0, 7)
            assert here.delivery.delivered[0].key == poison.key

    run(story())


def test_a_decision_without_a_model_stalls_nobody_and_holds_only_its_commit() -> None:
    """Given a decision whose model nobody published, when others follow on both partitions, then all of them are answered, the other partition is acked, and its own only when the model came."""

    async def story() -> None:
        async with bench() as here:
            await here.take(inbound(0), inbound(1, value=b"wait m w"), inbound(2), inbound(0, partition=1))
            await here.until(lambda: len(here.delivery.values("recommendations")) == 3)
            await here.until(lambda: here.book.committed(1) == [0])
            assert here.book.committed(0) == [0]
            assert (here.pipeline.parked, here.pipeline.uncommitted) == (1, 2)
            here.answerer.publish("m")
            await here.until(lambda: here.book.committed(0) == [0, 1, 2])
            assert b"recommendation of w" in here.delivery.values("recommendations")
            assert reasons(here) == []

    run(story())


def test_a_model_that_does_not_come_in_time_makes_a_retryable_dead_letter() -> None:
    """Given a decision whose model nobody published, when the wait is over, then it is a retryable dead letter that names model and version, and its partition commits."""

    async def story() -> None:
        async with bench(model_wait_s=0.2) as here:
            await here.take(inbound(0, value=b"wait m w"), inbound(1))
            await here.until(lambda: here.book.committed() == [0, 1])
            letter = decode(here.delivery.values("decisions.dlq")[0])[1]
            assert (letter["error"], letter["stage"], letter["retryable"]) == ("ModelNotPublished", "resolve", True)
            assert "nobody published m" in str(letter["message"])

    run(story())


def test_a_full_parking_lot_gives_up_its_oldest() -> None:
    """Given more waiting decisions than may wait, when one more comes, then the oldest become dead letters at once."""

    async def story() -> None:
        async with bench(parked_max=2) as here:
            await here.take(*(inbound(offset, value=f"wait m w{offset}".encode()) for offset in range(5)))
            await here.until(lambda: len(reasons(here)) == 3)
            assert here.pipeline.parked == 2
            assert here.book.committed() == [0, 1, 2]

    run(story())


def test_too_much_uncommitted_behind_a_waiting_decision_ends_its_wait() -> None:
    """Given a waiting decision, when as many are read behind it as may be uncommitted, then it becomes a dead letter, and the reader goes on."""

    async def story() -> None:
        async with bench(uncommitted_max=100) as here:
            async with asyncio.timeout(5):
                await here.take(inbound(0, value=b"wait m w"), *(inbound(offset) for offset in range(1, 300)))
            await here.until(lambda: len(here.book.acked) == 300)
            assert reasons(here) == ["ModelNotPublished"]

    run(story())


def test_an_outage_is_waited_out_with_nothing_acked() -> None:
    """Given Redis away for a few tries, when it is back, then the batch is answered once and acked only then."""

    async def story() -> None:
        async with bench() as here:
            here.answerer.failures = [RedisUnavailable("away")] * 3
            await here.take(inbound(0), inbound(1))
            await here.until(lambda: here.book.committed() == [0, 1])
            assert len(here.delivery.values("audit")) == 2
            assert here.counters.total("outage_pauses_total") == 3
            assert not here.pipeline.waiting_for

    run(story())


def test_an_outage_past_its_bound_ends_the_worker_with_nothing_acked() -> None:
    """Given a broker that stays away, when the named bound is over, then the run ends with KafkaUnavailable that names the setting, and no offset is acked."""

    async def story() -> None:
        async with bench(outage_max_s=1.0) as here:
            here.delivery.down = True
            await here.take(inbound(0))
            with pytest.raises(KafkaUnavailable, match="COACH_OUTAGE_MAX_S=1"):
                await here.task
            assert here.book.acked == []

    run(story())


def test_corruption_ends_the_worker_with_nothing_acked() -> None:
    """Given two of our own numbers that disagree, when it is found, then the run ends with it and nothing is acked."""

    async def story() -> None:
        async with bench() as here:
            here.answerer.failures = [CorruptionError("sums differ")]
            await here.take(inbound(0))
            with pytest.raises(CorruptionError, match="sums differ"):
                await here.task
            assert here.book.acked == []

    run(story())


def test_without_its_audit_record_no_recommendation_goes_out() -> None:
    """Given a broker that refuses one audit record for good, when the batch is delivered, then that decision is a dead letter without a recommendation, and the others are answered."""

    async def story() -> None:
        async with bench() as here:
            here.delivery.refuse = lambda output: output.value == b"audit of 0-1"
            await here.take(inbound(0), inbound(1), inbound(2))
            await here.until(lambda: here.book.committed() == [0, 1, 2])
            assert here.delivery.values("recommendations") == [b"recommendation of 0-0", b"recommendation of 0-2"]
            assert reasons(here) == ["DeliveryRefused"]

    run(story())


def test_a_dead_letter_too_large_for_its_topic_is_kept_without_its_value(caplog: pytest.LogCaptureFixture) -> None:
    """Given a dead-letter topic that refuses one letter for good, when it is due, then the same goes out without its value, with the value's size and digest, retryable, and with an error in the log; the others are untouched and the stream goes on."""

    async def story() -> None:
        async with bench() as here:
            large = inbound(1, value=b"poison " * 1_000)
            here.delivery.refuse = lambda output: len(output.value) > 5_000
            await here.take(inbound(0), large, inbound(2, value=b"poison"), inbound(3))
            await here.until(lambda: here.book.committed() == [0, 1, 2, 3])
            other, without = (decode(value)[1] for value in here.delivery.values("decisions.dlq"))
            assert (other["offset"], other["value"], other["retryable"]) == (2, b"poison", False)
            assert (without["offset"], without["value"], without["retryable"]) == (1, None, True)
            assert (without["key"], without["error"]) == (large.key, "PoisonError")
            assert [(one["key"], one["value"]) for one in without["headers"]] == list(large.headers)
            digest = hashlib.sha256(large.value or b"").hexdigest()
            assert f"7000 bytes, sha256 {digest}" in without["message"]
            assert "it is poison" in without["message"]

    run(story())
    (told,) = [one for one in caplog.records if one.message == "dead_letter.without_value"]
    assert told.levelname == "ERROR"


def test_a_lost_bundle_stalls_nobody_and_is_looked_for_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Given decisions whose bundle is nowhere, when others come, then those are answered; the bundle is looked for again without a new publication, the wait is told of once, and when the bundle is back they are answered."""
    monkeypatch.setattr(pipeline, "RECHECK_INTERVAL_S", 0.05)

    async def story() -> None:
        async with bench() as here:
            await here.take(*(inbound(offset, value=f"lost m w{offset}".encode()) for offset in range(3)))
            await here.until(lambda: here.pipeline.parked == 3)
            await here.take(inbound(3), inbound(0, partition=1))
            await here.until(lambda: here.book.committed(1) == [0])
            await here.pause(0.3)
            assert not here.pipeline.waiting_for
            here.answerer.found.add("m")
            await here.until(lambda: here.book.committed() == [0, 1, 2, 3])
            assert reasons(here) == []

    run(story())
    assert [one.message for one in caplog.records].count("decisions.waiting") == 1


def test_a_bundle_that_stays_lost_makes_a_retryable_dead_letter(caplog: pytest.LogCaptureFixture) -> None:
    """Given a decision whose bundle is nowhere, when the wait is over, then it is a retryable dead letter of that reason, told of in the log as a warning with its decision_id."""

    async def story() -> None:
        async with bench(model_wait_s=0.2) as here:
            await here.take(inbound(0, value=b"lost m w"))
            await here.until(lambda: here.book.committed() == [0])
            letter = decode(here.delivery.values("decisions.dlq")[0])[1]
            assert (letter["error"], letter["stage"], letter["retryable"]) == ("BundleLost", "resolve", True)

    run(story())
    (told,) = [one for one in caplog.records if one.message == "decision.ended"]
    extra = vars(told)
    assert (told.levelname, extra["decision_id"], extra["reason"]) == ("WARNING", "w", "BundleLost")
    assert "is nowhere" in extra["why"]


def test_a_dead_letter_that_cannot_be_kept_ends_the_worker() -> None:
    """Given a dead-letter topic that refuses a letter, when one is due, then the run ends naming what to do, nothing acked."""

    async def story() -> None:
        async with bench() as here:
            here.delivery.refuse = lambda output: output.topic == "decisions.dlq"
            await here.take(inbound(0, value=b"poison"))
            with pytest.raises(ConfigurationError, match=r"decisions\.dlq .* max\.message\.bytes"):
                await here.task
            assert here.book.acked == []

    run(story())


def test_a_stop_lets_go_of_what_waits_at_once() -> None:
    """Given a waiting decision and answered ones behind it, when a stop or rebalance begins, then all of them are let go of, so that nothing waits for them, and none is acked."""

    async def story() -> None:
        async with bench() as here:
            await here.take(inbound(0, value=b"wait m w"), inbound(1), inbound(2))
            await here.until(lambda: len(here.delivery.values("recommendations")) == 2)
            here.suspended = True
            await here.until(lambda: len(here.book.released) == 3, timeout_s=0.5)
            assert (here.book.acked, here.pipeline.parked) == ([], 0)

    run(story())


def test_a_stop_in_an_outage_is_bounded() -> None:
    """Given a batch that waits for the broker, when a stop begins, then after the named bound the batch is let go of."""

    async def story() -> None:
        async with bench(outage_max_s=60.0, drain_s=0.2) as here:
            here.delivery.down = True
            await here.take(inbound(0), inbound(1))
            await here.until(lambda: here.pipeline.waiting_for)
            await here.pause(0.1)
            here.suspended = True
            await here.until(lambda: len(here.book.released) == 2, timeout_s=1.0)
            assert here.book.acked == []
            assert not here.task.done()

    run(story())


def test_after_a_rebalance_the_same_decisions_are_answered_again() -> None:
    """Given decisions that were let go of in a rebalance, when they are read again in the new generation, then they are answered and acked."""

    async def story() -> None:
        async with bench() as here:
            await here.take(inbound(0, value=b"wait m w"), inbound(1))
            await here.until(lambda: here.pipeline.parked == 1)
            here.suspended = True
            await here.until(lambda: len(here.book.released) == 2)
            here.suspended, here.generation = False, 2
            here.answerer.publish("m")
            await here.take(inbound(0, value=b"wait m w", generation=2), inbound(1, generation=2))
            await here.until(lambda: here.book.committed() == [0, 1])

    run(story())


def test_many_waiting_decisions_look_again_once_for_each_publication() -> None:
    """Given more waiting decisions than a batch holds, when another model is published, then each is tried once more and no oftener, fresh ones are answered meanwhile, and with their own model all are answered."""

    async def story() -> None:
        async with bench(batch_max=10) as here:
            await here.take(*(inbound(offset, value=f"wait m w{offset}".encode()) for offset in range(50)))
            await here.until(lambda: here.pipeline.parked == 50)
            tried = sum(map(len, here.answerer.batches))
            here.answerer.publish("another")
            await here.take(inbound(50))
            await here.until(lambda: len(here.delivery.values("audit")) == 1)
            await here.pause(0.5)
            assert sum(map(len, here.answerer.batches)) == tried + 50 + 1
            here.answerer.publish("m")
            await here.until(lambda: len(here.book.acked) == 51)
            assert reasons(here) == []

    run(story())


def test_what_is_read_after_the_end_is_let_go_of() -> None:
    """Given a pipeline that ended, when the agent still reads decisions, then they are let go of at once, so that no stop waits for them."""

    async def story() -> None:
        async with bench(batch_max=2) as here:
            here.answerer.failures = [CorruptionError("sums differ")]
            await here.take(inbound(0))
            await asyncio.wait({here.task})
            async with asyncio.timeout(1):
                await here.take(*(inbound(offset) for offset in range(1, 20)))
            assert here.book.acked == []
            assert len(here.book.released) == 20

    run(story())


def test_a_batch_is_answered_as_far_as_its_time_goes() -> None:
    """Given more decisions than one batch's time suffices for, when they are worked through, then each is answered once, and all are acked in order."""

    async def story() -> None:
        async with bench() as here:
            here.answerer.per_batch_max = 3
            await here.take(*(inbound(offset) for offset in range(10)))
            await here.until(lambda: here.book.committed() == list(range(10)))
            assert sorted(offset for batch in here.answerer.batches for offset in batch) == list(range(10))

    run(story())


def test_the_reader_waits_while_there_is_no_room() -> None:
    """Given a pipeline that cannot go on, when many decisions are read, then the reader waits with a bounded number in hand."""

    async def story() -> None:
        async with bench(batch_max=5) as here:
            here.delivery.down = True
            reading = asyncio.create_task(here.take(*(inbound(offset) for offset in range(100))))
            await here.pause(0.2)
            assert not reading.done()
            assert here.pipeline.uncommitted <= 16
            here.delivery.down = False
            await here.until(lambda: len(here.book.acked) == 100)
            await reading

    run(story())
