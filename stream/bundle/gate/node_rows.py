"""For each node of a forest a row that comes to it: one of the pool's where one does, else one of the pool's, mended.

A pool row is mended by putting the features of the path onto values that go the right way. What a feature must satisfy
on a path it satisfies on one of few values, or on none: the ends of the cells that the path's thresholds cut, the codes
that its splits list, one that none lists, and missing. So a node is unreachable only where no row at all comes to it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numba
import numpy as np
import numpy.typing as npt

from stream.forest.trees import BITS, CATEGORY, INSIDE, ZERO_IS_MISSING, ZERO_REACH, Bools, Floats, Forest, Int32s
from stream.forest.walk import Splits, as_compared, goes_left, is_listed, leaf_slots, splits_of

MENDED_TOGETHER: Final = 8_192  # rows, so that what is held is bounded
_PAST_ZERO: Final = float(np.nextafter(ZERO_REACH, 1.0))

Rows: TypeAlias = npt.NDArray[np.float64]
Places: TypeAlias = npt.NDArray[np.int64]


class _Paths(NamedTuple):
    """How a path climbs and on which values a feature of it may lie, in the form that numba takes as one argument."""

    parent: Int32s
    below: Floats  # the number below each threshold, in the forest's dtype
    above: Floats
    sentinel: float  # NaN where there is none


class NodeRows:
    """Rows that come to the nodes of a forest. `reachable` (nodes,): whether any row comes to a node."""

    reachable: Bools

    def __init__(self, forest: Forest, pool: Rows) -> None:
        """Walk the pool, (n, features) float64, once."""
        self._forest, self._pool, self._paths = forest, pool, _paths(forest)
        leaf_row = np.full(len(forest.leaf_node), INSIDE, np.int64)
        for start in range(0, len(pool), MENDED_TOGETHER):
            _first_rows(leaf_slots(forest, pool[start : start + MENDED_TOGETHER]), start, leaf_row)
            if leaf_row.min() != INSIDE:
                break
        self._came, self._begin = np.empty(len(forest.left), np.bool_), np.empty(len(forest.left), np.int64)
        _spread(forest.left, forest.right, forest.parent, forest.leaf_slot, leaf_row, self._came, self._begin)
        self.reachable = self._came.copy()
        unseen = np.flatnonzero(~self._came)
        for start in range(0, len(unseen), MENDED_TOGETHER):
            nodes = unseen[start : start + MENDED_TOGETHER]
            self.reachable[nodes] = self._mended(nodes)[1]

    def pool_rows(self, nodes: Places) -> Places:
        """Which row of the pool the row of each node is, or is made from. Shapes: (n,) -> (n,)."""
        return self._begin[nodes]

    def rows(self, nodes: Places) -> Rows:
        """A row for each of these reachable nodes. Shapes: (n,) -> (n, features) float64."""
        return self._mended(nodes)[0]

    def _mended(self, nodes: Places) -> tuple[Rows, Bools]:
        rows = np.take(self._pool, self._begin[nodes], axis=0)
        came = self._came[nodes].copy()
        compared = as_compared(self._forest, rows)
        compared = compared.copy() if np.shares_memory(compared, rows) else compared
        _mend(rows, compared, nodes, splits_of(self._forest), self._paths, came)
        return rows, came


def _paths(forest: Forest) -> _Paths:
    end = forest.dtype.type(np.inf)
    with np.errstate(over="ignore"):
        below, above = np.nextafter(forest.threshold, -end), np.nextafter(forest.threshold, end)
    return _Paths(forest.parent, below, above, np.nan if forest.missing is None else forest.missing)


@numba.njit(cache=True, nogil=True)
def _first_rows(slots: Int32s, start: int, leaf_row: Places) -> None:
    """Note for each leaf the first row that came to it."""
    for row in range(slots.shape[0]):
        for tree in range(slots.shape[1]):
            if leaf_row[slots[row, tree]] == INSIDE:
                leaf_row[slots[row, tree]] = start + row


@numba.njit(cache=True, nogil=True)
def _spread(
    left: Int32s, right: Int32s, parent: Int32s, leaf_slot: Int32s, leaf_row: Places, came: Bools, begin: Places
) -> None:
    """A node's row is that of a leaf below it; without one, it begins as the row of the nearest node above that has one."""
    for node in range(left.shape[0] - 1, -1, -1):  # a child comes after its parent
        if left[node] == INSIDE:
            begin[node] = leaf_row[leaf_slot[node]]
        elif begin[left[node]] != INSIDE:
            begin[node] = begin[left[node]]
        else:
            begin[node] = begin[right[node]]
        came[node] = begin[node] != INSIDE
    for node in range(left.shape[0]):
        if not came[node]:
            begin[node] = begin[parent[node]]


@numba.njit(cache=True, nogil=True)
def _mend(rows: Rows, compared: Floats, nodes: Places, splits: Splits, paths: _Paths, came: Bools) -> None:
    """Put the features of each node's path onto values that lead to it; `came` says where there are such values."""
    for i in range(nodes.shape[0]):
        if came[i]:
            continue
        came[i] = True
        node = paths.parent[nodes[i]]
        while node != INSIDE and came[i]:
            feature = splits.feature[node]
            if not _leads(compared[i, feature], nodes[i], feature, splits, paths):
                came[i] = _put(compared[i], nodes[i], feature, splits, paths)
                rows[i, feature] = compared[i, feature]
            node = paths.parent[node]


@numba.njit(cache=True, nogil=True)
def _leads(value: Any, target: int, feature: int, splits: Splits, paths: _Paths) -> bool:  # noqa: ANN401 - either float
    """Whether a feature's value goes the right way at all of its splits on the path to a node."""
    child, node = target, paths.parent[target]
    while node != INSIDE:
        if splits.feature[node] == feature and goes_left(value, splits, node) != (splits.left[node] == child):
            return False
        child, node = node, paths.parent[node]
    return True


@numba.njit(cache=True, nogil=True)
def _put(row: Floats, target: int, feature: int, splits: Splits, paths: _Paths) -> bool:
    """Put a feature of a row onto a value that leads to a node; False where none does."""
    node = paths.parent[target]
    while node != INSIDE:
        if splits.feature[node] == feature:
            if splits.kind[node] == CATEGORY:
                if _put_code(row, target, node, splits, paths):
                    return True
            else:
                for value in (splits.threshold[node], paths.below[node], paths.above[node]):
                    row[feature] = value
                    if np.isfinite(value) and value != paths.sentinel and _leads(value, target, feature, splits, paths):
                        return True
            if splits.kind[node] == ZERO_IS_MISSING:
                for end in (0.0, ZERO_REACH, -ZERO_REACH, _PAST_ZERO, -_PAST_ZERO):
                    row[feature] = end
                    if _leads(row[feature], target, feature, splits, paths):
                        return True
        node = paths.parent[node]
    row[feature] = np.nan
    return _leads(row[feature], target, feature, splits, paths)


@numba.njit(cache=True, nogil=True)
def _put_code(row: Floats, target: int, node: int, splits: Splits, paths: _Paths) -> bool:
    """Put the feature of a split on categories onto a code that leads to a node: none that is listed, or one that is."""
    feature = splits.feature[node]
    row[feature] = -1 if paths.sentinel != -1 else -2  # listed nowhere
    if _leads(row[feature], target, feature, splits, paths):
        return True
    for code in range((splits.category_start[node + 1] - splits.category_start[node]) * BITS):
        row[feature] = code
        if row[feature] == paths.sentinel or not is_listed(row[feature], splits, node):
            continue
        if _leads(row[feature], target, feature, splits, paths):
            return True
    return False
