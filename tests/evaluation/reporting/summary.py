"""Records of a run summed up: per split the mean over its queries, per method the mean over splits, and paired differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from tests.evaluation.protocol import OURS, PEOPLE, TEST_SHARE
from tests.evaluation.reporting.significance import Difference, corrected_t_test, holm
from tests.evaluation.sizes import DATASETS
from tests.evaluation.training import Kind

Record: TypeAlias = Mapping[str, Any]
Side: TypeAlias = Literal["free", "feasible"]
TITLES: Final = {
    "heloc": "HELOC",
    "taiwan_default": "Taiwan",
    "adult": "Adult",
    "polish_1year": "Polish, 1 year",
    "polish_2year": "Polish, 2 years",
}
OVER_ALL: Final = ("answered", "valid", "lasting")  # of all queries; the other figures are of those answered
NEAR, MID, FAR = OURS


class Protocol:
    """The records of the protocol for one kind of model: by dataset, method and split."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.found: dict[str, dict[str, dict[int, Record]]] = {}
        for record in records:
            of_dataset = self.found.setdefault(record["dataset"], {})
            of_dataset.setdefault(record["method"], {})[record["split"]] = record
        self.datasets = [name for name in DATASETS if name in self.found]

    def methods(self, dataset: str) -> list[str]:
        """Those that have records, in the order in which they were run."""
        return [name for name in self.found[dataset] if name != PEOPLE]

    def all_methods(self) -> list[str]:
        """Those of any dataset."""
        return list(dict.fromkeys(name for dataset in self.datasets for name in self.methods(dataset)))

    def splits(self, dataset: str, method: str) -> list[Record]:
        """The records of one method, a split each."""
        of_method = self.found.get(dataset, {}).get(method, {})
        return [of_method[split] for split in sorted(of_method)]

    def people(self, dataset: str, figure: str) -> float:
        """The mean over splits of a figure that is about no method."""
        return float(np.mean([record[figure] for record in self.splits(dataset, PEOPLE)]))

    def figure(self, dataset: str, method: str, side: Side, name: str) -> float | None:
        """The mean over splits of the mean over queries."""
        return _mean([_of_split(record[side], name) for record in self.splits(dataset, method)])

    def sparsity(self, dataset: str, method: str, side: Side) -> float | None:
        """Which share of all features changes."""
        changed = self.figure(dataset, method, side, "changed")
        return None if changed is None else changed / self.people(dataset, "features")

    def milliseconds(self, dataset: str, method: str) -> float | None:
        """The median over all queries."""
        every = [ms for record in self.splits(dataset, method) for ms in record["ms"]]
        return float(np.median(every)) if every else None

    def top_k(self, dataset: str, method: str, k: int) -> float | None:
        """Validity when only the k largest rows are acted on."""
        return _mean([float(np.mean(r["top_k"][str(k)])) for r in self.splits(dataset, method) if "top_k" in r])

    def mean_of(self, dataset: str, method: str, key: str) -> float | None:
        """The mean of a list that a record carries beside its measures, without those that are not known."""
        every = [one for record in self.splits(dataset, method) for one in record.get(key, ()) if one is not None]
        return float(np.mean(every)) if every else None

    def difference(self, dataset: str, method: str, rival: str, name: str) -> Difference | None:
        """Ours minus the rival's, of feasible targets, tested over splits.

        Validity and what lasts are of all queries. Effort and manifold are of the queries for which the model accepts
        what both propose: a rival that serves only those who need little would look cheap otherwise.
        """
        mine, others = (self.found[dataset].get(one, {}) for one in (method, rival))
        pairs = [_paired(mine[s]["feasible"], others[s]["feasible"], name) for s in sorted(mine) if s in others]
        return corrected_t_test([pair for pair in pairs if pair is not None], TEST_SHARE)


def _of_split(measures: Mapping[str, Sequence[Any]], name: str) -> float | None:
    values = [
        v for v, answered in zip(measures[name], measures["answered"], strict=True) if answered or name in OVER_ALL
    ]
    return float(np.mean(values)) if values else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _paired(mine: Mapping[str, Sequence[Any]], others: Mapping[str, Sequence[Any]], name: str) -> float | None:
    both = zip(mine["valid"], others["valid"], strict=True)
    counted = [i for i, (a, b) in enumerate(both) if name in OVER_ALL or (a and b)]
    return float(np.mean([mine[name][i] - others[name][i] for i in counted])) if counted else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One test of the family: what of ours against which rival; p after Holm's correction over the whole family."""

    dataset: str
    figure: str
    ours: str
    rival: str
    difference: Difference
    corrected: float

    @property
    def better(self) -> bool | None:
        """Whether ours is better (True), worse (False) or not told apart at 5 % (None)."""
        if self.corrected >= 0.05:
            return None
        return (self.difference.mean > 0) == (self.figure in OVER_ALL)


COMPARED: Final = (("valid", NEAR), ("lasting", MID), ("effort", NEAR), ("manifold", FAR))


def comparisons(protocol: Protocol) -> list[Comparison]:
    """Every comparison of ours with a rival, corrected together."""
    found = [
        (dataset, figure, own, rival, difference)
        for dataset in protocol.datasets
        for figure, own in COMPARED
        for rival in protocol.methods(dataset)
        if rival not in OURS and (difference := protocol.difference(dataset, own, rival, figure)) is not None
    ]
    corrected = holm([difference.p for *_, difference in found])
    return [
        Comparison(dataset=dataset, figure=figure, ours=own, rival=rival, difference=difference, corrected=p)
        for (dataset, figure, own, rival, difference), p in zip(found, corrected, strict=True)
    ]


def of_kind(records: Iterable[Record], kind: Kind) -> Protocol:
    """The protocol's records of one kind of model."""
    return Protocol(
        record
        for record in records
        if record["part"] == "protocol"
        and (record["library"], record["depth"], record["trees"]) == (kind.library, kind.depth, kind.trees)
    )


def audit_figures(records: Iterable[Record]) -> dict[str, float]:
    """What a verifier found over all records of ours: queries, least coverage, largest error, faults."""
    ours = [r for r in records if r["part"] == "protocol" and r["method"] == NEAR]
    return {
        "queries": sum(len(r["ms"]) for r in ours),
        "coverage": min((r["audit"]["coverage"] for r in ours), default=1.0),
        "error": max((r["audit"]["error"] for r in ours), default=0.0),
        "faults": sum(r["audit"]["faults"] for r in ours),
    }


def of_cases(
    records: Iterable[Record], take: Callable[[Record], float | None]
) -> dict[tuple[str, str, str], list[float]]:
    """A figure of the bars' cases by dataset, library and method, a value a seed."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for record in records:
        if record["part"] == "bars" and (value := take(record)) is not None:
            found.setdefault((record["dataset"], record["library"], record["method"]), []).append(value)
    return found
