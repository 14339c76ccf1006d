from __future__ import annotations

import json
import re

from deploy.grafana.build_dashboard import ROWS, TARGET, written
from stream.audit.sink.sink_metrics import METERS as OF_THE_SINK
from stream.notify.metrics import METERS as OF_THE_NOTIFIER
from stream.runtime.counters import OF_EVERY_PART, PREFIX
from stream.worker.metrics import METERS as OF_THE_WORKER
from tests.deploy.programs import DEPLOY

METERS = {PREFIX + one.name: one for one in (*OF_EVERY_PART, *OF_THE_WORKER, *OF_THE_SINK, *OF_THE_NOTIFIER)}


def test_the_dashboard_is_what_its_script_writes() -> None:
    """Given the committed dashboard, when the script writes it anew, then it is the same, byte for byte."""
    assert TARGET.read_text() == written(), "run deploy/grafana/build_dashboard.py"


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    """Given every expression of the dashboard and of the rules, when their metrics and labels are read, then each is one that a part has."""
    rules = (DEPLOY / "prometheus" / "rules" / "coach-stream.yml").read_text()
    asked = [expression for _, panels in ROWS for panel in panels for expression, _ in panel.queries]
    named = set(re.findall(r"\bcoach_\w+", " ".join([*asked, rules])))
    assert len(named) > 35
    for name in named:
        assert name in METERS or re.sub(r"_(bucket|sum|count)$", "", name) in METERS, name


def test_no_panel_hangs_over_the_edge() -> None:
    """Given the dashboard, when its panels are laid out, then none overlaps another or the edge, each has a title and a query, and all ask the provisioned source."""
    board = json.loads(TARGET.read_text())
    source = (DEPLOY / "grafana" / "provisioning" / "datasources" / "prometheus.yml").read_text()
    assert "uid: prometheus " in source
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
        assert panel["title"]
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "prometheus"}
            assert panel["targets"]
