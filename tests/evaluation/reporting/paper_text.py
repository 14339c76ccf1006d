"""The figures of the paper's text, beside the same figure here and ours."""

from __future__ import annotations

from collections.abc import Sequence

from tests.evaluation.protocol import OURS, PAPERS
from tests.evaluation.reporting import published
from tests.evaluation.reporting.page import NO_VALUE, Cell, Table
from tests.evaluation.reporting.summary import FAR, MID, NEAR, TITLES, Protocol, Side
from tests.evaluation.sizes import LABELLED

COACH = PAPERS[0]


def paper_text(protocol: Protocol) -> Table:
    """Write the table. Where no tier is named, ours is near."""
    return Table(
        title="Figures of the paper's text",
        header=["figure", "paper", "the same here", "ours"],
        rows=[
            [Cell(what), Cell(paper, "paper"), Cell(here), Cell(own, "ours")]
            for what, paper, here, own in _rows(protocol)
        ],
        note="Ours is near where no tier is named; all of ours with feasible changes only.",
    )


def _rows(protocol: Protocol) -> list[tuple[str, ...]]:
    datasets = protocol.datasets

    def every(method: str, name: str, side: Side = "free") -> str:
        return _ends([protocol.figure(dataset, method, side, name) for dataset in datasets])

    low, high = published.VALIDITY_RANGE
    valid = f"{low:.3f} to {high:.3f}"
    rows: list[tuple[str, ...]] = [
        ("validity, all may change", valid, every(COACH, "valid"), every(NEAR, "valid")),
        ("coverage", f"{published.COVERAGE_LEAST:.3f}", every(COACH, "answered"), every(NEAR, "answered")),
        *_feasible(protocol),
    ]
    genuine = _ends([protocol.people(dataset, "genuine") for dataset in datasets], 2)
    rows.append(("manifold of genuine accepted people", "{} to {}".format(*published.GENUINE_RANGE), genuine, genuine))
    if "heloc" in datasets:
        for name, paper in published.HELOC_MANIFOLD.items():
            both = [_ends([protocol.figure("heloc", method, "free", "manifold")], 2) for method in (name, FAR)]
            rows.append((f"manifold of {name} on HELOC; ours, far", f"{paper}", *both))
    for (dataset, name), changed in published.SPARSITY.items():
        if dataset in datasets:
            both = [_percent(protocol.sparsity(dataset, method, "free")) for method in (name, FAR)]
            rows.append((f"features changed by {name} on {TITLES[dataset]}; ours, far", f"{changed:.0%}", *both))
    for k, (low, high) in published.TOP_K.items():
        both = [_ends([protocol.top_k(dataset, method, k) for dataset in datasets]) for method in (COACH, MID)]
        rows.append((f"validity of the {k} largest rows alone; ours, mid", f"{low:.3f} to {high:.3f}", *both))
    speed = [_ends([protocol.milliseconds(dataset, method) for dataset in datasets], 1) for method in (COACH, NEAR)]
    told = "ms a query; ours: three tiers, reasons, audit record"
    return [*rows, (told, "{} to {}".format(*published.RUNTIME_MS), *speed)]


def _feasible(protocol: Protocol) -> list[tuple[str, ...]]:
    """The means over the three labelled datasets, which the paper's abstract is about."""
    if not set(LABELLED) <= set(protocol.datasets):
        return []

    def mean(method: str) -> str:
        values = [protocol.figure(dataset, method, "feasible", "valid") or 0.0 for dataset in LABELLED]
        return f"{sum(values) / len(values):.3f}"

    return [
        (f"validity of feasible changes, {method}, mean of three datasets", f"{paper:.3f}", mean(method), mean(OURS[0]))
        for method, paper in published.RETAINED.items()
        if method in protocol.all_methods()
    ]


def _ends(values: Sequence[float | None], digits: int = 3) -> str:
    """The least and the greatest of those known; one figure where they are the same."""
    known = [f"{value:.{digits}f}" for value in values if value is not None]
    if not known:
        return NO_VALUE
    least, greatest = min(known, key=float), max(known, key=float)
    return least if least == greatest else f"{least} to {greatest}"


def _percent(share: float | None) -> str:
    return NO_VALUE if share is None else f"{share:.0%}"
