"""The smaller parts of the worker: holding messages, dead letters, the log, /metrics, topics' verdicts."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.subscription_state import TopicPartitionState
from faust.types import TP
from faust.types.tuples import ConsumerMessage, Message

from stream.errors import KafkaUnavailable, MalformedRecord
from stream.runtime.kafka.dead_letters import (
    MESSAGE_CHARACTERS_MAX,
    REDRIVE_HEADER,
    dead_letter,
)
from stream.runtime.kafka.inbound import Inbound
from stream.runtime.logs import ForeignOnce, JsonFormatter
from stream.runtime.settings import DEAD_LETTER_MARGIN_BYTES, Settings
from stream.runtime.topic_specs import AUDIT_RETENTION_MS, DAY_MS, topic_specs
from stream.wire.avro_records import decode
from stream.wire.framing import SINGLE_OBJECT
from stream.worker.app import OURS, PromptConsumer, make_app
from stream.worker.broker_watch import BrokerWatch
from tests.worker.fakes import inbound


class FaustConsumer:
    """Faust's consumer as far as acking goes."""

    def __init__(self) -> None:
        self.acked: list[int] = []

    def ack(self, message: Message) -> bool:
        """Remember what became safe to commit."""
        self.acked.append(message.offset)
        return True


def test_a_message_that_faust_skips_does_not_become_safe_to_commit() -> None:
    """Given a message that the stream skips because a rebalance began, which Faust acks by itself, when it does so, then the message is not safe to commit; only our own ack makes it so."""

    async def story() -> None:
        async def take(_record: Inbound) -> None:
            """Never called."""

        app = make_app(Settings(), take, on_gap=lambda _gap: None)
        app.finalize()
        (topic,) = [agent.channel for agent in app.agents.values()]
        consumer: Any = FaustConsumer()
        skipped, settled = message(5), message(6)
        for one in (skipped, settled):
            one.incref(1)  # as Faust's conductor does for each channel
            event = await topic.decode(one, propagate=True)
            assert (event.key, event.value) == (None, None)
        skipped.ack(consumer)  # what Faust does with a skipped one
        assert consumer.acked == []
        settled.ack(consumer, OURS)
        assert consumer.acked == [6]

    asyncio.run(story())


def test_a_look_at_a_partition_whose_position_is_being_reset_ends_nothing() -> None:
    """Given a partition that lost what was to be read next, when Faust looks for partitions that stall, then the position that is not there yet is not asked for: aiokafka asserts that there is one."""

    async def story() -> None:
        state = TopicPartitionState(None)
        with pytest.raises(AssertionError):
            _ = state.position
        consumer: Any = PromptConsumer.__new__(PromptConsumer)
        consumer._thread = SimpleNamespace(  # noqa: SLF001 - where Faust looks
            verify_event_path=lambda _now, _tp: state.position
        )
        consumer.verify_event_path(0.0, TP("decisions", 0))

    asyncio.run(story())


def message(offset: int) -> ConsumerMessage:
    return ConsumerMessage(
        "decisions", 0, offset, 1.0, 0, [], None, None, None, 0, 0, TP("decisions", 0), generation_id=1
    )


def test_a_dead_letter_is_bounded_and_names_its_redrive() -> None:
    """Given an error with an endless message on a redriven record of the largest size, when the letter is written, then its message is cut, it fits the margin, and it names the redrive."""
    settings = Settings()
    record = inbound(1, value=b"x" * settings.decision_bytes_max)
    redriven = Inbound(
        key=record.key, value=record.value, headers=((REDRIVE_HEADER, b"r-7"),), topic="decisions", partition=0,
        offset=1, timestamp_ms=None, first_seen_ms=2_000,
    )  # fmt: skip
    letter = dead_letter(
        redriven, MalformedRecord("why " * 9_000), topic="dlq", attempts=3, now_ms=1_000, framing=SINGLE_OBJECT
    )
    assert len(letter.value) <= settings.decision_bytes_max + DEAD_LETTER_MARGIN_BYTES
    read = decode(letter.value)[1]
    assert len(read["message"]) == MESSAGE_CHARACTERS_MAX
    assert (read["redrive_id"], read["timestamp"], read["attempts"]) == ("r-7", None, 3)
    assert read["last_seen"] >= read["first_seen"]


def test_a_dead_letter_of_any_time_can_be_written() -> None:
    """Given a record whose timestamp is beyond the year 9999, when its dead letter is written, then it has none."""
    far = dataclasses.replace(inbound(1), timestamp_ms=2**62)
    for without_value in (False, True):
        letter = dead_letter(
            far,
            MalformedRecord("why"),
            topic="dlq",
            attempts=1,
            now_ms=1_000,
            framing=SINGLE_OBJECT,
            without_value=without_value,
        )
        assert decode(letter.value)[1]["timestamp"] is None


def test_other_peoples_lines_do_not_flood_the_log() -> None:
    """Given a library that repeats itself, when it is logged, then one line of each logger and level goes out in a while, the next with the number of those left out; ours all go out, and a coordinator that starts is not worth a line."""
    now_s = [0.0]
    once = ForeignOnce(every_s=30.0, clock=lambda: now_s[0])

    def goes(name: str, level: int = logging.ERROR, text: str = "away") -> tuple[bool, int]:
        record = logging.LogRecord(name, level, "", 0, text, (), None)
        return once.filter(record), getattr(record, "suppressed", 0)

    assert [goes("aiokafka") for _ in range(3)] == [(True, 0), (False, 0), (False, 0)]
    assert goes("librdkafka") == (True, 0)
    assert goes("aiokafka", logging.WARNING) == (True, 0)
    assert [goes("stream.worker.run") for _ in range(2)] == [(True, 0)] * 2
    now_s[0] = 30.0
    assert goes("aiokafka") == (True, 2)
    assert goes("faust", text="[Error 14] GroupLoadInProgressError") == (False, 0)


def test_an_outage_of_the_brokers_is_told_of_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    """Given brokers that go away and come back, when they are watched, then the log says once that they are waited for and once that it is over."""
    caplog.set_level("INFO")
    gone = threading.Event()

    def ask() -> None:
        if gone.is_set():
            reason = "nobody answers"
            raise KafkaUnavailable(reason)

    watch = BrokerWatch(ask, every_s=0.01)
    watch.start()
    try:
        assert not watch.away
        gone.set()
        until(lambda: watch.away)
        time.sleep(0.1)
        gone.clear()
        until(lambda: not watch.away)
    finally:
        watch.stop()
    assert [one.message for one in caplog.records] == ["outage.waiting", "outage.over"]


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def test_a_log_line_is_one_json_object() -> None:
    """Given a record with extra fields, when it is logged, then it is one line of JSON with time, level, event and the fields."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("stream.test_of_the_log")
    logger.addHandler(handler)
    logger.setLevel("INFO")
    logger.info("decision.ended", extra={"decision_id": "d-1\n", "elapsed_us": 913})
    (line,) = stream.getvalue().splitlines()
    read = json.loads(line)
    assert (read["event"], read["decision_id"], read["elapsed_us"], read["level"]) == (
        "decision.ended", "d-1\n", 913, "INFO",
    )  # fmt: skip
    assert read["time"].endswith("Z")


def test_the_topics_keep_what_the_law_and_the_design_ask_for() -> None:
    """Given the default settings, when the topics are specified, then audit keeps 25 months, models is compacted with one partition, and dead letters may be larger than decisions."""
    specs = {one.name: one for one in topic_specs(Settings())}
    configurations: Mapping[str, Mapping[str, str]] = {name: one.configuration for name, one in specs.items()}
    assert AUDIT_RETENTION_MS >= 25 * 31 * DAY_MS
    assert int(configurations["audit"]["retention.ms"]) == AUDIT_RETENTION_MS
    assert (specs["models"].partitions, configurations["models"]["cleanup.policy"]) == (1, "compact")
    sizes = {name: int(one["max.message.bytes"]) for name, one in configurations.items()}
    assert sizes["decisions.dlq"] > sizes["decisions"]
    assert sizes["audit"] > sizes["decisions"]
