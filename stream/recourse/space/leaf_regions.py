"""A forest within what one person can reach: its leaves as boxes of ways, trees put together where that stays small.

A person goes along *dimensions*: a feature of which several cells are permitted, or a unit of features that move
together, whose ways each say a cell of every member. A box says of each dimension which ways it holds, one bit a way.
With all else fixed most trees have few leaves left, and several of them are then one *part*: the boxes in which their
leaves meet, each with the sum of their weights. The greatest weight of a part within a box is at most the sum of the
greatest weights of its trees, and mostly much less.
Source: Chen et al. 2019, "Robustness Verification of Tree-based Models", which merges trees before it bounds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from stream.forest.trees import INSIDE
from stream.recourse.space.margin_profiles import DEPTH_MAX, CellTrees, goes_left

BITS = 64  # of one word of a box
PART_LEAVES_MAX = 64  # trees are put together as long as there are no more; more take longer than they spare
WORDS_MAX = 1 << 23  # of the boxes of all leaves: 64 MB; what is larger is not looked at
FIXED = -1  # the place of a feature that a person cannot move


class Together(NamedTuple):
    """A unit of one person. Shape: cells (ways, members) int32, the person's own cells first."""

    members: tuple[int, ...]
    cells: NDArray[np.int32]


class Ways(NamedTuple):
    """The dimensions of one person: first `units` units in their order, then the features that move alone.

    Shapes: place (features,) int32, the dimension that a feature belongs to, or FIXED; first_way (features,) int64: a
    feature's cell in way i of its dimension is cell[first_way[j] + i]; size (dimensions,): its ways;
    first_word (dimensions + 1,): its words in a box; everywhere (words,) uint64: the box of all ways.
    """

    place: NDArray[np.int32]
    first_way: NDArray[np.int64]
    cell: NDArray[np.int32]
    size: NDArray[np.int64]
    first_word: NDArray[np.int64]
    everywhere: NDArray[np.uint64]
    units: int


class Parts(NamedTuple):
    """The forest as a sum of parts, the one that varies most first; within a part the greatest weight first.

    Shapes: first_leaf (parts + 1,); box (leaves, words) uint64; weight (leaves,) float64; first_bound (leaves + 1,) and
    bound: the dimensions that a leaf does not leave open; first_word as in `Ways`; least, greatest (trees,): the
    weights that are within reach of each tree. fixed: the sum of those trees in which nothing changes.
    """

    first_word: NDArray[np.int64]
    first_leaf: NDArray[np.int64]
    box: NDArray[np.uint64]
    weight: NDArray[np.float64]
    first_bound: NDArray[np.int64]
    bound: NDArray[np.int32]
    fixed: float
    least: NDArray[np.float64]
    greatest: NDArray[np.float64]


def ways_of(
    trees: CellTrees, own: NDArray[np.int32], permitted: NDArray[np.bool_], units: Sequence[Together] = ()
) -> Ways:
    """List where a person can go. Shapes: own (features,) int32; permitted (cells,) bool: of features that move alone."""
    place = np.full(len(own), FIXED, np.int32)
    first_way = np.zeros(len(own), np.int64)
    held: list[NDArray[np.int32]] = []
    count = [len(unit.cells) for unit in units]
    total = 0
    for k, unit in enumerate(units):
        for j, cells in zip(unit.members, unit.cells.T, strict=True):
            place[j], first_way[j] = k, total
            held.append(cells.astype(np.int32))
            total += len(cells)
    for j, (first, end) in enumerate(pairwise(trees.start.tolist())):
        here = permitted[first:end].copy()
        here[own[j]] = True
        if place[j] == FIXED and np.count_nonzero(here) > 1:
            place[j], first_way[j] = len(count), total
            held.append(np.flatnonzero(here).astype(np.int32))
            count.append(len(held[-1]))
            total += count[-1]
    first_word = np.cumsum([0, *(-(-ways // BITS) for ways in count)]).astype(np.int64)
    bits = np.zeros(int(first_word[-1]) * BITS, np.uint8)
    for word, ways in zip(first_word.tolist(), count, strict=False):
        bits[word * BITS : word * BITS + ways] = 1
    return Ways(
        place=place,
        first_way=first_way,
        cell=np.concatenate([np.empty(0, np.int32), *held]),
        size=np.array(count, np.int64),
        first_word=first_word,
        everywhere=np.packbits(bits, bitorder="little").view("<u8").astype(np.uint64),
        units=len(units),
    )


def nearest_in(
    ways: Ways, own: NDArray[np.int32], box: NDArray[np.uint64]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Give a row of cells in a box that is near to the own, and its way in each dimension.

    Shapes: (features,) int32, (dimensions,) int64. Of a unit that is the first way in the box, of a feature the one
    with the fewest cells between.
    """
    row, chosen = own.copy(), np.zeros(len(ways.size), np.int64)
    bits = np.unpackbits(box.astype("<u8").view(np.uint8), bitorder="little").astype(np.bool_)
    for k, size in enumerate(ways.size.tolist()):
        members = np.flatnonzero(ways.place == k)
        first = int(ways.first_word[k]) * BITS
        held = np.flatnonzero(bits[first : first + size])
        between = np.abs(ways.cell[ways.first_way[members[0]] + held] - own[members[0]])
        chosen[k] = held[0 if k < ways.units else between.argmin()]
        row[members] = ways.cell[ways.first_way[members] + chosen[k]]
    return row, chosen


def parts_of(trees: CellTrees, own: NDArray[np.int32], ways: Ways) -> Parts | None:
    """Put the forest together from what is left of its trees; None where that is larger than `WORDS_MAX`."""
    leaves_max = WORDS_MAX // max(1, len(ways.everywhere))
    first, box, weight = _leaves(trees, own, ways, min(leaves_max, int(np.count_nonzero(trees.left == INSIDE))))
    if not len(first):
        return None
    single = np.diff(first) == 1
    bound_by = np.logical_or.reduceat(_is_bound(box, ways), first[:-1]) if len(first) > 1 else np.empty((0, 0), bool)
    often = np.argsort(bound_by.sum(axis=0), kind="stable")  # trees that are bound by the same are put together
    order = np.lexsort(~bound_by[:, often].T) if bound_by.shape[1] else np.arange(len(single))
    first_leaf, merged, merged_weight = _put_together(first, box, weight, order[~single[order]], ways, leaves_max)
    if not len(first_leaf):
        return None
    sizes = np.diff(first_leaf)
    spread = np.array([np.ptp(merged_weight[a:b]) for a, b in pairwise(first_leaf.tolist())])
    by_spread = np.argsort(-spread, kind="stable")
    rank = np.empty(len(sizes), np.int64)
    rank[by_spread] = np.arange(len(sizes))
    sort = np.lexsort((-merged_weight, np.repeat(rank, sizes)))
    leaf, which = np.nonzero(_is_bound(merged[sort], ways))
    return Parts(
        first_word=ways.first_word,
        first_leaf=np.cumsum([0, *sizes[by_spread].tolist()]).astype(np.int64),
        box=merged[sort],
        weight=merged_weight[sort],
        first_bound=np.searchsorted(leaf, np.arange(len(merged) + 1)).astype(np.int64),
        bound=which.astype(np.int32),
        fixed=float(weight[first[:-1][single]].sum()),
        least=np.minimum.reduceat(weight, first[:-1]) if len(weight) else weight,
        greatest=np.maximum.reduceat(weight, first[:-1]) if len(weight) else weight,
    )


def _is_bound(box: NDArray[np.uint64], ways: Ways) -> NDArray[np.bool_]:
    """Whether a box does not leave a dimension open. Shapes: (leaves, words) -> (leaves, dimensions)."""
    bound: NDArray[np.bool_] = np.logical_or.reduceat(box != ways.everywhere, ways.first_word[:-1], axis=1)
    return bound


@numba.njit(cache=True, nogil=True)
def _leaves(  # noqa: C901  (a kernel: calls that take a dozen arrays cost more than they do)
    trees: CellTrees, own: NDArray[np.int32], ways: Ways, leaves_max: int
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.float64]]:
    """The leaves of each tree that a person can reach, and in which box: (trees + 1,), (n, words), (n,).

    All are empty where there are more than `leaves_max`.
    """
    words = ways.everywhere.shape[0]
    first = np.zeros(trees.root.shape[0] + 1, np.int64)
    box, weight = np.empty((leaves_max, words), np.uint64), np.empty(leaves_max)
    waiting, boxes = np.empty(DEPTH_MAX, np.int32), np.empty((DEPTH_MAX, words), np.uint64)
    here, goes = ways.everywhere.copy(), np.empty(words, np.uint64)
    found = 0
    for tree in range(trees.root.shape[0]):
        waiting[0], boxes[0], trips = trees.root[tree], ways.everywhere, 1
        while trips > 0:
            trips -= 1
            node = waiting[trips]
            here[:] = boxes[trips]
            while trees.left[node] != INSIDE:
                j = trees.feature[node]
                k = ways.place[j]
                if k == FIXED:
                    node = trees.left[node] if goes_left(trees, node, own[j]) else trees.right[node]
                    continue
                low, high = ways.first_word[k], ways.first_word[k + 1]
                goes[low:high] = 0
                for way in range(ways.size[k]):
                    if goes_left(trees, node, ways.cell[ways.first_way[j] + way]):
                        goes[low + way // BITS] |= np.uint64(1) << np.uint64(way % BITS)
                some_left, some_right = False, False
                for word in range(low, high):
                    some_left = some_left or (here[word] & goes[word]) != 0
                    some_right = some_right or (here[word] & ~goes[word]) != 0
                if some_left and some_right:
                    waiting[trips] = trees.right[node]
                    boxes[trips] = here
                    for word in range(low, high):
                        boxes[trips, word] = here[word] & ~goes[word]
                        here[word] &= goes[word]
                    trips += 1
                node = trees.left[node] if some_left else trees.right[node]
            if found == leaves_max:
                return first[:0], box[:0], weight[:0]
            box[found] = here
            weight[found] = trees.weight[node]
            found += 1
        first[tree + 1] = found
    return first, box[:found], weight[:found]


@numba.njit(cache=True, nogil=True)
def _put_together(
    first: NDArray[np.int64],
    box: NDArray[np.uint64],
    weight: NDArray[np.float64],
    order: NDArray[np.int64],
    ways: Ways,
    leaves_max: int,
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.float64]]:
    """Merge trees, one after the other, as long as a part stays small: (parts + 1,), (n, words), (n,)."""
    room = min(leaves_max, box.shape[0] + PART_LEAVES_MAX * order.shape[0])
    part, all_box, all_weight = (
        np.zeros(order.shape[0] + 1, np.int64),
        np.empty((room, box.shape[1]), box.dtype),
        np.empty(room),
    )
    both, total = np.empty((PART_LEAVES_MAX, box.shape[1]), box.dtype), np.empty(PART_LEAVES_MAX)
    parts = 0
    for tree in order:
        other, other_weight = box[first[tree] : first[tree + 1]], weight[first[tree] : first[tree + 1]]
        found = 0
        if parts > 0:
            begin, end = part[parts - 1], part[parts]
            found = _meet(all_box[begin:end], all_weight[begin:end], other, other_weight, ways, both, total)
        if found > 0:
            parts -= 1
            other, other_weight = both[:found], total[:found]
        begin, end = part[parts], part[parts] + other.shape[0]
        if end > room:
            return part[:0], all_box[:0], all_weight[:0]
        all_box[begin:end] = other
        all_weight[begin:end] = other_weight
        parts += 1
        part[parts] = end
    return part[: parts + 1], all_box[: part[parts]], all_weight[: part[parts]]


@numba.njit(cache=True, nogil=True)
def _meet(
    box: NDArray[np.uint64],
    weight: NDArray[np.float64],
    other: NDArray[np.uint64],
    other_weight: NDArray[np.float64],
    ways: Ways,
    both: NDArray[np.uint64],
    total: NDArray[np.float64],
) -> int:
    """Fill in the boxes in which the leaves of two parts meet; 0 where there are more than a part may have."""
    found = 0
    for a in range(box.shape[0]):
        for b in range(other.shape[0]):
            meets = True
            for k in range(ways.size.shape[0]):
                some = False
                for word in range(ways.first_word[k], ways.first_word[k + 1]):
                    some = some or (box[a, word] & other[b, word]) != 0
                if not some:
                    meets = False
                    break
            if not meets:
                continue
            if found == both.shape[0]:
                return 0
            for word in range(box.shape[1]):
                both[found, word] = box[a, word] & other[b, word]
            total[found] = weight[a] + other_weight[b]
            found += 1
    return found
