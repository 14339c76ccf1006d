"""Composes the notifier from its settings and runs it until a stop or an outage that lasts too long."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Final

from stream.errors import ConfigurationError, DependencyError, KafkaUnavailable
from stream.notify.consumer import NotifierConsumer, PartitionLost
from stream.notify.contacts.contact_lookup import contacts_of
from stream.notify.deadlines import Deadlines
from stream.notify.delivery_steps import DeliverySteps
from stream.notify.letters.letter_writer import LetterWriter
from stream.notify.letters.template_trial import check_by_trial
from stream.notify.letters.templates import Templates, read_templates
from stream.notify.metrics import METERS
from stream.notify.notices.notice_index import NoticeIndex
from stream.notify.notices.notice_reader import NoticeReader, cluster_topic
from stream.notify.notifier import Notifier
from stream.notify.settings import NotifySettings, check_runnable
from stream.notify.transports.table import open_transports
from stream.notify.warnings import warn_of_missing, warn_of_missing_addresses
from stream.runtime.connections import framing_of, kafka_properties, once_answered
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
    """Run one notifier until SIGTERM or SIGINT. No unfinished letter is committed.

    Raises: ConfigurationError; DependencyError when Kafka or a receiver is unreachable at the start, or later for longer
    than COACH_OUTAGE_MAX_S.
    """
    with ExitStack() as cleanup:
        NotifierProcess(settings, service, cleanup).run()


def loaded_templates(settings: NotifySettings) -> Templates:
    """Read and check all templates. Raises: ConfigurationError."""
    templates = read_templates(settings.notify_templates, settings.notify_locale)
    check_by_trial(templates)
    return templates


class NotifierProcess:
    """The parts of one notifier; `cleanup` closes them in reverse order.

    Raises: ConfigurationError, DiskUnavailable.
    """

    def __init__(self, settings: NotifySettings, service: Settings, cleanup: ExitStack) -> None:
        check_runnable(settings, service)
        self._settings = settings
        self._service = service
        self._cleanup = cleanup
        self._properties = kafka_properties(service)
        self._templates = loaded_templates(settings)
        self._deadlines = Deadlines()
        self._contacts = contacts_of(settings, self._deadlines)
        cleanup.callback(self._contacts.close)
        self._transports = open_transports(settings, self._deadlines)
        for transport in self._transports.values():
            cleanup.callback(transport.close)
        self._counters = Counters(METERS, part="notify")
        self._vitals = Vitals()
        self._stop = False
        self._caught_up = False
        self._outage = ""

    def run(self) -> None:
        """See `run_notifier`."""
        service, settings = self._service, self._settings
        wait_s = max(service.start_wait_s, WAIT_MIN_S)
        partitions = TopicKeeper(self._properties, timeout_s=wait_s).partitions().get(service.topic_recommendations)
        if partitions is None:
            message = f"there is no topic {service.topic_recommendations}; create it with `coach topics apply`"
            raise ConfigurationError(message)
        self._index = NoticeIndex(
            settings.notify_state, topic=cluster_topic(self._properties, service.topic_notices, wait_s)
        )
        self._cleanup.callback(self._index.close)
        ensure_start_offsets(
            self._properties,
            group=settings.notify_group,
            topic=service.topic_recommendations,
            partitions=partitions,
            start_at=service.start_at,
            timeout_s=wait_s,
        )
        framing = framing_of(service)
        once_answered(
            lambda: framing.prepare(
                writes={service.topic_notices: "Notice", service.topic_dlq: "DeadLetter"},
                reads=(service.topic_recommendations, service.topic_notices),
            ),
            service,
        )
        self._reader = NoticeReader(self._properties, topic=service.topic_notices, framing=framing, index=self._index)
        self._consumer = NotifierConsumer(
            self._properties,
            group=settings.notify_group,
            topic=service.topic_recommendations,
            session_timeout_s=service.session_timeout_s,
            on_lost=lambda lost: self._notifier.drop(lost),  # noqa: PLW0108 - the notifier is made after its consumer
        )
        delivery_steps = DeliverySteps(
            service,
            letter_writer=LetterWriter(settings, contacts=self._contacts, templates=self._templates),
            transports=self._transports,
            index=self._index,
            delivery=KafkaDelivery(self._properties, delivery_timeout_s=service.delivery_timeout_s),
            framing=framing,
            prove=self._consumer.prove,
        )
        self._notifier = Notifier(
            settings,
            delivery_steps=delivery_steps,
            index=self._index,
            framing=framing,
            counters=self._counters,
            settled=self._consumer.settled,
            retry=self._retry,
        )
        self._serve()

    def _serve(self) -> None:
        log.info("notify.starting", extra={"software_version": SOFTWARE_VERSION, "locales": self._templates.locales})
        warn_of_missing(self._settings)
        health = served(
            self._settings.notify_metrics_port,
            address=self._service.metrics_address,
            counters=self._counters,
            vitals=self._vitals,
            not_ready=self._not_ready,
            setting="COACH_NOTIFY_METRICS_PORT",
        )
        group, topic = self._settings.notify_group, self._service.topic_recommendations
        with self._signals(), health, LagWatch(kafka_properties(self._service), group=group, topic=topic) as lag:
            lag.follow(self._counters)
            try:
                self._loop()
            finally:
                self._consumer.close()
                warn_of_missing_addresses(self._settings.notify_outbox)
                log.info("notify.stopped", extra=self._counters.read())

    def _loop(self) -> None:
        committed_s = logged_s = time.monotonic()
        while not self._stop:
            self._expect_progress()
            try:
                wait_s = min(POLL_S, self._notifier.take_due(lambda: self._stop))
                if self._deadlines.is_stopping:
                    break
                if self._notifier.full:
                    self._consumer.keep_alive(wait_s)
                else:
                    self._take_one(wait_s)
            except Abandoned:  # a stop, or the partition was reassigned: its next owner reads the record again
                log.info("notice.abandoned")
            now_s = time.monotonic()
            if now_s - committed_s >= self._service.commit_interval_s:
                committed_s = now_s
                self._commit()
            if self._service.log_totals_every_s and now_s - logged_s >= self._service.log_totals_every_s:
                logged_s = now_s
                log.info("notify.totals", extra=self._counters.read())
                warn_of_missing_addresses(self._settings.notify_outbox)
        self._commit()

    def _take_one(self, wait_s: float) -> None:
        """Take one record. After an assignment the index is first brought up to the end of the notices topic."""
        record = self._consumer.next(wait_s)
        while self._consumer.newly_assigned:
            self._consumer.newly_assigned = False
            self._caught_up = False
            count = self._retry(None).outlast(lambda: self._reader.catch_up(self._stay_in_group))
            log.info("notify.notices_read", extra={"count": count})
            self._counters.set("notices_known", self._index.count)
            self._caught_up = True
            log.info("notify.caught_up", extra={"partitions": sorted(self._consumer.owned), "known": self._index.count})
        if record is not None and self._consumer.is_open(record):
            self._notifier.take(record)

    def _stay_in_group(self) -> None:
        """Poll between the batches of a long read. Raises: Abandoned at a stop."""
        self._expect_progress()
        self._consumer.keep_alive(0)
        if self._stop:
            raise Abandoned

    def _expect_progress(self) -> None:
        self._vitals.expect("the notifier's loop", within_s=STALLED_AFTER_S)

    def _commit(self) -> None:
        try:
            self._consumer.commit()
        except PartitionLost:  # the next poll runs the rebalance callbacks
            pass
        except KafkaUnavailable as away:  # the next commit may succeed; until then `prove` blocks sending
            log.warning("notify.not_committed", extra={"why": str(away)})

    def _retry(self, partition: int | None) -> Retry:
        """The retry of one record: it keeps polling, and ends when the partition is lost."""

        def on_wait(error: DependencyError, waited_s: float) -> None:
            self._counters.add("notify_outage_pauses_total")
            self._outage = str(error)
            log.warning("notify.outage", extra={"why": str(error), "kind": type(error).__name__, "waited_s": waited_s})

        def sleep(seconds: float) -> None:
            self._expect_progress()
            began_s = time.monotonic()
            self._consumer.keep_alive(seconds)
            time.sleep(max(0.0, seconds - (time.monotonic() - began_s)))

        self._outage = ""
        return Retry(
            total_s=self._service.outage_max_s,
            pause_max_s=self._service.retry_delay_max_s,
            abandoned=lambda: (
                self._deadlines.is_over or (partition is not None and partition not in self._consumer.owned)
            ),
            on_wait=on_wait,
            sleep=sleep,
        )

    def _not_ready(self) -> list[str]:
        why = [] if self._consumer.owned else ["no partition is assigned"]
        if not self._caught_up:
            why.append("what was sent is still being read")
        return [*why, *([self._outage] if self._outage else [])]

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def stop(number: int, _frame: FrameType | None) -> None:
            log.info("notify.stopping", extra={"signal": number})
            self._stop = True
            self._deadlines.stop_in(self._service.drain_s)  # time to record the letter that was just sent

        before = {one: signal.signal(one, stop) for one in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)
