"""Whether any permitted target is accepted at all: branch and bound over everything that one person can reach.

A box's bound is the sum over the parts of the forest of the greatest weight within it. Where the bound is short of the
goal nobody in the box is accepted. Else a dive takes, part by part, the greatest weight that is still open: it ends in
a target, and the dimension that keeps most of the bound from it is where the box is parted in two. The most promising
box is looked at next. It ends with a target, with no box left, or when its budget is used up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from stream.forest.trees import Forest
from stream.forest.walk import margins_of
from stream.recourse.space.leaf_regions import Parts, Together, nearest_in, parts_of, ways_of
from stream.recourse.space.linked_features import LINE_WAYS_MAX, LinkedFeatures
from stream.recourse.space.margin_profiles import CellTrees, is_searchable
from stream.recourse.space.person_reach import PersonReach

BOXES_MAX = 5_000  # looked at for one person, before the question stays open
OTHER_ROUNDINGS = 4  # in the goal and in the base margin

Outcome: TypeAlias = Literal["none", "found", "unknown"]
_NONE, _FOUND, _UNKNOWN, _IN_DOUBT = 0, 1, 2, 3
_OUTCOMES: tuple[Outcome, ...] = ("none", "found", "unknown", "unknown")


class Proof(NamedTuple):
    """What branch and bound says. "none": nothing within reach is accepted; "found": `cells` are.

    With "unknown" there are `cells` where all that is left to doubt is how the library rounds the sum of theirs.

    Shapes: cells (features,) int32; ways (units,) int64, of each unit the row of its cells that was taken.
    """

    outcome: Outcome
    cells: NDArray[np.int32] | None
    ways: NDArray[np.int64] | None
    boxes: int  # looked at


def prove(
    forest: Forest,
    trees: CellTrees,
    own: NDArray[np.int32],
    permitted: NDArray[np.bool_],
    *,
    cutoff: float,
    sign: int,
    units: Sequence[Together] = (),
    boxes_max: int = BOXES_MAX,
) -> Proof:
    """Search what one person can reach for cells that the model accepts, or exclude that there are any.

    Shapes: own (features,) int32 cells; permitted (cells,) bool, of the features that move alone: own cells count
    whatever it says, and it says nothing of features that move in `units`. cutoff: a native margin. "none" holds for
    the library's own floats, whatever they round. "found" is by a sum in float64: let the model score it.
    """
    ways = ways_of(trees, own, permitted, units)
    parts = parts_of(trees, own, ways) if is_searchable(forest) else None
    if parts is None:
        return Proof("unknown", None, None, 0)
    base = sign * float(forest.base_margin)
    goal = sign * cutoff - base
    box = ways.everywhere.copy()
    code, boxes = _branch_and_bound(parts, goal, goal - _rounded(forest, trees, parts, base, goal), boxes_max, box)
    if code not in (_FOUND, _IN_DOUBT):
        return Proof(_OUTCOMES[code], None, None, boxes)
    cells, chosen = nearest_in(ways, own, box)
    return Proof(_OUTCOMES[code], cells, chosen[: len(units)], boxes)


def prove_for(
    forest: Forest, trees: CellTrees, reach: PersonReach, *, cutoff: float, sign: int
) -> tuple[Outcome, NDArray[np.float64] | None]:
    """Prove for one person that nothing permitted is accepted, or give a target (features,) float64 that the model accepts.

    "unknown" where the budget does not suffice, where a line of linked features is longer than what is looked at, and
    where the best that is found is short of the cutoff by no more than what is rounded.
    """
    units = reach.cell_targets.units
    ways = [reach.alternatives.of(u) for u in range(len(units))]
    proof = prove(
        forest,
        trees,
        reach.cells,
        ~np.isnan(reach.target_value) & reach.cell_targets.alone[reach.cell_targets.feature],
        cutoff=cutoff,
        sign=sign,
        units=[Together(tuple(one.j for one in unit.members), way[0]) for unit, way in zip(units, ways, strict=True)],
    )
    if proof.cells is None or proof.ways is None:
        cut = any(
            isinstance(unit, LinkedFeatures) and len(way[0]) > LINE_WAYS_MAX
            for unit, way in zip(units, ways, strict=True)
        )
        return "unknown" if cut else proof.outcome, None
    moves = (proof.cells != reach.cells) & reach.cell_targets.alone
    target = np.where(moves, reach.target_value[reach.cell_targets.start[:-1] + proof.cells], reach.row)
    for unit, way, taken in zip(units, ways, proof.ways.tolist(), strict=True):
        target[[one.j for one in unit.members]] = way[1][taken]
    accepted = sign * float(margins_of(forest, target[None])[0]) >= sign * cutoff
    return ("found", target) if accepted else ("unknown", None)


def warm_up(forest: Forest, trees: CellTrees) -> None:
    """Prove something that is out of everyone's reach: the first person asked for need not wait for the compiler."""
    own = np.zeros(len(trees.by_rank), np.int32)
    prove(forest, trees, own, np.ones(trees.start[-1], np.bool_), cutoff=np.inf, sign=1, boxes_max=1)


def _rounded(forest: Forest, trees: CellTrees, parts: Parts, base: float, goal: float) -> float:
    """Bound how much less than the library's own sum ours can be, for anything within reach.

    The library adds tree by tree, and each addition errs by half an epsilon of what has been added up by then, which
    lies between the sums of the least and of the greatest weights within reach; a whole epsilon makes up for these
    errors' own errors too. Ours, in another order and in float64, errs by less than as many epsilons of the largest sum.
    Source: Higham 2002, Accuracy and Stability of Numerical Algorithms, section 4.2.
    """
    low, high = (np.abs(np.cumsum([base, *weights.tolist()])) for weights in (parts.least, parts.greatest))
    library = float(np.finfo(forest.dtype).eps) * float(np.maximum(low, high).sum())
    ours = (forest.trees + OTHER_ROUNDINGS) * float(np.finfo(np.float64).eps) * (trees.magnitude + abs(goal))
    return library + ours


@numba.njit(cache=True, nogil=True)
def _branch_and_bound(  # noqa: C901  (a kernel, as in `leaf_boxes`)
    parts: Parts, goal: float, dropped_below: float, boxes_max: int, box: NDArray[np.uint64]
) -> tuple[int, int]:
    """Look at `box` and what it is parted into; the box of what was found is left in `box`. Outcome, and boxes."""
    words = box.shape[0]
    boxes = np.empty((boxes_max + 1, words), np.uint64)  # those that wait, with bound, and where they are to be parted
    bounds = np.empty(boxes_max + 1)
    at_dimension, at_leaf = np.empty(boxes_max + 1, np.int32), np.empty(boxes_max + 1, np.int64)
    best = np.empty(parts.first_leaf.shape[0] - 1, np.int64)
    taken, votes = np.empty_like(best), np.empty(parts.first_word.shape[0] - 1)
    trial, inside = box.copy(), np.empty(words, np.uint64)
    nearest, doubt = box.copy(), -np.inf  # the best of what lies between the goal and what its rounding excludes
    waiting, looked = 0, 0
    pending = 1  # boxes in hand: `trial`, then `inside`'s complement
    while True:
        for half in range(pending):
            if half == 1:
                trial[:] = inside
            looked += 1
            bound, value = _look(parts, trial, best, taken, box)
            if value >= goal:
                return _FOUND, looked
            if bound < dropped_below:
                continue
            k, leaf = _blame(parts, box, best, taken, votes)
            if k < 0:
                if value > doubt:
                    doubt = value
                    nearest[:] = box
                continue
            boxes[waiting] = trial
            bounds[waiting], at_dimension[waiting], at_leaf[waiting] = bound, k, leaf
            waiting += 1
        if waiting == 0:
            box[:] = nearest
            return _IN_DOUBT if doubt > -np.inf else _NONE, looked
        if looked + 2 > boxes_max:
            return _UNKNOWN, looked
        pick = int(bounds[:waiting].argmax())
        trial[:] = boxes[pick]
        inside[:] = trial
        for word in range(parts.first_word[at_dimension[pick]], parts.first_word[at_dimension[pick] + 1]):
            inside[word] &= parts.box[at_leaf[pick], word]
            trial[word] &= ~parts.box[at_leaf[pick], word]
        waiting -= 1
        boxes[pick] = boxes[waiting]
        bounds[pick], at_dimension[pick], at_leaf[pick] = bounds[waiting], at_dimension[waiting], at_leaf[waiting]
        pending = 2


@numba.njit(cache=True, nogil=True, forceinline=True)
def _meets(parts: Parts, leaf: int, box: NDArray[np.uint64]) -> bool:
    for at in range(parts.first_bound[leaf], parts.first_bound[leaf + 1]):
        k = parts.bound[at]
        some = False
        for word in range(parts.first_word[k], parts.first_word[k + 1]):
            some = some or (parts.box[leaf, word] & box[word]) != 0
        if not some:
            return False
    return True


@numba.njit(cache=True, nogil=True)
def _look(
    parts: Parts,
    box: NDArray[np.uint64],
    best: NDArray[np.int64],
    taken: NDArray[np.int64],
    target: NDArray[np.uint64],
) -> tuple[float, float]:
    """Bound a box and dive into it: `best` and `taken` are the leaves of each part, `target` the box where the dive ends."""
    bound, value = parts.fixed, parts.fixed
    target[:] = box
    for part in range(best.shape[0]):
        leaf = parts.first_leaf[part]
        while not _meets(parts, leaf, box):  # weights descend, and some leaf of each part meets any box
            leaf += 1
        best[part] = leaf
        bound += parts.weight[leaf]
        while not _meets(parts, leaf, target):
            leaf += 1
        taken[part] = leaf
        value += parts.weight[leaf]
        for word in range(box.shape[0]):
            target[word] &= parts.box[leaf, word]
    return bound, value


@numba.njit(cache=True, nogil=True)
def _blame(
    parts: Parts,
    target: NDArray[np.uint64],
    best: NDArray[np.int64],
    taken: NDArray[np.int64],
    votes: NDArray[np.float64],
) -> tuple[int, int]:
    """The dimension that keeps most weight from the dive, and the leaf of which it keeps most; -1 where nothing does.

    At that leaf's cells the box is parted: those outside hold the dive's target, and there is something on either side.
    """
    votes[:] = 0.0
    for part in range(best.shape[0]):
        lost = parts.weight[best[part]] - parts.weight[taken[part]]
        if lost > 0.0:
            for at in range(parts.first_bound[best[part]], parts.first_bound[best[part] + 1]):
                if _apart(parts, best[part], parts.bound[at], target):
                    votes[parts.bound[at]] += lost
    blamed, leaf, most = -1, -1, 0.0
    if votes.shape[0] > 0 and votes.max() > 0.0:
        blamed = int(votes.argmax())
        for part in range(best.shape[0]):
            lost = parts.weight[best[part]] - parts.weight[taken[part]]
            if lost > most and _apart(parts, best[part], blamed, target):
                leaf, most = best[part], lost
    return blamed, leaf


@numba.njit(cache=True, nogil=True, forceinline=True)
def _apart(parts: Parts, leaf: int, k: int, target: NDArray[np.uint64]) -> bool:
    for word in range(parts.first_word[k], parts.first_word[k + 1]):
        if (parts.box[leaf, word] & target[word]) != 0:
            return False
    return True
