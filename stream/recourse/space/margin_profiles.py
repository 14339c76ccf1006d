"""LinkedFeatures profiles: what the margin gains when one feature alone moves, for every feature and cell at once.

With all other features fixed, the margin is a step function over the cells of one. A row leaves its own path through a
tree at the first node of the moved feature where the new cell goes the other way; so one walk along the path of each
tree, with a side trip from each of its nodes, gives the profiles of all features whose splits part their cells into
intervals. Categories, and features of which zero is missing, have few cells: those are tried one by one.

Sums are float64, for searching only: what is found is scored again by the model itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from stream.forest.cells import Cells
from stream.forest.trees import CATEGORY, ENDS_OF_ZERO, INSIDE, NUMBER, ZERO_IS_MISSING, Forest

DEPTH_MAX = 1024  # of a tree; deeper ones are searched without profiles
_AS_INTERVAL = -1  # marks a node that parts its feature's cells at a rank


class CellTrees(NamedTuple):
    """A forest in the space of its cells, in the form that numba takes as one argument.

    Shapes: root (trees,); feature, rank, left, right, default_left, side, weight (nodes,); sides (all side tables,);
    start (features + 1,): the cells of feature j are start[j]:start[j + 1], of which the last is that of missing where
    there are several; by_rank (features,): whether every split of a feature parts its cells at a rank; first_tree
    (features + 1,) and trees_of: of a feature that is not by rank, the trees that split on it; first_unit_tree
    (units + 1,) and trees_of_unit: of features that move together, the trees that split on any of them.
    """

    root: NDArray[np.int32]
    feature: NDArray[np.int32]
    rank: NDArray[np.int32]  # the last of the cells that go left
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    default_left: NDArray[np.bool_]
    side: NDArray[np.int64]  # where a node's table in `sides` begins, -1 for a node that goes by rank
    sides: NDArray[np.bool_]  # per cell of the feature, whether it goes left
    weight: NDArray[np.float64]  # of a leaf, times the policy's sign: more is better
    start: NDArray[np.int64]
    by_rank: NDArray[np.bool_]
    first_tree: NDArray[np.int64]
    trees_of: NDArray[np.int32]
    first_unit_tree: NDArray[np.int64]
    trees_of_unit: NDArray[np.int32]
    magnitude: float  # no sum of leaves and base margin is larger, whatever its order


def cell_trees(forest: Forest, cells: Cells, sign: int, units: Sequence[Sequence[int]] = ()) -> CellTrees:
    """Express `forest` in cells: its own, or such as part values further.

    `sign` is +1 where a higher margin is better for the applicant, else -1; `units` are the features that move together.
    """
    features = range(len(forest.features))
    start = np.cumsum([0, *(cells.count(j) for j in features)]).astype(np.int64)
    rank = np.full(len(forest.left), INSIDE, np.int32)
    side = np.full(len(forest.left), _AS_INTERVAL, np.int64)
    tables: list[NDArray[np.bool_]] = []
    tabled = 0
    for j in features:
        own = np.flatnonzero(forest.split_feature == j)
        numbers = own[forest.kind[own] == NUMBER]
        rank[numbers] = np.searchsorted(cells.thresholds[j], forest.threshold[numbers])
        for node in own[forest.kind[own] != NUMBER].tolist():
            side[node] = tabled
            tables.append(_table(forest, cells, j, node))
            tabled += len(tables[-1])
    weight = np.zeros(len(forest.left))
    weight[forest.leaf_node] = sign * forest.weight.astype(np.float64)
    by_rank = np.array([not (side[forest.split_feature == j] != _AS_INTERVAL).any() for j in features], np.bool_)
    tree_of = np.repeat(np.arange(forest.trees, dtype=np.int32), np.diff(forest.first_node))
    nothing = np.empty(0, np.int32)
    with_feature = [nothing if by_rank[j] else np.unique(tree_of[forest.split_feature == j]) for j in features]
    with_unit = [np.unique(tree_of[np.isin(forest.split_feature, unit)]) for unit in units]
    # Copies, for to numba a read-only array is of another type, for which it would compile every kernel once more.
    return CellTrees(
        root=forest.first_node[:-1].copy(),
        feature=forest.split_feature.copy(),
        rank=rank,
        left=forest.left.copy(),
        right=forest.right.copy(),
        default_left=forest.default_left.copy(),
        side=side,
        sides=np.concatenate([np.empty(0, np.bool_), *tables]),
        weight=weight,
        start=start,
        by_rank=by_rank,
        first_tree=np.cumsum([0, *map(len, with_feature)]).astype(np.int64),
        trees_of=np.concatenate([nothing, *with_feature]),
        first_unit_tree=np.cumsum([0, *map(len, with_unit)]).astype(np.int64),
        trees_of_unit=np.concatenate([nothing, *with_unit]),
        magnitude=_magnitude(forest),
    )


def is_searchable(forest: Forest) -> bool:
    """Whether profiles can follow its longest path."""
    return bool(forest.depth.max(initial=0) < DEPTH_MAX)


def _magnitude(forest: Forest) -> float:
    largest = np.maximum.reduceat(np.abs(forest.weight), forest.first_leaf[:-1]) if forest.trees else forest.weight
    with np.errstate(over="ignore"):
        return float(np.cumsum([abs(float(forest.base_margin)), *largest.tolist()])[-1])


def _table(forest: Forest, cells: Cells, j: int, node: int) -> NDArray[np.bool_]:
    """Where each cell of a feature goes at a split that is not by rank."""
    to_left = np.zeros(cells.count(j), np.bool_)
    to_left[-1] = forest.default_left[node]
    if forest.kind[node] == CATEGORY:
        own = cells.category(j)
        if own is not None:  # any code of a cell tells where all go; the last cell is of those that no split lists
            code = own.codes[np.unique(own.cell, return_index=True)[1]]
            to_left[: len(code)] = np.isin(code, forest.listed(node))
            if forest.operator == "<":
                to_left[:-1] = ~to_left[:-1]
    elif forest.kind[node] == ZERO_IS_MISSING:
        to_left[:-1] = np.arange(cells.count(j) - 1) <= np.searchsorted(cells.thresholds[j], forest.threshold[node])
        below, last = (cells.interval_of(j, end) for end in ENDS_OF_ZERO)  # other splits may part what is zero here
        to_left[below + 1 : last + 1] = forest.default_left[node]
    return to_left


@numba.njit(cache=True, nogil=True, inline="always")  # passing a dozen arrays on costs more than what is done here
def goes_left(trees: CellTrees, node: int, cell: int) -> bool:
    """Tell where a cell of a split's own feature goes."""
    side = trees.side[node]
    if side >= 0:
        return bool(trees.sides[side + cell])
    j = trees.feature[node]
    if cell == trees.start[j + 1] - trees.start[j] - 1:
        return bool(trees.default_left[node])
    return bool(cell <= trees.rank[node])


@numba.njit(cache=True, nogil=True, inline="always")
def weight_reached(trees: CellTrees, root: int, row: NDArray[np.int32]) -> float:
    """Walk a row of cells down the tree at `root`, and give the weight of its leaf."""
    node = root
    while trees.left[node] != INSIDE:
        node = trees.left[node] if goes_left(trees, node, row[trees.feature[node]]) else trees.right[node]
    return float(trees.weight[node])


@numba.njit(cache=True, nogil=True)
def profile(  # noqa: C901, PLR0912, PLR0915  (a kernel: calls that take a dozen arrays cost more than they do)
    trees: CellTrees, row: NDArray[np.int32], gains: NDArray[np.float64]
) -> float:
    """Fill in what the margin gains when one feature alone moves to a cell; return the sum over all trees.

    Shapes: row (features,) cells -> gains (cells + 1,), the last of no meaning. The gain of a row's own cell is 0; so
    is that of missing where a row is not missing, which nobody is ever told to become.
    """
    features = row.shape[0]
    total = 0.0
    gains[:] = 0.0
    path = np.empty(DEPTH_MAX, np.int32)  # the nodes of a row's own path
    # Side trips that wait: where to go on, and the first and last cell of the freed feature with which one comes there.
    waiting, lows, highs = np.empty(DEPTH_MAX, np.int32), np.empty(DEPTH_MAX, np.int32), np.empty(DEPTH_MAX, np.int32)
    for tree in range(trees.root.shape[0]):
        node, length = trees.root[tree], 0
        while trees.left[node] != INSIDE:
            path[length] = node
            length += 1
            node = trees.left[node] if goes_left(trees, node, row[trees.feature[node]]) else trees.right[node]
        own = trees.weight[node]
        total += own
        for k in range(length):
            j = trees.feature[path[k]]
            if not trees.by_rank[j]:
                continue
            low, high = 0, trees.start[j + 1] - trees.start[j] - 2
            for above in range(k):  # with which cells of j one still comes to this node
                node = path[above]
                if trees.feature[node] == j:
                    if goes_left(trees, node, row[j]):
                        high = min(high, trees.rank[node])
                    else:
                        low = max(low, trees.rank[node] + 1)
            node = path[k]
            if goes_left(trees, node, row[j]):
                low = max(low, trees.rank[node] + 1)
                node = trees.right[node]
            else:
                high = min(high, trees.rank[node])
                node = trees.left[node]
            if low > high:
                continue
            waiting[0], lows[0], highs[0], trips = node, low, high, 1
            while trips > 0:
                trips -= 1
                node, low, high = waiting[trips], lows[trips], highs[trips]
                while trees.left[node] != INSIDE:
                    if trees.feature[node] != j:
                        to_left = goes_left(trees, node, row[trees.feature[node]])
                        node = trees.left[node] if to_left else trees.right[node]
                    elif high <= trees.rank[node]:
                        node = trees.left[node]
                    elif low > trees.rank[node]:
                        node = trees.right[node]
                    else:
                        waiting[trips], lows[trips], highs[trips] = trees.right[node], trees.rank[node] + 1, high
                        trips += 1
                        high = trees.rank[node]
                        node = trees.left[node]
                gains[trees.start[j] + low] += trees.weight[node] - own
                gains[trees.start[j] + high + 1] -= trees.weight[node] - own
    for j in range(features):
        first, end = trees.start[j], trees.start[j + 1]
        if trees.by_rank[j]:
            for cell in range(first + 1, end):
                gains[cell] += gains[cell - 1]
            gains[end - 1] = 0.0
        else:
            _one_by_one(trees, row, j, gains)
    return total


@numba.njit(cache=True, nogil=True)
def _one_by_one(trees: CellTrees, row: NDArray[np.int32], j: int, gains: NDArray[np.float64]) -> None:
    """Walk every tree that splits on a feature, once for each of its cells."""
    first, missing = trees.start[j], trees.start[j + 1] - trees.start[j] - 1
    moved = row.copy()
    for cell in range(missing + 1):
        moved[j] = cell
        gains[first + cell] = 0.0
        for at in range(trees.first_tree[j], trees.first_tree[j + 1]):
            gains[first + cell] += weight_reached(trees, trees.root[trees.trees_of[at]], moved)
    own = gains[first + row[j]]
    for cell in range(missing + 1):
        gains[first + cell] -= own
    if row[j] != missing:
        gains[first + missing] = 0.0
