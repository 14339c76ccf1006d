"""The report's tables on the protocol: the paper's own beside ours, and what the paper does not measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tests.evaluation.ours import TOP_K
from tests.evaluation.protocol import OURS, PAPERS
from tests.evaluation.reporting import published
from tests.evaluation.reporting.page import NO_VALUE, Cell, Mark, Table, number
from tests.evaluation.reporting.significance import Difference
from tests.evaluation.reporting.summary import TITLES, Comparison, Protocol, Side
from tests.evaluation.sizes import LABELLED

FIGURES: Final = {
    "valid": "validity",
    "lasting": "still accepted after a retrain",
    "effort": "effort",
    "manifold": "manifold distance",
}


def name_cell(method: str) -> Cell:
    """A method's name; ours are marked."""
    return Cell(method, "ours" if method in OURS else "")


def actionable(protocol: Protocol) -> Table:
    """The paper's table of validity when the subject may change only what they can change, beside what we measured."""
    datasets = [name for name in LABELLED if name in protocol.datasets]
    header = ["method", *(f"{TITLES[name]}, {who}" for name in datasets for who in ("paper", "here"))]
    rivals = [method for method in protocol.all_methods() if method not in OURS]
    rows: list[list[Cell]] = [[Cell("all features may change")]]
    free = [method for method in rivals if method != PAPERS[1] and not method.startswith("treecf")]
    rows += [_beside(protocol, datasets, method, "free", published.FREE) for method in free]
    rows.append([Cell("feasible changes only: forbidden moves undone, the same for every method")])
    rows += [_beside(protocol, datasets, method, "feasible", {}) for method in OURS]
    rows += [_beside(protocol, datasets, method, "feasible", published.FEASIBLE) for method in rivals]
    return Table(
        title=f"Validity over all queries: the paper's {published.ACTIONABLE} beside ours",
        header=header,
        rows=rows,
        note="Paper: published figures. Here: mean over splits. COACH is the paper's method as we read it (see the last "
        "section); without constraint-aware it is the paper's filtered row. The labels are our reading of the paper's rule, and "
        "its learning rate is not known, so levels differ: the order is what compares. treecf and ours know the labels.",
    )


def _beside(
    protocol: Protocol, datasets: Sequence[str], method: str, side: Side, paper: Mapping[str, tuple[float, ...]]
) -> list[Cell]:
    cells = [name_cell(method)]
    for dataset in datasets:
        figure = paper[method][LABELLED.index(dataset)] if method in paper else None
        cells += [number(figure, mark="paper"), number(protocol.figure(dataset, method, side, "valid"))]
    return cells


def quality(protocol: Protocol, dataset: str) -> Table:
    """Every measure of every method on one dataset."""
    header = ["method", "validity, all may change", "coverage", "validity", "after a retrain", "features changed"]
    header += ["effort", "manifold", "ms"]
    rows = []
    for method in protocol.methods(dataset):

        def of(name: str, side: Side = "feasible", method: str = method) -> float | None:
            return protocol.figure(dataset, method, side, name)

        sparsity = protocol.sparsity(dataset, method, "feasible")
        cells = [name_cell(method), number(of("valid", "free"), mark="faint"), number(of("answered"))]
        cells += [number(of("valid")), number(of("lasting")), Cell(NO_VALUE if sparsity is None else f"{sparsity:.0%}")]
        cells += [number(of("effort"), 2), number(of("manifold"), 2)]
        rows.append([*cells, number(protocol.milliseconds(dataset, method), 1)])
    genuine, own = protocol.people(dataset, "genuine"), protocol.people(dataset, "declined_manifold")
    return Table(
        title=TITLES[dataset],
        header=header,
        rows=rows,
        note=f"Genuine accepted people lie at manifold {genuine:.2f} from their own neighbours, the declined people themselves "
        f"at {own:.2f}. {protocol.people(dataset, 'queries'):.0f} queries a split of "
        f"{protocol.people(dataset, 'declined'):.0f} declined; {len(protocol.splits(dataset, OURS[0]))} splits.",
    )


def top_k(protocol: Protocol) -> Table:
    """Validity when a person acts on the k largest rows alone."""
    methods = [m for m in (*OURS, *PAPERS) if m in protocol.all_methods()]
    header = ["method", *(f"{TITLES[d]}, k = {k}" for d in protocol.datasets for k in TOP_K)]
    rows = [
        [name_cell(m), *(number(protocol.top_k(d, m, k), 2) for d in protocol.datasets for k in TOP_K)] for m in methods
    ]
    return Table(
        title="Acting on the k largest rows alone",
        header=header,
        rows=rows,
        note="COACH: the rows of the comparator's ledger, largest contribution first, as in the paper; constraint-aware: with "
        "forbidden moves undone. Ours: the actions of the tier, largest contribution first. Ours recommends few actions, each "
        "of which is needed: nothing is spare in near, by design.",
    )


def tested(found: Sequence[Comparison], figure: str) -> Table:
    """Paired differences of one figure, ours minus the rival's."""
    chosen = [one for one in found if one.figure == figure]
    datasets = list(dict.fromkeys(one.dataset for one in chosen))
    rivals = list(dict.fromkeys(one.rival for one in chosen))
    by_place = {(one.dataset, one.rival): one for one in chosen}
    own = chosen[0].ours if chosen else ""
    return Table(
        title=f"{FIGURES[figure]}: {own} minus the rival",
        header=["rival", *(TITLES[d] for d in datasets)],
        rows=[[Cell(r), *(_tested_cell(by_place.get((d, r))) for d in datasets)] for r in rivals],
    )


def _tested_cell(one: Comparison | None) -> Cell:
    if one is None:
        return Cell(NO_VALUE)
    marks: dict[bool | None, Mark] = {True: "better", False: "worse", None: "faint"}
    return Cell(f"{_interval(one.difference)}, {_p(one.corrected)}", marks[one.better])


def _interval(d: Difference) -> str:
    return f"{d.mean:+.2f} [{d.low:+.2f}, {d.high:+.2f}]"


def _p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
