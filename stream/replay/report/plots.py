"""The report's plots, as SVG that takes its colours from the page: equal reports give equal bytes."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from stream.errors import shown
from stream.events import TIERS

Report: TypeAlias = Mapping[str, Any]

# Each stands for a variable of the page's style, which has one value for light and one for dark.
INK, FAINT, GRID = "#010101", "#020202", "#030303"
BEFORE, AFTER, GOOD, BAD, SURFACE = "#040404", "#050505", "#060606", "#070707", "#080808"
COLOURS: Final = {
    INK: "ink", FAINT: "faint", GRID: "grid", BEFORE: "before", AFTER: "after", GOOD: "good", BAD: "bad",
    SURFACE: "surface",
}  # fmt: skip
STYLE: Final[dict[Any, Any]] = {
    "svg.hashsalt": "coach-replay", "svg.fonttype": "none", "text.parse_math": False, "font.size": 11,
    "font.family": "sans-serif", "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": GRID,
    "xtick.color": FAINT, "ytick.color": FAINT, "axes.spines.top": False, "axes.spines.right": False,
    "axes.facecolor": "none", "figure.facecolor": "none", "axes.titlesize": 11, "axes.titlecolor": INK,
    "axes.titlelocation": "left", "legend.frameon": False,
}  # fmt: skip
FEATURES_MAX: Final = 12
NAME_CHARACTERS_MAX: Final = 26
WIDTH_INCHES: Final = 9.0
LETTER_INCHES: Final = 0.1
CURVE_POINTS: Final = 40
EFFORT_TICKS: Final = 5


def flow(report: Report) -> str:
    """Show how outcomes before become outcomes after, as bands between two bars."""
    counts = report["outcomes"]
    bands = [
        ("approved", "approved", counts["still_approved"] + counts["approved_otherwise"], FAINT, 0.25),
        ("approved", "declined", counts["newly_declined"], BAD, 0.8),
        ("declined", "approved", counts["newly_approved"], GOOD, 0.8),
        ("declined", "declined", counts["still_declined"] + counts["declined_otherwise"], FAINT, 0.25),
    ]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.set_axis_off()
        axes.set_position((0, 0, 1, 1))
        axes.set_xlim(-0.42, 1.42)
        total = max(1, sum(band[2] for band in bands))
        gap = 0.06 * total
        tops = {"approved": 0.0, "declined": float(sum(band[2] for band in bands if band[0] == "approved")) + gap}
        after_tops = {"approved": 0.0, "declined": float(sum(band[2] for band in bands if band[1] == "approved")) + gap}
        left, right = dict(tops), dict(after_tops)
        for was, now, count, colour, alpha in bands:
            _band(axes, left[was], right[now], count, colour, alpha)
            left[was] += count
            right[now] += count
        newly = {"approved": counts["newly_approved"], "declined": counts["newly_declined"]}
        for x, starts, ends, align in ((0.0, tops, left, "right"), (1.0, after_tops, right, "left")):
            for name, start in starts.items():
                size = ends[name] - start
                colour = GOOD if name == "approved" else BAD
                axes.fill_betweenx([start, start + size], x - 0.012, x + 0.012, color=colour)
                text = f"{size:,.0f} {name}" + (f"\n{newly[name]:,} of them newly" if x and newly[name] else "")
                at = x - 0.04 if align == "right" else x + 0.04
                axes.text(at, start + size / 2, text, ha=align, va="center", linespacing=1.5)
        axes.text(0, -0.05 * total, "before", ha="center", color=FAINT)
        axes.text(1, -0.05 * total, "after", ha="center", color=FAINT)
        axes.set_ylim(total + 1.5 * gap, -0.1 * total)

    return _svg("flow", draw, WIDTH_INCHES, 3.4)


def _band(axes: Axes, left: float, right: float, count: int, colour: str, alpha: float) -> None:
    if not count:
        return
    x = np.linspace(0.012, 0.988, CURVE_POINTS)
    turn = (1 - np.cos(np.pi * np.linspace(0, 1, CURVE_POINTS))) / 2
    top = left + (right - left) * turn
    axes.fill_between(x, top, top + count, color=colour, alpha=alpha, linewidth=0)


def margins(report: Report) -> str:
    """Show the margin after against the margin before; the larger the square, the more decisions."""
    width, pairs = report["margins"]["bin_width"], np.array(report["margins"]["pairs"], float)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        figure.subplots_adjust(left=0.13, right=0.98, bottom=0.12, top=0.96)
        x, y = (pairs[:, 0] + 0.5) * width, (pairs[:, 1] + 0.5) * width
        low, high = float(min(x.min(), y.min())) - width, float(max(x.max(), y.max())) + width
        axes.plot([low, high], [low, high], color=FAINT, linewidth=1, dashes=(4, 3))
        share = np.sqrt(pairs[:, 2] / pairs[:, 2].max())
        axes.scatter(x, y, s=6 + 60 * share, c=AFTER, alpha=0.55, linewidths=0, marker="o")
        axes.set_xlabel("margin before")
        axes.set_ylabel("margin after")
        axes.set_xlim(low, high)
        axes.set_ylim(low, high)
        axes.set_aspect("equal")
        axes.text(high, high, "unchanged ", ha="right", va="bottom", color=FAINT, fontsize=9)

    return _svg("margins", draw, 5.2, 4.6)


def efforts(report: Report, sides: Sequence[str]) -> str:
    """Show how effort is distributed, a panel a tier: the share of answers by effort, which has a logarithmic axis."""

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(TIERS), sharex=True, sharey=True)
        figure.subplots_adjust(left=0.075, right=0.99, bottom=0.19, top=0.84, wspace=0.08)
        for axes, tier in zip(panels, TIERS, strict=True):
            axes.set_title(tier)
            for side, name in zip(("before", "after"), sides, strict=True):
                _shares(axes, report["tiers"][side][tier]["histogram"], side, name)
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_locator(LogLocator(base=2, numticks=EFFORT_TICKS))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter("{x:.2g}")
            axes.yaxis.set_major_formatter(_percent)
            axes.grid(axis="y", color=GRID, linewidth=0.7)
            axes.set_xlabel("effort")
        panels[0].set_ylabel("answers")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper right", fontsize=9, ncols=2)

    return _svg("efforts", draw, WIDTH_INCHES, 2.9)


def _shares(axes: Axes, histogram: Sequence[Sequence[float]], side: str, name: str) -> None:
    """Draw one distribution, in half octaves; a logarithmic axis has no place for an effort of 0."""
    found = np.array([one for one in histogram if one[0] > 0], float)
    if not len(found):
        return
    half_octaves = np.floor(np.log2(found[:, 0]) * 2).astype(int)
    edges = np.arange(half_octaves.min(), half_octaves.max() + 2)
    heights = np.bincount(half_octaves - half_octaves.min(), weights=found[:, 1]) / found[:, 1].sum()
    if side == "before":
        axes.stairs(heights, 2.0 ** (edges / 2), fill=True, color=BEFORE, alpha=0.45, label=name)
    else:
        axes.stairs(heights, 2.0 ** (edges / 2), color=AFTER, linewidth=2, label=name)


def actions(report: Report, tier: str, sides: Sequence[str]) -> str:
    """Show which features a tier asks people to change, on both sides."""
    before, after = (report["tiers"][side][tier] for side in ("before", "after"))
    names = sorted(
        before["features"].keys() | after["features"].keys(),
        key=lambda one: (-max(after["features"].get(one, 0), before["features"].get(one, 0)), one),
    )[:FEATURES_MAX]
    longest = max(len(shown(name, NAME_CHARACTERS_MAX)) for name in names)
    left = (0.2 + LETTER_INCHES * longest) / WIDTH_INCHES
    height_inches = 1.1 + 0.42 * len(names)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        figure.subplots_adjust(left=left, right=0.98, top=1 - 0.1 / height_inches, bottom=0.62 / height_inches)
        positions = np.arange(len(names))
        for side, shift, colour, label in ((before, -0.19, BEFORE, sides[0]), (after, 0.19, AFTER, sides[1])):
            if side["answers"]:
                shares = [side["features"].get(name, 0) / side["answers"] for name in names]
                axes.barh(positions + shift, shares, height=0.36, color=colour, label=label)
        axes.set_yticks(positions, [shown(name, NAME_CHARACTERS_MAX) for name in names])
        axes.tick_params(axis="y", colors=INK, length=0)
        axes.invert_yaxis()
        axes.xaxis.set_major_formatter(_percent)
        axes.grid(axis="x", color=GRID, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.set_xlabel(f"answers whose {tier} tier asks for it")
        axes.legend(loc="lower right", fontsize=9)

    return _svg("actions", draw, WIDTH_INCHES, height_inches)


def _percent(value: float, _position: object = None) -> str:
    return f"{100 * value:.3g} %"


def _svg(name: str, draw: Callable[[Figure], None], width_inches: float, height_inches: float) -> str:
    """Draw, and turn the placeholder colours into the page's variables."""
    file = io.StringIO()
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a feature's name may have letters that the measuring font has not
        figure = Figure(figsize=(width_inches, height_inches))
        FigureCanvasSVG(figure)
        draw(figure)
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _for_a_page(file.getvalue(), name)


def _for_a_page(svg: str, name: str) -> str:
    """Strip comments and unused ids; prefix the ids in use with the plot's name."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(
        r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true" focusable="false">', body, count=1
    )
    referred = set(re.findall(r'(?:url\(|href=")#([\w-]+)', body))
    body = re.sub(r' id="([^"]+)"', lambda one: _own_id(one[1], name, referred), body)
    body = re.sub(r'(url\(|href=")#([\w-]+)', rf"\1#{name}-\2", body)
    body = re.sub(r"font: ([^;\"]*?)(\d+(?:\.\d+)?)px [^;\"]*", r"font: \1\2px var(--sans)", body)
    for placeholder, colour in COLOURS.items():
        body = body.replace(placeholder, f"var(--{colour})")
    return re.sub(r"\n\s*", "\n", body).strip()


def _own_id(found: str, name: str, referred: set[str]) -> str:
    """Keep an id that is referred to, the first time only: matplotlib defines equal marks again in each panel."""
    if found not in referred:
        return ""
    referred.remove(found)
    return f' id="{name}-{found}"'
