"""Writes deploy/grafana/dashboards/coach-stream.json: what an operator looks at, from the top down at three in the morning.

    .venv/bin/python deploy/grafana/build_dashboard.py

The panels are the table below; a test holds the committed file against it and runs every query on a real Prometheus.
"""  # noqa: INP001 - a script, not a package

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    DataTransformerConfig,
    Threshold,
    ThresholdsMode,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

TARGET: Final = Path(__file__).parent / "dashboards" / "coach-stream.json"
SOURCE: Final = DataSourceRef(type_val="prometheus", uid="prometheus")
WORKER: Final = 'job="coach-worker"'
RATE: Final = "[$__rate_interval]"
STAGES: Final = "coach_decision_stage_duration_seconds"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel. `queries`: expression and legend. `bad_from`: the number from which a stat is red; `bad_below`: under it."""

    title: str
    queries: Sequence[tuple[str, str]]
    about: str = ""
    kind: Literal["stat", "lines", "stacked", "table"] = "lines"
    unit: str = "short"
    width: int = 8
    bad_from: float | None = None
    bad_below: float | None = None


def quantiles(metric: str, by: str = "le", shares: Sequence[float] = (0.5, 0.95, 0.99)) -> list[tuple[str, str]]:
    """The usual shares of a histogram."""
    return [
        (f"histogram_quantile({share:g}, sum by ({by}) (rate({metric}_bucket{RATE})))", f"p{100 * share:g}")
        for share in shares
    ]


ROWS: Final[Sequence[tuple[str, Sequence[Panel]]]] = (
    (
        "Is anything wrong?",
        (
            Panel(
                title="Alerts that fire",
                queries=[('count(ALERTS{alertstate="firing", alertname=~"Coach.*"}) or vector(0)', "alerts")],
                about="Prometheus' page of alerts names them; each has a section in docs/operate.md.",
                kind="stat",
                width=4,
                bad_from=1,
            ),
            Panel(
                title="Ready",
                queries=[("sum by (job) (coach_ready)", "{{job}}")],
                about="How many processes of each part would work on what arrives now.",
                kind="stat",
                width=6,
                bad_below=1,
            ),
            Panel(
                title="Decisions that wait",
                queries=[(f"sum(coach:consumer_lag_records:sum{{{WORKER}}})", "lag")],
                about="Records of `decisions` that the workers' group has not committed.",
                kind="stat",
                width=4,
                bad_from=1_000,
            ),
            Panel(
                title="Away",
                queries=[("max by (dependency) (coach_outage)", "{{dependency}}")],
                about="1 while the workers wait for it.",
                kind="stat",
                width=6,
                bad_from=1,
            ),
            Panel(
                title="Dead letters, last hour",
                queries=[(f"sum(increase(coach_dead_letters_total{{{WORKER}}}[1h]))", "dead letters")],
                kind="stat",
                width=4,
                bad_from=1,
            ),
            Panel(
                title="Waiting for a model",
                queries=[("sum(coach_parked_decisions)", "decisions")],
                about="Decisions whose model nobody published, or whose bundle is lost.",
                kind="stat",
                width=4,
                bad_from=1,
            ),
            Panel(
                title="Archive behind",
                queries=[("sum(coach_sink_lag)", "records")],
                about="Audit records that the sink has not read yet.",
                kind="stat",
                width=4,
                bad_from=10_000,
            ),
            Panel(
                title="Letters overdue",
                queries=[("sum(coach_notices_overdue)", "letters")],
                kind="stat",
                width=4,
                bad_from=1,
            ),
            Panel(
                title="Wedged loops",
                queries=[("sum(coach_stalled_loops)", "loops")],
                about="/health of that process fails and says which.",
                kind="stat",
                width=4,
                bad_from=1,
            ),
            Panel(
                title="Starts, last hour",
                queries=[('sum by (job) (changes(process_start_time_seconds{job=~"coach-.*"}[1h]))', "{{job}}")],
                kind="stat",
                width=8,
                bad_from=3,
            ),
        ),
    ),
    (
        "Throughput and outcomes",
        (
            Panel(
                title="Decisions a second, by outcome and status",
                queries=[(f"sum by (outcome, status) (rate(coach_decisions_total{RATE}))", "{{outcome}}: {{status}}")],
                kind="stacked",
                unit="ops",
                width=12,
            ),
            Panel(
                title="Lag by partition",
                queries=[(f"max by (partition) (coach_consumer_lag_records{{{WORKER}}})", "partition {{partition}}")],
                about="One partition far above the others: one slow worker, or a decision that waits for its model.",
                width=12,
            ),
            Panel(
                title="Dead letters a minute, by stage and reason",
                queries=[
                    (
                        f"60 * sum by (stage, reason) (rate(coach_dead_letters_total{{{WORKER}}}{RATE})) > 0",
                        "{{stage}}: {{reason}}",
                    )
                ],
                kind="stacked",
            ),
            Panel(
                title="Decisions read, safe to commit and released, a second",
                queries=[
                    (f"sum(rate(coach_decisions_read_total{RATE}))", "read"),
                    (f"sum(rate(coach_decisions_acked_total{RATE}))", "safe to commit"),
                    (f"sum(rate(coach_decisions_released_total{RATE}))", "released, to be read again"),
                ],
                unit="ops",
            ),
            Panel(
                title="In the workers' hands",
                queries=[
                    ("sum(coach_uncommitted_decisions)", "read, not committed"),
                    ("sum(coach_parked_decisions)", "waiting for a model"),
                    (
                        f"sum(rate(coach_batch_decisions_sum{RATE})) / sum(rate(coach_batch_decisions_count{RATE}))",
                        "in a batch, on average",
                    ),
                ],
            ),
        ),
    ),
    (
        "Latency",
        (
            Panel(
                title="From the decision's record to its recommendation acknowledged",
                queries=quantiles("coach_decision_duration_seconds"),
                unit="s",
                width=12,
            ),
            Panel(
                title="Mean time of a decision in each stage",
                queries=[
                    (
                        f"sum by (stage) (rate({STAGES}_sum{RATE})) / sum by (stage) (rate({STAGES}_count{RATE}))",
                        "{{stage}}",
                    )
                ],
                about="`remember` and `deliver` are waited for by a whole batch at once.",
                kind="stacked",
                unit="s",
                width=12,
            ),
            Panel(
                title="p95 by stage",
                queries=[(f"histogram_quantile(0.95, sum by (le, stage) (rate({STAGES}_bucket{RATE})))", "{{stage}}")],
                unit="s",
                width=12,
            ),
            Panel(
                title="Pauses in outages, a minute",
                queries=[(f"60 * sum by (instance) (rate(coach_outage_pauses_total{RATE}))", "{{instance}}")],
                width=12,
            ),
        ),
    ),
    (
        "Models and cache",
        (
            Panel(
                title="Answers a second, by model",
                queries=[
                    (
                        f"sum by (model_id, model_version, revision) (rate(coach_model_decisions_total{RATE}))",
                        "{{model_id}} {{model_version}} r{{revision}}",
                    )
                ],
                kind="stacked",
                unit="ops",
                width=12,
            ),
            Panel(
                title="Publications that workers know",
                queries=[("count by (model_id, model_version, revision) (coach_model_info)", "")],
                about="The value is the number of workers that know it: all of them.",
                kind="table",
                width=12,
            ),
            Panel(
                title="Bundles looked up a second, by where they were",
                queries=[(f"sum by (origin) (rate(coach_bundle_lookups_total{RATE}))", "{{origin}}")],
                about="`memory` is the hot path; `disk` opens the host's copy; `redis` and `uri` fetch it first.",
                unit="ops",
            ),
            Panel(
                title="Redis: bundles looked for, and refilled",
                queries=[
                    ("sum by (result) (increase(coach_leaf_cache_lookups_total[5m]))", "looked for: {{result}}"),
                    ("sum by (result) (increase(coach_leaf_cache_rebuilds_total[5m]))", "refilled: {{result}}"),
                ],
                about="In five minutes.",
            ),
            Panel(
                title="Bundles open, and closed for others",
                queries=[
                    ("max by (instance) (coach_bundles_open)", "open: {{instance}}"),
                    ("sum(increase(coach_bundle_evictions_total[5m]))", "closed in five minutes"),
                    ("max(coach_models_epoch) - min(coach_models_epoch)", "publications that a worker lacks"),
                ],
            ),
        ),
    ),
    (
        "Audit sink",
        (
            Panel(
                title="Records a second",
                queries=[
                    (f"sum(rate(coach_sink_records_total{RATE}))", "read"),
                    (f"sum(rate(coach_sink_unreadable_total{RATE}))", "unreadable"),
                    (f"sum(rate(coach_sink_hash_differs_total{RATE}))", "hash differs"),
                ],
                unit="ops",
            ),
            Panel(
                title="Behind, by partition",
                queries=[("sum by (partition) (coach_sink_lag)", "partition {{partition}}")],
            ),
            Panel(
                title="Ranges brought into the archive in ten minutes, and outages",
                queries=[
                    ("sum by (kind) (increase(coach_sink_ranges_total[10m]))", "{{kind}}"),
                    ("max(coach_sink_outage_seconds)", "seconds of outage"),
                ],
            ),
        ),
    ),
    (
        "Notifier",
        (
            Panel(
                title="Letters a minute, by channel and why",
                queries=[(f"60 * sum by (channel, why) (rate(coach_notices_total{RATE}))", "{{channel}}: {{why}}")],
                kind="stacked",
            ),
            Panel(
                title="Letters that wait",
                queries=[
                    ('sum(coach:consumer_lag_records:sum{job="coach-notifier"})', "recommendations not worked through"),
                    ("sum(coach_notices_waiting)", "waiting for the next try"),
                    ("sum(coach_notices_urgent)", "due soon"),
                    ("sum(coach_notices_overdue)", "overdue"),
                ],
            ),
            Panel(
                title="Withheld, dead, late, in an hour",
                queries=[
                    ("sum(increase(coach_notices_withheld_total[1h]))", "a later, different answer"),
                    ("sum(increase(coach_notices_dead_total[1h])) or vector(0)", "dead letters"),
                    ("sum(increase(coach_notices_late_total[1h]))", "handed over late"),
                    ("sum(increase(coach_notices_duplicate_possible_total[1h]))", "perhaps sent twice"),
                ],
            ),
            Panel(
                title="Recommendations read a second, and those without a letter",
                queries=[
                    (f"sum(rate(coach_notify_read_total{RATE}))", "read"),
                    (f"sum by (why) (rate(coach_notify_skipped_total{RATE}))", "no letter: {{why}}"),
                ],
                unit="ops",
                width=12,
            ),
            Panel(
                title="From the first look at a recommendation to its recorded letter",
                queries=quantiles("coach_notice_duration_seconds"),
                unit="s",
                width=12,
            ),
        ),
    ),
    (
        "Processes",
        (
            Panel(
                title="Processors",
                queries=[('rate(process_cpu_seconds_total{job=~"coach-.*"}' + f"{RATE})", "{{job}} {{instance}}")],
                unit="percentunit",
            ),
            Panel(
                title="Memory",
                queries=[('process_resident_memory_bytes{job=~"coach-.*"}', "{{job}} {{instance}}")],
                unit="bytes",
            ),
            Panel(
                title="Versions",
                queries=[("count by (part, version, engine_version, python) (coach_build_info)", "")],
                kind="table",
            ),
        ),
    ),
)


def written() -> str:
    """The dashboard as JSON."""
    board = (
        dashboard.Dashboard("coach-stream")
        .uid("coach-stream")
        .description("Real-time recourse for declined decisions. Manual and runbook: docs/operate.md.")
        .tags(["coach-stream"])
        .readonly()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .refresh("10s")
        .time("now-1h", "now")
        .timezone("browser")
    )
    for title, panels in ROWS:
        board.with_row(dashboard.Row(title))
        for panel in panels:
            board.with_panel(_built(panel))
    return json.dumps(board.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _built(panel: Panel) -> stat.Panel | timeseries.Panel | table.Panel:
    made: stat.Panel | timeseries.Panel | table.Panel
    if panel.kind == "stat":
        made = stat.Panel().color_mode(BigValueColorMode.BACKGROUND).graph_mode(BigValueGraphMode.NONE)
        made.thresholds(_thresholds(panel)).height(4)
    elif panel.kind == "table":
        made = table.Panel().height(8)
        made.with_transformation(DataTransformerConfig(id_val="organize", options={"excludeByName": {"Time": True}}))
    else:
        made = timeseries.Panel().height(8).fill_opacity(12).line_width(1).min(0)
        made.tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
        made.legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)  # noqa: FBT003 - as above
        )
        if panel.kind == "stacked":
            made.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    made.title(panel.title).description(panel.about).datasource(SOURCE).span(panel.width).unit(panel.unit)
    for number, (expression, legend) in enumerate(panel.queries):
        query = prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(chr(ord("A") + number))
        if panel.kind == "table":
            query.instant().format(PromQueryFormat.TABLE)
        elif panel.kind == "stat":
            query.instant()
        made.with_target(query)
    return made


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    steps = [Threshold(color="green", value=None)]
    if panel.bad_from is not None:
        steps.append(Threshold(color="red", value=panel.bad_from))
    if panel.bad_below is not None:
        steps = [Threshold(color="red", value=None), Threshold(color="green", value=panel.bad_below)]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


if __name__ == "__main__":
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    draft = TARGET.with_suffix(".draft")
    draft.write_text(written(), encoding="utf-8")
    draft.replace(TARGET)  # in one step: Grafana may be reading
