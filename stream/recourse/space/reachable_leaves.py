"""What trees are to one person: the leaves that are within reach, each with the places that lead to it.

Most features of a person stay where they are, and most splits on the others lie beyond what is permitted; such splits are
passed over. What is left of a tree are its leaves, and of each a *bar* for every slot that its path splits on: the places
of the slot from which the leaf is reached. Together they say the same of every state that the person can be in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from stream.forest.trees import INSIDE
from stream.recourse.space.joint_trees import JointTrees
from stream.recourse.space.margin_profiles import DEPTH_MAX, CellTrees, goes_left
from stream.recourse.space.moves import Moves

FIRST_ROOM = 1 << 16  # of leaves, bars and tables; doubled where that is too little
LEAF, SLOT, LOW, HIGH, AT_MISSING, TABLE = range(6)  # columns of bars
NO_TABLE = -1  # marks a bar that is an interval


class ReachableLeaves(NamedTuple):
    """All leaves within one person's reach, in the form that numba takes as one argument.

    Shapes: model, weight (leaves,): whose leaf it is, and what it counts, times the policy's sign; first_bar (leaves + 1,),
    of_leaf: its bars are of_leaf[first_bar[l]:first_bar[l + 1]]; first_of_slot (slots + 1,): those of slot s are
    first_of_slot[s]:first_of_slot[s + 1]. Per bar (bars,): leaf, slot, and the places of the slot that lead to the leaf:
    from low to high, and that of missing where `at_missing`; or, where `table` is not NO_TABLE, those that are true in
    tables[table + place]. tabled (models, slots): whether a slot's bars are tables; base (models,): the base margins, and
    all leaves without a bar.
    """

    model: NDArray[np.int32]
    weight: NDArray[np.float64]
    first_bar: NDArray[np.int64]
    of_leaf: NDArray[np.int32]
    first_of_slot: NDArray[np.int64]
    leaf: NDArray[np.int32]
    slot: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    at_missing: NDArray[np.bool_]
    table: NDArray[np.int32]
    tables: NDArray[np.bool_]
    tabled: NDArray[np.bool_]
    base: NDArray[np.float64]


@numba.njit(cache=True, nogil=True)
def reachable_leaves(joint: JointTrees, moves: Moves, asked: NDArray[np.int64]) -> ReachableLeaves:  # noqa: C901, PLR0912, PLR0915  (a kernel, as `profile`)
    """Collect the leaves that a person can reach, with their bars. Shape: asked (models,): which of `joint`, in that order."""
    trees, features, slots = joint.trees, joint.trees.by_rank.shape[0], moves.own.shape[0]
    feature, rank, left, right, side = trees.feature, trees.rank, trees.left, trees.right, trees.side
    default_left, models, start, by_feature = trees.default_left, asked.shape[0], moves.start, trees.start
    value, root = trees.weight, trees.root
    open_cells, lowest, highest, maybe_missing = _permitted(trees, moves)
    slot_of, member = _slots_of(moves, features)
    tabled = np.ones((models, slots), np.bool_)
    tabled[:, :features] = ~joint.by_rank[asked]
    base = joint.base[asked]
    model, weight = np.empty(FIRST_ROOM, np.int32), np.empty(FIRST_ROOM)
    first_bar, bars, tables = np.zeros(FIRST_ROOM, np.int64), np.empty((FIRST_ROOM, 6), np.int32), np.empty(0, np.bool_)
    waiting, depths = np.empty(2 * DEPTH_MAX, np.int32), np.empty(2 * DEPTH_MAX, np.int32)
    lefts = np.empty(2 * DEPTH_MAX, np.bool_)
    path, went_left = np.empty(DEPTH_MAX, np.int32), np.empty(DEPTH_MAX, np.bool_)
    leaves, count, filled = 0, 0, 0
    for m in range(models):
        for tree in range(joint.first[asked[m]], joint.first[asked[m] + 1]):
            waiting[0], depths[0], trips = root[tree], 0, 1
            while trips > 0:
                trips -= 1
                node, depth = waiting[trips], depths[trips]
                if depth > 0:
                    went_left[depth - 1] = lefts[trips]
                while left[node] != INSIDE:
                    j = feature[node]
                    to_left, to_right = lowest[j] <= rank[node], highest[j] > rank[node]
                    if maybe_missing[j]:
                        to_left, to_right = to_left or default_left[node], to_right or not default_left[node]
                    if side[node] >= 0:
                        to_left, to_right = _by_table(
                            trees.sides[side[node] :], open_cells[by_feature[j] : by_feature[j + 1]]
                        )
                    if to_left and to_right:
                        break
                    node = left[node] if to_left else right[node]
                if left[node] != INSIDE:
                    path[depth] = node
                    waiting[trips], depths[trips], lefts[trips] = right[node], depth + 1, False
                    waiting[trips + 1], depths[trips + 1], lefts[trips + 1] = left[node], depth + 1, True
                    trips += 2
                    continue
                begun, reached = count, True
                for k in range(depth):
                    slot = slot_of[feature[path[k]]]
                    known = False
                    for bar in range(begun, count):
                        known = known or bars[bar, SLOT] == slot
                    if known:
                        continue
                    if count == bars.shape[0]:
                        bars = _doubled(bars)
                    places = start[slot + 1] - start[slot]
                    bars[count, LEAF], bars[count, SLOT] = leaves, slot
                    if tabled[m, slot]:
                        while filled + places > tables.shape[0]:
                            tables = _doubled(tables)
                        bars[count, LOW], bars[count, HIGH], bars[count, AT_MISSING] = 1, 0, 0
                        bars[count, TABLE] = filled
                        some = _fill(
                            trees, moves, slot_of, member, path[k:depth], went_left[k:depth], slot, tables[filled:]
                        )
                        filled += places
                    else:
                        low, high, missing = 0, places - 2, maybe_missing[slot]
                        for at in range(k, depth):
                            split = path[at]
                            if feature[split] == slot:
                                if went_left[at]:
                                    high = min(high, rank[split])
                                else:
                                    low = max(low, rank[split] + 1)
                                missing = missing and default_left[split] == went_left[at]
                        bars[count, LOW], bars[count, HIGH], bars[count, AT_MISSING] = low, high, missing
                        bars[count, TABLE] = NO_TABLE
                        some = low <= high or missing
                    count += 1
                    reached = reached and some
                if not reached:
                    count = begun
                elif count == begun:
                    base[m] += value[node]
                else:
                    if leaves + 1 == first_bar.shape[0]:
                        model, weight, first_bar = _doubled(model), _doubled(weight), _doubled(first_bar)
                    model[leaves], weight[leaves] = m, value[node]
                    leaves += 1
                    first_bar[leaves] = count
    first_of_slot, of_leaf, sorted_bars = _by_slot(bars[:count], slots)
    return ReachableLeaves(
        model[:leaves].copy(), weight[:leaves].copy(), first_bar[: leaves + 1].copy(), of_leaf, first_of_slot,
        sorted_bars[LEAF], sorted_bars[SLOT], sorted_bars[LOW], sorted_bars[HIGH], sorted_bars[AT_MISSING] == 1,
        sorted_bars[TABLE], tables[:filled].copy(), tabled, base,
    )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def _fill(
    trees: CellTrees,
    moves: Moves,
    slot_of: NDArray[np.int64],
    member: NDArray[np.int64],
    path: NDArray[np.int32],
    went_left: NDArray[np.bool_],
    slot: int,
    table: NDArray[np.bool_],
) -> bool:
    """Fill in which places of a slot lead along a path, and say whether any does that is permitted."""
    features, some = trees.by_rank.shape[0], False
    for place in range(moves.start[slot + 1] - moves.start[slot]):
        leads = True
        for at in range(path.shape[0]):
            j = trees.feature[path[at]]
            if slot_of[j] == slot and leads:
                cell = place
                if slot >= features:
                    u = slot - features
                    members = moves.first_member[u + 1] - moves.first_member[u]
                    cell = moves.cells[moves.first_cell[u] + place * members + member[j]]
                leads = goes_left(trees, path[at], cell) == went_left[at]
        table[place] = leads
        some = some or (leads and moves.price[moves.start[slot] + place] < np.inf)
    return some


@numba.njit(cache=True, nogil=True)
def _doubled(array: NDArray[Any]) -> NDArray[Any]:
    """Give an array room for as many rows again, and for `FIRST_ROOM` at least."""
    larger = np.empty((max(2 * array.shape[0], FIRST_ROOM), *array.shape[1:]), array.dtype)
    larger[: array.shape[0]] = array
    return larger


@numba.njit(cache=True, nogil=True)
def _slots_of(moves: Moves, features: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Per feature the slot that moves it, and which member of it the feature is. A feature of several units is none's."""
    slot_of, member = np.arange(features), np.zeros(features, np.int64)
    for u in range(moves.own.shape[0] - features):
        for k in range(moves.first_member[u + 1] - moves.first_member[u]):
            j = moves.members[moves.first_member[u] + k]
            slot_of[j], member[j] = features + u, k
    return slot_of, member


@numba.njit(cache=True, nogil=True)
def _by_slot(bars: NDArray[np.int32], slots: int) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
    """Sort bars by slot, keeping their order within one: where each slot begins, where each bar went, and the columns (6, bars)."""
    first = np.zeros(slots + 1, np.int64)
    for bar in range(bars.shape[0]):
        first[bars[bar, SLOT] + 1] += 1
    first = np.cumsum(first)
    filled, went, columns = first.copy(), np.empty(bars.shape[0], np.int32), np.empty((6, bars.shape[0]), np.int32)
    for bar in range(bars.shape[0]):
        slot = bars[bar, SLOT]
        went[bar] = filled[slot]
        filled[slot] += 1
        for column in range(6):
            columns[column, went[bar]] = bars[bar, column]
    return first, went, columns


@numba.njit(cache=True, nogil=True)
def _permitted(
    trees: CellTrees, moves: Moves
) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """The cells that a person can be in; per feature the least and greatest of them that are not missing, and whether that is one."""
    features = trees.by_rank.shape[0]
    open_cells = moves.price[: trees.start[features]] < np.inf
    for u in range(moves.own.shape[0] - features):
        begun, members = moves.first_member[u], moves.first_member[u + 1] - moves.first_member[u]
        for place in range(moves.start[features + u + 1] - moves.start[features + u]):
            for k in range(members):
                j = moves.members[begun + k]
                open_cells[trees.start[j] + moves.cells[moves.first_cell[u] + place * members + k]] = True
    low, high = np.full(features, 1 << 30), np.full(features, -1)
    at_missing = np.zeros(features, np.bool_)
    for j in range(features):
        missing = trees.start[j + 1] - trees.start[j] - 1
        for cell in range(missing + 1):
            if not open_cells[trees.start[j] + cell]:
                continue
            if cell == missing:
                at_missing[j] = True
            else:
                low[j], high[j] = min(low[j], cell), max(high[j], cell)
    return open_cells, low, high, at_missing


@numba.njit(cache=True, nogil=True)
def _by_table(sides: NDArray[np.bool_], open_cells: NDArray[np.bool_]) -> tuple[bool, bool]:
    """Whether any cell where a person can be goes left, and whether any goes right."""
    to_left, to_right = False, False
    for cell in range(open_cells.shape[0]):
        to_left = to_left or bool(open_cells[cell] and sides[cell])
        to_right = to_right or bool(open_cells[cell] and not sides[cell])
    return to_left, to_right
