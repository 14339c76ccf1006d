"""Whether the model accepts any permitted target: branch and bound over everything that one person can reach.

A region's bound is the sum over merged trees of the greatest weight within it. Where the bound is short of the goal, nothing
in the region is accepted. Else a dive takes, tree by tree, the greatest weight still open. It ends in a target, and the
dimension that keeps most of the bound from it is where the region is split in two. The region with the greatest bound is
next. The search ends with a target, with no region left, or with its budget used up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from stream.forest.trees import Forest
from stream.forest.walk import margins_of
from stream.recourse.space.leaf_regions import (
    MergedTrees,
    UnitCells,
    dimensions_of,
    merged_trees_of,
    nearest_cells,
    overlaps_in,
)
from stream.recourse.space.linked_features import LINE_STOPS_MAX, LinkedFeatures
from stream.recourse.space.margin_profiles import CellTrees, is_searchable
from stream.recourse.space.person_reach import PersonReach

REGIONS_MAX = 5_000  # searched for one person before the outcome is "unknown"; by judgement, see docs/recourse.md
OTHER_ROUNDINGS = 4  # additions besides the trees', in the goal and the base margin: more than there are

ProofOutcome: TypeAlias = Literal["none", "found", "unknown"]
_NONE, _FOUND, _UNKNOWN, _UNDECIDED = 0, 1, 2, 3
_OUTCOMES: tuple[ProofOutcome, ...] = ("none", "found", "unknown", "unknown")


class Proof(NamedTuple):
    """The outcome of branch and bound. "none": nothing within reach is accepted; "found": `cells` are.

    With "unknown" there may be `cells` whose sum only the library's rounding can decide.

    Shapes: cells (features,) int32; alternatives (units,) int64: the row of each unit's cells that was taken.
    """

    outcome: ProofOutcome
    cells: NDArray[np.int32] | None
    alternatives: NDArray[np.int64] | None
    regions: int  # searched


def prove(
    forest: Forest,
    trees: CellTrees,
    own: NDArray[np.int32],
    permitted: NDArray[np.bool_],
    *,
    cutoff: float,
    sign: int,
    units: Sequence[UnitCells] = (),
    regions_max: int = REGIONS_MAX,
) -> Proof:
    """Search what one person can reach for cells that the model accepts, or prove that there are none.

    Shapes: own (features,) int32 cells; permitted (cells,) bool, of the features that move alone: own cells always count as
    permitted, and those of features in `units` are ignored. cutoff: a native margin. "none" holds for the library's own
    floats, however they round. "found" is by a float64 sum: let the model score it.
    """
    dimensions = dimensions_of(trees, own, permitted, units)
    merged = merged_trees_of(trees, own, dimensions) if is_searchable(forest) else None
    if merged is None:
        return Proof("unknown", None, None, 0)
    base = sign * float(forest.base_margin)
    goal = sign * cutoff - base
    region = dimensions.whole.copy()
    rounding = _rounding_bound(forest, trees, merged, base, goal)
    code, regions = _branch_and_bound(merged, goal, goal - rounding, regions_max, region)
    if code not in (_FOUND, _UNDECIDED):
        return Proof(_OUTCOMES[code], None, None, regions)
    cells, options = nearest_cells(dimensions, own, region)
    return Proof(_OUTCOMES[code], cells, options[: len(units)], regions)


def prove_for(
    forest: Forest, trees: CellTrees, reach: PersonReach, *, cutoff: float, sign: int
) -> tuple[ProofOutcome, NDArray[np.float64] | None]:
    """Prove for one person that nothing permitted is accepted, or find a target (features,) float64 that the model accepts.

    "unknown" where the budget does not suffice, where linked features have more stops than are searched, and where the
    best found is short of the cutoff by no more than rounding.
    """
    units = reach.cell_targets.units
    alternatives = [reach.alternatives.of(u) for u in range(len(units))]
    proof = prove(
        forest,
        trees,
        reach.cells,
        ~np.isnan(reach.target_value) & reach.cell_targets.alone[reach.cell_targets.feature],
        cutoff=cutoff,
        sign=sign,
        units=[
            UnitCells(tuple(one.j for one in unit.members), cells)
            for unit, (cells, _) in zip(units, alternatives, strict=True)
        ],
    )
    if proof.cells is None or proof.alternatives is None:
        cut = any(
            isinstance(unit, LinkedFeatures) and len(cells) > LINE_STOPS_MAX
            for unit, (cells, _) in zip(units, alternatives, strict=True)
        )
        return "unknown" if cut else proof.outcome, None
    moves = (proof.cells != reach.cells) & reach.cell_targets.alone
    target = np.where(moves, reach.target_value[reach.cell_targets.start[:-1] + proof.cells], reach.row)
    for unit, (_, values), taken in zip(units, alternatives, proof.alternatives.tolist(), strict=True):
        target[[one.j for one in unit.members]] = values[taken]
    accepted = sign * float(margins_of(forest, target[None])[0]) >= sign * cutoff
    return ("found", target) if accepted else ("unknown", None)


def warm_up(forest: Forest, trees: CellTrees) -> None:
    """Compile the kernels, by a proof that ends at once."""
    own = np.zeros(len(trees.by_rank), np.int32)
    prove(forest, trees, own, np.ones(trees.start[-1], np.bool_), cutoff=np.inf, sign=1, regions_max=1)


def _rounding_bound(forest: Forest, trees: CellTrees, merged: MergedTrees, base: float, goal: float) -> float:
    """Bound how far our float64 sum can lie below the library's own, for anything within reach.

    The library adds tree by tree. Each addition errs by half an epsilon of the partial sum, which lies between the sums of
    the least and of the greatest weights within reach; a whole epsilon covers the errors of these errors too. Ours, in
    another order and in float64, errs by fewer epsilons of the largest sum than there are additions.
    Source: Higham 2002, Accuracy and Stability of Numerical Algorithms, section 4.2.
    """
    low, high = (np.abs(np.cumsum([base, *weights.tolist()])) for weights in (merged.least, merged.greatest))
    library = float(np.finfo(forest.dtype).eps) * float(np.maximum(low, high).sum())
    ours = (forest.trees + OTHER_ROUNDINGS) * float(np.finfo(np.float64).eps) * (trees.magnitude + abs(goal))
    return library + ours


@numba.njit(cache=True, nogil=True)
def _branch_and_bound(  # noqa: C901  (one branch too many: the queue of regions stays in one place)
    trees: MergedTrees, goal: float, drop_below: float, regions_max: int, region: NDArray[np.uint64]
) -> tuple[int, int]:
    """Search `region` and what it is split into; leave the region of what was found in `region`. Outcome, and regions."""
    words = region.shape[0]
    # The regions that wait: each with its bound, and the dimension and leaf at which it is to be split.
    waiting_region, bounds = np.empty((regions_max + 1, words), np.uint64), np.empty(regions_max + 1)
    at_dimension, at_leaf = np.empty(regions_max + 1, np.int32), np.empty(regions_max + 1, np.int64)
    best = np.empty(trees.first_leaf.shape[0] - 1, np.int64)
    taken, lost = np.empty_like(best), np.empty(trees.first_word.shape[0] - 1)
    trial, inside = region.copy(), np.empty(words, np.uint64)
    undecided, undecided_value = region.copy(), -np.inf  # the best between the goal and what rounding excludes
    waiting, searched = 0, 0
    pending = 1  # regions in hand: `trial`, then `inside`
    while True:
        for half in range(pending):
            if half == 1:
                trial[:] = inside
            searched += 1
            bound, value = _bound_and_dive(trees, trial, best, taken, region)
            if value >= goal:
                return _FOUND, searched
            if bound < drop_below:
                continue
            k, leaf = _branch(trees, region, best, taken, lost)
            if k < 0:
                if value > undecided_value:
                    undecided_value = value
                    undecided[:] = region
                continue
            waiting_region[waiting] = trial
            bounds[waiting], at_dimension[waiting], at_leaf[waiting] = bound, k, leaf
            waiting += 1
        if waiting == 0:
            region[:] = undecided
            return _UNDECIDED if undecided_value > -np.inf else _NONE, searched
        if searched + 2 > regions_max:
            return _UNKNOWN, searched
        pick = int(bounds[:waiting].argmax())
        trial[:] = waiting_region[pick]
        inside[:] = trial
        for word in range(trees.first_word[at_dimension[pick]], trees.first_word[at_dimension[pick] + 1]):
            inside[word] &= trees.region[at_leaf[pick], word]
            trial[word] &= ~trees.region[at_leaf[pick], word]
        waiting -= 1
        waiting_region[pick] = waiting_region[waiting]
        bounds[pick], at_dimension[pick], at_leaf[pick] = bounds[waiting], at_dimension[waiting], at_leaf[waiting]
        pending = 2


@numba.njit(cache=True, nogil=True, forceinline=True)
def _overlaps(trees: MergedTrees, leaf: int, region: NDArray[np.uint64]) -> bool:
    for at in range(trees.first_bound[leaf], trees.first_bound[leaf + 1]):
        if not overlaps_in(trees.first_word, trees.bound[at], trees.region[leaf], region):
            return False
    return True


@numba.njit(cache=True, nogil=True)
def _bound_and_dive(
    trees: MergedTrees,
    region: NDArray[np.uint64],
    best: NDArray[np.int64],
    taken: NDArray[np.int64],
    end: NDArray[np.uint64],
) -> tuple[float, float]:
    """Bound a region and dive into it: `best` and `taken` are each tree's leaves, `end` the region where the dive ends."""
    bound, value = trees.fixed, trees.fixed
    end[:] = region
    for tree in range(best.shape[0]):
        leaf = trees.first_leaf[tree]
        while not _overlaps(trees, leaf, region):  # weights descend, and some leaf of each tree overlaps any region
            leaf += 1
        best[tree] = leaf
        bound += trees.weight[leaf]
        while not _overlaps(trees, leaf, end):
            leaf += 1
        taken[tree] = leaf
        value += trees.weight[leaf]
        for word in range(region.shape[0]):
            end[word] &= trees.region[leaf, word]
    return bound, value


@numba.njit(cache=True, nogil=True)
def _branch(
    trees: MergedTrees,
    end: NDArray[np.uint64],
    best: NDArray[np.int64],
    taken: NDArray[np.int64],
    lost: NDArray[np.float64],
) -> tuple[int, int]:
    """The dimension that costs the dive most weight, and the leaf of which it costs most; -1 where none costs any.

    The region is split at that leaf's options: the dive's end lies outside of them, and neither half is empty.
    """
    lost[:] = 0.0
    for tree in range(best.shape[0]):
        difference = trees.weight[best[tree]] - trees.weight[taken[tree]]
        if difference > 0.0:
            for at in range(trees.first_bound[best[tree]], trees.first_bound[best[tree] + 1]):
                if not overlaps_in(trees.first_word, trees.bound[at], trees.region[best[tree]], end):
                    lost[trees.bound[at]] += difference
    dimension, leaf, most = -1, -1, 0.0
    if lost.shape[0] > 0 and lost.max() > 0.0:
        dimension = int(lost.argmax())
        for tree in range(best.shape[0]):
            difference = trees.weight[best[tree]] - trees.weight[taken[tree]]
            if difference > most and not overlaps_in(trees.first_word, dimension, trees.region[best[tree]], end):
                leaf, most = best[tree], difference
    return dimension, leaf
