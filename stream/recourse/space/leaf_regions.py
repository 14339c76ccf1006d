"""A forest within one person's reach: its leaves as regions of options, and trees merged while that stays small.

A person moves along *dimensions*: a feature with several permitted cells, or a unit of features, each option of which says
a cell of every member. A region holds some options of each dimension, one bit an option. With all else fixed most trees
keep few leaves, and several trees are then merged into one: the regions in which their leaves overlap, each with the sum of
their weights. The greatest weight of a merged tree within a region is at most the sum of its trees' greatest weights, and
mostly much less.
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

BITS = 64  # of one word of a region
MERGED_LEAVES_MAX = 64  # leaves of a merged tree; more take longer than they save. By judgement
WORDS_MAX = 1 << 23  # of the regions of all leaves, 64 MB; a larger forest stays "unknown". By judgement
FIXED = -1  # the dimension of a feature that the person cannot move


class UnitCells(NamedTuple):
    """A unit of one person. Shape: cells (alternatives, members) int32, the person's own cells first."""

    members: tuple[int, ...]
    cells: NDArray[np.int32]


class Dimensions(NamedTuple):
    """The dimensions of one person: first `units` units in their order, then the features that move alone.

    Shapes: dimension (features,) int32: the one that moves a feature, or FIXED; first_option (features,) int64: the
    feature's cell at option i of its dimension is cell[first_option[j] + i]; options (dimensions,): how many there are;
    first_word (dimensions + 1,): its words in a region; whole (words,) uint64: the region of all options.
    """

    dimension: NDArray[np.int32]
    first_option: NDArray[np.int64]
    cell: NDArray[np.int32]
    options: NDArray[np.int64]
    first_word: NDArray[np.int64]
    whole: NDArray[np.uint64]
    units: int


class MergedTrees(NamedTuple):
    """The forest as a sum of merged trees, the one that varies most first; within each the greatest weight first.

    Shapes: first_leaf (merged + 1,); region (leaves, words) uint64; weight (leaves,) float64; first_bound (leaves + 1,) and
    bound: the dimensions that a leaf restricts; first_word as in `Dimensions`; least, greatest (trees,): each tree's
    least and greatest weight within reach. fixed: the sum of the trees with one leaf within reach.
    """

    first_word: NDArray[np.int64]
    first_leaf: NDArray[np.int64]
    region: NDArray[np.uint64]
    weight: NDArray[np.float64]
    first_bound: NDArray[np.int64]
    bound: NDArray[np.int32]
    fixed: float
    least: NDArray[np.float64]
    greatest: NDArray[np.float64]


def dimensions_of(
    trees: CellTrees, own: NDArray[np.int32], permitted: NDArray[np.bool_], units: Sequence[UnitCells] = ()
) -> Dimensions:
    """List a person's options. Shapes: own (features,) int32; permitted (cells,) bool: of features that move alone."""
    dimension = np.full(len(own), FIXED, np.int32)
    first_option = np.zeros(len(own), np.int64)
    cell: list[NDArray[np.int32]] = []
    count = [len(unit.cells) for unit in units]
    total = 0
    for k, unit in enumerate(units):
        for j, cells in zip(unit.members, unit.cells.T, strict=True):
            dimension[j], first_option[j] = k, total
            cell.append(cells.astype(np.int32))
            total += len(cells)
    for j, (first, end) in enumerate(pairwise(trees.start.tolist())):
        open_cells = permitted[first:end].copy()
        open_cells[own[j]] = True
        if dimension[j] == FIXED and np.count_nonzero(open_cells) > 1:
            dimension[j], first_option[j] = len(count), total
            cell.append(np.flatnonzero(open_cells).astype(np.int32))
            count.append(len(cell[-1]))
            total += count[-1]
    first_word = np.cumsum([0, *(-(-options // BITS) for options in count)]).astype(np.int64)
    bits = np.zeros(int(first_word[-1]) * BITS, np.uint8)
    for word, options in zip(first_word.tolist(), count, strict=False):
        bits[word * BITS : word * BITS + options] = 1
    return Dimensions(
        dimension=dimension,
        first_option=first_option,
        cell=np.concatenate([np.empty(0, np.int32), *cell]),
        options=np.array(count, np.int64),
        first_word=first_word,
        whole=np.packbits(bits, bitorder="little").view("<u8").astype(np.uint64),
        units=len(units),
    )


def nearest_cells(
    dimensions: Dimensions, own: NDArray[np.int32], region: NDArray[np.uint64]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Choose a row of cells in a region near to the person's own, and its option in each dimension.

    Shapes: (features,) int32, (dimensions,) int64. A unit takes its first option in the region, a feature the one with
    the fewest cells between.
    """
    row, chosen = own.copy(), np.zeros(len(dimensions.options), np.int64)
    bits = np.unpackbits(region.astype("<u8").view(np.uint8), bitorder="little").astype(np.bool_)
    for k, options in enumerate(dimensions.options.tolist()):
        members = np.flatnonzero(dimensions.dimension == k)
        first = int(dimensions.first_word[k]) * BITS
        inside = np.flatnonzero(bits[first : first + options])
        between = np.abs(dimensions.cell[dimensions.first_option[members[0]] + inside] - own[members[0]])
        chosen[k] = inside[0 if k < dimensions.units else between.argmin()]
        row[members] = dimensions.cell[dimensions.first_option[members] + chosen[k]]
    return row, chosen


def merged_trees_of(trees: CellTrees, own: NDArray[np.int32], dimensions: Dimensions) -> MergedTrees | None:
    """Merge what is within reach of the trees; None where that is larger than `WORDS_MAX`."""
    leaves_max = WORDS_MAX // max(1, len(dimensions.whole))
    first, region, weight = _leaves(
        trees, own, dimensions, min(leaves_max, int(np.count_nonzero(trees.left == INSIDE)))
    )
    if not len(first):
        return None
    single = np.diff(first) == 1
    bound_by = (
        np.logical_or.reduceat(_is_bound(region, dimensions), first[:-1]) if len(first) > 1 else np.empty((0, 0), bool)
    )
    often = np.argsort(bound_by.sum(axis=0), kind="stable")  # trees bound by the same dimensions are merged
    order = np.lexsort(~bound_by[:, often].T) if bound_by.shape[1] else np.arange(len(single))
    first_leaf, merged, merged_weight = _merged(first, region, weight, order[~single[order]], dimensions, leaves_max)
    if not len(first_leaf):
        return None
    sizes = np.diff(first_leaf)
    spread = np.array([np.ptp(merged_weight[a:b]) for a, b in pairwise(first_leaf.tolist())])
    by_spread = np.argsort(-spread, kind="stable")
    rank = np.empty(len(sizes), np.int64)
    rank[by_spread] = np.arange(len(sizes))
    sort = np.lexsort((-merged_weight, np.repeat(rank, sizes)))
    leaf, bound = np.nonzero(_is_bound(merged[sort], dimensions))
    return MergedTrees(
        first_word=dimensions.first_word,
        first_leaf=np.cumsum([0, *sizes[by_spread].tolist()]).astype(np.int64),
        region=merged[sort],
        weight=merged_weight[sort],
        first_bound=np.searchsorted(leaf, np.arange(len(merged) + 1)).astype(np.int64),
        bound=bound.astype(np.int32),
        fixed=float(weight[first[:-1][single]].sum()),
        least=np.minimum.reduceat(weight, first[:-1]) if len(weight) else weight,
        greatest=np.maximum.reduceat(weight, first[:-1]) if len(weight) else weight,
    )


def _is_bound(region: NDArray[np.uint64], dimensions: Dimensions) -> NDArray[np.bool_]:
    """Whether a region restricts a dimension. Shapes: (leaves, words) -> (leaves, dimensions)."""
    bound: NDArray[np.bool_] = np.logical_or.reduceat(region != dimensions.whole, dimensions.first_word[:-1], axis=1)
    return bound


@numba.njit(cache=True, nogil=True)
def _leaves(
    trees: CellTrees, own: NDArray[np.int32], dimensions: Dimensions, leaves_max: int
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.float64]]:
    """The leaves of each tree that a person can reach, and their regions: (trees + 1,), (n, words), (n,).

    All are empty where there are more than `leaves_max`.
    """
    words = dimensions.whole.shape[0]
    first = np.zeros(trees.root.shape[0] + 1, np.int64)
    leaf_region, weight = np.empty((leaves_max, words), np.uint64), np.empty(leaves_max)
    waiting, regions = np.empty(DEPTH_MAX, np.int32), np.empty((DEPTH_MAX, words), np.uint64)
    region, left = dimensions.whole.copy(), np.empty(words, np.uint64)
    found = 0
    for tree in range(trees.root.shape[0]):
        waiting[0], regions[0], trips = trees.root[tree], dimensions.whole, 1
        while trips > 0:
            trips -= 1
            node = waiting[trips]
            region[:] = regions[trips]
            while trees.left[node] != INSIDE:
                j = trees.feature[node]
                k = dimensions.dimension[j]
                if k == FIXED:
                    node = trees.left[node] if goes_left(trees, node, own[j]) else trees.right[node]
                    continue
                some_left, some_right = _split(trees, dimensions, node, region, left)
                if some_left and some_right:
                    waiting[trips] = trees.right[node]
                    regions[trips] = region
                    for word in range(dimensions.first_word[k], dimensions.first_word[k + 1]):
                        regions[trips, word] = region[word] & ~left[word]
                        region[word] &= left[word]
                    trips += 1
                node = trees.left[node] if some_left else trees.right[node]
            if found == leaves_max:
                return first[:0], leaf_region[:0], weight[:0]
            leaf_region[found] = region
            weight[found] = trees.weight[node]
            found += 1
        first[tree + 1] = found
    return first, leaf_region[:found], weight[:found]


@numba.njit(cache=True, nogil=True, forceinline=True)
def _split(
    trees: CellTrees, dimensions: Dimensions, node: int, region: NDArray[np.uint64], left: NDArray[np.uint64]
) -> tuple[bool, bool]:
    """Fill in the options that go left at a node; return whether any of a region's go left, and whether any go right."""
    j = trees.feature[node]
    k = dimensions.dimension[j]
    low, high = dimensions.first_word[k], dimensions.first_word[k + 1]
    left[low:high] = 0
    for option in range(dimensions.options[k]):
        if goes_left(trees, node, dimensions.cell[dimensions.first_option[j] + option]):
            left[low + option // BITS] |= np.uint64(1) << np.uint64(option % BITS)
    some_left, some_right = False, False
    for word in range(low, high):
        some_left = some_left or (region[word] & left[word]) != 0
        some_right = some_right or (region[word] & ~left[word]) != 0
    return some_left, some_right


@numba.njit(cache=True, nogil=True)
def _merged(
    first: NDArray[np.int64],
    region: NDArray[np.uint64],
    weight: NDArray[np.float64],
    order: NDArray[np.int64],
    dimensions: Dimensions,
    leaves_max: int,
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.float64]]:
    """Merge trees, one after the other, while a merged tree stays small: (merged + 1,), (n, words), (n,)."""
    room = min(leaves_max, region.shape[0] + MERGED_LEAVES_MAX * order.shape[0])
    first_leaf = np.zeros(order.shape[0] + 1, np.int64)
    regions, weights = np.empty((room, region.shape[1]), region.dtype), np.empty(room)
    both, total = np.empty((MERGED_LEAVES_MAX, region.shape[1]), region.dtype), np.empty(MERGED_LEAVES_MAX)
    merged = 0
    for tree in order:
        other, other_weight = region[first[tree] : first[tree + 1]], weight[first[tree] : first[tree + 1]]
        found = 0
        if merged > 0:
            begin, end = first_leaf[merged - 1], first_leaf[merged]
            found = _fill_overlaps(regions[begin:end], weights[begin:end], other, other_weight, dimensions, both, total)
        if found > 0:
            merged -= 1
            other, other_weight = both[:found], total[:found]
        begin, end = first_leaf[merged], first_leaf[merged] + other.shape[0]
        if end > room:
            return first_leaf[:0], regions[:0], weights[:0]
        regions[begin:end] = other
        weights[begin:end] = other_weight
        merged += 1
        first_leaf[merged] = end
    return first_leaf[: merged + 1], regions[: first_leaf[merged]], weights[: first_leaf[merged]]


@numba.njit(cache=True, nogil=True)
def _fill_overlaps(
    region: NDArray[np.uint64],
    weight: NDArray[np.float64],
    other: NDArray[np.uint64],
    other_weight: NDArray[np.float64],
    dimensions: Dimensions,
    both: NDArray[np.uint64],
    total: NDArray[np.float64],
) -> int:
    """Fill in the regions in which the leaves of two trees overlap; return how many, or 0 for more than a merged tree may have."""
    found = 0
    for a in range(region.shape[0]):
        for b in range(other.shape[0]):
            overlap = True
            for k in range(dimensions.options.shape[0]):
                if not overlaps_in(dimensions.first_word, k, region[a], other[b]):
                    overlap = False
                    break
            if not overlap:
                continue
            if found == both.shape[0]:
                return 0
            for word in range(region.shape[1]):
                both[found, word] = region[a, word] & other[b, word]
            total[found] = weight[a] + other_weight[b]
            found += 1
    return found


@numba.njit(cache=True, nogil=True, forceinline=True)
def overlaps_in(first_word: NDArray[np.int64], k: int, a: NDArray[np.uint64], b: NDArray[np.uint64]) -> bool:
    """Whether two regions share an option of dimension k."""
    some = False
    for word in range(first_word[k], first_word[k + 1]):
        some = some or (a[word] & b[word]) != 0
    return some
