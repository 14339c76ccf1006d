"""The leaves that one person can reach, each with the options that lead to it.

Most features of a person stay where they are, and most splits on the others lie beyond what the rules permit; such
splits are skipped. What remains of a tree are its leaves, and for each a *condition* per slot that its path splits on:
the options of the slot that lead to the leaf. The conditions decide the leaf for every state the person can be in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from stream.forest.trees import INSIDE
from stream.recourse.space.joint_trees import JointTrees
from stream.recourse.space.margin_profiles import DEPTH_MAX, CellTrees, goes_left, missing_cell
from stream.recourse.space.moves import Moves, first_cell_of, members_of, options_of, price_at

INITIAL_CAPACITY = 1 << 16  # of leaves, conditions and table entries; doubled when full. Chosen by judgement
LEAF, SLOT, LOW, HIGH, AT_MISSING, TABLE = range(6)  # columns of a condition while it is collected
NO_TABLE = -1  # the `table` of a condition that is an interval
UNREACHABLE = -1  # in place of a count: no permitted state meets all conditions of a leaf


class ReachableLeaves(NamedTuple):
    """All leaves that one person can reach, as one argument for numba.

    Shapes: model (leaves,) int32; weight (leaves,) float64, times the policy's sign; conditions (conditions,) int32: those
    of leaf l are conditions[first_condition[l]:first_condition[l + 1]]. The conditions themselves are sorted by slot: those
    of slot s are first_of_slot[s]:first_of_slot[s + 1]. Per condition: its leaf and slot, and the options that meet it:
    low to high, and the missing value's where `at_missing`; or, where `table` is not NO_TABLE, those that are true in
    tables[table + option]. is_table (models, slots): whether the slot's conditions are tables; base (models,) float64:
    the base margin plus all leaves without a condition.
    """

    model: NDArray[np.int32]
    weight: NDArray[np.float64]
    first_condition: NDArray[np.int64]
    conditions: NDArray[np.int32]
    first_of_slot: NDArray[np.int64]
    leaf: NDArray[np.int32]
    slot: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    at_missing: NDArray[np.bool_]
    table: NDArray[np.int32]
    tables: NDArray[np.bool_]
    is_table: NDArray[np.bool_]
    base: NDArray[np.float64]


class _Permitted(NamedTuple):
    """The cells a person can be in. Shapes: cells (cells,); low, high (features,): least and greatest but missing; missing (features,)."""

    cells: NDArray[np.bool_]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    missing: NDArray[np.bool_]


class _Movers(NamedTuple):
    """What moves each feature. Shapes: slot (features,); member (features,): its index within the slot's unit."""

    slot: NDArray[np.int64]
    member: NDArray[np.int64]


@numba.njit(cache=True, nogil=True, forceinline=True)
def conditions_of_slot(leaves: ReachableLeaves, slot: int) -> tuple[int, int]:
    """The first condition of a slot, and the end of them."""
    return leaves.first_of_slot[slot], leaves.first_of_slot[slot + 1]


@numba.njit(cache=True, nogil=True)
def reachable_leaves(  # noqa: C901  (one branch too many: the arrays that grow stay in one place)
    joint: JointTrees, moves: Moves, searched: NDArray[np.int64]
) -> ReachableLeaves:
    """Collect the leaves a person can reach. Shape: searched (models,): which models of `joint`, in that order."""
    trees, features, slots = joint.trees, joint.trees.by_rank.shape[0], moves.own.shape[0]
    permitted, movers = _permitted(trees, moves), _movers(moves, features)
    is_table = np.ones((searched.shape[0], slots), np.bool_)
    is_table[:, :features] = ~joint.by_rank[searched]
    base = joint.base[searched]
    model, weight = np.empty(INITIAL_CAPACITY, np.int32), np.empty(INITIAL_CAPACITY)
    first_condition, found = np.zeros(INITIAL_CAPACITY, np.int64), np.empty((INITIAL_CAPACITY, 6), np.int32)
    tables = np.empty(0, np.bool_)
    waiting, depths = np.empty(2 * DEPTH_MAX, np.int32), np.empty(2 * DEPTH_MAX, np.int32)
    lefts = np.empty(2 * DEPTH_MAX, np.bool_)
    path, went_left = np.empty(DEPTH_MAX, np.int32), np.empty(DEPTH_MAX, np.bool_)
    leaves, count, filled = 0, 0, 0
    for m in range(searched.shape[0]):
        tabled_options = (np.diff(moves.start) * is_table[m]).sum()
        for tree in range(joint.first[searched[m]], joint.first[searched[m] + 1]):
            waiting[0], depths[0], trips = trees.root[tree], 0, 1
            while trips > 0:
                trips -= 1
                depth = depths[trips]
                if depth > 0:
                    went_left[depth - 1] = lefts[trips]
                node = _fork_or_leaf(trees, permitted, waiting[trips])
                if trees.left[node] != INSIDE:
                    path[depth] = node
                    waiting[trips], depths[trips], lefts[trips] = trees.right[node], depth + 1, False
                    waiting[trips + 1], depths[trips + 1], lefts[trips + 1] = trees.left[node], depth + 1, True
                    trips += 2
                    continue
                if depth == 0:
                    base[m] += trees.weight[node]
                    continue
                while found.shape[0] < count + depth:
                    found = _doubled(found)
                while tables.shape[0] < filled + tabled_options:
                    tables = _doubled(tables)
                end, filled_end = _add_conditions(
                    trees, moves, permitted, movers, is_table[m], path[:depth], went_left[:depth], found, count, tables, filled
                )  # fmt: skip
                if end == UNREACHABLE:
                    continue
                found[count:end, LEAF], count, filled = leaves, end, filled_end
                if leaves + 1 == first_condition.shape[0]:
                    model, weight, first_condition = _doubled(model), _doubled(weight), _doubled(first_condition)
                model[leaves], weight[leaves] = m, trees.weight[node]
                leaves += 1
                first_condition[leaves] = count
    first_of_slot, conditions, by_slot = _sorted_by_slot(found[:count], slots)
    return ReachableLeaves(
        model[:leaves].copy(), weight[:leaves].copy(), first_condition[: leaves + 1].copy(), conditions, first_of_slot,
        by_slot[LEAF], by_slot[SLOT], by_slot[LOW], by_slot[HIGH], by_slot[AT_MISSING] == 1,
        by_slot[TABLE], tables[:filled].copy(), is_table, base,
    )  # fmt: skip


@numba.njit(cache=True, nogil=True, forceinline=True)
def _fork_or_leaf(trees: CellTrees, permitted: _Permitted, node: int) -> int:
    """Go down from a node to the next one where a person can go both ways, or to a leaf."""
    while trees.left[node] != INSIDE:
        j = trees.feature[node]
        if trees.side[node] >= 0:
            cells = permitted.cells[trees.start[j] : trees.start[j + 1]]
            to_left, to_right = _open_sides(trees.sides[trees.side[node] :], cells)
        else:
            missing, default_left = permitted.missing[j], trees.default_left[node]
            to_left = permitted.low[j] <= trees.rank[node] or (missing and default_left)
            to_right = permitted.high[j] > trees.rank[node] or (missing and not default_left)
        if to_left and to_right:
            break
        node = trees.left[node] if to_left else trees.right[node]
    return node


@numba.njit(cache=True, nogil=True, forceinline=True)
def _add_conditions(  # noqa: PLR0913, PLR0917  (inlined; compiled code has no objects to bundle them in)
    trees: CellTrees,
    moves: Moves,
    permitted: _Permitted,
    movers: _Movers,
    is_table: NDArray[np.bool_],
    path: NDArray[np.int32],
    went_left: NDArray[np.bool_],
    found: NDArray[np.int32],
    count: int,
    tables: NDArray[np.bool_],
    filled: int,
) -> tuple[int, int]:
    """Append the conditions on a leaf's path to `found` and `tables`; return their ends, or UNREACHABLE."""
    begin = count
    for k in range(path.shape[0]):
        slot = movers.slot[trees.feature[path[k]]]
        known = False
        for condition in range(begin, count):
            known = known or found[condition, SLOT] == slot
        if known:
            continue
        found[count, SLOT] = slot
        if is_table[slot]:
            found[count, LOW], found[count, HIGH], found[count, AT_MISSING], found[count, TABLE] = 1, 0, 0, filled
            met = _fill_table(trees, moves, movers, path[k:], went_left[k:], slot, tables[filled:])
            filled += moves.start[slot + 1] - moves.start[slot]
        else:
            low, high, missing = _interval(trees, path, went_left, k, slot)
            missing = missing and permitted.missing[slot]
            found[count, LOW], found[count, HIGH], found[count, AT_MISSING] = low, high, missing
            found[count, TABLE] = NO_TABLE
            met = low <= high or missing
        if not met:
            return UNREACHABLE, filled
        count += 1
    return count, filled


@numba.njit(cache=True, nogil=True, forceinline=True)
def _interval(
    trees: CellTrees, path: NDArray[np.int32], went_left: NDArray[np.bool_], first: int, j: int
) -> tuple[int, int, bool]:
    """The first and last cell of feature j that lead along path[first:], and whether a missing value does."""
    low, high, missing = 0, missing_cell(trees, j) - 1, True
    for at in range(first, path.shape[0]):
        node = path[at]
        if trees.feature[node] == j:
            if went_left[at]:
                high = min(high, trees.rank[node])
            else:
                low = max(low, trees.rank[node] + 1)
            missing = missing and trees.default_left[node] == went_left[at]
    return low, high, missing


@numba.njit(cache=True, nogil=True)
def _fill_table(
    trees: CellTrees,
    moves: Moves,
    movers: _Movers,
    path: NDArray[np.int32],
    went_left: NDArray[np.bool_],
    slot: int,
    table: NDArray[np.bool_],
) -> bool:
    """Fill in which options of a slot lead along a path; return whether a permitted one does."""
    features, met = trees.by_rank.shape[0], False
    first, end = options_of(moves, slot)
    for option in range(end - first):
        leads = True
        for at in range(path.shape[0]):
            j = trees.feature[path[at]]
            if movers.slot[j] == slot and leads:
                cell = option
                if slot >= features:
                    cell = moves.cells[first_cell_of(moves, slot - features, option) + movers.member[j]]
                leads = goes_left(trees, path[at], cell) == went_left[at]
        table[option] = leads
        met = met or (leads and price_at(moves, slot, option) < np.inf)
    return met


@numba.njit(cache=True, nogil=True)
def _doubled(array: NDArray[Any]) -> NDArray[Any]:
    """Give an array room for as many rows again, and for `INITIAL_CAPACITY` at least."""
    larger = np.empty((max(2 * array.shape[0], INITIAL_CAPACITY), *array.shape[1:]), array.dtype)
    larger[: array.shape[0]] = array
    return larger


@numba.njit(cache=True, nogil=True)
def _movers(moves: Moves, features: int) -> _Movers:
    """Find what moves each feature: its own slot, or its unit's. No feature is in two units."""
    slot, member = np.arange(features), np.zeros(features, np.int64)
    for u in range(moves.own.shape[0] - features):
        first, end = members_of(moves, u)
        for k in range(end - first):
            slot[moves.members[first + k]], member[moves.members[first + k]] = features + u, k
    return _Movers(slot, member)


@numba.njit(cache=True, nogil=True)
def _sorted_by_slot(
    found: NDArray[np.int32], slots: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Sort conditions (n, 6) by slot, stably: where each slot begins, where each condition went, and the columns (6, n)."""
    first = np.zeros(slots + 1, np.int64)
    for condition in range(found.shape[0]):
        first[found[condition, SLOT] + 1] += 1
    first = np.cumsum(first)
    filled, went = first.copy(), np.empty(found.shape[0], np.int32)
    columns = np.empty((6, found.shape[0]), np.int32)
    for condition in range(found.shape[0]):
        slot = found[condition, SLOT]
        went[condition] = filled[slot]
        filled[slot] += 1
        for column in range(6):
            columns[column, went[condition]] = found[condition, column]
    return first, went, columns


@numba.njit(cache=True, nogil=True)
def _permitted(trees: CellTrees, moves: Moves) -> _Permitted:
    """Find the cells a person can be in, alone or with a unit."""
    features = trees.by_rank.shape[0]
    cells = moves.price[: trees.start[features]] < np.inf
    for u in range(moves.own.shape[0] - features):
        first, end = options_of(moves, features + u)
        begin, members_end = members_of(moves, u)
        for option in range(end - first):
            for k in range(members_end - begin):
                j = moves.members[begin + k]
                cells[trees.start[j] + moves.cells[first_cell_of(moves, u, option) + k]] = True
    low, high, missing = np.full(features, 1 << 30), np.full(features, -1), np.zeros(features, np.bool_)
    for j in range(features):
        for cell in range(missing_cell(trees, j)):
            if cells[trees.start[j] + cell]:
                low[j], high[j] = min(low[j], cell), max(high[j], cell)
        missing[j] = cells[trees.start[j] + missing_cell(trees, j)]
    return _Permitted(cells, low, high, missing)


@numba.njit(cache=True, nogil=True)
def _open_sides(sides: NDArray[np.bool_], permitted: NDArray[np.bool_]) -> tuple[bool, bool]:
    """Whether any permitted cell goes left, and whether any goes right."""
    to_left, to_right = False, False
    for cell in range(permitted.shape[0]):
        to_left = to_left or bool(permitted[cell] and sides[cell])
        to_right = to_right or bool(permitted[cell] and not sides[cell])
    return to_left, to_right
