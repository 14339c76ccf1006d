"""The Faust application: reads raw bytes, hands them to the pipeline, and acks only what the pipeline settles.

What ordinary Faust code loses, and how this keeps it (read in and measured on Faust 0.15.3):
- An agent that raises has its event acked in a `finally`: nothing here raises, and `noack` leaves acking to us.
- A decode error inside Faust kills the agent silently and acks the message, and an empty value is one: `RawSchema`
  decodes nothing, so `read_decision` refuses by itself, as a dead letter.
- An event that a stream skips because a rebalance or stop began is acked unprocessed: `RawSchema` holds each message by
  one reference more, which only a settled decision gives back.
- A commit may pass holes: see `commit_order`, after whose order alone `PromptConsumer` commits.
- After a rebalance it seeks back to what is committed, but aiokafka leaves a partition where it is whose committed offset
  is 0: what was fetched and dropped meanwhile would never be read again. `PromptThread` seeks there as well.
- `wait_empty` waits for every unacked message in a rebalance or stop: what the pipeline lets go of is taken out of it.
"""

from __future__ import annotations

import logging
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import aiokafka
import faust
from faust.auth import Credentials
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport
from faust.types import TP, EventT, StreamT
from faust.types.tuples import Message

from stream.errors import ConfigurationError
from stream.runtime.kafka.inbound import Inbound
from stream.runtime.kafka.offset_gaps import Gap
from stream.runtime.settings import Settings
from stream.worker.fetching import EmptyRanges, WatchfulFetcher, replace_fetcher

Event: TypeAlias = "EventT[bytes]"

HEARTBEATS_PER_SESSION: Final = 3
faust_log: Final = logging.getLogger("faust.transport")  # so that what Faust says of them stays with Faust's own
POLL_INTERVAL_MIN_S: Final = 1_000.0
FETCH_WAIT_MS: Final = 100
METADATA_AGE_MS: Final = 5_000  # until new partitions, and a topic made anew, are seen; one small request
BUFFERED_MAX: Final = 1_024  # events between Faust's fetcher and the agent
OURS: Final = 2  # references to a message that we give back: the channel's, and the one of RawSchema


class PromptThread(AIOKafkaConsumerThread):
    """Faust's consumer, with what Faust has no setting for.

    Its long poll is shorter: Faust fixes it at 1.5 s, and a broker may sit out all of it; Apache Kafka answers as soon as
    there is a record, the embedded broker does not. It reads what is committed: a decision of a transaction that was
    aborted never happened.
    """

    logger = faust_log

    def _create_worker_consumer(self, transport: Transport) -> aiokafka.AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS  # noqa: SLF001 - aiokafka reads both when it starts
        consumer._isolation_level = "read_committed"  # noqa: SLF001
        return consumer

    async def on_start(self) -> None:
        """Start, and hear of gaps from then on: nothing is fetched before the subscription, which comes later."""
        await super().on_start()
        self._fetcher.on_gap = cast("PromptConsumer", self.consumer).hear_of_gap

    @property
    def empty(self) -> EmptyRanges:
        """Where the log has nothing to read."""
        return self._fetcher.empty

    @property
    def _fetcher(self) -> WatchfulFetcher:
        return cast("WatchfulFetcher", self._ensure_consumer()._fetcher)  # noqa: SLF001 - see `fetching`

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
    """Runs on a PromptThread, and commits what `commit_order` settled and what is empty after it.

    Faust commits what was acked last, so a marker at the end of a partition would show as lag for ever.
    """

    logger = faust_log
    _begins: Final[dict[TP, int]]

    def __init__(self, *given: Any, **more: Any) -> None:  # noqa: ANN401 - Faust's own
        self._begins = {}
        super().__init__(*given, **more)

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        return PromptThread(self, loop=self.loop, beacon=self.beacon)

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Seek, and keep where each partition begins, which Faust forgets of 0."""
        found = await super().seek_to_committed()
        known = cast("Mapping[TP, int | None]", found)
        self._begins.update({TP(*tp): offset for tp, offset in known.items() if offset is not None})
        return found

    def _filter_tps_with_pending_acks(self, topics: Any = None) -> Iterator[TP]:  # noqa: ANN401 - Faust's own
        return (tp for tp in self.assignment() if topics is None or tp in topics or tp.topic in topics)

    def _new_offset(self, tp: TP) -> int | None:
        acked, committed = self._acked[tp], self._committed_offset[tp]
        offset = max(acked) + 1 if acked else self._begins.get(tp) if committed is None else committed
        acked.clear()
        self._acked_index[tp].clear()
        return None if offset is None else cast("PromptThread", self._thread).empty.past(tp, offset)

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Do nothing, for `LagWatch` tells what stalls: Faust's own look ends the worker while a position is being reset."""

    def hear_of_gap(self, tp: TP, expected: int, begins: int) -> None:
        """Take in that the log begins at `begins`, and no longer holds what was to be read next; from any thread."""
        self.loop.call_soon_threadsafe(self._take_in_gap, TP(*tp), expected, begins)

    def _take_in_gap(self, tp: TP, expected: int, begins: int) -> None:
        if begins < expected:  # it was made anew: what is committed is of the old one
            self._committed_offset.pop(tp, None)
            self._begins.pop(tp, None)
            self._acked[tp].clear()
            self._acked_index[tp].clear()
            cast("PromptThread", self._thread).empty.forget(tp)
        cast("PromptTransport", self.transport).on_gap(Gap(tp.topic, tp.partition, expected, begins))


class PromptTransport(Transport):
    """Consumes with a PromptConsumer, and hands gaps on."""

    Consumer = PromptConsumer
    on_gap: Callable[[Gap], None]


class RawSchema(faust.Schema[bytes, bytes]):
    """Key and value as they are; each message held until `settle`."""

    def compile(self, app: Any, **_options: Any) -> Callable[..., Awaitable[Event]]:  # noqa: ANN401 - as Faust calls it
        """Return the decoder, which cannot fail."""

        async def decode(message: Message, *, propagate: bool = False) -> Event:  # noqa: ARG001 - as Faust calls it
            message.incref()
            return cast("Event", app.create_event(message.key, message.value, message.headers, message))

        return decode


def make_app(
    settings: Settings,
    take: Callable[[Inbound], Awaitable[None]],
    *,
    on_gap: Callable[[Gap], None],
    datadir: Path | None = None,
) -> faust.App:
    """Make the application; `take` gets each record, in the order of its partition, and never raises.

    `on_gap` hears of what the log lost before it was read.
    """
    replace_fetcher()
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
        consumer_auto_offset_reset="earliest",  # for partitions younger than the group, and where the log lost its head
        consumer_metadata_max_age_ms=METADATA_AGE_MS,
        topic_disable_leader=True,
        topic_allow_declare=False,
        store="memory://",
        web_enabled=False,
        datadir=datadir or Path(tempfile.gettempdir()) / "coach-stream-faust",
    )
    transport = PromptTransport(app.conf.broker_consumer, app)
    transport.on_gap = on_gap
    app.transport = transport
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
    headers: Any = message.headers or ()  # a list or a mapping
    timestamp_s = cast("float | None", message.timestamp)
    return Inbound(
        key=message.key,
        value=message.value,
        headers=tuple(headers.items() if isinstance(headers, dict) else headers),
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        timestamp_ms=None if timestamp_s is None else round(timestamp_s * 1000),
        generation=message.generation_id or 0,
        first_seen_ms=time.time_ns() // 1_000_000,
        handle=message,
    )


def ack(app: faust.App, record: Inbound) -> None:
    """Mark one record as safe to commit."""
    cast("Message", record.handle).ack(app.consumer, OURS)


def release(app: faust.App, record: Inbound) -> None:
    """Let go of a record unacked: nothing waits for it, and it will be read again."""
    app.consumer.unacked.discard(cast("Message", record.handle))


def faust_credentials(settings: Settings) -> Credentials | None:
    """Give the credentials; None for a plain connection. Raises: ConfigurationError for unusable certificate files."""
    context = _tls(settings) if settings.kafka_security_protocol.endswith("SSL") else None
    if "SASL" in settings.kafka_security_protocol:
        return faust.SASLCredentials(
            username=settings.kafka_sasl_username,
            password=settings.kafka_sasl_password,
            ssl_context=context,
            mechanism=settings.kafka_sasl_mechanism,
        )
    return None if context is None else faust.SSLCredentials(context)


def _tls(settings: Settings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.kafka_ca_file or None)
        if settings.kafka_certificate_file:
            context.load_cert_chain(
                settings.kafka_certificate_file, settings.kafka_key_file, settings.kafka_key_password or None
            )
    except (ssl.SSLError, OSError) as error:
        message = f"COACH_KAFKA_CA_FILE, COACH_KAFKA_CERTIFICATE_FILE or COACH_KAFKA_KEY_FILE cannot be used: {error}"
        raise ConfigurationError(message) from error
    return context
