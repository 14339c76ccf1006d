"""What each model's margin gains when one slot moves, kept up to date from move to move.

A leaf counts toward a model's margin where the state meets all of its conditions, and toward the gain of a slot's options
where the state meets its conditions on all *other* slots. So each leaf keeps the count of its violated conditions. A move
touches only the leaves whose condition holds for one of the two options and not for the other, a few in a hundred; walking
the trees again would touch them all.

Sums are float64, carry on from move to move and serve the search only; the model itself scores what is found.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from stream.recourse.space.moves import Moves, options_of
from stream.recourse.space.reachable_leaves import NO_TABLE, ReachableLeaves, conditions_of_slot


class IncrementalMargins(NamedTuple):
    """The margins of every model at one state, and what each option of each slot would make of them.

    Shapes: state (slots,): the option of each slot; violated (conditions,): whether the state violates a condition;
    violations (leaves,): how many conditions of a leaf it violates; totals (models,) float64: base margin and the leaves
    that the state reaches; sums (options + slots, models) float64: per option, the leaves that depend on this slot alone.
    For conditions that are intervals, they are differences between neighbouring options. Those of slot s begin at
    start[s] + s; the missing value's comes last, after one where the last interval ends.
    """

    state: NDArray[np.int32]
    violated: NDArray[np.bool_]
    violations: NDArray[np.int32]
    totals: NDArray[np.float64]
    sums: NDArray[np.float64]


@numba.njit(cache=True, nogil=True)
def incremental_margins(leaves: ReachableLeaves, moves: Moves, state: NDArray[np.int32]) -> IncrementalMargins:
    """Build incremental margins for `state`. Shape: (slots,)."""
    slots = moves.own.shape[0]
    violated, violations = np.empty(leaves.leaf.shape[0], np.bool_), np.zeros(leaves.weight.shape[0], np.int32)
    totals, sums = leaves.base.copy(), np.zeros((moves.start[slots] + slots, leaves.base.shape[0]))
    for slot in range(slots):
        begin, end = conditions_of_slot(leaves, slot)
        _fill_violated(leaves, moves, slot, state[slot], violated[begin:end])
        for condition in range(begin, end):
            violations[leaves.leaf[condition]] += violated[condition]
    for leaf in range(violations.shape[0]):
        if violations[leaf] > 1:
            continue
        m, weight = leaves.model[leaf], leaves.weight[leaf]
        if violations[leaf] == 0:
            totals[m] += weight
        for at in range(leaves.first_condition[leaf], leaves.first_condition[leaf + 1]):
            condition = leaves.conditions[at]
            if violations[leaf] == 0 or violated[condition]:
                _add(leaves, moves, sums, condition, m, weight)
    return IncrementalMargins(state.copy(), violated, violations, totals, sums)


@numba.njit(cache=True, nogil=True)
def apply_move(leaves: ReachableLeaves, moves: Moves, margins: IncrementalMargins, slot: int, option: int) -> None:
    """Move one slot to an option, in place. The members of a unit are moved one by one, by the caller."""
    violated, violations = margins.violated, margins.violations
    margins.state[slot] = option
    begin, end = conditions_of_slot(leaves, slot)
    will_be = np.empty(end - begin, np.bool_)
    _fill_violated(leaves, moves, slot, option, will_be)
    for moved in range(begin, end):
        if will_be[moved - begin] == violated[moved]:
            continue
        violated[moved] = will_be[moved - begin]
        leaf = leaves.leaf[moved]
        m, weight = leaves.model[leaf], -leaves.weight[leaf] if violated[moved] else leaves.weight[leaf]
        others = violations[leaf] - (0 if violated[moved] else 1)  # violated conditions on other slots
        violations[leaf] += 1 if violated[moved] else -1
        if others > 1:
            continue
        if others == 0:
            margins.totals[m] += weight
        for at in range(leaves.first_condition[leaf], leaves.first_condition[leaf + 1]):
            condition = leaves.conditions[at]
            if condition != moved and (others == 0 or violated[condition]):
                _add(leaves, moves, margins.sums, condition, m, weight)


@numba.njit(cache=True, nogil=True)
def margin_gains(
    leaves: ReachableLeaves, moves: Moves, margins: IncrementalMargins, gains: NDArray[np.float64]
) -> None:
    """Fill in what each model's margin gains when one slot alone moves to an option. Shape: gains (options, models).

    The gain of the missing option is without meaning where the person is not missing: missing is never a target.
    """
    models = margins.totals.shape[0]
    running = np.empty(models)
    for slot in range(moves.own.shape[0]):
        first, end = options_of(moves, slot)
        at = first + slot
        if leaves.first_of_slot[slot] == leaves.first_of_slot[slot + 1]:
            gains[first:end] = 0.0
            continue
        running[:] = 0.0
        for option in range(end - first):
            for m in range(models):
                if leaves.is_table[m, slot]:
                    gains[first + option, m] = margins.sums[at + option, m]
                else:
                    running[m] += margins.sums[at + option, m]
                    gains[first + option, m] = running[m]
        for m in range(models):
            if not leaves.is_table[m, slot]:
                gains[end - 1, m] = margins.sums[at + end - first, m]
            running[m] = gains[first + margins.state[slot], m]
        for option in range(first, end):
            for m in range(models):
                gains[option, m] -= running[m]


@numba.njit(cache=True, nogil=True)
def _fill_violated(leaves: ReachableLeaves, moves: Moves, slot: int, option: int, violated: NDArray[np.bool_]) -> None:
    """Fill in which of a slot's conditions an option violates."""
    begin, end = conditions_of_slot(leaves, slot)
    low, high = leaves.low[begin:end], leaves.high[begin:end]
    for k in range(low.shape[0]):
        violated[k] = (option < low[k]) | (option > high[k])
    missing = moves.start[slot + 1] - moves.start[slot] - 1
    if option == missing:
        for k in range(low.shape[0]):
            violated[k] = not leaves.at_missing[begin + k]
    if leaves.is_table[:, slot].any():
        for condition in range(begin, end):
            if leaves.table[condition] != NO_TABLE:
                violated[condition - begin] = not leaves.tables[leaves.table[condition] + option]


@numba.njit(cache=True, nogil=True, forceinline=True)
def _add(
    leaves: ReachableLeaves, moves: Moves, sums: NDArray[np.float64], condition: int, m: int, weight: float
) -> None:
    """Add a leaf's weight to the options that meet one of its conditions."""
    low, high, slot = leaves.low[condition], leaves.high[condition], leaves.slot[condition]
    at = moves.start[slot] + slot
    if low <= high:
        sums[at + low, m] += weight
        sums[at + high + 1, m] -= weight
    if leaves.table[condition] != NO_TABLE or leaves.at_missing[condition]:
        _add_table_or_missing(leaves, moves, sums, condition, m, weight)


@numba.njit(cache=True, nogil=True)
def _add_table_or_missing(
    leaves: ReachableLeaves, moves: Moves, sums: NDArray[np.float64], condition: int, m: int, weight: float
) -> None:
    slot = leaves.slot[condition]
    first, end = options_of(moves, slot)
    at, table = first + slot, leaves.table[condition]
    if table == NO_TABLE:
        sums[at + end - first, m] += weight
        return
    for option in range(end - first):
        if leaves.tables[table + option]:
            sums[at + option, m] += weight
