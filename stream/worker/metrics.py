"""The worker's metrics: their meanings, and the sources of the gauges read on demand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stream.errors import poison_kinds
from stream.models.model_reader import ModelReader
from stream.models.model_table import ModelTable
from stream.models.open_bundles import ORIGINS, OpenBundles
from stream.recourse.record.decision_record import ENGINE_VERSION
from stream.runtime.counters import DURATIONS_S, Counters, Labels, counter, gauge, histogram
from stream.runtime.kafka.lag import GROUP_METERS
from stream.runtime.kafka.offset_gaps import OFFSET_GAPS
from stream.worker.answering import APPROVED, DECLINED, UNREAD
from stream.worker.broker_watch import BrokerWatch
from stream.worker.decision_log import DEAD_LETTER, NOT_NEEDED
from stream.worker.pipeline import OUTAGES, Pipeline
from stream.worker.stage_timer import STAGES

ANSWERED: Final = ("ok", "no_feasible_recourse", "not_model_decline")
BATCH_BUCKETS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
DEPENDENCIES: Final = (*OUTAGES.values(), "other")
MODEL: Final = ("model_id", "model_version", "revision")


METERS: Final = (
    counter("decisions_read_total", "Decisions read from Kafka, those read again included."),
    counter(
        "decisions_total",
        "Decisions at their end, by their outcome and what became of them.",
        "outcome",
        "status",
        known=[
            (APPROVED, NOT_NEEDED),
            *((DECLINED, status) for status in ANSWERED),
            *((outcome, DEAD_LETTER) for outcome in (APPROVED, DECLINED, UNREAD)),
        ],
    ),
    counter("model_decisions_total", "Declined decisions answered, by the model that answered.", *MODEL, in_log=False),
    counter(
        "dead_letters_total",
        "Dead letters written, by the stage where it failed and the reason.",
        "stage",
        "reason",
        known=sorted((one.stage, one.__name__) for one in poison_kinds()),
    ),
    counter("conflicts_unchecked_total", "Decisions answered although Redis refused to say what their ids stood for."),
    counter("decisions_parked_total", "Times that a decision began to wait for its model."),
    counter("decisions_released_total", "Decisions released in a rebalance or stop, to be read again."),
    counter("decisions_acked_total", "Decisions marked as safe to commit."),
    counter("batches_total", "Batches worked through."),
    counter("outage_pauses_total", "Pauses while Kafka, Redis or the disk was away."),
    histogram("batch_decisions", "Decisions in a batch.", BATCH_BUCKETS),
    histogram(
        "decision_stage_duration_seconds",
        "Time of a decision in each stage; what a whole batch waits for counts for each of its decisions.",
        DURATIONS_S,
        "stage",
        known=[(stage,) for stage in STAGES],
    ),
    histogram(
        "decision_duration_seconds",
        "From the timestamp of a declined decision's record to its recommendation acknowledged by the brokers.",
        DURATIONS_S,
    ),
    *GROUP_METERS,
    *OFFSET_GAPS,
    gauge("parked_decisions", "Decisions that wait for their model now."),
    gauge("uncommitted_decisions", "Decisions read and not marked as safe to commit."),
    gauge("outage", "1 while this dependency is away and waited for.", "dependency"),
    gauge("model_info", "1 for each publication that the worker knows.", *MODEL),
    gauge("models_epoch", "The offset on the topic of models that the worker has read; -1: none."),
    counter(
        "models_topic_remade_total", "Times that the topic of models was made anew, and all publications forgotten."
    ),
    counter("publications_refused_total", "Records of the topic of models that are no publication."),
    counter("bundle_lookups_total", "Times that a bundle was asked for, by where it was found.", "origin"),
    counter("bundle_evictions_total", "Open bundles closed to make room for another."),
    gauge("bundles_open", "Bundles open in this process."),
    counter("leaf_cache_lookups_total", "Bundles looked for in Redis, by what it had.", "result"),
    counter("leaf_cache_rebuilds_total", "Bundles that Redis was refilled with from their URI, by result.", "result"),
)


def worker_counters() -> Counters:
    """A worker's numbers, all at 0."""
    return Counters(METERS, part="worker", engine_version=ENGINE_VERSION)


def follow_models(counters: Counters, table: ModelTable, reader: ModelReader, bundles: OpenBundles) -> None:
    """Ask for what is known of models and bundles at each scrape."""

    def known() -> Mapping[Labels, float]:
        rows = [one.published for one in reversed(table.publications())]  # the latest, should they be too many
        return {(one["model_id"], one["model_version"], str(one["revision"])): 1 for one in rows}

    counters.follow("model_info", known)
    counters.follow("models_epoch", lambda: table.epoch)
    counters.follow("publications_refused_total", lambda: reader.refused)
    counters.follow("models_topic_remade_total", lambda: reader.remade)
    counters.follow("bundle_lookups_total", lambda: {(origin,): bundles.loaded[origin] for origin in ORIGINS})
    counters.follow("bundle_evictions_total", lambda: bundles.evicted)
    counters.follow("bundles_open", lambda: len(bundles.opened()))
    counters.follow("leaf_cache_lookups_total", lambda: {(result,): n for result, n in bundles.cache_lookups.items()})
    counters.follow("leaf_cache_rebuilds_total", lambda: {(result,): n for result, n in bundles.cache_rebuilds.items()})


def follow_pipeline(counters: Counters, pipeline: Pipeline, watch: BrokerWatch) -> None:
    """Ask for what the pipeline holds, and what it waits for, at each scrape."""

    def outage() -> Mapping[Labels, float]:
        away = {pipeline.waiting_for, "kafka" if watch.away else None}
        return {(one,): float(one in away) for one in DEPENDENCIES}

    counters.follow("parked_decisions", lambda: pipeline.parked)
    counters.follow("uncommitted_decisions", lambda: pipeline.uncommitted)
    counters.follow("outage", outage)
