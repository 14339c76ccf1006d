"""The Faust application: reads raw bytes, hands them to the pipeline, and acks only what the pipeline settles.

What ordinary Faust code loses, and how this keeps it (read in and measured on Faust 0.15.3):
- An agent that raises has its event acked in a `finally`: nothing here raises, and `noack` leaves acking to us.
- A decode error inside Faust kills the agent silently and acks the message, and an empty value is one: `RawSchema`
  decodes nothing, so `read_decision` refuses by itself, as a dead letter.
- An event that a stream skips because a rebalance or stop began is acked unprocessed: `RawSchema` holds each message by
  one reference more, which only a settled decision gives back.
- A commit may pass holes: see `commit_order`.
- After a rebalance it seeks back to what is committed, but aiokafka leaves a partition where it is whose committed offset
  is 0: what was fetched and dropped meanwhile would never be read again. `PromptThread` seeks there as well.
- `wait_empty` waits for every unacked message in a rebalance or stop: what the pipeline lets go of is taken out of it.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import aiokafka
import faust
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport
from faust.types import TP, EventT, StreamT
from faust.types.tuples import Message

from stream.runtime.kafka.commit_order import Held
from stream.runtime.kafka.inbound import Inbound
from stream.runtime.settings import Settings
from stream.worker.credentials import faust_credentials

Event: TypeAlias = "EventT[bytes]"

HEARTBEATS_PER_SESSION: Final = 3
faust_log: Final = logging.getLogger("faust.transport")  # so that what Faust says of them stays with Faust's own
POLL_INTERVAL_MIN_S: Final = 1_000.0
FETCH_WAIT_MS: Final = 100
BUFFERED_MAX: Final = 1_024  # events between Faust's fetcher and the agent
OURS: Final = 2  # references to a message that we give back: the channel's, and the one of RawSchema


class PromptThread(AIOKafkaConsumerThread):
    """Faust's consumer with a shorter long poll: Faust fixes it at 1.5 s, and a broker may sit out all of it.

    Apache Kafka answers as soon as there is a record; the embedded broker does not.
    """

    logger = faust_log

    def _create_worker_consumer(self, transport: Transport) -> aiokafka.AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS  # noqa: SLF001 - aiokafka reads it when it starts; Faust has no setting
        return consumer

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Seek every partition back to where its next record is not committed."""
        return cast("Mapping[TP, int]", await self.call_thread(seek_back, self._ensure_consumer()))


async def seek_back(consumer: aiokafka.AIOKafkaConsumer) -> Mapping[aiokafka.TopicPartition, int | None]:
    """Seek every assigned partition to its committed offset, be that 0, or to its beginning where there is none."""
    committed: Mapping[aiokafka.TopicPartition, int | None] = await consumer.seek_to_committed()
    for partition, offset in committed.items():
        if not offset and partition in consumer.assignment():
            if offset is None:
                await consumer.seek_to_beginning(partition)
            else:
                consumer.seek(partition, offset)
    return committed


class PromptConsumer(Consumer):
    """Runs on a PromptThread."""

    logger = faust_log

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        return PromptThread(self, loop=self.loop, beacon=self.beacon)


class PromptTransport(Transport):
    """Consumes with a PromptConsumer."""

    Consumer = PromptConsumer


class RawSchema(faust.Schema[bytes, bytes]):
    """Key and value as they are; each message held until `settle`."""

    def compile(self, app: Any, **_options: Any) -> Callable[..., Awaitable[Event]]:  # noqa: ANN401 - as Faust calls it
        """Return the decoder, which cannot fail."""

        async def decode(message: Message, *, propagate: bool = False) -> Event:  # noqa: ARG001 - as Faust calls it
            message.incref()
            return cast("Event", app.create_event(message.key, message.value, message.headers, message))

        return decode


def make_app(
    settings: Settings, take: Callable[[Inbound], Awaitable[None]], *, datadir: Path | None = None
) -> faust.App:
    """Make the application; `take` gets each record, in the order of its partition, and never raises."""
    app = faust.App(
        settings.group,
        broker=[f"kafka://{one.strip()}" for one in settings.kafka_brokers.split(",")],
        broker_credentials=faust_credentials(settings),
        broker_session_timeout=settings.session_timeout_s,
        broker_request_timeout=max(90.0, settings.session_timeout_s + 1),
        broker_heartbeat_interval=settings.session_timeout_s / HEARTBEATS_PER_SESSION,
        broker_max_poll_interval=max(POLL_INTERVAL_MIN_S, 2 * settings.outage_max_s),
        broker_commit_interval=settings.commit_interval_s,
        broker_commit_livelock_soft_timeout=2 * (settings.model_wait_s + settings.outage_max_s),
        stream_processing_timeout=2 * (settings.model_wait_s + settings.outage_max_s),
        stream_buffer_maxsize=BUFFERED_MAX,
        stream_wait_empty=True,
        consumer_auto_offset_reset="earliest",  # decides nothing: each partition has a committed offset before the start
        topic_disable_leader=True,
        topic_allow_declare=False,
        store="memory://",
        web_enabled=False,
        datadir=datadir or Path(tempfile.gettempdir()) / "coach-stream-faust",
    )
    app.transport = PromptTransport(app.conf.broker_consumer, app)
    decisions = app.topic(settings.topic_decisions, schema=RawSchema())

    async def answer_decisions(stream: StreamT[bytes]) -> AsyncIterator[int]:
        async for event in cast("faust.Stream[bytes]", stream).noack().events():
            await take(inbound(event))
            yield event.message.offset

    app.agent(decisions, concurrency=1, name="answer_decisions")(answer_decisions)
    return app


def inbound(event: Event) -> Inbound:
    """Free a record of Faust's types."""
    message = event.message
    return Inbound(
        key=message.key,
        value=message.value,
        headers=_headers(message.headers),
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        timestamp_ms=_milliseconds(message.timestamp),
        generation=message.generation_id or 0,
        first_seen_ms=time.time_ns() // 1_000_000,
        handle=message,
    )


def ack(app: faust.App) -> Callable[[Held], None]:
    """Make the function that marks one record as safe to commit."""

    def give_back(held: Held) -> None:
        cast("Message", cast("Inbound", held).handle).ack(app.consumer, OURS)

    return give_back


def release(app: faust.App) -> Callable[[Held], None]:
    """Make the function that lets go of a record unacked: nothing waits for it, and it will be read again."""

    def let_go(held: Held) -> None:
        app.consumer.unacked.discard(cast("Message", cast("Inbound", held).handle))

    return let_go


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _headers(headers: Any) -> tuple[tuple[str, bytes | None], ...]:  # noqa: ANN401 - Faust takes a list or a mapping
    if not headers:
        return ()
    return tuple(headers.items() if isinstance(headers, dict) else headers)
