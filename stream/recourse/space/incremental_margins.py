"""What the margin gains with the move of one slot, kept up to date as a state moves.

A leaf counts toward a model's margin where none of its bars keeps the state out, and toward what a slot's move gains where
no bar of *another* slot does. So for each leaf it is kept how many bars keep the state out. A move touches only the leaves
whose bar lets in one of its two places and not the other, a few in a hundred; walking the trees again touches them all.

Sums are float64, for searching only, and carry on from move to move: what is found is scored again by the model itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from stream.recourse.space.moves import Moves
from stream.recourse.space.reachable_leaves import NO_TABLE, ReachableLeaves


class IncrementalMargins(NamedTuple):
    """Where one state stands, for every model at once.

    Shapes: place (slots,): the place of each slot; shut (bars,): whether a bar keeps the state out; out (leaves,): how many
    of a leaf's bars do; totals (models,): the sum of the leaves that the state is in, and base; sums (places + slots,
    models): the part of the sum that one slot decides, per place, and for bars that are intervals as differences between
    places. Slot s begins at start[s] + s; the place of missing comes last, behind one where intervals end.
    """

    place: NDArray[np.int32]
    shut: NDArray[np.bool_]
    out: NDArray[np.int32]
    totals: NDArray[np.float64]
    sums: NDArray[np.float64]


@numba.njit(cache=True, nogil=True)
def incremental_margins(leaves: ReachableLeaves, moves: Moves, place: NDArray[np.int32]) -> IncrementalMargins:
    """Let a person stand at the places of a state. Shape: (slots,)."""
    models, slots = leaves.base.shape[0], moves.own.shape[0]
    first_bar, of_leaf, start = leaves.first_bar, leaves.of_leaf, moves.start
    shut, out = np.empty(leaves.leaf.shape[0], np.bool_), np.zeros(leaves.weight.shape[0], np.int32)
    totals, sums = leaves.base.copy(), np.zeros((start[slots] + slots, models))
    for slot in range(slots):
        begin, end = leaves.first_of_slot[slot], leaves.first_of_slot[slot + 1]
        _shut(leaves, moves, slot, place[slot], shut[begin:end])
        for bar in range(begin, end):
            out[leaves.leaf[bar]] += shut[bar]
    for leaf in range(out.shape[0]):
        if out[leaf] > 1:
            continue
        m, weight = leaves.model[leaf], leaves.weight[leaf]
        if out[leaf] == 0:
            totals[m] += weight
        for at in range(first_bar[leaf], first_bar[leaf + 1]):
            bar = of_leaf[at]
            if out[leaf] == 0 or shut[bar]:
                _add(leaves.slot, leaves.low, leaves.high, start, sums, bar, m, weight)
                if leaves.table[bar] != NO_TABLE or leaves.at_missing[bar]:
                    _add_rest(leaves, moves, sums, bar, m, weight)
    return IncrementalMargins(place.copy(), shut, out, totals, sums)


@numba.njit(cache=True, nogil=True)
def apply_move(leaves: ReachableLeaves, moves: Moves, here: IncrementalMargins, slot: int, to: int) -> None:
    """Move one slot to a place."""
    first_bar, of_leaf, start = leaves.first_bar, leaves.of_leaf, moves.start
    shut, out, sums = here.shut, here.out, here.sums
    here.place[slot] = to
    begin, end = leaves.first_of_slot[slot], leaves.first_of_slot[slot + 1]
    will_be = np.empty(end - begin, np.bool_)
    _shut(leaves, moves, slot, to, will_be)
    for moved in range(begin, end):
        if will_be[moved - begin] == shut[moved]:
            continue
        shut[moved] = will_be[moved - begin]
        leaf = leaves.leaf[moved]
        m, weight = leaves.model[leaf], -leaves.weight[leaf] if shut[moved] else leaves.weight[leaf]
        others = out[leaf] - (0 if shut[moved] else 1)  # bars of other slots that keep the state out
        out[leaf] += 1 if shut[moved] else -1
        if others > 1:
            continue
        if others == 0:
            here.totals[m] += weight
        for at in range(first_bar[leaf], first_bar[leaf + 1]):
            bar = of_leaf[at]
            if bar != moved and (others == 0 or shut[bar]):
                _add(leaves.slot, leaves.low, leaves.high, start, sums, bar, m, weight)
                if leaves.table[bar] != NO_TABLE or leaves.at_missing[bar]:
                    _add_rest(leaves, moves, sums, bar, m, weight)


@numba.njit(cache=True, nogil=True)
def _shut(leaves: ReachableLeaves, moves: Moves, slot: int, place: int, shut: NDArray[np.bool_]) -> None:
    """Fill in which of a slot's bars keep out who is at a place."""
    begin, end = leaves.first_of_slot[slot], leaves.first_of_slot[slot + 1]
    low, high = leaves.low[begin:end], leaves.high[begin:end]
    for k in range(low.shape[0]):
        shut[k] = (place < low[k]) | (place > high[k])
    missing = moves.start[slot + 1] - moves.start[slot] - 1
    if place == missing:
        for k in range(low.shape[0]):
            shut[k] = not leaves.at_missing[begin + k]
    if leaves.tabled[:, slot].any():
        for bar in range(begin, end):
            if leaves.table[bar] != NO_TABLE:
                shut[bar - begin] = not leaves.tables[leaves.table[bar] + place]


@numba.njit(cache=True, nogil=True)
def margin_gains(leaves: ReachableLeaves, moves: Moves, here: IncrementalMargins, gains: NDArray[np.float64]) -> None:
    """Fill in what each model gains when one slot alone moves to a place. Shape: gains (places, models).

    That of missing has no meaning where a person is not missing, which nobody is ever told to become.
    """
    models = here.totals.shape[0]
    running = np.empty(models)
    for slot in range(moves.own.shape[0]):
        first, end, at = moves.start[slot], moves.start[slot + 1], moves.start[slot] + slot
        if leaves.first_of_slot[slot] == leaves.first_of_slot[slot + 1]:
            gains[first:end] = 0.0
            continue
        running[:] = 0.0
        for place in range(end - first):
            for m in range(models):
                if leaves.tabled[m, slot]:
                    gains[first + place, m] = here.sums[at + place, m]
                else:
                    running[m] += here.sums[at + place, m]
                    gains[first + place, m] = running[m]
        for m in range(models):
            if not leaves.tabled[m, slot]:
                gains[end - 1, m] = here.sums[at + end - first, m]
            running[m] = gains[first + here.place[slot], m]
        for place in range(first, end):
            for m in range(models):
                gains[place, m] -= running[m]


@numba.njit(cache=True, nogil=True, inline="always")
def _add(
    slot: NDArray[np.int32],
    low: NDArray[np.int32],
    high: NDArray[np.int32],
    start: NDArray[np.int64],
    sums: NDArray[np.float64],
    bar: int,
    m: int,
    weight: float,
) -> None:
    """Let a weight count between the ends of a bar."""
    at = start[slot[bar]] + slot[bar]
    if low[bar] <= high[bar]:
        sums[at + low[bar], m] += weight
        sums[at + high[bar] + 1, m] -= weight


@numba.njit(cache=True, nogil=True)
def _add_rest(
    leaves: ReachableLeaves, moves: Moves, sums: NDArray[np.float64], bar: int, m: int, weight: float
) -> None:
    """Let a weight count where a table lets in, or a missing value."""
    slot = leaves.slot[bar]
    at, places = moves.start[slot] + slot, moves.start[slot + 1] - moves.start[slot]
    if leaves.table[bar] == NO_TABLE:
        sums[at + places, m] += weight
        return
    for place in range(places):
        if leaves.tables[leaves.table[bar] + place]:
            sums[at + place, m] += weight
