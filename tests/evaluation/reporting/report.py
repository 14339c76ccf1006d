"""Results -> one HTML page and one Markdown page with the same content, and the plots beside them."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Final

from stream.recourse.record.decision_record import ENGINE_VERSION
from tests.evaluation.judging.bars import Verdict, verdicts
from tests.evaluation.protocol import OURS, PAPERS
from tests.evaluation.reporting import bar_tables, plots, published, tables
from tests.evaluation.reporting.page import Cell, Plot, Section, Table, as_html, as_markdown, number
from tests.evaluation.reporting.paper_text import paper_text
from tests.evaluation.reporting.summary import (
    COMPARED,
    FAR,
    MID,
    NEAR,
    TITLES,
    Comparison,
    Protocol,
    Record,
    audit_figures,
    comparisons,
    of_kind,
)
from tests.evaluation.results import Results
from tests.evaluation.sizes import FULL, LABELLED, LIBRARIES, Size
from tests.evaluation.training import LEARNING_RATE, Kind

TITLE: Final = "Recourse a person can act on, and that lasts: the evidence"
PACKAGES: Final = ("numpy", "scipy", "scikit-learn", "numba", "xgboost-cpu", "xgboost", "lightgbm", "treecf")


def write_report(results: Results, size: Size, folder: Path) -> Path:
    """Write report.html, report.md and a file a plot into `folder`; give the page's path."""
    records = results.all()
    sections = sections_of(records, size)
    lead = lead_of(results, size)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    for part in (part for section in sections for part in section.parts):
        if isinstance(part, Plot):
            (folder / f"{part.name}.svg").write_text(part.svg, "utf-8")
    (folder / "report.md").write_text(as_markdown(TITLE, lead, sections), "utf-8")
    page = folder / "report.html"
    page.write_text(as_html(TITLE, lead, sections), "utf-8")
    return page


def lead_of(results: Results, size: Size) -> list[str]:
    """What was run, where and when."""
    runs = results.runs()
    minutes = sum(run["minutes"] for run in runs)
    commits = ", ".join(dict.fromkeys(run["commit"] for run in runs)) or "unknown"
    versions = ", ".join(f"{name} {found}" for name in PACKAGES if (found := _version(name)))
    when = runs[-1]["date"] if runs else datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return [
        (
            f"Size **{size.name}**, run by `make evaluation{'' if size.name == 'full' else f' SIZE={size.name}'}` in "
            f"{minutes:.0f} minutes on two processes of one thread; finished {when}."
        ),
        f"Engine {ENGINE_VERSION}, commit {commits}. {_machine()}. Python {platform.python_version()}, {versions}.",
    ]


def sections_of(records: Sequence[Record], size: Size) -> list[Section]:
    """The whole content; parts without results are left out."""
    protocol = of_kind(records, Kind("xgboost", size.depth, size.trees))
    held = verdicts(records)
    compared = comparisons(protocol)
    sections = [Section(title="In short", text=_in_short(records, held, protocol, compared))]
    if held:
        sections.append(_bars(records, held, size))
    if protocol.datasets:
        sections += [
            _paper(protocol),
            _quality(protocol, size),
            _differences(protocol, compared),
            _further(records, protocol, size),
        ]
    return [*sections, _how(size)]


def _in_short(
    records: Sequence[Record], held: Sequence[Verdict], protocol: Protocol, compared: Sequence[Comparison]
) -> list[str]:
    lines = []
    for library in LIBRARIES:
        own = [one for one in held if one.library == library]
        if own:
            missed = [one for one in own if not (one.met_first and one.met_by_mean)]
            by_dataset = {
                TITLES[dataset]: ", ".join(_missed(one) for one in missed if one.dataset == dataset)
                for dataset in dict.fromkeys(one.dataset for one in missed)
            }
            said = "".join(f" {name} misses {what}." for name, what in by_dataset.items())
            title = bar_tables.LIBRARY_TITLES[library]
            lines.append(
                f"**Bars, {title}:** {len(own) - len(missed)} of {len(own)} are met, by seed 0 (the judge's default split) and by the mean over seeds.{said}"
            )
    labelled = [name for name in LABELLED if name in protocol.datasets]
    if labelled:
        near, coach = (
            [protocol.figure(d, method, "feasible", "valid") or 0.0 for d in labelled] for method in (NEAR, PAPERS[1])
        )
        names = ", ".join(TITLES[d] for d in labelled)
        lines.append(
            f"**Validity of feasible changes** on {names}: ours {_slashed(near)}, the paper's own method here "
            f"{_slashed(coach)} (published: {_slashed(published.FEASIBLE[PAPERS[1]])} on HELOC, Taiwan, Adult)."
        )
        lasting = [[protocol.figure(d, m, "feasible", "lasting") or 0.0 for d in labelled] for m in OURS]
        told = ", ".join(f"{m.split(', ')[1]} {_slashed(v)}" for m, v in zip(OURS, lasting, strict=True))
        lines.append(f"**Still accepted by models retrained on bootstraps**, same datasets, of all queries: {told}.")
    if compared:
        better = sum(one.better is True for one in compared)
        worse = sum(one.better is False for one in compared)
        lines.append(
            f"**Against the rivals:** of {len(compared)} paired comparisons (validity, what lasts, effort, manifold), ours is "
            f"better in {better}, worse in {worse}, and not told apart in {len(compared) - better - worse}, at 5 % after Holm's "
            "correction over all of them."
        )
    audit = audit_figures(records)
    if audit["queries"]:
        lines.append(
            f"**Audit:** over {audit['queries']:,} queries the ledgers carry {audit['coverage']:.4f} of the gap and the "
            f"reconstruction error is exactly {audit['error']:g}, for they are integers (paper: {published.AUDIT['error']:g} over "
            f"{published.AUDIT['queries']:,}); {audit['faults']} faults of the verifier."
        )
    return lines


def _missed(one: Verdict) -> str:
    if not isfinite(one.mean):
        return f"{one.bar.name} (not published)"
    first, mean = (f"{value:.{one.bar.digits}f}" for value in (one.values[0], one.mean))
    return f"{one.bar.name} ({first}, mean {mean})"


def _slashed(values: Sequence[float]) -> str:
    return " / ".join(f"{value:.3f}" for value in values)


def _bars(records: Sequence[Record], held: Sequence[Verdict], size: Size) -> Section:
    own = [r for r in records if r["part"] == "bars"]
    libraries = [library for library in LIBRARIES if any(one.library == library for one in held)]
    apart = max((r["apart_from_judge"] for r in own if r["method"] == "ours"), default=0.0)
    parts: list[Table | Plot] = [bar_tables.bars(held, library) for library in libraries]
    parts.append(
        Plot(
            name="frontier",
            svg=plots.frontier(own),
            caption="What a recommendation costs against what is left of it after a retrain, by the judge's definitions. "
            "The corners are the bars of mid and far.",
        )
    )
    if any(r.get("points") for r in own):
        told = Plot(
            name="settings",
            svg=plots.settings(own),
            caption="What a lender's settings buy, XGBoost, seed 0. Above: the surplus that the shadows should "
            "accept with, in far its reserve too, times the factor beside each point; the large point is the default. Below: the price of distance to accepted people, in far alone. "
            "Of mid and far each bar asks for up and left of its corner; of the distance, for below the line.",
        )
        parts.append(told)
    parts += [bar_tables.judged(own, library) for library in libraries]
    parts += [bar_tables.shares(own), bar_tables.times(own)]
    return Section(
        title="The bars",
        text=[
            (
                f"Judged by `check.py` of the shared folder, an independent program that knows the contract and the owner library "
                f"alone: {size.bar_seeds} seeds, {size.bar_queries} declined rows each, {size.trees} trees of depth {size.depth}, "
                f"bundles with {size.shadows} shadows. All is done by the commands that anyone would use: `coach bundle build`, "
                "`coach recommend`, `check.py judge`; every audit record is verified."
            ),
            *(
                []
                if size.name == FULL.name
                else [
                    "**This size is not the one of the bars**, which are for the full one: here they only show that all works."
                ]
            ),
            (
                f"treecf is measured by our own code with the judge's formulas; on our own answers that code and the judge differ by "
                f"at most {apart:.1g} in any figure."
            ),
            (
                "**Where a bar is missed.** What lasts, effort and likeness buy each other: the plot of settings shows what another "
                "surplus or another price of distance would have bought on each dataset, and one default has to serve all of them. "
                "The share that is published and the judge's differ as two small sets of models do: near asks no shadow, so nothing "
                "in it was chosen to please them, and there they differ as well. In time, an answer of ours asks the model and seven shadows "
                "at every look around a target, for two of its three tiers, and writes an exact ledger of each; treecf's fast one asks "
                "one model for one target."
            ),
        ],
        parts=parts,
    )


def _paper(protocol: Protocol) -> Section:
    return Section(
        title="The paper's tables beside ours",
        parts=[
            tables.actionable(protocol),
            paper_text(protocol),
            Plot(
                name="trade-off",
                svg=plots.trade_off(protocol),
                caption="The paper's figure: effort, as the share of features changed, against realism. Rivals with all features "
                "free, as in the paper; ours with feasible changes only. Hollow: validity below 90 %. Dashed: where genuine "
                "accepted people lie from their own neighbours.",
            ),
        ],
    )


def _quality(protocol: Protocol, size: Size) -> Section:
    lasting = Plot(
        name="lasting",
        svg=plots.lasting(protocol),
        caption="What recourse is worth to a person: forbidden moves are undone for every method. Up is what still holds after a "
        "retrain, of all queries; left is cheap (above) and real (below). Hollow: validity below 90 %, so that effort is low "
        "because the outcome does not change.",
    )
    return Section(
        title="Every measure, every method",
        text=[
            (
                f"Cross-validation in {len(protocol.splits(protocol.datasets[0], NEAR))} splits, up to {size.queries} declined people "
                "a split, the same for every method; XGBoost, "
                f"{size.trees} trees of depth {size.depth}. All figures but the first column are of feasible changes."
            ),
        ],
        parts=[lasting, *(tables.quality(protocol, dataset) for dataset in protocol.datasets)],
    )


def _differences(protocol: Protocol, compared: Sequence[Comparison]) -> Section:
    labels = {
        "valid": "validity, ours (near) minus the rival's",
        "lasting": "after a retrain, ours (mid) minus the rival's",
    }
    drawn = [
        Plot(
            name=f"differences-{figure}",
            svg=plots.differences(compared, figure, label),
            caption=f"Paired differences of {tables.FIGURES[figure]} with intervals of 95 %; blue: ours is better after correction.",
        )
        for figure, label in labels.items()
    ]
    return Section(
        title="More than chance?",
        text=[
            (
                f"Corrected resampled t-test (Nadeau and Bengio) over {len(protocol.splits(protocol.datasets[0], NEAR))} splits, "
                f"intervals of 95 % on the paired difference, p after Holm's correction over all {len(compared)} comparisons of this "
                "section. Validity and what lasts are of all queries; effort and manifold are of the queries for which the model "
                "accepts both feasible targets, since a method that serves only those who need little would look cheap."
            ),
        ],
        parts=[*drawn, *(tables.tested(compared, figure) for figure, _ in COMPARED)],
    )


def _further(records: Sequence[Record], protocol: Protocol, size: Size) -> Section:
    drawn = Plot(name="top-k", svg=plots.top_k(protocol), caption="Validity when only the k largest rows are acted on.")
    return Section(
        title="Further checks",
        text=[
            (
                "Other libraries and deeper models, as in the paper: agreement is the share of trees in which the query and the "
                f"paper's comparator reach the same leaf (published on HELOC: {published.AGREEMENT_HELOC[4]} at depth 4, "
                f"{published.AGREEMENT_HELOC[8]} at depth 8)."
            ),
        ],
        parts=[drawn, tables.top_k(protocol), _kinds(records, size)],
    )


def _kinds(records: Sequence[Record], size: Size) -> Table:
    """What changes with the library, the depth and the number of trees."""
    main = Kind("xgboost", size.depth, size.trees)
    found = {Kind(r["library"], r["depth"], r["trees"]): None for r in records if r["part"] == "protocol"}
    rows: list[list[Cell]] = []
    for dataset in size.other_datasets:
        rows.append([Cell(TITLES[dataset])])
        for kind in sorted(found, key=lambda one: (one.library != "xgboost", one.trees, one.depth)):
            protocol = of_kind(records, kind)
            if dataset not in protocol.datasets:
                continue
            splits = len(protocol.splits(dataset, NEAR))
            cells = [Cell(f"{bar_tables.LIBRARY_TITLES[kind.library]}, depth {kind.depth}, {kind.trees} trees")]
            cells += [Cell(str(splits), "faint" if kind != main else "")]
            cells += [number(protocol.figure(dataset, NEAR, "feasible", "valid"))]
            cells += [number(protocol.figure(dataset, m, "feasible", "lasting")) for m in (MID, FAR)]
            cells += [number(protocol.figure(dataset, m, "feasible", "effort"), 2) for m in (NEAR, MID)]
            cells += [number(protocol.figure(dataset, PAPERS[0], "free", "valid"))]
            cells += [number(protocol.figure(dataset, PAPERS[1], "feasible", "valid"))]
            cells += [number(protocol.mean_of(dataset, PAPERS[0], "agreement"), 2)]
            rows.append([*cells, number(protocol.milliseconds(dataset, NEAR), 1)])
    return Table(
        title="Libraries, depths and numbers of trees",
        header=["model", "splits", "near: validity", "mid: after a retrain", "far: after a retrain", "near: effort",
                "mid: effort", "COACH, free: validity", "constraint-aware: validity", "agreement", "ours, ms"],
        rows=rows,
    )  # fmt: skip


def _how(size: Size) -> Section:
    return Section(
        title="How it was measured",
        text=[
            (
                f"**Data.** HELOC (-9, -8, -7 read as missing), Taiwan, Adult, Polish bankruptcy 1 and 2 years, read as the judge reads "
                f"them. Learning rate {LEARNING_RATE:g}, threshold one half. Polish companies have no mutability labels, so all 64 "
                "ratios may move, which their shared numerators do not allow in truth."
            ),
            (
                "**Feasible** means: a move of an immutable feature, or against the direction of its label, is undone for every method "
                "alike; from or to missing counts as either direction. Rivals may keep fractions of a whole number and values outside "
                "the range of the data, which ours never proposes."
            ),
            (
                "**Validity** is the share of all queries whose target the owner library accepts. **After a retrain** is the share of "
                f"{size.retrained} models, trained on bootstraps of the training set that no method has seen, that accept it, averaged "
                "over all queries (none counts 0). **Effort** is the sum over features of |move| in standard deviations of the training "
                "set; another category, or from or to missing, counts 1. **Manifold** is the mean distance in standard deviations to "
                "the five nearest accepted people of the training set, medians for missing values. These two are means over all that "
                "were answered, accepted or not."
            ),
            (
                "**COACH** is the paper's method: the best-ranked comparator of all whom the model accepts, whose values are copied on "
                "every decisive feature. The paper leaves open its beta and epsilon (here 1 and 0) and the tier behind its tables. "
                "**Ours** asks as the worker asks, decision in, recommendation and audit record out, and every record is verified. "
                "In the protocol it measures effort in standard deviations, as the paper does; the bars run under default settings."
            ),
            (
                f"**Shadows.** {size.shadows} models on bootstraps; those that the search asks for a person never judge what it "
                "found for this person. The retrained models of this report are others again."
            ),
        ],
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except ImportError:
        return None


def _machine() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} cores"
