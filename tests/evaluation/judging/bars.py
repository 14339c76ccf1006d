"""The bars: what must hold by the judge of the shared folder, and which of it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from tests.evaluation.ours import TIERS
from tests.evaluation.sizes import LABELLED

Record: TypeAlias = Mapping[str, Any]
Limits: TypeAlias = tuple[float, float, float]  # of HELOC, Taiwan and Adult


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One figure with its limits. `figure` takes it from the record of one case; the limit is of the mean over seeds."""

    name: str
    side: Literal["at least", "at most"]
    limits: Limits
    figure: Callable[[Record], float | None]
    digits: int = 3

    def limit(self, dataset: str) -> float:
        """What the figure is held against."""
        return self.limits[LABELLED.index(dataset)]

    def met(self, dataset: str, value: float) -> bool:
        """Whether a value meets the limit."""
        return value >= self.limit(dataset) if self.side == "at least" else value <= self.limit(dataset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One bar on one dataset and library, a value a seed. The bars are of the judge's default split, which is seed 0."""

    bar: Bar
    dataset: str
    library: str
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return float(np.mean(self.values))

    @property
    def met_by_mean(self) -> bool:
        """Whether the mean over seeds meets the limit."""
        return self.bar.met(self.dataset, self.mean)

    @property
    def met_first(self) -> bool:
        """Whether the default split meets it."""
        return self.bar.met(self.dataset, self.values[0])

    @property
    def seeds_met(self) -> int:
        """How many seeds meet it alone."""
        return sum(self.bar.met(self.dataset, value) for value in self.values)


def _of_tier(tier: str, figure: str) -> Callable[[Record], float | None]:
    return lambda record: record["judge"]["tiers"][tier].get(figure)


def share_apart(record: Record, tier: str) -> float | None:
    """How far the mean published robust_share lies from the mean share of the judge's unseen models."""
    found = record["judge"]["tiers"][tier]
    if found.get("robust_share") is None or "retrain_valid" not in found:
        return None
    return abs(float(found["robust_share"]) - float(found["retrain_valid"]))


def _worst_apart(record: Record) -> float | None:
    apart = [share_apart(record, tier) for tier in TIERS]
    return None if None in apart else max(one for one in apart if one is not None)


def _share_bar(tier: str, limits: Limits, efforts: Limits) -> tuple[Bar, Bar]:
    return (
        Bar(
            name=f"{tier}: share of unseen retrained models that accept",
            side="at least",
            limits=limits,
            figure=_of_tier(tier, "retrain_valid"),
        ),
        Bar(name=f"{tier}: effort", side="at most", limits=efforts, figure=_of_tier(tier, "effort")),
    )


def _valid_bars(tier: str, limits: Limits) -> tuple[Bar, Bar]:
    return (
        Bar(name=f"{tier}: coverage", side="at least", limits=limits, figure=_of_tier(tier, "coverage")),
        Bar(name=f"{tier}: validity", side="at least", limits=limits, figure=_of_tier(tier, "valid")),
    )


BARS: Final[tuple[Bar, ...]] = (
    Bar(
        name="faults of the judge",
        side="at most",
        limits=(0, 0, 0),
        figure=lambda record: float(sum(record["judge"]["faults"].values())),
        digits=0,
    ),
    Bar(
        name="faults of the audit records",
        side="at most",
        limits=(0, 0, 0),
        figure=lambda r: float(r["audit_faults"]),
        digits=0,
    ),
    *_valid_bars("near", (0.995, 1.0, 1.0)),
    *_valid_bars("mid", (0.95, 0.97, 0.99)),
    *_valid_bars("far", (0.95, 0.97, 0.99)),
    Bar(name="near: effort", side="at most", limits=(1.10, 0.21, 0.67), figure=_of_tier("near", "effort")),
    Bar(name="near: actions a person", side="at most", limits=(2.4, 1.9, 1.15), figure=_of_tier("near", "actions")),
    *_share_bar("mid", (0.88, 0.90, 0.98), (3.8, 1.4, 1.05)),
    *_share_bar("far", (0.93, 0.96, 0.99), (5.5, 2.6, 1.3)),
    Bar(name="far: manifold distance", side="at most", limits=(2.45, 2.4, 1.8), figure=_of_tier("far", "manifold")),
    Bar(
        name="published robust_share against the unseen models, worst tier",
        side="at most",
        limits=(0.03, 0.03, 0.03),
        figure=_worst_apart,
    ),
    Bar(
        name="time of a whole answer by treecf's fast one",
        side="at most",
        limits=(0.5, 0.5, 0.5),
        figure=lambda record: record["time_ratio"],
    ),
)


def verdicts(records: Iterable[Record]) -> list[Verdict]:
    """Hold the records of our cases against every bar. A bar whose figure a record lacks counts as not reached: infinite."""
    cases: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record["part"] == "bars" and record["method"] == "ours":
            cases.setdefault((record["dataset"], record["library"]), []).append(record)
    return [
        Verdict(
            bar=bar,
            dataset=dataset,
            library=library,
            values=tuple(_value(bar, one) for one in sorted(of_case, key=lambda one: one["seed"])),
        )
        for (dataset, library), of_case in sorted(cases.items(), key=lambda case: _rank(*case[0]))
        for bar in BARS
    ]


def _value(bar: Bar, record: Record) -> float:
    value = bar.figure(record)
    if value is None:
        return float("-inf") if bar.side == "at least" else float("inf")
    return value


def _rank(dataset: str, library: str) -> tuple[bool, int]:
    return library != "xgboost", LABELLED.index(dataset)
