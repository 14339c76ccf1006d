"""From rows to leaves to margins, bit for bit as the owner library walks and adds.

XGBoost casts a row to float32 and asks `value < threshold`; LightGBM stays in float64 and asks `value <= threshold`.
Of categories, XGBoost sends the listed codes to the right and LightGBM to the left; both cut a code like 3.7 off to 3.
Both add the leaves in tree order, each in its own dtype. Kernels run on one thread and release the interpreter's lock.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numba
import numpy as np
import numpy.typing as npt

from stream.errors import LeafOutOfRange
from stream.forest.trees import (
    BITS,
    CATEGORY,
    INSIDE,
    NUMBER,
    ZERO_REACH,
    Bools,
    Floats,
    Forest,
    Int8s,
    Int32s,
    Uint32s,
)

Rows: TypeAlias = npt.NDArray[np.float64]


class SplitArrays(NamedTuple):
    """The splits of a forest as one argument for numba; shapes as in `Forest`."""

    or_equal: bool
    numbers_only: bool  # most forests then skip the look at `kind`
    first_node: Int32s
    feature: Int32s
    threshold: Floats
    left: Int32s
    right: Int32s
    default_left: Bools
    leaf_slot: Int32s
    kind: Int8s
    category_start: Int32s
    category_bits: Uint32s


def leaf_slots(forest: Forest, rows: Rows) -> Int32s:
    """The leaf each row reaches in each tree, as slots of `forest`.

    Shapes: rows (rows, features) float64 in the model's feature order, NaN for missing -> (rows, trees) int32.
    """
    slots = np.empty((len(rows), forest.trees), np.int32)
    _walk(as_compared(forest, rows), splits_of(forest), slots)
    return slots


def margins(forest: Forest, slots: Int32s) -> Floats:
    """Score rows by the leaves they reach, exactly as the booster behind `forest` does.

    Shapes: slots (rows, trees) int32 -> (rows,) in the forest's dtype. Unit: log-odds.
    Raises: LeafOutOfRange if a slot does not name a leaf of its own tree.
    Source: Chen & Guestrin 2016, eq. 1, after the base margin; the order of the sum is the libraries'.
    """
    if slots.ndim != 2 or slots.shape[1] != forest.trees:  # noqa: PLR2004  (rows by trees)
        message = f"leaf slots of shape {slots.shape} do not fit a forest of {forest.trees} trees"
        raise LeafOutOfRange(message)
    in_own_tree = (slots >= forest.first_leaf[:-1]) & (slots < forest.first_leaf[1:])
    if not in_own_tree.all():
        row, tree = np.argwhere(~in_own_tree)[0]
        message = f"slot {slots[row, tree]} of row {row} is not a leaf of tree {tree}"
        raise LeafOutOfRange(message)
    total = np.empty(len(slots), forest.dtype)
    _add(slots, forest.weight, forest.base_margin, total)
    return total


def margins_of(forest: Forest, rows: Rows) -> Floats:
    """`margins(forest, leaf_slots(forest, rows))` without the array between them. Shapes: (rows, features) -> (rows,)."""
    total = np.empty(len(rows), forest.dtype)
    _score(as_compared(forest, rows), splits_of(forest), forest.weight, forest.base_margin, total)
    return total


def leaf_ids(forest: Forest, slots: Int32s) -> Int32s:
    """The library's own ids of these leaves, as by `pred_leaf`. Shapes as given."""
    return forest.leaf_id[slots]


def decisive_nodes(forest: Forest, slots_a: Int32s, slots_b: Int32s) -> Int32s:
    """Per tree, the node where the paths to two leaves first part, as an absolute node; -1 where they are one leaf.

    Shapes: slots_a, slots_b (trees,) -> (trees,) int32.
    """
    nodes = np.empty(len(slots_a), np.int32)
    _part(forest.leaf_node[slots_a], forest.leaf_node[slots_b], forest.parent, forest.depth, nodes)
    return nodes


def as_compared(forest: Forest, rows: Rows) -> Floats:
    """The rows as the library compares them: in its dtype, inf beyond its range, and NaN for the sentinel.

    Shapes as given. XGBoost casts before it compares with the sentinel, so neighbours in float64 count as the sentinel.
    """
    if rows.ndim != 2 or rows.shape[1] != len(forest.features):  # noqa: PLR2004  (rows by features)
        message = f"rows of shape {rows.shape} do not fit a forest of {len(forest.features)} features"
        raise ValueError(message)
    with np.errstate(over="ignore"):
        read: Floats = np.ascontiguousarray(rows, dtype=forest.dtype)
    if forest.missing is not None:
        read = np.where(read == forest.missing, forest.dtype.type(np.nan), read)
    return read


def splits_of(forest: Forest) -> SplitArrays:
    """The arrays that a walk reads."""
    return SplitArrays(
        forest.operator == "<=",
        not forest.kind.any(),
        forest.first_node,
        forest.split_feature,
        forest.threshold,
        forest.left,
        forest.right,
        forest.default_left,
        forest.leaf_slot,
        forest.kind,
        forest.category_start,
        forest.category_bits,
    )


@numba.njit(cache=True, nogil=True)
def _slot(rows: Floats, row: int, splits: SplitArrays, tree: int) -> int:
    node = splits.first_node[tree]
    while splits.left[node] != INSIDE:
        goes = goes_left(rows[row, splits.feature[node]], splits, node)
        node = splits.left[node] if goes else splits.right[node]
    return splits.leaf_slot[node]  # type: ignore[no-any-return]


@numba.njit(cache=True, nogil=True, inline="always")  # a call with so many arrays costs more than the comparison
def goes_left(value: Any, splits: SplitArrays, node: int) -> bool:  # noqa: ANN401 - float32 or float64
    """Whether a value, as compared, goes to the left at a split."""
    if np.isnan(value):
        left = splits.default_left[node]
    elif splits.numbers_only or splits.kind[node] == NUMBER:
        threshold = splits.threshold[node]
        left = value < threshold or (splits.or_equal and value == threshold)
    elif splits.kind[node] == CATEGORY:
        left = is_listed(value, splits, node) == splits.or_equal
    elif -ZERO_REACH <= value <= ZERO_REACH:
        left = splits.default_left[node]
    else:
        left = value <= splits.threshold[node]  # only LightGBM has such splits
    return left  # type: ignore[no-any-return]


@numba.njit(cache=True, nogil=True)
def is_listed(value: Any, splits: SplitArrays, node: int) -> bool:  # noqa: ANN401 - float32 or float64
    """Whether a category split lists a code. XGBoost knows no code below zero, LightGBM cuts -0.5 off to 0."""
    first = splits.category_start[node]
    words = splits.category_start[node + 1] - first
    if words == 0 or value >= words * BITS or value <= -1 or (value < 0 and not splits.or_equal):
        return False
    code = int(value)
    return bool((splits.category_bits[first + code // BITS] >> np.uint32(code % BITS)) & np.uint32(1))


@numba.njit(cache=True, nogil=True)
def _walk(rows: Floats, splits: SplitArrays, slots: Int32s) -> None:
    for row in range(slots.shape[0]):
        for tree in range(slots.shape[1]):
            slots[row, tree] = _slot(rows, row, splits, tree)


@numba.njit(cache=True, nogil=True)
def _add(slots: Int32s, weight: Floats, base_margin: np.floating[Any], total: Floats) -> None:
    for row in range(slots.shape[0]):
        margin = base_margin  # a scalar of the forest's dtype, and so is every partial sum
        for tree in range(slots.shape[1]):
            margin += weight[slots[row, tree]]
        total[row] = margin


@numba.njit(cache=True, nogil=True)
def _score(rows: Floats, splits: SplitArrays, weight: Floats, base_margin: np.floating[Any], total: Floats) -> None:
    for row in range(total.shape[0]):
        margin = base_margin
        for tree in range(splits.first_node.shape[0] - 1):
            margin += weight[_slot(rows, row, splits, tree)]
        total[row] = margin


@numba.njit(cache=True, nogil=True)
def _part(node_a: Int32s, node_b: Int32s, parent: Int32s, depth: Int32s, parted_at: Int32s) -> None:
    for i in range(parted_at.shape[0]):
        a, b = node_a[i], node_b[i]
        parted_at[i] = INSIDE
        while a != b:  # climb from the deeper one; where they meet, the paths part
            if depth[a] >= depth[b]:
                a = parent[a]
            else:
                b = parent[b]
            parted_at[i] = a
        if parted_at[i] != INSIDE:
            parted_at[i] = a
