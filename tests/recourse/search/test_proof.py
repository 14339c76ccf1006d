from __future__ import annotations

import dataclasses
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.recourse.rules.feature_rule import Mutability
from stream.recourse.search.proof import Proof, prove, prove_for
from stream.recourse.space import leaf_regions
from stream.recourse.space.leaf_regions import UnitCells
from stream.recourse.space.person_reach import PersonReach, person_reach
from tests.examples import examples
from tests.recourse.category_lenders import category_lender
from tests.recourse.lenders import LENDERS, Approve, Lender, Library, Rows, lender
from tests.recourse.planted import CellsOfRow, Planted, Sort, planted

Permitted = npt.NDArray[np.bool_]
LIBRARIES = pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
PAIRS = pytest.mark.parametrize(("library", "approve"), LENDERS)
SEEDS = st.integers(0, 2**32 - 1)
SORTS: tuple[Sort, ...] = ("number", "number", "category", "zero")
ENOUGH = 100_000


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """A small forest, a row and what it may change; leaves are in eighths, so that all sums are exact."""

    forest: Planted
    own: CellsOfRow
    permitted: Permitted
    units: tuple[UnitCells, ...]

    def every(self) -> CellsOfRow:
        """All rows within reach. Shape: (n, features)."""
        start = self.forest.trees.start
        together = {j for unit in self.units for j in unit.members}
        choices: list[list[dict[int, int]]] = [
            [dict(zip(unit.members, cells, strict=True)) for cells in unit.cells.tolist()] for unit in self.units
        ]
        for j in set(range(len(self.own))) - together:
            open_to = self.permitted[start[j] : start[j + 1]].copy()
            open_to[self.own[j]] = True
            choices.append([{j: int(cell)} for cell in np.flatnonzero(open_to)])
        rows = [{j: cell for choice in chosen for j, cell in choice.items()} for chosen in product(*choices)]
        return np.array([[row[j] for j in range(len(self.own))] for row in rows], np.int32)

    def ask(self, goal: float, *, regions_max: int = ENOUGH) -> Proof:
        """Ask for rows whose leaves sum to `goal`."""
        forest, sign = self.forest, self.forest.sign
        return prove(
            forest.forest,
            forest.trees,
            self.own,
            self.permitted,
            cutoff=sign * goal,
            sign=sign,
            units=self.units,
            regions_max=regions_max,
        )


def question(seed: int, library: Library, *, trees: int = 12) -> Question:
    rng = np.random.default_rng(seed)
    sorts = tuple(rng.permutation(np.array(SORTS, object))[: int(rng.integers(1, 5))].tolist())
    forest = planted(
        rng, library, sorts, trees=int(rng.integers(1, trees + 1)), depth=int(rng.integers(0, 5)), thresholds=3
    )
    counts = [forest.cells.count(j) for j in range(len(sorts))]
    own = np.array([rng.integers(count) for count in counts], np.int32)
    units: tuple[UnitCells, ...] = ()
    if len(sorts) > 1 and rng.random() < 0.5:
        members = tuple(sorted(rng.permutation(len(sorts))[:2].tolist()))
        others = [[int(rng.integers(counts[j])) for j in members] for _ in range(int(rng.integers(0, 9)))]
        units = (UnitCells(members, np.array([own[list(members)].tolist(), *others], np.int32)),)
    permitted = rng.random(int(forest.trees.start[-1])) < rng.choice([0.0, 0.3, 0.8, 1.0])
    return Question(forest=forest, own=own, permitted=permitted, units=units)


@LIBRARIES
@settings(max_examples=examples(200), deadline=None)
@given(seed=SEEDS)
def test_a_proof_agrees_with_trying_everything(library: Library, seed: int) -> None:
    """Given any forest, row, permitted cells and unit, the greatest sum within reach is found, at the alternative of the unit that the proof names, and an eighth more is proven to be out of reach; a second proof is the same."""
    asked = question(seed, library)
    every = asked.every()
    sums = asked.forest.sums(every)
    greatest = float(sums.max())
    found = asked.ask(greatest)
    assert found.outcome == "found"
    assert found.cells is not None
    assert found.alternatives is not None
    assert set(sums[(every == found.cells).all(axis=1)].tolist()) == {greatest}
    for unit, taken in zip(asked.units, found.alternatives.tolist(), strict=True):
        assert found.cells[list(unit.members)].tolist() == unit.cells[taken].tolist()
    again = asked.ask(greatest)
    assert (again.cells is not None, again.regions) == (True, found.regions)
    assert again.cells is not None
    assert again.cells.tobytes() == found.cells.tobytes()
    assert asked.ask(greatest + 1 / 8)[:3] == ("none", None, None)


@LIBRARIES
@settings(max_examples=examples(100), deadline=None)
@given(seed=SEEDS, regions_max=st.integers(1, 9), share=st.floats(0.0, 1.2))
def test_a_small_budget_is_kept_and_makes_no_false_claim(
    library: Library, seed: int, regions_max: int, share: float
) -> None:
    """Given a budget of a few regions, no more are searched, and every outcome is true or unknown."""
    asked = question(seed, library)
    sums = asked.forest.sums(asked.every())
    goal = float(np.round(8 * (sums.min() + share * np.ptp(sums))) / 8)
    said = asked.ask(goal, regions_max=regions_max)
    assert 1 <= said.regions <= regions_max
    assert said.outcome in {"found" if (sums >= goal).any() else "none", "unknown"}


@LIBRARIES
def test_one_region_is_enough_for_some_and_not_for_others(library: Library) -> None:
    """Given 200 forests and the least goal out of reach, a budget of one region gives "none" or "unknown", each at times, and a large budget always "none"; the hardest needs more than ten regions."""
    said, regions = [], []
    for seed in range(200):
        asked = question(seed, library, trees=60)
        goal = float(asked.forest.sums(asked.every()).max()) + 1 / 8
        said.append(asked.ask(goal, regions_max=1).outcome)
        settled = asked.ask(goal)
        regions.append(settled.regions)
        assert settled.outcome == "none"
        assert (said[-1] == "none") == (regions[-1] == 1)
    assert set(said) == {"none", "unknown"}
    assert max(regions) > 10


@LIBRARIES
@settings(max_examples=examples(100), deadline=None)
@given(seed=SEEDS, more=SEEDS, share=st.floats(0.0, 1.2))
def test_more_permitted_cells_never_turn_found_into_none(library: Library, seed: int, more: int, share: float) -> None:
    """Given more permitted cells, what was found is never proven impossible, whether the budget suffices or not."""
    asked = question(seed, library)
    sums = asked.forest.sums(asked.every())
    goal = float(np.round(8 * (sums.min() + share * np.ptp(sums))) / 8)
    wider = asked.permitted | (np.random.default_rng(more).random(len(asked.permitted)) < 0.5)
    freer = dataclasses.replace(asked, permitted=wider)
    for regions_max in (3, ENOUGH):
        if asked.ask(goal, regions_max=regions_max).outcome != "none":
            assert freer.ask(goal, regions_max=regions_max).outcome != "none" or not (sums >= goal).any()
        if freer.ask(goal, regions_max=regions_max).outcome == "none":
            assert asked.ask(goal, regions_max=ENOUGH).outcome == "none"


def reach_with(shop: Lender, row: npt.NDArray[np.float64], movable: list[int]) -> PersonReach:
    """The reach of a person who can change only these features, as far as their mutability permits."""
    model = shop.model
    labels = model.rules.mutabilities({})
    held = np.full_like(labels, Mutability.IMMUTABLE)
    held[movable] = labels[movable]
    cells = model.cells.of(row[None])[0]
    return person_reach(model.rules, model.matrix, model.cell_targets, row=row, cells=cells, mutability=held)


def targets_within(reach: PersonReach) -> Rows:
    """Every target within a person's reach, the own row among them. Shape: (n, features)."""
    choices: list[list[tuple[list[int], list[float]]]] = []
    for u, unit in enumerate(reach.cell_targets.units):
        members = [one.j for one in unit.members]
        choices.append([(members, values) for values in reach.alternatives.of(u)[1].tolist()])
    for j in np.flatnonzero(reach.cell_targets.alone).tolist():
        first, end = reach.cell_targets.start[j : j + 2]
        target_value = reach.target_value[first:end]
        others = [k for k in range(end - first) if k != reach.cells[j] and not np.isnan(target_value[k])]
        choices.append([([j], [float(value)]) for value in [reach.row[j], *target_value[others]]])
    rows = np.repeat(reach.row[None], int(np.prod([len(choice) for choice in choices])), axis=0)
    for row, chosen in zip(rows, product(*choices), strict=True):
        for at, values in chosen:
            row[at] = values
    return rows


@pytest.mark.parametrize("make", [lender, category_lender])
@PAIRS
def test_the_claim_is_about_what_the_library_computes(library: Library, approve: Approve, make: object) -> None:
    """Given people who can change a few features of a trained model: at a cutoff that the library's own best margin within reach just meets, "none" is never said, and what is found meets it, as it mostly is; one float beyond, nothing is found; a hundredth short a target always is, a hundredth beyond never, which is proven."""
    shop: Lender = (lender if make is lender else category_lender)(library, approve)
    forest, trees, sign = shop.model.forest, shop.model.trees, shop.sign
    rng = np.random.default_rng(5)
    met = []
    for row in shop.declined(12):
        reach = reach_with(shop, row, sorted(rng.permutation(len(forest.features))[:3].tolist()))
        targets = targets_within(reach)
        margins = sign * shop.owner.ask(targets, "margin")
        greatest, one_float = margins.max(), np.nextafter(margins.max(), margins.dtype.type(np.inf))
        at = [greatest - 0.01, greatest, one_float, greatest + 0.01]
        short, just, beyond, far = (prove_for(forest, trees, reach, cutoff=sign * float(c), sign=sign) for c in at)
        assert short[0] == "found"
        assert just[0] != "none"
        assert beyond[0] != "found"
        assert far == ("none", None)
        met.append(just[0] == "found")
        for (_, target), least in zip((short, just), at, strict=False):
            if target is not None:
                assert (np.isnan(targets) == np.isnan(target)).all(axis=1).any()
                assert (np.nan_to_num(targets) == np.nan_to_num(target)).all(axis=1).any()
                assert sign * float(shop.owner.ask(target[None], "margin")[0]) >= least
    assert sum(met) >= 8


@LIBRARIES
def test_many_cells_of_a_feature_are_all_seen(library: Library) -> None:
    """Given a model with more than 64 cells of income, the best of all pairs of income and share is found and a hundredth more is proven to be out of reach."""
    shop = lender(library, rows=1_000, trees=60, depth=6)
    assert shop.model.cells.count(0) > 64
    for row in shop.declined(3):
        reach = reach_with(shop, row, [0, 1])
        greatest = float(shop.owner.ask(targets_within(reach), "margin").max())
        outcome, target = prove_for(shop.model.forest, shop.model.trees, reach, cutoff=greatest - 1e-4, sign=1)
        assert outcome == "found"
        assert target is not None
        assert shop.owner.ask(target[None], "margin")[0] >= greatest - 1e-4
        assert prove_for(shop.model.forest, shop.model.trees, reach, cutoff=greatest + 0.01, sign=1)[0] == "none"


def test_a_forest_too_large_to_search_stays_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a forest whose regions exceed the memory bound, the outcome is unknown."""
    asked = question(2, "xgboost", trees=60)
    goal = float(asked.forest.sums(asked.every()).max()) + 1
    assert asked.ask(goal).outcome == "none"
    monkeypatch.setattr(leaf_regions, "WORDS_MAX", 8)
    assert asked.ask(goal) == ("unknown", None, None, 0)
