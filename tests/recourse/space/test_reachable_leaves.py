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
from stream.recourse.space.reachable_leaves import INITIAL_CAPACITY, NO_TABLE, ReachableLeaves, reachable_leaves
from tests.examples import examples
from tests.recourse.lenders import Library, Rows, kind
from tests.recourse.planted import CellsOfRow, Planted
from tests.recourse.planted_moves import Case, case_at_random

LIBRARIES = pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
SEEDS = st.integers(0, 2**32 - 1)
STATES = 200


def meets(case: Case, leaves: ReachableLeaves, condition: int) -> CellsOfRow:
    """The options of its slot that meet a condition, read as the docstring says."""
    start = case.moves.start[leaves.slot[condition] :]
    options = int(start[1] - start[0])
    if leaves.table[condition] != NO_TABLE:
        return np.flatnonzero(leaves.tables[leaves.table[condition] : leaves.table[condition] + options]).astype(
            np.int32
        )
    missing = [options - 1] if leaves.at_missing[condition] else []
    return np.array([*range(int(leaves.low[condition]), int(leaves.high[condition]) + 1), *missing], np.int32)


def conditions_of(leaves: ReachableLeaves, leaf: int) -> list[int]:
    """The conditions of one leaf."""
    found: list[int] = leaves.conditions[leaves.first_condition[leaf] : leaves.first_condition[leaf + 1]].tolist()
    return found


def leaves_met(
    case: Case, leaves: ReachableLeaves, states: CellsOfRow
) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Whether each state meets all conditions of each leaf. Shape: (n, leaves)."""
    found = np.ones((len(states), len(leaves.weight)), np.bool_)
    for condition, leaf in enumerate(leaves.leaf.tolist()):
        found[:, leaf] &= np.isin(states[:, leaves.slot[condition]], meets(case, leaves, condition))
    return found


def sums_of(leaves: ReachableLeaves, met: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> Rows:
    """The margin of each state: base, and the leaves whose conditions it meets. Shape: (n, models)."""
    of = np.arange(len(leaves.base))[:, None] == leaves.model
    found: Rows = leaves.base + np.where(met, leaves.weight, 0.0) @ of.T.astype(np.float64)
    return found


@LIBRARIES
@settings(max_examples=examples(100), deadline=None)
@given(seed=SEEDS, models=st.integers(1, 4))
def test_leaves_sum_to_the_margin_of_every_state(library: Library, seed: int, models: int) -> None:
    """Given any models and moves, base and the leaves whose conditions a state meets sum, for every model, to the exact margin of its row; and each tree that is not in base has one such leaf."""
    rng = np.random.default_rng(seed)
    case = case_at_random(rng, library, models=models)
    leaves, states = case.leaves(), case.some_states(rng, STATES)
    met = leaves_met(case, leaves, states)
    assert sums_of(leaves, met).tolist() == case.margins(states).tolist()
    for m, model in enumerate(case.models):
        counts = met[:, leaves.model == m].sum(axis=1)
        assert len(set(counts.tolist())) == 1
        assert counts[0] <= model.forest.trees


@LIBRARIES
@settings(max_examples=examples(100), deadline=None)
@given(seed=SEEDS, models=st.integers(1, 4))
def test_conditions_are_listed_by_leaf_and_by_slot(library: Library, seed: int, models: int) -> None:
    """Given any models and moves, each condition belongs to one leaf and is listed under its slot; each leaf has conditions, at most one a slot and none on a feature that moves with others; and conditions are tables on units and on features that some split does not cut at a rank."""
    case = case_at_random(np.random.default_rng(seed), library, models=models)
    leaves = case.leaves()
    assert sorted(leaves.conditions.tolist()) == list(range(len(leaves.leaf)))
    for leaf in range(len(leaves.weight)):
        conditions = conditions_of(leaves, leaf)
        assert leaves.leaf[conditions].tolist() == [leaf] * len(conditions)
        slots = leaves.slot[conditions].tolist()
        assert len(slots) == len(set(slots)) > 0
        assert not {*slots} & {j for unit in case.units for j in unit}
        assert (leaves.table[conditions] != NO_TABLE).tolist() == leaves.is_table[leaves.model[leaf], slots].tolist()
    slots_sorted = np.repeat(np.arange(len(case.moves.own)), np.diff(leaves.first_of_slot))
    assert leaves.slot.tolist() == slots_sorted.tolist()
    for m, model in enumerate(case.models):
        is_table = [*(~model.trees.by_rank).tolist(), *(True for _ in case.units)]
        assert leaves.is_table[m].tolist() == is_table


def permit_between(case: Case) -> None:
    """Permit every cell between the least and the greatest permitted one of each feature that moves alone; from missing, all."""
    for slot in range(case.features):
        known = [option for option in case.options(slot) if not case.cells.is_missing(slot, option)]
        if any(slot in unit for unit in case.units) or case.cells.count(slot) == 1:
            continue
        if case.cells.is_missing(slot, int(case.moves.own[slot])):
            known = [0, case.cells.count(slot) - 2]
        price = case.moves.price[case.moves.start[slot] :][min(known) : max(known) + 1]
        price[~np.isfinite(price)] = 1.0


@LIBRARIES
@settings(max_examples=examples(100), deadline=None)
@given(seed=SEEDS, models=st.integers(1, 4))
def test_unreachable_leaves_are_not_listed(library: Library, seed: int, models: int) -> None:
    """Given moves that skip no cell, and from missing reach all cells, some permitted state reaches each listed leaf."""
    case = case_at_random(np.random.default_rng(seed), library, models=models)
    permit_between(case)
    leaves = case.leaves()
    for condition, slot in enumerate(leaves.slot.tolist()):
        assert {*case.options(slot)} & {*meets(case, leaves, condition).tolist()}


@LIBRARIES
@settings(max_examples=examples(100), deadline=None)
@given(seed=SEEDS, models=st.integers(1, 4))
def test_missing_meets_conditions_only_of_a_person_who_is_missing(library: Library, seed: int, models: int) -> None:
    """Given a person whose value is known, missing meets no interval; a leaf that only missing leads to is not listed."""
    case = case_at_random(np.random.default_rng(seed), library, models=models)
    leaves = case.leaves()
    for condition in np.flatnonzero(leaves.at_missing).tolist():
        slot = int(leaves.slot[condition])
        assert case.cells.is_missing(slot, int(case.moves.own[slot]))
    of_intervals = (leaves.table == NO_TABLE) & ~leaves.at_missing
    assert (leaves.low <= leaves.high)[of_intervals].all()


def weights_reached(case: Case, m: int) -> list[list[float]]:
    """The weights of the leaves, tree by tree, that the permitted states reach."""
    model, states = case.models[m], np.array([*case.states()])
    slots = leaf_slots(model.forest, model.rows(np.ascontiguousarray(states[:, : case.features])))
    weight = case.sign * model.forest.weight.astype(np.float64)
    return [weight[np.unique(of_tree)].tolist() for of_tree in slots.T]


@LIBRARIES
@settings(max_examples=examples(100), deadline=None)
@given(seed=SEEDS, models=st.integers(1, 4))
def test_a_tree_with_one_reachable_leaf_is_in_base(library: Library, seed: int, models: int) -> None:
    """Given any moves, base is the base margin and the sum of the trees in which every state reaches one leaf; where no move skips a cell, and from missing all cells are permitted, the listed leaves are exactly those of the other trees that states reach."""
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
@settings(max_examples=examples(40), deadline=None)
@given(seed=SEEDS, models=st.integers(1, 4))
def test_without_permitted_moves_all_is_base(library: Library, seed: int, models: int) -> None:
    """Given no permitted moves, no leaf is listed, and base is every model's margin."""
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
@settings(max_examples=examples(60), deadline=None)
@given(seed=SEEDS, models=st.integers(1, 4))
def test_only_searched_models_are_listed_in_their_order(library: Library, seed: int, models: int) -> None:
    """Given some of the models in any order, each has the leaves that it has when all are searched."""
    rng = np.random.default_rng(seed)
    case = case_at_random(rng, library, models=models)
    searched = rng.permutation(models)[: int(rng.integers(1, models + 1))]
    leaves, states = reachable_leaves(case.joint, case.moves, searched), case.some_states(rng, STATES)
    assert sums_of(leaves, leaves_met(case, leaves, states)).tolist() == case.margins(states)[:, searched].tolist()
    whole = case.leaves()
    for k, m in enumerate(searched.tolist()):
        assert leaves.weight[leaves.model == k].tolist() == whole.weight[whole.model == m].tolist()
        assert leaves.is_table[k].tolist() == whole.is_table[m].tolist()


def test_arrays_grow_beyond_their_initial_capacity() -> None:
    """Given more leaves, conditions and tables than a first allocation holds, totals of states are still exact."""
    trees = [tree_of_all_cells(k) for k in range(140)]
    forest = build_forest(trees, kind("xgboost", ("number", "category"), is_category=(False, True), base_margin=0.25))
    cells = cells_of(forest)
    planted = Planted(forest=forest, cells=cells, trees=cell_trees(forest, cells, 1), sign=1)
    moves = no_moves(planted.trees)
    moves.price[:] = 1.0
    case = Case(models=(planted,), cells=cells, joint=joint_trees([forest], cells, 1), moves=moves, units=(), sign=1)
    leaves = case.leaves()
    assert min(len(leaves.weight), len(leaves.leaf), len(leaves.tables)) > INITIAL_CAPACITY
    states = np.array([case.state(np.random.default_rng(k)) for k in range(5)])
    met = np.ones((len(states), len(leaves.weight)), np.bool_)
    for slot in range(2):
        conditions = np.arange(*leaves.first_of_slot[slot : slot + 2])
        for k, option in enumerate(states[:, slot].tolist()):
            inside = (leaves.low[conditions] <= option) & (option <= leaves.high[conditions])
            if slot == 1:
                inside = leaves.tables[leaves.table[conditions] + option]
            met[k, leaves.leaf[conditions]] &= inside
    assert sums_of(leaves, met).tolist() == case.margins(states).tolist()


def tree_of_all_cells(k: int) -> list[SavedNode]:
    """A tree that splits on one category, and below either side cuts a number at each of 256 thresholds."""
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
