"""The report's tables on the bars: each with what was reached, treecf beside ours, the published share, and the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.evaluation.judging.bars import BARS, Verdict, share_apart
from tests.evaluation.judging.judged import EXACT, FAST, OURS, SURPLUSES
from tests.evaluation.ours import TIERS
from tests.evaluation.reporting.page import NO_VALUE, Cell, Mark, Table, number
from tests.evaluation.reporting.summary import TITLES, Record
from tests.evaluation.sizes import LABELLED, LIBRARIES

LIBRARY_TITLES = {"xgboost": "XGBoost", "lightgbm": "LightGBM"}
APART_MAX = 0.03
JUDGED = ("coverage", "valid", "retrain_valid", "effort", "actions", "manifold")
RIVALS = (FAST, *SURPLUSES, EXACT)


def bars(verdicts: Sequence[Verdict], library: str) -> Table:
    """Every bar on every dataset for one library."""
    found = {(one.bar.name, one.dataset): one for one in verdicts if one.library == library}
    datasets = [name for name in LABELLED if any(dataset == name for _, dataset in found)]
    rows = [[Cell(bar.name), *(_verdict(found.get((bar.name, dataset))) for dataset in datasets)] for bar in BARS]
    return Table(
        title=f"{LIBRARY_TITLES[library]}: the bars",
        header=["bar", *(TITLES[name] for name in datasets)],
        rows=rows,
        note="Seed 0, which is the judge's default split and the one of the bars; the mean over seeds (least to greatest); the limit, "
        "and whether both meet it.",
    )


def _verdict(one: Verdict | None) -> Cell:
    if one is None:
        return Cell(NO_VALUE)
    sign = "≥" if one.bar.side == "at least" else "≤"
    limit = f"{sign} {one.bar.limit(one.dataset):g}"
    if not np.isfinite(one.mean):
        return Cell(f"not published, {limit}: not met", "missed")
    first, mean, least, most = (
        f"{v:.{one.bar.digits}f}" for v in (one.values[0], one.mean, min(one.values), max(one.values))
    )
    spread = f" ({least} to {most})" if least != most else ""
    several = f"; mean {mean}{spread}" if len(one.values) > 1 else ""
    word, mark = _word(one)
    return Cell(f"{first}{several}; {limit}: {word}", mark)


def _word(one: Verdict) -> tuple[str, Mark]:
    """Whether the default split and the mean over seeds meet the limit."""
    if one.met_first and one.met_by_mean:
        return "met", "met"
    seeds = f"{one.seeds_met} of {len(one.values)} seeds"
    if one.met_first or one.met_by_mean:
        return f"met by {'seed 0' if one.met_first else 'the mean'} only, {seeds}", "partly"
    return f"not met, {seeds}", "missed"


def _of(records: Sequence[Record], dataset: str, library: str, method: str) -> list[Record]:
    return [r for r in records if (r["dataset"], r["library"], r["method"]) == (dataset, library, method)]


def judged(records: Sequence[Record], library: str) -> Table:
    """The judge's figures of our tiers, and treecf's by the same definitions."""
    rows: list[list[Cell]] = []
    for dataset in LABELLED:
        own = _of(records, dataset, library, OURS)
        if not own:
            continue
        genuine = np.mean([r["judge"]["genuine_manifold"] for r in own])
        declined = np.mean([r["judge"]["declined"] for r in own])
        said = f"{len(own)} seeds, {declined:.0f} declined rows each; genuine accepted people lie at {genuine:.2f}"
        rows.append([Cell(f"{TITLES[dataset]}: {said}")])
        for tier in TIERS:
            figures = [r["judge"]["tiers"][tier] for r in own]
            ms = [float(np.mean(r["ms"])) for r in own]
            rows.append([Cell(f"ours, {tier}", "ours"), *_means(figures), _mean(ms, 1)])
        for name in RIVALS:
            others = _of(records, dataset, library, name)
            if others:
                ms = [float(np.mean(r["ms"])) for r in others]
                rows.append([Cell(name), *_means([r["figures"] for r in others]), _mean(ms, 1)])
    return Table(
        title=f"{LIBRARY_TITLES[library]}: the judge's figures, ours and treecf's",
        header=["method", "coverage", "validity", "after a retrain", "effort", "actions", "manifold", "ms"],
        rows=rows,
        note="Means over seeds. Coverage and validity are over all declined rows, the rest over those answered. Milliseconds: "
        "ours is the whole answer of three tiers with reasons and audit record, treecf's one target. treecf's exact mode has "
        "a limit of 2 s a query and knows no categories. It runs on the first seed, with a surplus of margin on the first two.",
    )


def _means(figures: Sequence[dict[str, Any]]) -> list[Cell]:
    cells = []
    for name in JUDGED:
        values = [f[name] for f in figures if f.get(name) is not None]
        cells.append(_mean(values, 3 if name in JUDGED[:3] else 2))
    return cells


def _mean(values: Sequence[float], digits: int) -> Cell:
    return number(float(np.mean(values)) if values else None, digits)


def shares(records: Sequence[Record]) -> Table:
    """The published robust_share against the share of the judge's unseen models."""
    rows: list[list[Cell]] = []
    for library in LIBRARIES:
        for dataset in LABELLED:
            own = _of(records, dataset, library, OURS)
            if own:
                rows.append([Cell(f"{TITLES[dataset]}, {LIBRARY_TITLES[library]}")])
                rows += [[Cell(tier), *_share_cells(own, tier)] for tier in TIERS]
    return Table(
        title="The published share of held-out shadows against five unseen retrained models",
        header=["tier", "published", "unseen models", "apart"],
        rows=rows,
        note="Apart: the mean over seeds of |mean published share - mean share of the unseen models|; at most 0.03 is the bar.",
    )


def _share_cells(own: Sequence[Record], tier: str) -> list[Cell]:
    """What was published, what unseen models say, and how far apart these are."""
    of_tier = [record["judge"]["tiers"][tier] for record in own]
    cells = [
        _mean([one[name] for one in of_tier if one.get(name) is not None], 3)
        for name in ("robust_share", "retrain_valid")
    ]
    known = [apart for record in own if (apart := share_apart(record, tier)) is not None]
    if not known:
        return [*cells, Cell(NO_VALUE)]
    apart = float(np.mean(known))
    return [*cells, number(apart, mark="met" if apart <= APART_MAX else "missed")]


def times(records: Sequence[Record]) -> Table:
    """A whole answer of ours against one fast answer of treecf's, asked by turns on the same rows in the same process."""
    rows = []
    for library in LIBRARIES:
        for dataset in LABELLED:
            own, rival = _of(records, dataset, library, OURS), _of(records, dataset, library, FAST)
            if not own or not rival:
                continue
            ratios = [r["time_ratio"] for r in own]
            mine, others = ([ms for r in some for ms in r["ms"]] for some in (own, rival))
            ratio = float(np.mean(ratios))
            rows.append(
                [
                    Cell(f"{TITLES[dataset]}, {LIBRARY_TITLES[library]}"),
                    *(number(float(f(mine)), 1) for f in (np.mean, np.median, _p99)),
                    *(number(float(f(others)), 1) for f in (np.mean, np.median, _p99)),
                    Cell(f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f})", "met" if ratio <= 0.5 else "missed"),
                    number(float(np.mean([r["build_seconds"] for r in own])), 0),
                ]
            )
    return Table(
        title="Milliseconds an answer, one thread",
        header=[
            "",
            "ours, mean",
            "median",
            "p99",
            "treecf fast, mean",
            "median",
            "p99",
            "ratio of means",
            "bundle build, s",
        ],
        rows=rows,
        note="Ours: three tiers, principal reasons and the whole audit record. treecf: one target. The bar is a ratio of 1/2.",
    )


def _p99(values: Sequence[float]) -> float:
    return float(np.percentile(values, 99))
