"""For each node of a forest a row that reaches it: a row of the pool where one does, else an adjusted one.

A row is adjusted by setting the features of the path to values that go the right way. If any value of a feature satisfies
all its splits on a path, then one of these does: the ends of the cells that the path's thresholds cut, the codes that its
splits list, one that none lists, and missing. So a node counts as unreachable only if no row at all reaches it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numba
import numpy as np
import numpy.typing as npt

from stream.forest.trees import BITS, CATEGORY, INSIDE, ZERO_IS_MISSING, ZERO_REACH, Bools, Floats, Forest, Int32s
from stream.forest.walk import SplitArrays, as_compared, goes_left, is_listed, leaf_slots, splits_of

BATCH_ROWS: Final = 8_192  # bounds memory
_PAST_ZERO: Final = float(np.nextafter(ZERO_REACH, 1.0))
ENDS_OF_ZERO: Final = (0.0, ZERO_REACH, -ZERO_REACH, _PAST_ZERO, -_PAST_ZERO)
Rows: TypeAlias = npt.NDArray[np.float64]
Int64s: TypeAlias = npt.NDArray[np.int64]


class _Paths(NamedTuple):
    """Parents, and the neighbours of thresholds, as one argument for numba."""

    parent: Int32s
    below: Floats  # the number below each threshold, in the forest's dtype
    above: Floats
    sentinel: float  # NaN where there is none


class NodeRows:
    """Rows that reach the nodes of a forest. `reachable` (nodes,): whether any row can reach a node.

    Shape: pool (n, features) float64, walked once.
    """

    def __init__(self, forest: Forest, pool: Rows) -> None:
        self._forest, self._pool, self._paths = forest, pool, _paths(forest)
        leaf_row = np.full(len(forest.leaf_node), INSIDE, np.int64)
        for start in range(0, len(pool), BATCH_ROWS):
            _first_rows(leaf_slots(forest, pool[start : start + BATCH_ROWS]), start, leaf_row)
            if leaf_row.min() != INSIDE:
                break
        self._reached, self._start_row = np.empty(len(forest.left), np.bool_), np.empty(len(forest.left), np.int64)
        _spread_from_leaves(
            forest.left, forest.right, forest.parent, forest.leaf_slot, leaf_row, self._reached, self._start_row
        )
        self.reachable = self._reached.copy()
        unseen = np.flatnonzero(~self._reached)
        for start in range(0, len(unseen), BATCH_ROWS):
            nodes = unseen[start : start + BATCH_ROWS]
            self.reachable[nodes] = self._adjusted(nodes)[1]

    def pool_rows(self, nodes: Int64s) -> Int64s:
        """The pool row that each node's row is or was adjusted from. Shapes: (n,) -> (n,)."""
        return self._start_row[nodes]

    def rows(self, nodes: Int64s) -> Rows:
        """A row for each of these reachable nodes. Shapes: (n,) -> (n, features) float64."""
        return self._adjusted(nodes)[0]

    def _adjusted(self, nodes: Int64s) -> tuple[Rows, Bools]:
        rows = np.take(self._pool, self._start_row[nodes], axis=0)
        reached = self._reached[nodes].copy()
        compared = as_compared(self._forest, rows)
        compared = compared.copy() if np.shares_memory(compared, rows) else compared
        _adjust(rows, compared, nodes, splits_of(self._forest), self._paths, reached)
        return rows, reached


def _paths(forest: Forest) -> _Paths:
    end = forest.dtype.type(np.inf)
    with np.errstate(over="ignore"):
        below, above = np.nextafter(forest.threshold, -end), np.nextafter(forest.threshold, end)
    return _Paths(forest.parent, below, above, np.nan if forest.missing is None else forest.missing)


@numba.njit(cache=True, nogil=True)
def _first_rows(slots: Int32s, start: int, leaf_row: Int64s) -> None:
    for row in range(slots.shape[0]):
        for tree in range(slots.shape[1]):
            if leaf_row[slots[row, tree]] == INSIDE:
                leaf_row[slots[row, tree]] = start + row


@numba.njit(cache=True, nogil=True)
def _spread_from_leaves(
    left: Int32s, right: Int32s, parent: Int32s, leaf_slot: Int32s, leaf_row: Int64s, reached: Bools, start_row: Int64s
) -> None:
    """A node takes the row of a leaf below it; without one, that of its nearest ancestor with a row, to be adjusted."""
    for node in range(left.shape[0] - 1, -1, -1):  # a child comes after its parent
        if left[node] == INSIDE:
            start_row[node] = leaf_row[leaf_slot[node]]
        elif start_row[left[node]] != INSIDE:
            start_row[node] = start_row[left[node]]
        else:
            start_row[node] = start_row[right[node]]
        reached[node] = start_row[node] != INSIDE
    for node in range(left.shape[0]):
        if not reached[node]:
            start_row[node] = start_row[parent[node]]


@numba.njit(cache=True, nogil=True)
def _adjust(rows: Rows, compared: Floats, nodes: Int64s, splits: SplitArrays, paths: _Paths, reached: Bools) -> None:
    """Set the features of each node's path to values that lead to it; `reached` says where such values exist."""
    for i in range(nodes.shape[0]):
        if reached[i]:
            continue
        reached[i] = True
        node = paths.parent[nodes[i]]
        while node != INSIDE and reached[i]:
            feature = splits.feature[node]
            if not _leads_to(compared[i, feature], nodes[i], feature, splits, paths):
                reached[i] = _set_value(compared[i], nodes[i], feature, splits, paths)
                rows[i, feature] = compared[i, feature]
            node = paths.parent[node]


@numba.njit(cache=True, nogil=True)
def _leads_to(value: Any, target: int, feature: int, splits: SplitArrays, paths: _Paths) -> bool:  # noqa: ANN401 - either float
    """Whether a feature's value goes the right way at all of its splits on the path to a node."""
    child, node = target, paths.parent[target]
    while node != INSIDE:
        if splits.feature[node] == feature and goes_left(value, splits, node) != (splits.left[node] == child):
            return False
        child, node = node, paths.parent[node]
    return True


@numba.njit(cache=True, nogil=True)
def _set_value(row: Floats, target: int, feature: int, splits: SplitArrays, paths: _Paths) -> bool:
    """Set a feature of a row to a value that leads to a node; False where none does."""
    node = paths.parent[target]
    while node != INSIDE:
        if splits.feature[node] == feature:
            if splits.kind[node] == CATEGORY:
                if _set_code(row, target, node, splits, paths):
                    return True
            else:
                for value in (splits.threshold[node], paths.below[node], paths.above[node]):
                    row[feature] = value
                    if (
                        np.isfinite(value)
                        and value != paths.sentinel
                        and _leads_to(value, target, feature, splits, paths)
                    ):
                        return True
            if splits.kind[node] == ZERO_IS_MISSING:
                for end in ENDS_OF_ZERO:
                    row[feature] = end
                    if _leads_to(row[feature], target, feature, splits, paths):
                        return True
        node = paths.parent[node]
    row[feature] = np.nan
    return _leads_to(row[feature], target, feature, splits, paths)


@numba.njit(cache=True, nogil=True)
def _set_code(row: Floats, target: int, node: int, splits: SplitArrays, paths: _Paths) -> bool:
    """Set the feature of a split on categories to a code that leads to a node, unlisted or listed."""
    feature = splits.feature[node]
    row[feature] = -1 if paths.sentinel != -1 else -2  # listed nowhere
    if _leads_to(row[feature], target, feature, splits, paths):
        return True
    for code in range((splits.category_start[node + 1] - splits.category_start[node]) * BITS):
        row[feature] = code
        if row[feature] == paths.sentinel or not is_listed(row[feature], splits, node):
            continue
        if _leads_to(row[feature], target, feature, splits, paths):
            return True
    return False
