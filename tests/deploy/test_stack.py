"""The stack's own programs from packages, with the stack's own configuration: real Kafka, Redis and Prometheus, a worker, the sink and the notifier."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deploy.dashboard_picture import DASHBOARD, draw
from tests.deploy.programs import DEPLOY, Prometheus, coach, need, running, with_targets
from tests.house.pictures import png_size
from tests.kafka.brokers import free_ports
from tests.service.lender import Lender, record, records
from tests.service.room import REPOSITORY, Room, probed, room, wait_until
from tests.service.stack import Stack

pytestmark = [pytest.mark.service, pytest.mark.timeout(180)]

DECLINED, APPROVED, POISON = 40, 15, 6
WAVES_S, PICTURE_S = 130, 90  # of traffic where the README's picture is made, and of it in the picture


@dataclass(frozen=True, kw_only=True)
class Running:
    """The whole of it, with traffic behind it."""

    prometheus: Prometheus
    room: Room
    ports: dict[str, int]


def queries() -> list[tuple[str, str]]:
    """Every query of every panel, with the panel's title."""
    return [(panel["title"], one["expr"]) for panel in DASHBOARD["panels"] for one in panel.get("targets", ())]


@pytest.fixture(scope="module")
def deployed(
    pytestconfig: pytest.Config, stack: Stack, toy: Lender, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """All of it, started once; decisions of each kind went through, in two halves with scrapes between them."""
    program = need(pytestconfig, "prometheus")
    folder = tmp_path_factory.mktemp("deployed")
    worker, sink, notifier, port = free_ports(4)
    ports = {"coach-worker": worker, "coach-sink": sink, "coach-notifier": notifier}
    (folder / "rules").mkdir()
    shutil.copytree(DEPLOY / "prometheus" / "rules", folder / "rules", dirs_exist_ok=True)
    configuration = with_targets((DEPLOY / "prometheus" / "prometheus.yml").read_text(), ports)
    (folder / "prometheus.yml").write_text(configuration.replace("localhost:9090", f"localhost:{port}"))
    with ExitStack() as ends:
        here = ends.enter_context(room(stack, folder))
        here.publish(toy)
        here.worker(COACH_METRICS_PORT=str(worker), wait=False)
        archive = [*coach("audit", "sink"), "--to", str(folder / "archive")]
        ends.enter_context(
            running(
                archive,
                folder / "sink.log",
                **here.environment,
                COACH_SINK_METRICS_PORT=str(sink),
                COACH_SINK_TAIL_S="1",
            )
        )
        ends.enter_context(
            running(coach("notify"), folder / "notify.log", **here.environment, **notifier_settings(folder, notifier))
        )
        own = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}"]
        ends.enter_context(
            running([program, *own, f"--web.listen-address=127.0.0.1:{port}"], folder / "prometheus.log")
        )
        prometheus = Prometheus(port)
        send_half(here, toy, 0)
        wait_until(lambda: prometheus.ready, what=f"Prometheus on {port}")
        wait_until(
            lambda: prometheus.number('sum(coach_ready{job=~"coach-.*"})') == 3, what="three parts ready and scraped"
        )
        wait_until(lambda: prometheus.number("min(coach_decisions_acked_total)") == 30, what="the first half scraped")
        send_half(here, toy, 1)
        here.until_done()
        yield Running(prometheus=prometheus, room=here, ports=ports)


def notifier_settings(folder: Path, port: int) -> dict[str, str]:
    return {
        "COACH_NOTIFY_METRICS_PORT": str(port),
        "COACH_NOTIFY_GROUP": f"notify-{port}",
        "COACH_NOTIFY_LENDER_NAME": "Example Credit Union",
        "COACH_NOTIFY_LENDER_CONTACT": "letters@lender.example",
        "COACH_NOTIFY_STATE": str(folder / "notify.sqlite"),
        "COACH_NOTIFY_OUTBOX": str(folder / "letters"),
    }


def send_half(here: Room, toy: Lender, half: int) -> None:
    """Half of the decisions: declined, approved, and those that cannot be answered."""
    numbers = range(half, len(toy.rows), 2)
    declined = [number for number in numbers if not toy.approved(number)][: DECLINED // 2]
    approved = [number for number in numbers if toy.approved(number)][: APPROVED // 2]
    here.send(records(toy, declined + approved))
    here.send(
        [
            record(toy.decision(declined[0], decision_id=f"poison-{half}-{one}", features={}))
            for one in range(POISON // 2)
        ]
    )


def test_every_query_of_the_dashboard_returns_data(deployed: Running) -> None:
    """Given the deployed scrape configuration and rules, traffic of all kinds, and a real Prometheus, when each panel's query is asked, then each has an answer."""
    asked = [(title, expression.replace("$__rate_interval", "1m")) for title, expression in queries()]
    assert len(asked) > 50
    empty: list[tuple[str, str]] = []

    def all_answered() -> bool:
        empty[:] = [one for one in asked if not deployed.prometheus.query(one[1])]
        return not empty

    try:
        wait_until(all_answered, timeout_s=30, what="an answer to each query")
    except AssertionError:
        assert empty == []


def test_the_dashboard_can_be_looked_at(deployed: Running, toy: Lender, tmp_path: Path) -> None:
    """Given the deployed stack, when the top of the dashboard is drawn from what Prometheus says, then it is a picture; `python -m tests.house.pictures` makes the README's so, under minutes of traffic."""
    wanted, seconds = os.environ.get("COACH_DASHBOARD_PICTURE"), 20
    if wanted:
        seconds = PICTURE_S
        send_waves(deployed.room, toy, WAVES_S)
    picture = Path(wanted or tmp_path / "dashboard.png")
    draw(deployed.prometheus, picture, seconds=seconds)
    assert png_size(picture) == (900, 840)


def send_waves(here: Room, toy: Lender, seconds: int) -> None:
    """Decisions that come in waves of a minute, 10 to 90 a second."""
    for second in range(seconds):
        count = int(50 - 40 * math.cos(second * math.tau / 60))
        numbers = [(50 * second + one) % len(toy.rows) for one in range(count)]
        here.send(
            record(toy.decision(number, decision_id=f"wave-{second}-{one}")) for one, number in enumerate(numbers)
        )
        time.sleep(1)


def test_the_numbers_are_those_of_what_was_sent(deployed: Running) -> None:
    """Given so many decisions of each kind, when Prometheus is asked, then it has counted exactly these, the sink has read each audit record, the lag is 0, and the time of each answer is measured."""
    expected = {
        'sum(coach_decisions_total{outcome="declined", status!="dead_letter"})': DECLINED,
        'sum(coach_decisions_total{outcome="approved"})': 2 * (APPROVED // 2),
        'sum(coach_decisions_total{status="dead_letter"})': POISON,
        'sum(coach_dead_letters_total{reason="MissingFeature"})': POISON,
        'sum(coach_model_decisions_total{model_id="toy"})': DECLINED,
        "sum(coach_decision_duration_seconds_count)": DECLINED,
        'sum(coach:consumer_lag_records:sum{job="coach-worker"})': 0,
        "sum(coach_sink_records_total)": DECLINED,
        "sum(coach_notices_total)": DECLINED,
        "max(coach_models_epoch)": 0,
        "count(coach_build_info)": 3,
    }
    found: dict[str, float | None] = {}

    def all_there() -> bool:
        found.update((expression, deployed.prometheus.number(expression)) for expression in expected)
        return found == expected

    try:
        wait_until(all_there, timeout_s=30, what="the numbers")
    except AssertionError:
        assert found == expected


def test_every_alert_evaluates_and_the_right_one_fires(deployed: Running) -> None:
    """Given the deployed rules on a real Prometheus, when they are evaluated, then none has an error, and the alert of the dead letters that were sent is the only one that fires."""
    groups = deployed.prometheus.get("/api/v1/rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert [rule["name"] for rule in rules if rule["health"] != "ok" or rule.get("lastError")] == []
    assert len([rule for rule in rules if rule["type"] == "alerting"]) > 20
    firing: set[str] = set()

    def as_it_should_be() -> bool:
        alerts = deployed.prometheus.get("/api/v1/alerts")["alerts"]
        firing.clear()
        firing.update(one["labels"]["alertname"] for one in alerts if one["state"] == "firing")
        return firing == {"CoachDeadLetters"}

    try:
        wait_until(as_it_should_be, timeout_s=30, what="the alert of dead letters alone")
    except AssertionError:
        assert firing == {"CoachDeadLetters"}


def test_liveness_and_readiness_are_what_a_probe_asks_for(deployed: Running) -> None:
    """Given three parts at work, when their probes are asked as the stack's healthcheck does, then each is alive and ready."""
    for job, port in deployed.ports.items():
        assert probed(port, "/health") == (200, {"status": "alive", "why": []}), job
        assert probed(port, "/ready") == (200, {"status": "ready", "why": []}), job


def test_the_manuals_commands_run(deployed: Running, pytestconfig: pytest.Config) -> None:
    """Given the manual's commands for a shell, when each block is run beside a worker at work, then it succeeds."""
    need(pytestconfig, "promtool")
    need(pytestconfig, "curl")
    blocks = shell_blocks()
    assert len(blocks) >= 2
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for block in blocks:
        text = block.replace("localhost:9464", f"127.0.0.1:{deployed.ports['coach-worker']}")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            env={**os.environ, **deployed.room.environment, "PATH": path},
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"


def shell_blocks() -> list[str]:
    """The manual's blocks marked bash, up to the parts that other tests run."""
    manual = (REPOSITORY / "docs" / "operate.md").read_text()
    mine = manual[: manual.index("\n## Runbook")]
    return re.findall(r"^```bash\n(.*?)^```", mine, re.MULTILINE | re.DOTALL)


def test_prometheus_takes_what_the_parts_say(deployed: Running) -> None:
    """Given each part's /metrics, when read, then names have the prefix and unit that they should, and no label is a decision's id or a feature's value."""
    for port in deployed.ports.values():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
        assert all(re.match(r"coach_|process_|python_", name) for name in names)
        assert "toy-" not in text
        assert "poison" not in text


def test_an_outage_is_seen_by_the_readiness_probe_and_not_by_the_liveness_probe(
    deployed: Running, stack: Stack, toy: Lender
) -> None:
    """Given a worker at work, when Redis goes away under a decision, then the worker is not ready and says why, and is alive; when Redis is back, it is ready and the decision is answered."""
    port = deployed.ports["coach-worker"]
    stack.redis.down()
    try:
        deployed.room.send([record(toy.decision(toy.declined(1)[0], decision_id="in-an-outage"))])
        wait_until(lambda: probed(port, "/ready")[0] == 503, timeout_s=30, what="a worker that is not ready")
        assert probed(port, "/ready")[1]["why"] == ["an outage is waited out: redis is away"]
        assert probed(port, "/health") == (200, {"status": "alive", "why": []})
        assert deployed.prometheus.query("max(coach_outage)")
    finally:
        stack.redis.up()
    wait_until(lambda: probed(port, "/ready")[0] == 200, timeout_s=30, what="a worker that is ready again")
    deployed.room.until_done()
