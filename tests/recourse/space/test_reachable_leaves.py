from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.forest.cells import cells_of
from stream.forest.trees import SavedNode, build_forest
from stream.forest.walk import leaf_slots
from stream.recourse.space.joint_trees import joint_trees
from stream.recourse.space.margin_profiles import cell_trees
from stream.recourse.space.moves import no_moves
from stream.recourse.space.reachable_leaves import FIRST_ROOM, NO_TABLE, ReachableLeaves, reachable_leaves
from tests.recourse.lenders import Library, Rows, kind
from tests.recourse.planted import CellsOfRow, Planted
from tests.recourse.planted_moves import Case, case_at_random

LIBRARIES = pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
SEEDS = st.integers(0, 2**32 - 1)
STATES = 200


def lets_in(case: Case, leaves: ReachableLeaves, bar: int) -> CellsOfRow:
    """The places of a bar's slot that it lets in, read off as the docstring says."""
    start = case.moves.start[leaves.slot[bar] :]
    places = int(start[1] - start[0])
    if leaves.table[bar] != NO_TABLE:
        return np.flatnonzero(leaves.tables[leaves.table[bar] : leaves.table[bar] + places]).astype(np.int32)
    missing = [places - 1] if leaves.at_missing[bar] else []
    return np.array([*range(int(leaves.low[bar]), int(leaves.high[bar]) + 1), *missing], np.int32)


def bars_of(leaves: ReachableLeaves, leaf: int) -> list[int]:
    """The bars of one leaf."""
    found: list[int] = leaves.of_leaf[leaves.first_bar[leaf] : leaves.first_bar[leaf + 1]].tolist()
    return found


def open_in(case: Case, leaves: ReachableLeaves, states: CellsOfRow) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Whether each state is let in by all bars of each leaf. Shape: (n, leaves)."""
    found = np.ones((len(states), len(leaves.weight)), np.bool_)
    for bar, leaf in enumerate(leaves.leaf.tolist()):
        found[:, leaf] &= np.isin(states[:, leaves.slot[bar]], lets_in(case, leaves, bar))
    return found


def sums_of(leaves: ReachableLeaves, let_in: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> Rows:
    """What a state amounts to: base, and the leaves that let it in. Shape: (n, models)."""
    of = np.arange(len(leaves.base))[:, None] == leaves.model
    found: Rows = leaves.base + np.where(let_in, leaves.weight, 0.0) @ of.T.astype(np.float64)
    return found


@LIBRARIES
@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, models=st.integers(1, 4))
def test_leaves_say_of_every_state_what_the_models_do(library: Library, seed: int, models: int) -> None:
    """Given any models and moves, base and the leaves that let a state in sum, for every model, to the exact margin of its row; and of each tree that is not in base one leaf does."""
    rng = np.random.default_rng(seed)
    case = case_at_random(rng, library, models=models)
    leaves, states = case.leaves(), case.some_states(rng, STATES)
    let_in = open_in(case, leaves, states)
    assert sums_of(leaves, let_in).tolist() == case.margins(states).tolist()
    for m, model in enumerate(case.models):
        counts = let_in[:, leaves.model == m].sum(axis=1)
        assert len(set(counts.tolist())) == 1
        assert counts[0] <= model.forest.trees


@LIBRARIES
@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, models=st.integers(1, 4))
def test_bars_are_listed_by_leaf_and_by_slot(library: Library, seed: int, models: int) -> None:
    """Given any models and moves, each bar is that of one leaf and stands among those of its slot; each leaf has bars, one a slot and none of a feature that moves with others; and tables are where some split of the model parts cells otherwise than at a rank, and of units."""
    case = case_at_random(np.random.default_rng(seed), library, models=models)
    leaves = case.leaves()
    assert sorted(leaves.of_leaf.tolist()) == list(range(len(leaves.leaf)))
    for leaf in range(len(leaves.weight)):
        bars = bars_of(leaves, leaf)
        assert leaves.leaf[bars].tolist() == [leaf] * len(bars)
        slots = leaves.slot[bars].tolist()
        assert len(slots) == len(set(slots)) > 0
        assert not {*slots} & {j for unit in case.units for j in unit}
        assert (leaves.table[bars] != NO_TABLE).tolist() == leaves.tabled[leaves.model[leaf], slots].tolist()
    slots_sorted = np.repeat(np.arange(len(case.moves.own)), np.diff(leaves.first_of_slot))
    assert leaves.slot.tolist() == slots_sorted.tolist()
    for m, model in enumerate(case.models):
        tabled = [*(~model.trees.by_rank).tolist(), *(True for _ in case.units)]
        assert leaves.tabled[m].tolist() == tabled


def permit_between(case: Case) -> None:
    """Permit what lies between the least and the greatest permitted cell of each feature that moves alone; from missing, all."""
    for slot in range(case.features):
        known = [place for place in case.places(slot) if not case.cells.is_missing(slot, place)]
        if any(slot in unit for unit in case.units) or case.cells.count(slot) == 1:
            continue
        if case.cells.is_missing(slot, int(case.moves.own[slot])):
            known = [0, case.cells.count(slot) - 2]
        price = case.moves.price[case.moves.start[slot] :][min(known) : max(known) + 1]
        price[~np.isfinite(price)] = 1.0


@LIBRARIES
@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, models=st.integers(1, 4))
def test_what_nobody_can_reach_is_not_listed(library: Library, seed: int, models: int) -> None:
    """Given any moves of which none skips a cell, and from missing moves to all, each leaf listed is one that some permitted state is in."""
    case = case_at_random(np.random.default_rng(seed), library, models=models)
    permit_between(case)
    leaves = case.leaves()
    for bar, slot in enumerate(leaves.slot.tolist()):
        assert {*case.places(slot)} & {*lets_in(case, leaves, bar).tolist()}


@LIBRARIES
@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, models=st.integers(1, 4))
def test_missing_is_let_in_where_one_can_be_missing(library: Library, seed: int, models: int) -> None:
    """Given a person who is not missing, no interval lets missing in; a leaf that only missing leads to is not within their reach."""
    case = case_at_random(np.random.default_rng(seed), library, models=models)
    leaves = case.leaves()
    for bar in np.flatnonzero(leaves.at_missing).tolist():
        slot = int(leaves.slot[bar])
        assert case.cells.is_missing(slot, int(case.moves.own[slot]))
    of_intervals = (leaves.table == NO_TABLE) & ~leaves.at_missing
    assert (leaves.low <= leaves.high)[of_intervals].all()


def weights_reached(case: Case, m: int) -> list[list[float]]:
    """The weights of the leaves, tree by tree, that any permitted state comes to."""
    model, states = case.models[m], np.array([*case.states()])
    slots = leaf_slots(model.forest, model.rows(np.ascontiguousarray(states[:, : case.features])))
    weight = case.sign * model.forest.weight.astype(np.float64)
    return [weight[np.unique(of_tree)].tolist() for of_tree in slots.T]


@LIBRARIES
@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, models=st.integers(1, 4))
def test_a_tree_of_one_leaf_within_reach_is_in_base(library: Library, seed: int, models: int) -> None:
    """Given any moves, base is the model's own and the sum of the trees that lead every state to one leaf; where no move skips a cell, and from missing all are open, the leaves listed are just those of the other trees that states come to."""
    case = case_at_random(np.random.default_rng(seed), library, models=models, features=2)
    for fewer in (True, False):
        if not fewer:
            permit_between(case)
        leaves = case.leaves()
        for m in range(models):
            alone = [one[0] for one in weights_reached(case, m) if len(one) == 1]
            assert leaves.base[m] == case.joint.base[m] + sum(alone)
    for m in range(models):
        listed = [weight for one in weights_reached(case, m) if len(one) > 1 for weight in one]
        assert sorted(leaves.weight[leaves.model == m].tolist()) == sorted(listed)


@LIBRARIES
@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, models=st.integers(1, 4))
def test_to_who_may_go_nowhere_all_is_base(library: Library, seed: int, models: int) -> None:
    """Given no moves from any cells, no leaf is listed, and base is every model's margin there."""
    rng = np.random.default_rng(seed)
    case = case_at_random(rng, library, models=models)
    own = case.state(rng)[: case.features].copy()
    moves = no_moves(case.joint.trees)
    moves.price[moves.start[:-1]] = np.inf
    moves.price[moves.start[:-1] + own] = 0.0
    leaves = reachable_leaves(case.joint, moves._replace(own=own), np.arange(models))
    assert not len(leaves.weight) + len(leaves.leaf) + len(leaves.tables)
    assert leaves.base.tolist() == case.margins(own[None])[0].tolist()


@LIBRARIES
@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, models=st.integers(1, 4))
def test_only_those_asked_are_listed_and_in_their_order(library: Library, seed: int, models: int) -> None:
    """Given some of the models in any order, each has the leaves that it has when all are asked."""
    rng = np.random.default_rng(seed)
    case = case_at_random(rng, library, models=models)
    asked = rng.permutation(models)[: int(rng.integers(1, models + 1))]
    leaves, states = reachable_leaves(case.joint, case.moves, asked), case.some_states(rng, STATES)
    assert sums_of(leaves, open_in(case, leaves, states)).tolist() == case.margins(states)[:, asked].tolist()
    whole = case.leaves()
    for k, m in enumerate(asked.tolist()):
        assert leaves.weight[leaves.model == k].tolist() == whole.weight[whole.model == m].tolist()
        assert leaves.tabled[k].tolist() == whole.tabled[m].tolist()


def test_more_leaves_than_there_is_room_for_at_first() -> None:
    """Given more leaves, bars and tables than a first allocation holds, totals of states are still exact."""
    trees = [tree_of_all_cells(k) for k in range(140)]
    forest = build_forest(trees, kind("xgboost", ("number", "category"), is_category=(False, True), base_margin=0.25))
    cells = cells_of(forest)
    planted = Planted(forest=forest, cells=cells, trees=cell_trees(forest, cells, 1), sign=1)
    moves = no_moves(planted.trees)
    moves.price[:] = 1.0
    case = Case(models=(planted,), cells=cells, joint=joint_trees([forest], cells, 1), moves=moves, units=(), sign=1)
    leaves = case.leaves()
    assert min(len(leaves.weight), len(leaves.leaf), len(leaves.tables)) > FIRST_ROOM
    states = np.array([case.state(np.random.default_rng(k)) for k in range(5)])
    let_in = np.ones((len(states), len(leaves.weight)), np.bool_)
    for slot in range(2):
        bars = np.arange(*leaves.first_of_slot[slot : slot + 2])
        for k, place in enumerate(states[:, slot].tolist()):
            inside = (leaves.low[bars] <= place) & (place <= leaves.high[bars])
            if slot == 1:
                inside = leaves.tables[leaves.table[bars] + place]
            let_in[k, leaves.leaf[bars]] &= inside
    assert sums_of(leaves, let_in).tolist() == case.margins(states).tolist()


def tree_of_all_cells(k: int) -> list[SavedNode]:
    """A tree that lists one category, and on its either side parts a number at each of 256 places."""
    nodes: list[SavedNode] = [SavedNode(number=0, feature=1, value=0.0, categories=frozenset({k % 3}))]

    def grow(low: int, high: int) -> int:
        place = len(nodes)
        nodes.append(SavedNode(number=place, value=((37 * place + k) % 65 - 32) / 8))
        if high - low > 1:
            middle = (low + high) // 2
            split = SavedNode(number=place, feature=0, value=float(middle), default_left=bool(k % 2))
            nodes[place] = dataclasses.replace(split, left=grow(low, middle), right=grow(middle, high))
        return place

    nodes[0] = dataclasses.replace(nodes[0], left=grow(0, 256), right=grow(0, 256))
    return nodes
