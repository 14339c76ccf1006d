"""Draws the top of the dashboard from what a running Prometheus says: its own panels, queries, units and places.

Grafana itself does not run here; matplotlib stands in for it. The queries and the numbers are the real ones.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tests.deploy.programs import DEPLOY, Prometheus

DASHBOARD: Final[dict[str, Any]] = json.loads((DEPLOY / "grafana" / "dashboards" / "coach-stream.json").read_text())
TOP: Final = 35  # rows of the grid that are drawn: whether anything is wrong, throughput, latency
COLUMNS: Final = 24  # of Grafana's grid
WIDTH_PX, ROW_PX, DPI = 900, 24, 100
STEP_S: Final = 5
BACK, PANEL, TEXT, QUIET = "#111217", "#181b1f", "#ccccdc", "#8e8e9c"
GOOD, BAD = "#73bf69", "#f2495c"
TICKS_MAX: Final = 4
HEADROOM: Final = 1.4  # above the highest line, for the legend
LINES: Final = ("#73bf69", "#f2cc0c", "#8ab8ff", "#ff9830", "#f2495c", "#b877d9", "#37872d", "#1f60c4")
FACTORS: Final = {"s": (1_000.0, " ms"), "percentunit": (100.0, " %")}


def drawn_panels() -> list[dict[str, Any]]:
    """The panels and headings of the top."""
    return [one for one in DASHBOARD["panels"] if one["gridPos"]["y"] + one["gridPos"]["h"] <= TOP]


def expression(query: str) -> str:
    """A query with Grafana's own variable filled in."""
    return query.replace("$__rate_interval", "30s")


def legend(target: dict[str, Any], labels: dict[str, str]) -> str:
    """The name of a series, as the dashboard wants it."""
    said = re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), target.get("legendFormat") or "")
    return said if said.strip() and said != "__auto" else " ".join(labels.values())


def number(value: float, unit: str) -> str:
    """A number in a panel's unit."""
    factor, sign = FACTORS.get(unit, (1.0, ""))
    return f"{round(value * factor, 1):,g}{sign}"


def draw_stat(axes: Axes, panel: dict[str, Any], prometheus: Prometheus) -> None:
    """The latest number of each series, in red past its threshold."""
    defaults = panel["fieldConfig"]["defaults"]
    steps = (defaults.get("thresholds") or {}).get("steps", [])
    found = [(target, one) for target in panel["targets"] for one in prometheus.query(expression(target["expr"]))]
    for place, (target, one) in enumerate(found):
        value = float(one["value"][1])
        passed = [step["color"] for step in steps if step["value"] is None or value >= step["value"]]
        color = BAD if passed and passed[-1] == "red" else GOOD
        x = (place + 0.5) / len(found)
        said = number(value, defaults.get("unit", ""))
        axes.text(x, 0.5, said, color=color, fontsize=15, weight="bold", ha="center", va="center")
        if len(found) > 1:
            axes.text(x, 0.14, legend(target, one["metric"]), color=QUIET, fontsize=5.5, ha="center", va="center")
    axes.set_xticks([])
    axes.set_yticks([])


def draw_lines(axes: Axes, panel: dict[str, Any], prometheus: Prometheus, start: float, end: float) -> None:
    """Every series of every query over the time."""
    factor, sign = FACTORS.get(panel["fieldConfig"]["defaults"].get("unit", ""), (1.0, ""))
    lines = 0
    for target in panel["targets"]:
        asked = {"query": expression(target["expr"]), "start": f"{start:.3f}", "end": f"{end:.3f}", "step": str(STEP_S)}
        for one in prometheus.get("/api/v1/query_range", **asked)["result"]:
            points = np.array([(float(at) - end, float(value) * factor) for at, value in one["values"]])
            color = LINES[lines % len(LINES)]
            axes.plot(points[:, 0], points[:, 1], color=color, linewidth=1, label=legend(target, one["metric"]))
            lines += 1
    axes.set_xlim(start - end, 0)
    axes.set_ylim(0, HEADROOM * axes.get_ylim()[1])
    axes.xaxis.set_major_locator(MaxNLocator(TICKS_MAX))
    axes.yaxis.set_major_locator(MaxNLocator(TICKS_MAX))
    axes.xaxis.set_major_formatter(lambda at, _place: "now" if at == 0 else f"{at:g} s")
    axes.yaxis.set_major_formatter(lambda value, _place: f"{value:g}{sign}")
    axes.tick_params(colors=QUIET, labelsize=5.5, length=0)
    axes.grid(color="#2c3235", linewidth=0.5)
    if lines:
        axes.legend(loc="upper left", fontsize=5, frameon=False, labelcolor=TEXT, ncols=2)


def draw(prometheus: Prometheus, picture: Path, *, seconds: float) -> None:
    """Draw the last `seconds` of the dashboard's top as a PNG, 900 pixels wide."""
    end = time.time()
    with mpl.rc_context({"font.family": "DejaVu Sans"}):
        figure = Figure(figsize=(WIDTH_PX / DPI, TOP * ROW_PX / DPI), dpi=DPI, facecolor=BACK)
        for panel in drawn_panels():
            grid = panel["gridPos"]
            left, top = grid["x"] / COLUMNS, 1 - grid["y"] / TOP
            width, height = grid["w"] / COLUMNS, grid["h"] / TOP
            if panel["type"] == "row":
                figure.text(left + 0.008, top - height / 2, panel["title"], color=TEXT, fontsize=8, va="center")
                continue
            is_stat = panel["type"] == "stat"
            inset = (0.004, 0.004) if is_stat else (0.042, 0.022)
            box = (left + inset[0], top - height + inset[1], width - inset[0] - 0.008, height - inset[1] - 0.026)
            axes = figure.add_axes(box, facecolor=PANEL)
            for edge in axes.spines.values():
                edge.set_visible(False)
            axes.set_title(panel["title"], color=TEXT, fontsize=6.5, loc="left", pad=3)
            if is_stat:
                draw_stat(axes, panel, prometheus)
            else:
                draw_lines(axes, panel, prometheus, end - seconds, end)
        figure.savefig(picture, facecolor=BACK, metadata={"Software": None})
