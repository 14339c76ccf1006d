"""The paper's protocol: cross-validation, repeated; every method answers the same declined people of each split.

One unit of work is one model on one split. What a unit's methods answered is measured per query and kept a line a method.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from stream.events import TierName
from stream.recourse.answer import Answer
from stream.recourse.model import PublishedModel
from tests.evaluation import ours
from tests.evaluation.baselines.every import EVERY
from tests.evaluation.baselines.interface import Method, Rows, Setting
from tests.evaluation.baselines.treecf_search import Treecf
from tests.evaluation.datasets import Dataset, read_dataset
from tests.evaluation.metrics import Yardstick, measured, yardstick
from tests.evaluation.paper_method import PaperCoach
from tests.evaluation.results import Record, Results
from tests.evaluation.sizes import FOLDS, LIBRARIES, Size
from tests.evaluation.training import Kind, bootstraps, margins_by, setting_of

TEST_SHARE: Final = 1 / (FOLDS - 1)  # test rows by training rows, which the corrected t-test asks for
PEOPLE: Final = "people"  # the record of a unit that is about no method: the genuine reference, and how many
OURS: Final = tuple(f"ours, {tier}" for tier in ours.TIERS)
PAPERS: Final = ("COACH", "COACH, constraint-aware")
SURPLUS: Final = 2.0  # of margin, with which treecf's answers last about as long as ours
ASKED: Final[Mapping[str, Callable[[Setting], Method]]] = {
    **EVERY,
    f"treecf fast surplus {SURPLUS:g}": partial(Treecf, surplus=SURPLUS),
}
RETRAINED_SEED: Final = 3_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One model on one split. `main` units run every method, the others ours and the paper's."""

    dataset: str
    kind: Kind
    split: int
    main: bool
    queries: int

    @property
    def name(self) -> str:
        """How its file is called."""
        kind = self.kind
        return f"protocol-{self.dataset}-{kind.library}-{kind.depth}-{kind.trees}-{self.split:02d}"

    @property
    def methods(self) -> tuple[str, ...]:
        """Whose records it has."""
        return (PEOPLE, *OURS, *PAPERS, *(ASKED if self.main else ()))

    def said(self) -> Record:
        """What its records begin with."""
        return {
            "part": "protocol",
            "main": self.main,
            "dataset": self.dataset,
            **asdict(self.kind),
            "split": self.split,
        }


def units(size: Size) -> list[Unit]:
    """Every unit of a size; the dear ones first, so that no process is left alone with one at the end."""
    main = Kind("xgboost", size.depth, size.trees)
    of_main = [
        Unit(dataset=dataset, kind=main, split=split, main=True, queries=size.queries)
        for split in range(min(size.splits_max, size.repeats * FOLDS))
        for dataset in size.datasets
    ]
    kinds = [
        Kind(library, depth, trees)
        for trees in size.other_trees
        for depth in size.other_depths
        for library in LIBRARIES
    ]
    others = [
        Unit(dataset=dataset, kind=kind, split=split, main=False, queries=size.other_queries)
        for kind in kinds
        if kind != main
        for split in range(size.other_splits)
        for dataset in size.other_datasets
    ]
    return sorted(others, key=lambda unit: -unit.kind.trees * 2**unit.kind.depth) + of_main


def split_of(dataset: Dataset, split: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The training and test rows of a split: fold `split % 5` of repetition `split // 5`."""
    repeat, fold = divmod(split, FOLDS)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=repeat)
    train_rows, test_rows = list(folds.split(dataset.x, dataset.y))[fold]
    return train_rows, test_rows


class Bench:
    """A unit's model and its declined people; what is dear is made when it is first asked for."""

    def __init__(self, unit: Unit, size: Size) -> None:
        dataset = read_dataset(unit.dataset)
        train_rows, test_rows = split_of(dataset, unit.split)
        self.unit, self.size = unit, size
        self.setting: Setting = setting_of(unit.kind, dataset, train_rows, unit.split)
        x = dataset.x[test_rows]
        declined = np.flatnonzero(~self.setting.accepts(x))
        drawn = np.random.default_rng(unit.split).permutation(declined)[: unit.queries]
        self.declined = len(declined)
        self.rows: Rows = x[np.sort(drawn)]

    @cached_property
    def yard(self) -> Yardstick:
        """What answers are measured with."""
        count = self.size.retrained if self.unit.main else self.size.other_retrained
        boosters = bootstraps(self.unit.kind, self.setting, count, RETRAINED_SEED + self.unit.split)
        return yardstick(self.setting, [margins_by(b, self.unit.kind.library, self.setting.columns) for b in boosters])

    @cached_property
    def model(self) -> PublishedModel:
        """This project's model, with its shadows."""
        shadows = self.size.shadows if self.unit.main else self.size.other_shadows
        return ours.published(self.setting, self.unit.kind, shadows)

    def measured(self, targets: Sequence[Rows | None]) -> Record:
        """Measure the targets as they were given, and with forbidden moves undone."""
        return {
            "free": measured(self.yard, self.rows, targets, undo=False),
            "feasible": measured(self.yard, self.rows, targets, undo=True),
        }


def run_unit(unit: Unit, size: Size, results: Results) -> None:
    """Run the methods of a unit whose records are not there yet."""
    absent = [name for name in unit.methods if name not in results.of(unit.name)]
    if not absent:
        return
    bench = Bench(unit, size)
    for record in _records(bench, absent):
        results.add(unit.name, unit.said() | record)


def _records(bench: Bench, absent: Sequence[str]) -> Iterator[Record]:
    if PEOPLE in absent:
        yield _people(bench)
    if not set(OURS).isdisjoint(absent):
        yield from _ours(bench)
    for name in absent:
        if name in PAPERS:
            yield _papers(bench, name)
        elif name in ASKED:
            yield {"method": name, **_asked(bench, ASKED[name](bench.setting))}


def _people(bench: Bench) -> Record:
    own = bench.yard.manifold(bench.rows)
    return {
        "method": PEOPLE,
        "features": len(bench.setting.columns),
        "training": len(bench.setting.x),
        "accepted": int(bench.setting.accepted.sum()),
        "declined": bench.declined,
        "queries": len(bench.rows),
        "genuine": bench.yard.genuine(),
        "declined_manifold": float(own.mean()),
    }


def _asked(bench: Bench, method: Method) -> Record:
    """Ask a method row by row, after one row that does not count."""
    method.answer(bench.rows[0])
    targets, elapsed = [], []
    for row in bench.rows:
        began = time.perf_counter()
        targets.append(method.answer(row))
        elapsed.append((time.perf_counter() - began) * 1000)
    return {"ms": elapsed, **bench.measured(targets)}


def _papers(bench: Bench, name: str) -> Record:
    coach = PaperCoach(bench.setting, bench.model, aware=name == PAPERS[1])
    compared = [coach.compared(row) for row in bench.rows]
    return {
        "method": name,
        **_asked(bench, coach),
        "agreement": [one.agreement for one in compared],
        "top_k": _top_k(bench, lambda most: [one.target(most) for one in compared], undo=name == PAPERS[1]),
    }


def _top_k(bench: Bench, targets: Callable[[int], Sequence[Rows | None]], *, undo: bool) -> dict[str, list[int]]:
    """Per k, which queries the model accepts when only the k rows of the largest contribution are acted on."""
    return {str(k): measured(bench.yard, bench.rows, targets(k), undo=undo)["valid"] for k in ours.TOP_K}


def _ours(bench: Bench) -> Iterator[Record]:
    """One answer a row holds all three tiers; a record each."""
    model, columns = bench.model, bench.setting.columns
    ours.timed(model, bench.rows[0])
    found = [ours.timed(model, row) for row in bench.rows]
    answers: list[Answer] = [one for one, _ in found]
    checked = [ours.audited(one) for one in answers]
    shared: dict[str, Any] = {
        "ms": [elapsed for _, elapsed in found],
        "audit": {
            "coverage": min(float(one.coverage) for one in checked),
            "error": max(float(one.error) for one in checked),
            "faults": sum(one.faults for one in checked),
        },
        "proven": sum(bool(one.recommendation["proven"]) for one in answers),
    }
    for tier, name in zip(ours.TIERS, OURS, strict=True):

        def acted(most: int | None = None, tier: TierName = tier) -> list[Rows | None]:
            pairs = zip(bench.rows, answers, strict=True)
            return [ours.targets(row, one, columns, most).get(tier) for row, one in pairs]

        yield {
            "method": name,
            **shared,
            **bench.measured(acted()),
            "robust_share": [ours.robust_shares(one).get(tier) for one in answers],
            "top_k": _top_k(bench, acted, undo=True),
        }
