"""Trees cut down to what one person can reach: splits that send every place the same way are left out.

Most features of a person stay where they are, and most splits on the others lie beyond what is permitted. What is left is
a fraction of the forest, and it says the same of every state that the person can be in.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from stream.forest.trees import INSIDE
from stream.recourse.joint import JointTrees
from stream.recourse.moves import Moves
from stream.recourse.profiles import DEPTH_MAX, CellTrees


@numba.njit(cache=True, nogil=True)
def within_reach(joint: JointTrees, moves: Moves) -> JointTrees:  # noqa: C901, PLR0912  (a kernel, as `profile`)
    """Cut down all trees for one person; those of which one leaf is left are counted into `base`."""
    old = joint.trees
    models, trees = joint.base.shape[0], old.root.shape[0]
    open_cells, low, high, at_missing = _permitted(old, moves)
    feature, rank = np.empty_like(old.feature), np.empty_like(old.rank)
    left, right = np.empty_like(old.left), np.empty_like(old.right)
    default_left, side, weight = np.empty_like(old.default_left), np.empty_like(old.side), np.empty_like(old.weight)
    root, renamed = np.empty(trees, np.int32), np.full(trees, INSIDE, np.int32)
    first, base = np.zeros(models + 1, np.int64), joint.base.copy()
    waiting, parents = np.empty(2 * DEPTH_MAX, np.int32), np.empty(2 * DEPTH_MAX, np.int32)
    nodes, kept = 0, 0
    for m in range(models):
        for tree in range(joint.first[m], joint.first[m + 1]):
            began = nodes
            waiting[0], parents[0], trips = old.root[tree], INSIDE, 1
            while trips > 0:
                trips -= 1
                node, parent = waiting[trips], parents[trips]
                while old.left[node] != INSIDE:
                    j = old.feature[node]
                    to_left = low[j] <= old.rank[node]
                    to_right = high[j] > old.rank[node]
                    if at_missing[j]:
                        to_left, to_right = to_left or old.default_left[node], to_right or not old.default_left[node]
                    if old.side[node] >= 0:
                        to_left, to_right = _by_table(
                            old.sides[old.side[node] :], open_cells[old.start[j] : old.start[j + 1]]
                        )
                    if to_left and to_right:
                        break
                    node = old.left[node] if to_left else old.right[node]
                feature[nodes], rank[nodes], default_left[nodes] = (
                    old.feature[node],
                    old.rank[node],
                    old.default_left[node],
                )
                side[nodes], weight[nodes], left[nodes], right[nodes] = old.side[node], old.weight[node], INSIDE, INSIDE
                if parent != INSIDE:
                    if left[parent] == INSIDE:
                        left[parent] = nodes
                    else:
                        right[parent] = nodes
                if old.left[node] != INSIDE:  # the left side is taken first, and so comes first to its parent
                    waiting[trips], parents[trips] = old.right[node], nodes
                    waiting[trips + 1], parents[trips + 1] = old.left[node], nodes
                    trips += 2
                nodes += 1
            if nodes == began + 1:
                base[m] += weight[began]
                nodes = began
            else:
                root[kept], renamed[tree] = began, kept
                kept += 1
        first[m + 1] = kept
    first_tree, trees_of = _listed(joint.first_tree, old.trees_of, joint.first, first, renamed)
    first_unit_tree, trees_of_unit = _listed(joint.first_unit_tree, old.trees_of_unit, joint.first, first, renamed)
    cut = CellTrees(
        root[:kept].copy(), feature[:nodes].copy(), rank[:nodes].copy(), left[:nodes].copy(), right[:nodes].copy(),
        default_left[:nodes].copy(), side[:nodes].copy(), old.sides, weight[:nodes].copy(), old.start, old.by_rank,
        old.first_tree, trees_of, old.first_unit_tree, trees_of_unit, old.magnitude,
    )  # fmt: skip
    return JointTrees(cut, first, joint.by_rank, first_tree, first_unit_tree, base, joint.magnitude)


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


@numba.njit(cache=True, nogil=True)
def _listed(
    begins: NDArray[np.int64],
    trees_of: NDArray[np.int32],
    old_first: NDArray[np.int64],
    first: NDArray[np.int64],
    renamed: NDArray[np.int32],
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """List again, per model and feature or unit, the trees that are left; both count from a model's first tree."""
    lists, kept, count = np.zeros_like(begins), np.empty_like(trees_of), 0
    for m in range(begins.shape[0]):
        lists[m, 0] = count
        for k in range(begins.shape[1] - 1):
            for at in range(begins[m, k], begins[m, k + 1]):
                tree = renamed[old_first[m] + trees_of[at]]
                if tree != INSIDE:
                    kept[count] = tree - first[m]
                    count += 1
            lists[m, k + 1] = count
    return lists, kept
