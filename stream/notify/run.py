"""Composes the notifier from its settings, and runs it until it is told to stop or cannot go on."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Final

from stream.errors import ConfigurationError, DependencyError, KafkaUnavailable
from stream.notify.consumer import NotifierConsumer, PartitionLost
from stream.notify.contacts.contact import Contacts
from stream.notify.contacts.contact_lookup import contacts_of
from stream.notify.deadlines import Deadlines
from stream.notify.delivery_steps import DeliverySteps
from stream.notify.letters.letter_writer import LetterWriter
from stream.notify.letters.template_trial import check_by_trial
from stream.notify.letters.templates import Templates, read_templates
from stream.notify.metrics import METERS
from stream.notify.notices.notice_index import NoticeIndex
from stream.notify.notices.notice_reader import NoticeReader, cluster_topic
from stream.notify.notices.record import Channel
from stream.notify.notifier import Notifier
from stream.notify.settings import NotifySettings, check_runnable
from stream.notify.transports.mail import Mail
from stream.notify.transports.outbox import Files, Outbox
from stream.notify.transports.transport import Transport
from stream.notify.transports.webhook import Webhook
from stream.notify.warnings import warn_of_missing, warn_of_missing_addresses
from stream.runtime.connections import framing_of, kafka_properties, once_registry_answers
from stream.runtime.counters import Counters
from stream.runtime.health import Vitals, served
from stream.runtime.kafka.dead_letters import SOFTWARE_VERSION
from stream.runtime.kafka.delivery import KafkaDelivery
from stream.runtime.kafka.lag import LagWatch
from stream.runtime.kafka.start_offsets import ensure_start_offsets
from stream.runtime.kafka.topics import TopicKeeper
from stream.runtime.retry import Abandoned, Retry
from stream.runtime.settings import Settings

log = logging.getLogger(__name__)

WAIT_MIN_S: Final = 1.0
POLL_S: Final = 0.2
STALLED_AFTER_S: Final = 600.0  # one letter's steps, each of which may time out


def run_notifier(settings: NotifySettings, service: Settings) -> None:
    """Run one notifier until SIGTERM or SIGINT.

    Raises: ConfigurationError, DependencyError when something cannot be reached (at the start, or for longer than the
    outage bound). Nothing unfinished is committed.
    """
    with ExitStack() as cleanup:
        NotifierProcess(settings, service, cleanup).run()


def loaded_templates(settings: NotifySettings) -> Templates:
    """Read, judge and try all templates. Raises: ConfigurationError."""
    templates = read_templates(settings.notify_templates, settings.notify_locale)
    check_by_trial(templates)
    return templates


class NotifierProcess:
    """The parts of one notifier, and how they start and end together."""

    def __init__(self, settings: NotifySettings, service: Settings, cleanup: ExitStack) -> None:
        """Make whatever needs no Kafka. Raises: ConfigurationError, DiskUnavailable."""
        check_runnable(settings, service)
        self._settings = settings
        self._service = service
        self._cleanup = cleanup
        self._properties = kafka_properties(service)
        self._templates = loaded_templates(settings)
        self._deadlines = Deadlines()
        self._contacts: Contacts = contacts_of(settings, self._deadlines)
        cleanup.callback(self._contacts.close)
        self._transports = transports_of(settings, self._deadlines)
        for transport in self._transports.values():
            cleanup.callback(transport.close)
        self._counters = Counters(METERS, part="notify")
        self._vitals = Vitals()
        self._stop = False
        self._caught_up = False
        self._waiting_out = ""

    def run(self) -> None:
        """See `run_notifier`."""
        service, settings = self._service, self._settings
        wait_s = max(service.start_wait_s, WAIT_MIN_S)
        partitions = self._partitions(wait_s)
        identity = cluster_topic(self._properties, service.topic_notices, wait_s)
        index = NoticeIndex(settings.notify_state, topic=identity)
        self._cleanup.callback(index.close)
        ensure_start_offsets(
            self._properties,
            group=settings.notify_group,
            topic=service.topic_recommendations,
            partitions=partitions,
            start_at=service.start_at,
            timeout_s=wait_s,
        )
        framing = framing_of(service)
        once_registry_answers(
            lambda: framing.prepare(
                writes={service.topic_notices: "Notice", service.topic_dlq: "DeadLetter"},
                reads=(service.topic_recommendations, service.topic_notices),
            ),
            service,
        )
        reader = NoticeReader(self._properties, topic=service.topic_notices, framing=framing, index=index)
        consumer = NotifierConsumer(
            self._properties,
            group=settings.notify_group,
            topic=service.topic_recommendations,
            session_timeout_s=service.session_timeout_s,
            dropped=lambda gone: notifier.drop(gone),  # noqa: PLW0108 - the notifier needs the consumer, and comes after it
        )
        letter_writer = LetterWriter(settings, contacts=self._contacts, templates=self._templates)
        delivery_steps = DeliverySteps(
            service,
            letter_writer=letter_writer,
            transports=self._transports,
            index=index,
            delivery=KafkaDelivery(self._properties, delivery_timeout_s=service.delivery_timeout_s),
            framing=framing,
            prove=consumer.prove,
            now_ms=_now_ms,
        )
        notifier = Notifier(
            settings,
            delivery_steps=delivery_steps,
            index=index,
            framing=framing,
            counters=self._counters,
            settled=consumer.settled,
            retry=lambda partition: self._retry(consumer, partition),
        )
        self._serve(consumer, reader, notifier, index)

    def _serve(self, consumer: NotifierConsumer, reader: NoticeReader, notifier: Notifier, index: NoticeIndex) -> None:
        log.info("notify.starting", extra={"software_version": SOFTWARE_VERSION, "locales": self._templates.locales})
        warn_of_missing(self._settings)
        health = served(
            self._settings.notify_metrics_port,
            counters=self._counters,
            vitals=self._vitals,
            not_ready=lambda: self._not_ready(consumer),
            setting="COACH_NOTIFY_METRICS_PORT",
        )
        group, topic = self._settings.notify_group, self._service.topic_recommendations
        with self._signals(), health, LagWatch(kafka_properties(self._service), group=group, topic=topic) as lag:
            self._counters.follow("consumer_lag_records", lag.by_partition)
            try:
                self._loop(consumer, reader, notifier, index)
            finally:
                consumer.close()
                warn_of_missing_addresses(self._settings.notify_outbox)
                log.info("notify.stopped", extra=self._counters.read())

    def _loop(self, consumer: NotifierConsumer, reader: NoticeReader, notifier: Notifier, index: NoticeIndex) -> None:
        committed_s = told_s = time.monotonic()
        while not self._stop:
            self._vitals.expect("the notifier's loop", within_s=STALLED_AFTER_S)
            try:
                wait_s = min(POLL_S, notifier.take_due(lambda: self._stop))
                if self._deadlines.is_stopping:
                    break
                if notifier.full:
                    consumer.keep_alive(wait_s)
                else:
                    self._one(consumer, reader, notifier, index, wait_s)
            except Abandoned:  # a stop, or the partition went away: it is read again by who has it
                log.info("notice.abandoned")
            now_s = time.monotonic()
            if now_s - committed_s >= self._service.commit_interval_s:
                committed_s = now_s
                self._commit(consumer)
            if self._service.log_totals_every_s and now_s - told_s >= self._service.log_totals_every_s:
                told_s = now_s
                log.info("notify.totals", extra=self._counters.read())
                warn_of_missing_addresses(self._settings.notify_outbox)
        self._commit(consumer)

    def _one(
        self, consumer: NotifierConsumer, reader: NoticeReader, notifier: Notifier, index: NoticeIndex, wait_s: float
    ) -> None:
        """Take one record, after the index knows all that was sent before its partition came to us."""
        record = consumer.next(wait_s)
        while consumer.newly_assigned:
            consumer.newly_assigned = False
            self._caught_up = False
            self._catch_up(consumer, reader)
            self._counters.set("notices_known", index.count)
            self._caught_up = True
            log.info("notify.caught_up", extra={"partitions": sorted(consumer.owned), "known": index.count})
        if record is not None and consumer.is_ours(record):
            notifier.take(record)

    def _catch_up(self, consumer: NotifierConsumer, reader: NoticeReader) -> None:
        count = self._retry(consumer, None).outlast(lambda: reader.catch_up(lambda: self._alive(consumer)))
        log.info("notify.notices_read", extra={"count": count})

    def _alive(self, consumer: NotifierConsumer) -> None:
        """Between the pieces of a long consumer: stay in the group, and notice a stop. Raises: Abandoned."""
        self._vitals.expect("the notifier's loop", within_s=STALLED_AFTER_S)
        consumer.keep_alive(0)
        if self._stop:
            raise Abandoned

    def _commit(self, consumer: NotifierConsumer) -> None:
        try:
            consumer.commit()
        except PartitionLost:  # the next poll brings the news
            pass
        except KafkaUnavailable as away:  # tried again in a moment; sending needs proof, and so waits
            log.warning("notify.not_committed", extra={"why": str(away)})

    def _retry(self, consumer: NotifierConsumer, partition: int | None) -> Retry:
        """The waiting for one record: it goes on polling, and ends when the partition is no longer ours."""

        def told(error: DependencyError, waited_s: float) -> None:
            self._counters.add("notify_outage_pauses_total")
            self._waiting_out = str(error)
            log.warning("notify.outage", extra={"why": str(error), "kind": type(error).__name__, "waited_s": waited_s})

        def sleep(seconds: float) -> None:
            self._vitals.expect("the notifier's loop", within_s=STALLED_AFTER_S)
            began_s = time.monotonic()
            consumer.keep_alive(seconds)
            time.sleep(max(0.0, seconds - (time.monotonic() - began_s)))

        self._waiting_out = ""
        return Retry(
            total_s=self._service.outage_max_s,
            pause_max_s=self._service.retry_delay_max_s,
            abandoned=lambda: self._deadlines.is_over or (partition is not None and partition not in consumer.owned),
            told=told,
            sleep=sleep,
        )

    def _not_ready(self, consumer: NotifierConsumer) -> list[str]:
        why = [] if consumer.owned else ["no partition is assigned"]
        if not self._caught_up:
            why.append("what was sent is still being read")
        return [*why, *([self._waiting_out] if self._waiting_out else [])]

    def _partitions(self, wait_s: float) -> int:
        topic = self._service.topic_recommendations
        found = TopicKeeper(self._properties, timeout_s=wait_s).partitions().get(topic)
        if found is None:
            message = f"there is no topic {topic}; create it with `coach topics apply`"
            raise ConfigurationError(message)
        return found

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop in good order at SIGTERM and SIGINT."""

        def stop(number: int, _frame: FrameType | None) -> None:
            log.info("notify.stopping", extra={"signal": number})
            self._stop = True
            self._deadlines.stop_in(self._service.drain_s)  # what went out is recorded before a stop

        before = {one: signal.signal(one, stop) for one in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def transports_of(settings: NotifySettings, deadlines: Deadlines | None = None) -> dict[Channel, Transport]:
    """Make the ways that are on; print always is. Raises: ConfigurationError, DiskUnavailable."""
    made: Mapping[Channel, Callable[[], Transport]] = {
        "email": lambda: Mail(settings, deadlines),
        "webhook": lambda: Webhook(settings, deadlines),
        "files": lambda: Files(settings.notify_files),
    }
    ways: dict[Channel, Transport] = {"print": Outbox(settings.notify_outbox)}
    return ways | {channel: made[channel]() for channel in settings.channels}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
