"""`coach audit sink`: the audit topic -> an archive, exactly once by construction.

A consumer group shares the partitions among sinks. Its offsets are written for those who watch lag, and read by nobody:
where to go on is in the archive (see partition_work.py), whose files are a function of the topic alone. So two sinks that
for a moment work on one partition write the same bytes under the same names.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from stream.audit.archive.markers import Identity
from stream.audit.archive.target import Target
from stream.audit.sink.outages import GRACE_S, Outages
from stream.audit.sink.partition_work import PartitionWork, SinkTotals
from stream.audit.sink.settings import SinkSettings
from stream.audit.sink.sink_metrics import SinkMetrics
from stream.audit.sink.topic_identity import librdkafka_log_captured, open_archive, topic_on_brokers
from stream.errors import ConfigurationError, KafkaUnavailable, StreamError
from stream.runtime.clients import kafka_consumer, kafka_errors
from stream.runtime.connections import framing_of, kafka_properties
from stream.runtime.health import Vitals, served
from stream.runtime.kafka.inbound import inbound_of
from stream.runtime.retry import Abandoned
from stream.runtime.settings import Settings

log = logging.getLogger(__name__)
MESSAGES_A_CALL: Final = 200
POLL_S: Final = 0.25
ANSWER_MAX_S: Final = 10.0  # for the brokers to say where a partition begins and ends
QUEUED_KIB: Final = 16 * 1024  # read ahead, per partition
IDLE_ONCE_S: Final = 15.0  # with `once`: a sink that has had no partition for so long leaves them to the others
GONE: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}
)


class Sink:
    """One sink, from `run` to its end."""

    def __init__(self, settings: Settings, own: SinkSettings, *, once: bool = False, accept_loss: bool = False) -> None:
        """Make what needs no connection. Raises: ConfigurationError."""
        self.totals = SinkTotals()
        self.target = Target(own.sink_to)
        self._settings, self._own, self._once, self._accept_loss = settings, own, once, accept_loss
        self._topic = settings.topic_audit
        self._framing = framing_of(settings)
        self._stop = threading.Event()
        self._works: dict[int, PartitionWork] = {}
        self._ends: dict[int, int] = {}  # where each partition ended when it was taken up
        self._ended: set[int] = set()
        self._failure: BaseException | None = None
        self._assigned_s: float | None = None
        self._identity: Identity | None = None
        self._consumer: Consumer | None = None
        self._committed: dict[int, int] = {}
        self._last: dict[int, int] = {}  # its positions when it ended
        self.vitals = Vitals()
        self._outages = Outages(settings, self.vitals, self._stop.is_set)
        self.metrics = SinkMetrics(
            self.totals, {"sink_partitions": lambda: len(self._works), "sink_outage_seconds": self._outages.away_s}
        )

    def stop(self) -> None:
        """End soon; any thread or signal handler may call it."""
        self._stop.set()

    def run(self) -> SinkTotals:
        """Work until `stop`, or with `once` until the topic's present end. What is there of the last ranges is shown.

        Raises: ConfigurationError, ArchiveDamaged, DependencyError when something is away for longer than
        the outage bound. In all of them what the archive says is true, and a later sink goes on from there.
        """
        properties = kafka_properties(self._settings)
        self._consumer = consumer = self._make_consumer(properties)
        try:
            wait_s = max(self._settings.start_wait_s, 1.0)
            with librdkafka_log_captured() as said:  # by librdkafka: the one line of the error says it too
                try:
                    found = topic_on_brokers(consumer, properties, self._topic, timeout_s=wait_s, said=said)
                except KafkaUnavailable:
                    self._close(consumer)
                    raise
            self._identity = self._outages.wait_out(
                lambda: open_archive(self.target, found, self._own.sink_range_offsets)
            )
            self.target.sweep()
            log.info(
                "sink.started",
                extra={"archive": self.target.shown, "topic": self._topic, "range": self._identity.range_offsets},
            )
            with served(
                self._own.sink_metrics_port,
                address=self._settings.metrics_address,
                counters=self.metrics.counters,
                vitals=self.vitals,
                not_ready=self._not_ready,
                setting="COACH_SINK_METRICS_PORT",
            ):
                self._follow(consumer)
        except Abandoned:
            log.info("sink.abandoned", extra={"what_next": "what is not whole in the archive will be read again"})
        finally:
            self._close(consumer)
        self.metrics.log_totals(self._last, final=True)
        return self.totals

    def _make_consumer(self, properties: dict[str, Any]) -> Consumer:
        settings = self._settings
        named = {"group.instance.id": self._own.sink_instance} if self._own.sink_instance else {}
        return kafka_consumer(
            {
                **properties,
                **named,
                "group.id": self._own.sink_group,
                "partition.assignment.strategy": "cooperative-sticky",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",  # never a silent leap over what was deleted
                "enable.partition.eof": True,
                "queued.max.messages.kbytes": QUEUED_KIB,
                "session.timeout.ms": int(settings.session_timeout_s * 1_000),
                "max.poll.interval.ms": int(1_000 * (settings.outage_max_s + settings.session_timeout_s + GRACE_S)),
                "error_cb": self._on_error,
            }
        )

    def _follow(self, consumer: Consumer) -> None:
        consumer.subscribe([self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke)
        began_s = time.monotonic()
        while not self._stop.is_set() and not self._done(began_s):
            self._outages.expect_soon()
            try:
                messages = consumer.consume(MESSAGES_A_CALL, timeout=POLL_S)
            except KafkaException as error:
                self._judge(error.args[0], None)
                messages = []
            if self._failure is not None:
                raise self._failure
            for message in messages:
                self._receive(message)
            for work in self._works.values():
                work.keep_tail()
            self._go_where_wanted(consumer)
            self._outages.watch(consumer, self._topic)
            self.metrics.look(consumer, self._topic, self._positions(), every_s=self._settings.log_totals_every_s)
        for work in self._works.values():
            work.keep_tail(now=True)
        self._last = self._positions()
        self.metrics.look_last(consumer, self._topic, self._last)

    def _receive(self, message: Message) -> None:
        error = message.error()
        partition = message.partition()
        work = None if partition is None else self._works.get(partition)
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name
            self._judge(error, work)
            return
        self._outages.brokers_heard()
        if work is None:
            return
        offset = int(message.offset() or 0)
        if error is not None:
            work.reached(offset)
            self._ended.add(work.partition)
        else:
            work.take(inbound_of(message))

    def _judge(self, error: KafkaError, work: PartitionWork | None) -> None:
        """Tell what heals by itself from what does not. Raises: what does not."""
        said = f"reading topic {self._topic} from the brokers at {self._settings.kafka_brokers} failed: {error.str()}"
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE) and work is not None:  # noqa: SLF001 - as above
            work.close()  # it knows best what it lost, or refuses to go on
            work.seek_to = work.begin()
        elif error.code() in GONE:
            raise ConfigurationError(said)
        elif error.fatal():
            raise KafkaUnavailable(said)
        else:
            log.warning("sink.kafka_error", extra={"why": error.str()})

    def _go_where_wanted(self, consumer: Consumer) -> None:
        """Commit what is whole, and lead the reader over ranges that are whole already."""
        offsets = []
        for number, work in self._works.items():
            if work.seek_to is not None:
                consumer.seek(TopicPartition(self._topic, number, work.seek_to))
                work.seek_to = None
            if work.committable != self._committed.get(number):
                self._committed[number] = work.committable
                offsets.append(TopicPartition(self._topic, number, work.committable))
        if offsets:
            with contextlib.suppress(KafkaException):  # for those who watch lag; the next commit says more
                consumer.commit(offsets=offsets, asynchronous=True)

    def _done(self, began_s: float) -> bool:
        if not self._once or self._assigned_s is None:
            return False
        if not self._works:
            return time.monotonic() - max(began_s, self._assigned_s) > IDLE_ONCE_S
        return all(number in self._ended or work.position >= self._ends[number] for number, work in self._works.items())

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._assigned_s = time.monotonic()
        wanted = []
        try:
            for one in partitions:
                work = self._work_on(consumer, one.partition)
                wanted.append(TopicPartition(self._topic, one.partition, work.begin()))
                self._works[one.partition] = work
                self._ends[one.partition] = work.marks()[1]
                self._ended.discard(one.partition)
        except (StreamError, Abandoned, KafkaException) as failure:  # raised once the callback is over
            self._failure = failure
            return
        consumer.incremental_assign(wanted)
        log.info("sink.assigned", extra={"offsets": {one.partition: one.offset for one in wanted}})

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            work = self._works.pop(one.partition, None)
            self._committed.pop(one.partition, None)
            if work is not None:
                work.close()
        with contextlib.suppress(KafkaException):
            consumer.incremental_unassign(partitions)
        log.info("sink.revoked", extra={"partitions": [one.partition for one in partitions]})

    def _work_on(self, consumer: Consumer, number: int) -> PartitionWork:
        if self._identity is None:
            message = "partitions come after the archive is open"
            raise RuntimeError(message)

        def marks() -> tuple[int, int]:
            with kafka_errors(f"asking the brokers where {self._topic} partition {number} begins and ends"):
                found: tuple[int, int] = consumer.get_watermark_offsets(
                    TopicPartition(self._topic, number), timeout=ANSWER_MAX_S, cached=False
                )
            return found

        return PartitionWork(
            target=self.target,
            identity=self._identity,
            partition=number,
            framing=self._framing,
            marks=marks,
            wait_out=self._outages.wait_out,
            tail_s=self._own.sink_tail_s,
            accept_loss=self._accept_loss,
            totals=self.totals,
        )

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._failure = KafkaUnavailable(f"the Kafka client cannot go on: {error.str()}")
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - librdkafka's name
            self._outages.brokers_gone()

    def _not_ready(self) -> Sequence[str]:
        why = []
        if self._assigned_s is None:
            why.append("the group has given it no partitions yet")
        if self._outages.away_s():
            why.append(f"Kafka or the archive has been away for {self._outages.away_s():.0f} s")
        return why

    def _positions(self) -> dict[int, int]:
        return {number: work.position for number, work in sorted(self._works.items())}

    def _close(self, consumer: Consumer) -> None:
        for work in self._works.values():
            work.close()
        with contextlib.suppress(KafkaException, RuntimeError):
            consumer.close()
