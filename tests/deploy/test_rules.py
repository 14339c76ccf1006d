"""The alerts, each on made-up series by Prometheus' own rule tests: that it fires when it should, and is quiet when all is well."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.programs import DEPLOY, need
from tests.service.room import REPOSITORY

RULES = DEPLOY / "prometheus" / "rules" / "coach-stream.yml"
ALERTS = re.findall(r"- alert: (\S+)", RULES.read_text())
AFTER = "20m"
WORKERS = '{job="coach-worker", instance="w1"}', '{job="coach-worker", instance="w2"}'
# Series of a healthy stack, a sample a minute, that each alert must be quiet about: where an alert waits for some minutes,
# what it looks at is bad for fewer than these just before it is asked, in minute 20.
WELL: Mapping[str, str] = {
    **{f"up{one}": "1x18 0x1 1x20" for one in WORKERS},
    **{f"coach_ready{one}": "1x18 0x1 1x20" for one in WORKERS},
    'coach_ready{job="coach-sink"}': "1x11 0x8 1x20",
    'coach_ready{job="coach-notifier"}': "1x11 0x8 1x20",
    **{f"coach_stalled_loops{one}": "0x19 1x0 0x20" for one in WORKERS},
    **{f"process_start_time_seconds{one}": "100x40" for one in WORKERS},
    'coach_outage{job="coach-worker", dependency="redis"}': "0x19 1x0 0x20",
    'coach_consumer_lag_records{job="coach-worker", topic="decisions", partition="0"}': "7x11 5000+100x28",
    'coach_partition_stalled_seconds{job="coach-worker", topic="decisions", partition="0"}': "0x5 60+60x14 0x20",
    'coach_partition_stalled_seconds{job="coach-worker", topic="decisions", partition="1"}': "0x40",
    'coach_decisions_lost_total{instance="w1"}': "0x40",
    'coach_topic_remade_total{instance="w1"}': "0x40",
    'coach_decisions_total{job="coach-worker", outcome="declined", status="ok"}': "0+60x40",
    'coach_decisions_total{job="coach-worker", outcome="unread", status="dead_letter"}': "0x16 100x23",
    'coach_dead_letters_total{job="coach-worker", stage="decode", reason="MalformedRecord"}': "0x40",
    'coach_decision_duration_seconds_bucket{job="coach-worker", le="0.1"}': "0+60x12 720x27",
    'coach_decision_duration_seconds_bucket{job="coach-worker", le="60.0"}': "0+60x40",
    'coach_decision_duration_seconds_bucket{job="coach-worker", le="+Inf"}': "0+60x40",
    "coach_parked_decisions{}": "0x18 3x1 0x20",
    f"coach_models_epoch{WORKERS[0]}": "4x18 3x1 4x20",
    f"coach_models_epoch{WORKERS[1]}": "4x40",
    "coach_publications_refused_total{}": "0x40",
    'coach_leaf_cache_rebuilds_total{result="done"}': "0 1x39",
    'coach_bundle_evictions_total{instance="w1"}': "0x10 1x30",
    'coach_sink_lag{partition="0"}': "0x4 20000x15 0x20",
    "coach_sink_outage_seconds{}": "0x40",
    "coach_sink_unreadable_total{}": "0x40",
    "coach_sink_hash_differs_total{}": "0x40",
    "coach_sink_offsets_lost_total{}": "0x40",
    'coach_consumer_lag_records{job="coach-notifier", topic="recommendations", partition="0"}': "0x6 5000x13 0x20",
    "coach_notices_overdue{}": "0x40",
    "coach_notices_urgent{}": "0x6 3x13 0x20",
    "coach_notices_late_total{}": "0x40",
    "coach_notices_withheld_total{}": "0x40",
    'coach_notices_dead_total{reason="AddressRefused"}': "0x40",
}
# What is wrong, over a healthy stack, and the alerts that then fire. None: the series is not there at all.
WRONG: Sequence[tuple[dict[str, str | None], set[str]]] = (
    ({f"up{WORKERS[0]}": "1x10 0x29"}, {"CoachTargetDown"}),
    ({f"coach_stalled_loops{WORKERS[1]}": "1x40"}, {"CoachStalled"}),
    ({f"process_start_time_seconds{WORKERS[0]}": "100x8 500x3 900x3 1300x3 1700x20"}, {"CoachRestarting"}),
    ({f"coach_ready{one}": "0x40" for one in WORKERS}, {"CoachNoWorkerReady"}),
    ({f"coach_ready{one}": None for one in WORKERS}, {"CoachNoWorkerReady"}),
    ({f"coach_ready{WORKERS[0]}": "0x40"}, set()),
    ({'coach_outage{job="coach-worker", dependency="redis"}': "0x15 1x25"}, {"CoachOutage"}),
    (
        {'coach_partition_stalled_seconds{job="coach-worker", topic="decisions", partition="1"}': "0x2 60+60x40"},
        {"CoachDecisionsStuck"},
    ),
    ({'coach_decisions_lost_total{instance="w1"}': "0x15 40x25"}, {"CoachDecisionsLost"}),
    ({'coach_topic_remade_total{instance="w1"}': "0x15 1x25"}, {"CoachDecisionsLost"}),
    (
        {'coach_consumer_lag_records{job="coach-worker", topic="decisions", partition="0"}': "0+500x40"},
        {"CoachLagGrowing"},
    ),
    ({'coach_consumer_lag_records{job="coach-worker", topic="decisions", partition="0"}': "90000-500x40"}, set()),
    ({'coach_decision_duration_seconds_bucket{job="coach-worker", le="0.1"}': "0x40"}, {"CoachAnswersSlow"}),
    (
        {'coach_dead_letters_total{job="coach-worker", stage="decode", reason="MalformedRecord"}': "0x18 1x22"},
        {"CoachDeadLetters"},
    ),
    (
        {'coach_decisions_total{job="coach-worker", outcome="unread", status="dead_letter"}': "0+6x40"},
        {"CoachManyDeadLetters"},
    ),
    ({"coach_parked_decisions{}": "0x15 3x25"}, {"CoachDecisionsParked"}),
    ({f"coach_models_epoch{WORKERS[1]}": "5x40"}, {"CoachModelsDiffer"}),
    ({"coach_publications_refused_total{}": "0x15 1x25"}, {"CoachPublicationRefused"}),
    ({'coach_leaf_cache_rebuilds_total{result="done"}': "0+1x40"}, {"CoachCacheRebuildStorm"}),
    ({'coach_bundle_evictions_total{instance="w1"}': "0+10x40"}, {"CoachBundlesThrash"}),
    ({'coach_ready{job="coach-sink"}': "0x40"}, {"CoachSinkNotReady"}),
    ({'coach_sink_lag{partition="0"}': "20000x40"}, {"CoachSinkBehind"}),
    ({"coach_sink_outage_seconds{}": "0+60x40"}, {"CoachSinkOutage"}),
    ({"coach_sink_unreadable_total{}": "0x15 1x25"}, {"CoachAuditRecordsDamaged"}),
    ({"coach_sink_hash_differs_total{}": "0x15 1x25"}, {"CoachAuditRecordsDamaged"}),
    ({"coach_sink_offsets_lost_total{}": "0x15 5x25"}, {"CoachAuditRecordsDamaged"}),
    ({'coach_ready{job="coach-notifier"}': "0x40"}, {"CoachNotifierNotReady"}),
    (
        {'coach_consumer_lag_records{job="coach-notifier", topic="recommendations", partition="0"}': "5000x40"},
        {"CoachNotifierBehind"},
    ),
    ({"coach_notices_overdue{}": "0x15 1x25"}, {"CoachNoticesOverdue"}),
    ({"coach_notices_late_total{}": "0x15 1x25"}, {"CoachNoticesOverdue"}),
    ({"coach_notices_urgent{}": "3x40"}, {"CoachNoticesUrgent"}),
    ({"coach_notices_withheld_total{}": "0x15 1x25"}, {"CoachNoticesWithheld"}),
    ({'coach_notices_dead_total{reason="AddressRefused"}': "0x15 1x25"}, {"CoachNoticesDead"}),
)


def test_the_configuration_is_one_that_prometheus_takes(pytestconfig: pytest.Config) -> None:
    """Given the deployed configuration and rules, when promtool checks them, then it finds no fault."""
    promtool = need(pytestconfig, "promtool")
    for words in (["config", str(DEPLOY / "prometheus" / "prometheus.yml")], ["rules", str(RULES)]):
        done = subprocess.run([promtool, "check", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_when_it_should_and_is_quiet_when_all_is_well(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """Given series of a healthy stack, and those with one thing wrong, when Prometheus' rule tests run over them, then nothing fires in the first, and exactly the alerts of what is wrong in the others; each alert has such a case."""
    promtool = need(pytestconfig, "promtool")
    assert set().union(*(fires for _, fires in WRONG)) == set(ALERTS)
    cases = [case(WELL, set()), *(case({**WELL, **wrong}, fires) for wrong, fires in WRONG)]
    suite = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "alerts.yml").write_text(json.dumps(suite))  # JSON is YAML
    done = subprocess.run(
        [promtool, "test", "rules", str(tmp_path / "alerts.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def case(series: Mapping[str, str | None], fires: set[str]) -> dict[str, Any]:
    """One rule test: these series, and the alerts that fire then."""
    return {
        "interval": "1m",
        "name": " and ".join(sorted(fires)) or "all is well",
        "input_series": [{"series": name, "values": values} for name, values in series.items() if values is not None],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"}) > 0',
                "eval_time": AFTER,
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(fires)],
            }
        ],
    }


def test_each_alert_says_what_to_do() -> None:
    """Given each alert, when its text is read, then it has a severity, a summary, a description, and a section of its name in the manual that says what to do."""
    manual = (REPOSITORY / "docs" / "operate.md").read_text()
    for text in RULES.read_text().split("- alert: ")[1:]:
        name = text.split("\n", 1)[0]
        assert re.search(r"severity: (critical|warning)", text), name
        assert re.search(r"\n +summary: \"", text), name
        assert re.search(r"\n +description: \"", text), name
        assert f"runbook: docs/operate.md#{name.lower()}\n" in text + "\n", name
        assert re.search(rf"^#### {name}\n\n\S", manual, re.MULTILINE), name
