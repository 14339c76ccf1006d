"""Margin profiles: what the margin gains when one feature alone moves, for every feature and cell at once.

With all other features fixed, the margin is a step function over the cells of one feature. A row leaves its own path
through a tree at the first node of the moved feature where the new cell goes the other way. So one walk along each tree's
path, with a side trip from each of its nodes, gives the profiles of all features whose splits cut their cells at a rank.
Categories, and features whose zero is missing, have few cells: those are tried one by one.

Sums are float64 and serve the search only; the model itself scores what is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from stream.forest.cells import Cells
from stream.forest.trees import CATEGORY, ENDS_OF_ZERO, INSIDE, NUMBER, ZERO_IS_MISSING, Forest

DEPTH_MAX = 1024  # splits on a path: the room of the walks' stacks; deeper models are answered from the ranking alone
_BY_RANK = -1  # the `side` of a node that cuts its feature's cells at a rank


class CellTrees(NamedTuple):
    """A forest in the space of its cells, as one argument for numba.

    Shapes: root (trees,); feature, rank, left, right, default_left, side, weight (nodes,); sides (all side tables,);
    start (features + 1,): the cells of feature j are start[j]:start[j + 1], the last of them the missing value's where
    there are several; by_rank (features,): whether every split of a feature cuts its cells at a rank; first_tree
    (features + 1,) and trees_of: the trees that split on a feature that is not by rank; first_unit_tree (units + 1,)
    and trees_of_unit: the trees that split on any feature of a unit.
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
    magnitude: float  # bounds every sum of base margin and leaves, in any order


def cell_trees(forest: Forest, cells: Cells, sign: int, units: Sequence[Sequence[int]] = ()) -> CellTrees:
    """Express `forest` in cells: its own, or finer ones.

    `sign` is +1 where a higher margin is better for the applicant, else -1; `units` are the features that move together.
    """
    features = range(len(forest.features))
    start = np.cumsum([0, *(cells.count(j) for j in features)]).astype(np.int64)
    rank = np.full(len(forest.left), INSIDE, np.int32)
    side = np.full(len(forest.left), _BY_RANK, np.int64)
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
    by_rank = np.array([not (side[forest.split_feature == j] != _BY_RANK).any() for j in features], np.bool_)
    tree_of = np.repeat(np.arange(forest.trees, dtype=np.int32), np.diff(forest.first_node))
    nothing = np.empty(0, np.int32)
    with_feature = [nothing if by_rank[j] else np.unique(tree_of[forest.split_feature == j]) for j in features]
    with_unit = [np.unique(tree_of[np.isin(forest.split_feature, unit)]) for unit in units]
    # Copies: to numba a read-only array has another type, for which it would compile every kernel again.
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
    """Whether the walks have room for its longest path."""
    return bool(forest.depth.max(initial=0) < DEPTH_MAX)


def _magnitude(forest: Forest) -> float:
    largest = np.maximum.reduceat(np.abs(forest.weight), forest.first_leaf[:-1]) if forest.trees else forest.weight
    with np.errstate(over="ignore"):
        return float(np.cumsum([abs(float(forest.base_margin)), *largest.tolist()])[-1])


def _table(forest: Forest, cells: Cells, j: int, node: int) -> NDArray[np.bool_]:
    """Whether each cell of a feature goes left at a split that is not by rank. Shape: (cells,)."""
    to_left = np.zeros(cells.count(j), np.bool_)
    to_left[-1] = forest.default_left[node]
    if forest.kind[node] == CATEGORY:
        own = cells.category(j)
        if own is not None:  # all codes of a cell go alike; the last cell holds those that no split lists
            code = own.codes[np.unique(own.cell, return_index=True)[1]]
            to_left[: len(code)] = np.isin(code, forest.listed(node))
            if forest.operator == "<":
                to_left[:-1] = ~to_left[:-1]
    elif forest.kind[node] == ZERO_IS_MISSING:
        to_left[:-1] = np.arange(cells.count(j) - 1) <= np.searchsorted(cells.thresholds[j], forest.threshold[node])
        below, last = (cells.interval_of(j, end) for end in ENDS_OF_ZERO)  # other splits may cut what is zero here
        to_left[below + 1 : last + 1] = forest.default_left[node]
    return to_left


@numba.njit(cache=True, nogil=True, forceinline=True)
def missing_cell(trees: CellTrees, j: int) -> int:
    """The last cell of feature j: the missing value's, where there are several."""
    return int(trees.start[j + 1] - trees.start[j] - 1)


@numba.njit(cache=True, nogil=True, forceinline=True)  # passing a dozen arrays on costs more than the body
def goes_left(trees: CellTrees, node: int, cell: int) -> bool:
    """Whether a cell of the node's own feature goes left."""
    side = trees.side[node]
    if side >= 0:
        return bool(trees.sides[side + cell])
    if cell == missing_cell(trees, trees.feature[node]):
        return bool(trees.default_left[node])
    return bool(cell <= trees.rank[node])


@numba.njit(cache=True, nogil=True, forceinline=True)
def child(trees: CellTrees, node: int, row: NDArray[np.int32]) -> int:
    """The child of a node that a row of cells goes to."""
    return int(trees.left[node] if goes_left(trees, node, row[trees.feature[node]]) else trees.right[node])


@numba.njit(cache=True, nogil=True, forceinline=True)
def weight_reached(trees: CellTrees, root: int, row: NDArray[np.int32]) -> float:
    """Walk a row of cells down the tree at `root`; return the weight of its leaf."""
    node = root
    while trees.left[node] != INSIDE:
        node = child(trees, node, row)
    return float(trees.weight[node])


@numba.njit(cache=True, nogil=True)
def profile(trees: CellTrees, row: NDArray[np.int32], gains: NDArray[np.float64]) -> float:
    """Fill in what the margin gains when one feature alone moves to a cell; return the sum over all trees.

    Shapes: row (features,) cells -> gains (cells + 1,), the last without meaning. The gain of the row's own cell is 0, and
    so is that of the missing cell where the row is not missing: missing is never a target.
    """
    total = 0.0
    gains[:] = 0.0
    path = np.empty(DEPTH_MAX, np.int32)
    waiting = _Waiting(np.empty(DEPTH_MAX, np.int32), np.empty(DEPTH_MAX, np.int32), np.empty(DEPTH_MAX, np.int32))
    for tree in range(trees.root.shape[0]):
        node, length = trees.root[tree], 0
        while trees.left[node] != INSIDE:
            path[length] = node
            length += 1
            node = child(trees, node, row)
        own = trees.weight[node]
        total += own
        for k in range(length):
            if trees.by_rank[trees.feature[path[k]]]:
                low, high = _cells_leaving(trees, row, path, k)
                if low <= high:
                    _add_side_trip(trees, row, path[k], low, high, own, waiting, gains)
    for j in range(row.shape[0]):
        first, end = trees.start[j], trees.start[j + 1]
        if trees.by_rank[j]:
            for cell in range(first + 1, end):
                gains[cell] += gains[cell - 1]
            gains[end - 1] = 0.0
        else:
            _try_each_cell(trees, row, j, gains)
    return total


class _Waiting(NamedTuple):
    """Subtrees still to visit: the node, and the cells of the moved feature that lead to it. Shapes: (DEPTH_MAX,)."""

    node: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]


@numba.njit(cache=True, nogil=True, forceinline=True)
def _cells_leaving(trees: CellTrees, row: NDArray[np.int32], path: NDArray[np.int32], k: int) -> tuple[int, int]:
    """The first and last cell of its feature with which a row first leaves its path at path[k]."""
    j = trees.feature[path[k]]
    low, high = 0, missing_cell(trees, j) - 1
    for above in range(k + 1):
        node = path[above]
        if trees.feature[node] == j:
            if goes_left(trees, node, row[j]) == (above < k):  # stays on the path above, leaves it at path[k]
                high = min(high, trees.rank[node])
            else:
                low = max(low, trees.rank[node] + 1)
    return low, high


@numba.njit(cache=True, nogil=True, forceinline=True)
def _add_side_trip(
    trees: CellTrees,
    row: NDArray[np.int32],
    fork: int,
    low: int,
    high: int,
    own: float,
    waiting: _Waiting,
    gains: NDArray[np.float64],
) -> None:
    """Add what the leaves off the path at `fork` gain over `own`, as differences between neighbouring cells."""
    j = trees.feature[fork]
    start = trees.right[fork] if goes_left(trees, fork, row[j]) else trees.left[fork]
    waiting.node[0], waiting.low[0], waiting.high[0], trips = start, low, high, 1
    while trips > 0:
        trips -= 1
        node, first, last = waiting.node[trips], waiting.low[trips], waiting.high[trips]
        while trees.left[node] != INSIDE:
            rank = trees.rank[node]
            if trees.feature[node] != j:
                node = child(trees, node, row)
            elif last <= rank:
                node = trees.left[node]
            elif first > rank:
                node = trees.right[node]
            else:
                waiting.node[trips], waiting.low[trips], waiting.high[trips] = trees.right[node], rank + 1, last
                trips += 1
                last = rank
                node = trees.left[node]
        gains[trees.start[j] + first] += trees.weight[node] - own
        gains[trees.start[j] + last + 1] -= trees.weight[node] - own


@numba.njit(cache=True, nogil=True)
def _try_each_cell(trees: CellTrees, row: NDArray[np.int32], j: int, gains: NDArray[np.float64]) -> None:
    """Walk every tree that splits on a feature, once for each of its cells."""
    first, missing = trees.start[j], missing_cell(trees, j)
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
