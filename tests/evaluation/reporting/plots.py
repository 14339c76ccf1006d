"""The report's plots, as SVG: equal results give equal bytes."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from tests.evaluation.judging.bars import BARS
from tests.evaluation.ours import TIERS, TOP_K
from tests.evaluation.protocol import OURS
from tests.evaluation.reporting.summary import TITLES, Comparison, Protocol, Record
from tests.evaluation.sizes import LABELLED

INK, FAINT, GRID = "#1f2937", "#6b7280", "#e5e7eb"
STYLE: Final[dict[Any, Any]] = {
    "svg.hashsalt": "coach-evaluation", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": GRID, "xtick.color": FAINT, "ytick.color": FAINT,
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10.5, "axes.titlelocation": "left",
    "axes.titleweight": "bold", "legend.frameon": False, "axes.grid": True, "grid.color": GRID, "grid.linewidth": 0.6,
    "axes.axisbelow": True, "figure.facecolor": "white", "axes.facecolor": "white",
}  # fmt: skip
LOOKS: Final[dict[str, tuple[str, str]]] = {  # colour and marker
    "ours, near": ("#60a5fa", "o"), "ours, mid": ("#2563eb", "o"), "ours, far": ("#1e3a8a", "o"),
    "COACH": ("#fb923c", "s"), "COACH, constraint-aware": ("#c2410c", "s"), "NICE": ("#059669", "^"),
    "FACE": ("#7c3aed", "v"), "Feature Tweaking": ("#a16207", "D"), "greedy by SHAP": ("#db2777", "P"),
    "greedy by LIME": ("#6b7280", "X"), "treecf fast": ("#fca5a5", "*"), "treecf fast surplus 2": ("#ef4444", "*"),
    "treecf fast surplus 3": ("#7f1d1d", "*"),
}  # fmt: skip
TREECF: Final = ("treecf fast", "treecf fast surplus 2", "treecf fast surplus 3")  # of the bars
OTHER_LOOK: Final = ("#111827", "h")
WIDTH: Final = 10.0
VALID_ENOUGH: Final = 0.9  # below it a marker is hollow, as in the paper's figure
NARROW, WIDE = 12, 60  # ratios of the ends of a logarithmic axis, which say how many ticks fit
PLAIN: Final = FuncFormatter(lambda value, _: f"{value:g}")


def _svg(draw: Callable[[Figure], None], width: float, height: float) -> str:
    """Draw on a canvas of that size in inches and give the SVG element alone."""
    with mpl.rc_context(STYLE):
        figure = Figure((width, height))
        FigureCanvasSVG(figure)
        draw(figure)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return _slim(text[text.index("<svg") :])


def _slim(svg: str) -> str:
    """The same picture in fewer bytes, for the report keeps it twice."""
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: sans-serif", svg)
    svg = re.sub(r' transform="rotate\(-0 [^"]*"', "", svg)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)  # nothing refers to a group
    svg = re.sub(r'="[^"]*"', _rounded, svg)
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    return re.sub(r"<g>\n(<use [^>]*/>)\n</g>", r"\1", svg)


def _rounded(attribute: re.Match[str]) -> str:
    """An attribute's numbers to a hundredth of a point; labels are no attributes."""
    return re.sub(r"\d+\.\d{3,}", lambda digits: f"{float(digits[0]):.2f}", attribute[0])


def _point(axes: Axes, method: str, x: float | None, y: float | None, *, hollow: bool) -> None:
    if x is None or y is None:
        return
    colour, marker = LOOKS.get(method, OTHER_LOOK)
    size = 11 if marker == "*" else 7.5
    face = "white" if hollow else colour
    axes.plot([x], [y], marker=marker, markersize=size, color=colour, markerfacecolor=face, linestyle="none", zorder=3)


def _logarithmic(axes: Axes) -> None:
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    subs = (1, 2, 5) if high / low < NARROW else (1, 3) if high / low < WIDE else (1,)
    axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=6))
    axes.xaxis.set_major_formatter(PLAIN)
    axes.xaxis.set_minor_locator(NullLocator())


def _legend(figure: Figure, methods: Sequence[str], extra: Sequence[Line2D], columns: int) -> None:
    handles = [
        Line2D([], [], color=LOOKS.get(m, OTHER_LOOK)[0], marker=LOOKS.get(m, OTHER_LOOK)[1], linestyle="none", label=m)
        for m in methods
    ]
    figure.legend(handles=[*handles, *extra], loc="lower center", ncols=columns, fontsize=9, columnspacing=1.2)


def trade_off(protocol: Protocol) -> str:
    """The paper's figure: share of features changed against manifold distance; rivals unconstrained, as there."""
    methods = protocol.all_methods()

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(protocol.datasets), squeeze=False)[0]
        figure.subplots_adjust(left=0.06, right=0.99, bottom=0.36, top=0.9, wspace=0.28)
        for axes, dataset in zip(panels, protocol.datasets, strict=True):
            axes.set_title(TITLES[dataset])
            for method in methods:
                valid = protocol.figure(dataset, method, "free", "valid")
                x, y = protocol.sparsity(dataset, method, "free"), protocol.figure(dataset, method, "free", "manifold")
                _point(axes, method, x, y, hollow=valid is not None and valid < VALID_ENOUGH)
            axes.axhline(protocol.people(dataset, "genuine"), color=FAINT, linewidth=1, dashes=(5, 3))
            axes.set_xlim(left=0)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
            axes.xaxis.set_major_locator(MaxNLocator(4))
            axes.set_xlabel("features changed")
        panels[0].set_ylabel("distance to accepted people (sd)")
        dashed = Line2D([], [], color=FAINT, linewidth=1, dashes=(5, 3), label="genuine accepted people")
        _legend(figure, methods, [dashed], 5)

    return _svg(draw, WIDTH, 3.9)


def lasting(protocol: Protocol) -> str:
    """What a recommendation costs against what is left of it after a retrain, feasible moves only; and how real it looks."""
    methods = protocol.all_methods()

    def draw(figure: Figure) -> None:
        panels = figure.subplots(2, len(protocol.datasets), squeeze=False, sharey=True)
        figure.subplots_adjust(left=0.06, right=0.99, bottom=0.22, top=0.94, wspace=0.1, hspace=0.42)
        for k, dataset in enumerate(protocol.datasets):
            for row, name in enumerate(("effort", "manifold")):
                axes = panels[row][k]
                for method in methods:
                    x, y = (protocol.figure(dataset, method, "feasible", one) for one in (name, "lasting"))
                    valid = protocol.figure(dataset, method, "feasible", "valid")
                    _point(axes, method, x, y, hollow=valid is not None and valid < VALID_ENOUGH)
                axes.set_ylim(-0.03, 1.04)
            panels[0][k].set_title(TITLES[dataset])
            _logarithmic(panels[0][k])
            panels[0][k].set_xlabel("effort (sd, log)")
            panels[1][k].axvline(protocol.people(dataset, "genuine"), color=FAINT, linewidth=1, dashes=(5, 3))
            panels[1][k].set_xlabel("distance to accepted people (sd)")
        for row in panels:
            row[0].set_ylabel("still accepted after a retrain")
        dashed = Line2D([], [], color=FAINT, linewidth=1, dashes=(5, 3), label="genuine accepted people")
        _legend(figure, methods, [dashed], 5)

    return _svg(draw, WIDTH, 6.2)


def frontier(records: Sequence[Record]) -> str:
    """The judge's figures: effort against what still holds after a retrain, ours and treecf's, with the bars as corners."""
    found = [record for record in records if record["part"] == "bars"]
    datasets = [name for name in LABELLED if any(record["dataset"] == name for record in found)]

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(datasets), squeeze=False)[0]
        figure.subplots_adjust(left=0.065, right=0.99, bottom=0.3, top=0.91, wspace=0.2)
        for axes, dataset in zip(panels, datasets, strict=True):
            axes.set_title(TITLES[dataset])
            for record in found:
                if record["dataset"] == dataset:
                    _judged(axes, record)
            for tier in ("mid", "far"):
                _corner(axes, dataset, tier)
            _logarithmic(axes)
            axes.set_xlabel("effort (sd, log)")
        panels[0].set_ylabel("still accepted after a retrain")
        extra = [
            Line2D([], [], color=INK, marker="o", linestyle="none", label="XGBoost, one seed"),
            Line2D(
                [], [], color=INK, marker="o", markerfacecolor="white", linestyle="none", label="LightGBM, one seed"
            ),
            Line2D([], [], color=FAINT, linewidth=1.2, label="bar (up and left of the corner)"),
        ]
        _legend(figure, [*OURS, *TREECF], extra, 4)

    return _svg(draw, WIDTH, 4.2)


def settings(records: Sequence[Record]) -> str:
    """What a lender's settings buy: effort against what lasts as the surplus grows, and against realism as distance gets dearer."""
    swept = [record for record in records if record.get("points")]
    found = sorted(swept, key=lambda record: LABELLED.index(record["dataset"]))

    def draw(figure: Figure) -> None:
        panels = figure.subplots(2, max(1, len(found)), squeeze=False)
        figure.subplots_adjust(left=0.065, right=0.99, bottom=0.17, top=0.95, wspace=0.2, hspace=0.42)
        for k, record in enumerate(found):
            dataset = record["dataset"]
            panels[0][k].set_title(TITLES[dataset])
            for tier in ("mid", "far"):
                _path(panels[0][k], record, f"{tier} surplus", tier, "retrain_valid")
                _corner(panels[0][k], dataset, tier)
            _path(panels[1][k], record, "distance price", "far", "manifold")
            limit = next(bar for bar in BARS if bar.name == "far: manifold distance").limit(dataset)
            panels[1][k].axhline(limit, color=FAINT, linewidth=1.2)
            for axes in panels[:, k]:
                axes.set_xlabel("effort (sd)")
                axes.xaxis.set_major_formatter(PLAIN)
        panels[0][0].set_ylabel("still accepted after a retrain")
        panels[1][0].set_ylabel("distance to accepted people (sd)")
        bar = Line2D([], [], color=FAINT, linewidth=1.2, label="bar")
        _legend(figure, OURS[1:], [bar], 3)

    return _svg(draw, WIDTH, 5.6)


def _path(axes: Axes, record: Record, setting: str, tier: str, figure_name: str) -> None:
    """The points of one setting in the order of its factors, each with its factor; the default is the large one."""
    points = [point for point in record["points"] if point["setting"] == setting]
    known = [p for p in points if p["tiers"][tier]["effort"] is not None]
    colour, marker = LOOKS[f"ours, {tier}"]
    x = [p["tiers"][tier]["effort"] for p in known]
    y = [p["tiers"][tier][figure_name] for p in known]
    axes.plot(x, y, color=colour, linewidth=1.2, marker=marker, markersize=3.5)
    for place, point in zip(zip(x, y, strict=True), known, strict=True):
        if point["factor"] == 1:
            axes.plot(*place, color=colour, marker=marker, markersize=8)
        else:
            axes.annotate(
                f"x {point['factor']:g}", place, xytext=(4, -9), textcoords="offset points", fontsize=7.5, color=FAINT
            )


def _judged(axes: Axes, record: Record) -> None:
    hollow = record["library"] == "lightgbm"
    if record["method"] in TREECF:
        figures = record["figures"]
        _point(axes, record["method"], figures["effort"], figures["retrain_valid"], hollow=hollow)
    elif record["method"] == "ours":
        for tier, name in zip(TIERS, OURS, strict=True):
            figures = record["judge"]["tiers"][tier]
            _point(axes, name, figures.get("effort"), figures.get("retrain_valid"), hollow=hollow)


def _corner(axes: Axes, dataset: str, tier: str) -> None:
    limits = {bar.name: bar.limit(dataset) for bar in BARS}
    share, effort = limits[f"{tier}: share of unseen retrained models that accept"], limits[f"{tier}: effort"]
    axes.plot([effort, effort, effort * 0.8], [share + 0.03, share, share], color=FAINT, linewidth=1.2)
    axes.annotate(tier, (effort * 0.79, share), ha="right", va="center", fontsize=8, color=FAINT)


def differences(found: Sequence[Comparison], figure_name: str, label: str) -> str:
    """Paired differences of ours to each rival with their intervals of 95 %, a panel a dataset."""
    chosen = [one for one in found if one.figure == figure_name]
    datasets = list(dict.fromkeys(one.dataset for one in chosen))
    rivals = list(dict.fromkeys(one.rival for one in chosen))

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, max(1, len(datasets)), squeeze=False, sharey=True)[0]
        figure.subplots_adjust(left=0.2, right=0.99, bottom=0.2, top=0.88, wspace=0.12)
        for axes, dataset in zip(panels, datasets, strict=False):
            axes.set_title(TITLES[dataset])
            axes.axvline(0, color=FAINT, linewidth=1)
            for one in chosen:
                if one.dataset == dataset:
                    y = rivals.index(one.rival)
                    colour = {True: "#1d4ed8", False: "#b91c1c", None: FAINT}[one.better]
                    axes.plot([one.difference.low, one.difference.high], [y, y], color=colour, linewidth=2)
                    axes.plot([one.difference.mean], [y], marker="o", markersize=5, color=colour)
            axes.grid(axis="y", visible=False)
            axes.xaxis.set_major_formatter(PLAIN)
        panels[0].set_yticks(range(len(rivals)), rivals)
        panels[0].set_ylim(len(rivals) - 0.5, -0.5)
        figure.supxlabel(label, fontsize=10)

    return _svg(draw, WIDTH, 1.0 + 0.3 * max(3, len(rivals)))


def top_k(protocol: Protocol) -> str:
    """Validity when only the k largest rows are acted on."""
    methods = [m for m in (*OURS, "COACH", "COACH, constraint-aware") if m in protocol.all_methods()]

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(protocol.datasets), squeeze=False, sharey=True)[0]
        figure.subplots_adjust(left=0.06, right=0.99, bottom=0.33, top=0.88, wspace=0.08)
        for axes, dataset in zip(panels, protocol.datasets, strict=True):
            axes.set_title(TITLES[dataset])
            for method in methods:
                values = [protocol.top_k(dataset, method, k) for k in TOP_K]
                known = [(k, value) for k, value in zip(TOP_K, values, strict=True) if value is not None]
                colour, marker = LOOKS[method]
                axes.plot(*np.array(known).T, color=colour, marker=marker, markersize=4.5, linewidth=1.4)
            axes.set_ylim(-0.03, 1.04)
            axes.set_xticks(TOP_K)
            axes.set_xlabel("k")
        panels[0].set_ylabel("validity")
        _legend(figure, methods, [], 5)

    return _svg(draw, WIDTH, 2.9)
