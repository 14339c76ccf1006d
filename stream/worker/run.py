"""Composes the worker from its settings and runs it until a stop signal or a fatal error."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, cast

import faust
from aiokafka.errors import KafkaError
from faust.worker import Worker

from stream.errors import DEPENDENCY_UNREACHABLE, DependencyError, KafkaUnavailable, ModelNotPublished, exit_code
from stream.models.model_reader import ModelReader
from stream.models.model_table import ModelTable
from stream.models.open_bundles import OpenBundles, check_folder
from stream.runtime.clients import cluster_of
from stream.runtime.connections import connect_redis, framing_of, kafka_properties
from stream.runtime.health import Vitals, served
from stream.runtime.kafka.commit_order import CommitOrder
from stream.runtime.kafka.dead_letters import SOFTWARE_VERSION
from stream.runtime.kafka.delivery import KafkaDelivery
from stream.runtime.kafka.inbound import Inbound
from stream.runtime.kafka.lag import LagWatch
from stream.runtime.kafka.offset_gaps import Gap, tell_gap
from stream.runtime.kafka.start_offsets import ensure_start_offsets
from stream.runtime.kafka.topics import TopicKeeper
from stream.runtime.settings import Settings
from stream.worker.announcer import Announcer
from stream.worker.answering import Answerer
from stream.worker.app import ack, make_app, release
from stream.worker.broker_watch import BrokerWatch
from stream.worker.decision_digests import DecisionDigests
from stream.worker.decision_log import DecisionLog
from stream.worker.metrics import follow_models, follow_pipeline, worker_counters
from stream.worker.outputs import write_out
from stream.worker.pipeline import Pipeline
from stream.worker.startup import WAIT_MIN_S, check_kafka, check_redis, check_registry

log = logging.getLogger(__name__)

LOOP: Final = "the event loop"  # what /health hears of
BEAT_EVERY_S: Final = 1.0
LOOP_STALLED_AFTER_S: Final = 60.0
STALLED_AFTER_S: Final = 60.0  # past COACH_MODEL_WAIT_S, for which one decision may hold up its partition's commits
WATCH_TIMEOUT_S: Final = 3.0  # for a broker to give a sign of life
LOAD_WAIT_S: Final = 0.25  # for a bundle to be opened; decisions that need longer wait aside
WARM_UP_S: Final = 10.0  # for a bundle to be opened at the start, compiling what answers need
LOOKUP_WAIT_S: Final = 0.2  # for the registry to tell of a schema; a decision that needs longer waits aside
STOP_GRACE_S: Final = 20.0  # past drain_s: what a stop may take before the process ends without further ado


def run_worker(settings: Settings) -> None:
    """Run one worker until SIGTERM or SIGINT.

    Raises: ConfigurationError, DependencyError when something cannot be reached (at the start, or for longer than the
    outage bound), CorruptionError. In all of them nothing unfinished is committed.
    """
    WorkerProcess(settings).run()


class WorkerProcess:
    """The parts of one worker, and how they start and end together."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._properties = kafka_properties(settings)
        self._client = connect_redis(settings)
        self._framing = framing_of(settings, lookup_wait_s=LOOKUP_WAIT_S)
        self._counters = worker_counters()
        self._vitals = Vitals()
        self._table = ModelTable()
        self._failure: BaseException | None = None
        self._assigned = False
        self._partitions: list[int] = []
        self._stalled_s: Callable[[], Mapping[int, float] | None] = lambda: None
        self._pipeline: Pipeline | None = None
        self._watch = BrokerWatch(TopicKeeper(self._properties, timeout_s=WATCH_TIMEOUT_S).partitions)

    def run(self) -> None:
        """See `run_worker`."""
        port, address = self._settings.metrics_port, self._settings.metrics_address
        with served(port, address=address, counters=self._counters, vitals=self._vitals, not_ready=self._not_ready):
            self._start_and_serve()

    def _start_and_serve(self) -> None:
        settings = self._settings
        check_folder(settings.bundle_dir)
        wait_s = max(settings.start_wait_s, WAIT_MIN_S)
        partitions = check_kafka(settings, TopicKeeper(self._properties, timeout_s=wait_s))
        check_redis(self._client, settings)
        check_registry(self._framing, settings)
        reader = ModelReader(self._properties, topic=settings.topic_models, table=self._table, framing=self._framing)
        try:
            count = reader.read_to_end(wait_s)
            log.info("models.read", extra={"count": count})
            ensure_start_offsets(
                self._properties,
                group=settings.group,
                topic=settings.topic_decisions,
                partitions=partitions,
                start_at=settings.start_at,
                timeout_s=wait_s,
            )
            open_bundles = OpenBundles(
                settings.bundle_dir,
                self._client,
                models_max=settings.models_max,
                sources=settings.bundle_sources.split(",") if settings.bundle_sources else (),
                bytes_max=settings.bundle_bytes_max,
                load_wait_s=LOAD_WAIT_S,
                chunk_bytes=settings.redis_chunk_bytes,
            )
            follow_models(self._counters, self._table, reader, open_bundles)
            self._warm_up(open_bundles)
            reader.follow()
            self._serve(open_bundles)
        finally:
            reader.stop()
        if self._failure is not None:
            raise self._failure

    def _warm_up(self, open_bundles: OpenBundles) -> None:
        """Open what was published last, so that the first decision need not wait for it."""
        for publication in self._table.publications()[-self._settings.models_max :]:
            try:
                open_bundles.model(publication.published, wait_s=WARM_UP_S)
            except (DependencyError, ModelNotPublished) as away:  # a decision that names it will wait for it
                log.warning("start.bundle_away", extra={"why": str(away)})

    def _serve(self, open_bundles: OpenBundles) -> None:
        settings = self._settings
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)

        async def take(record: Inbound) -> None:  # the pipeline needs the application, and the application this
            await pipeline.take(record)

        digests = DecisionDigests(
            self._client,
            cluster=cluster_of(self._properties, max(settings.start_wait_s, WAIT_MIN_S)),
            topic=settings.topic_decisions,
            group=settings.group,
            ttl_s=settings.conflict_window_s,
        )
        self._counters.follow("conflicts_unchecked_total", lambda: digests.unchecked)

        def on_gap(gap: Gap) -> None:
            tell_gap(gap, self._counters)
            if gap.is_remade:
                order.release_partition(gap.topic, gap.partition)

        app = make_app(settings, take, on_gap=on_gap)
        order = CommitOrder(ack=partial(ack, app), release=partial(release, app))
        pipeline = self._pipeline = Pipeline(
            outcomes_of=Answerer(
                table=self._table,
                open_model=open_bundles.model,
                remember=digests.remember,
                framing=self._framing,
                settings=settings,
            ).outcomes,
            write_out=partial(
                write_out,
                KafkaDelivery(self._properties, delivery_timeout_s=settings.delivery_timeout_s),
                self._framing,
                settings,
            ),
            order=order,
            settings=settings,
            decision_log=DecisionLog(self._counters, self._vitals),
            generation=lambda: int(app.consumer_generation_id),
            suspended=lambda: not app.flow_control.is_active(),
            models_changes=lambda: self._table.changes + open_bundles.loads_done,
        )
        announcer = Announcer(
            self._client,
            settings.group,
            epoch=lambda: self._table.epoch,
            opened=open_bundles.opened,
            partitions=lambda: self._partitions,
        )
        self._watch.start()
        announcer.start()
        try:
            with LagWatch(self._properties, group=settings.group, topic=settings.topic_decisions) as lag:
                follow_pipeline(self._counters, pipeline, self._watch)
                lag.follow(self._counters)
                self._stalled_s = lag.stalled_s
                self._run_faust(app, loop, pipeline)
        finally:
            announcer.stop()
            self._watch.stop()

    def _run_faust(self, app: faust.App, loop: asyncio.AbstractEventLoop, pipeline: Pipeline) -> None:
        worker = StoppableWorker(
            app,
            loop=loop,
            quiet=True,
            override_logging=False,
            redirect_stdouts=False,
            grace_s=self._settings.drain_s + STOP_GRACE_S,
        )
        app.on_partitions_assigned.connect(cast("Any", self._on_assigned))

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled():
                self._failure = task.exception()
                log.critical(
                    "worker.cannot_go_on", extra={"why": str(self._failure), "kind": type(self._failure).__name__}
                )
                worker.stop_soon(exit_code(self._failure))

        working = loop.create_task(pipeline.run(), name="pipeline")
        working.add_done_callback(ended)
        totals_task = loop.create_task(self._log_totals(pipeline), name="totals")
        beating = loop.create_task(beat(self._vitals), name="beat")

        async def consumer_stopped(*_given: object, **_more: object) -> None:  # all is settled or let go, and committed
            working.cancel()
            totals_task.cancel()
            beating.cancel()

        app.on_before_shutdown.connect(cast("Any", consumer_stopped))
        try:
            loop.run_until_complete(worker.start())
        except asyncio.CancelledError:
            pass
        except (KafkaError, OSError) as error:
            self._failure = self._failure or KafkaUnavailable(f"Kafka failed: {type(error).__name__}: {error}")
        finally:
            try:
                worker.stop_and_shutdown()
            except (KafkaError, OSError) as error:
                self._failure = self._failure or KafkaUnavailable(f"Kafka failed: {type(error).__name__}: {error}")
            worker.unwatch()
            log.info("worker.stopped", extra=self._counters.read())

    def _not_ready(self) -> list[str]:
        """Why this worker would not answer a decision that comes now."""
        pipeline = self._pipeline
        if pipeline is None or not self._assigned:
            return ["it is starting: the brokers have not assigned partitions to it yet"]
        waiting = f"an outage is waited out: {pipeline.waiting_for} is away" if pipeline.waiting_for else ""
        brokers = "no Kafka broker answers" if self._watch.away else ""
        return [why for why in (waiting, brokers, *self._stalled()) if why]

    def _stalled(self) -> list[str]:
        """Say which partitions of this worker make no progress; of any worker, where this one has none."""
        after_s, topic, stalled_s = (
            self._settings.model_wait_s + STALLED_AFTER_S,
            self._settings.topic_decisions,
            self._stalled_s(),
        )
        if stalled_s is None:
            return []
        if not stalled_s or not set(self._partitions) <= stalled_s.keys():
            return [f"the brokers do not name each partition of topic {topic} that this worker has: was it deleted?"]
        return [
            f"partition {partition} of {topic} has decisions that wait, and none was committed for {waited_s:.0f} s"
            + ("" if self._partitions else "; the group has given this worker no partition")
            for partition, waited_s in sorted(stalled_s.items())
            if waited_s > after_s and (not self._partitions or partition in self._partitions)
        ]

    async def _on_assigned(self, _app: object, assigned: set[Any], **_more: object) -> None:
        self._assigned = True
        self._partitions = sorted(one.partition for one in assigned)
        log.info("worker.assigned", extra={"partitions": self._partitions, "software_version": SOFTWARE_VERSION})

    async def _log_totals(self, pipeline: Pipeline) -> None:
        every_s = self._settings.log_totals_every_s
        while every_s:
            await asyncio.sleep(every_s)
            log.info(
                "worker.totals",
                extra={**self._counters.read(), "parked": pipeline.parked, "uncommitted": pipeline.uncommitted},
            )


class StoppableWorker(Worker):
    """Faust's worker, with a bound on how long a stop may take."""

    def __init__(self, app: faust.App, *, grace_s: float, **options: Any) -> None:  # noqa: ANN401 - Faust's own options
        """`grace_s`: how long a stop may take, in seconds."""
        super().__init__(app, **options)
        self.spinner = None
        self._grace_s = grace_s
        self._watchdog: threading.Timer | None = None

    def watch(self, code: int) -> None:
        """From now on the process may live for `grace_s`; what it did not commit by then will be read again."""
        if self._watchdog is None:
            self._watchdog = threading.Timer(self._grace_s, _leave, (code,))
            self._watchdog.daemon = True
            self._watchdog.start()

    def unwatch(self) -> None:
        """Cancel the deadline: the stop is done."""
        if self._watchdog is not None:
            self._watchdog.cancel()

    def stop_soon(self, code: int) -> None:
        """Begin to stop, as a signal does; leave with `code` when that takes too long."""
        self.watch(code)
        super()._schedule_shutdown(signal.SIGTERM)

    def _schedule_shutdown(self, signal: Any) -> None:  # noqa: ANN401 - mode's signature
        if self._watchdog is None:
            log.info("worker.stopping", extra={"signal": int(signal)})
        self.watch(DEPENDENCY_UNREACHABLE)
        super()._schedule_shutdown(signal)


async def beat(vitals: Vitals) -> None:
    """Let `/health` hear of the event loop, until cancelled: how long a stop may take is the watchdog's business."""
    try:
        while True:
            vitals.expect(LOOP, LOOP_STALLED_AFTER_S)
            await asyncio.sleep(BEAT_EVERY_S)
    finally:
        vitals.rest(LOOP)


def _leave(code: int) -> None:
    log.critical("worker.stop_took_too_long", extra={"what_next": "leaving; what is not committed will be read again"})
    logging.shutdown()
    os._exit(code)
