"""One person's moves as the searches take them: every option of every feature and of every unit of features.

Each feature is a *slot*, and after the features each unit is one. The *options* of a feature are its cells, those of a
unit its alternatives; a feature of a unit has no option of its own but to stay. A *state* holds the option of each slot,
and so the cells of all features, whatever moved them.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from stream.forest.cells import Cells
from stream.recourse.space.margin_profiles import CellTrees, profile, weight_reached
from stream.recourse.space.person_reach import PersonReach


class Moves(NamedTuple):
    """One person's options and their prices, as one argument for numba.

    Shapes: start (slots + 1,): the options of slot s are start[s]:start[s + 1]; own (slots,): the person's own options;
    price (options,): effort and the price of the actions, 0 for the own option, inf for one that is not permitted;
    first_member (units + 1,) and members: the features of each unit; first_cell (units + 1,) and cells: for each
    alternative of a unit, one after the other, the cells of all members.
    """

    start: NDArray[np.int64]
    own: NDArray[np.int32]
    price: NDArray[np.float64]
    first_member: NDArray[np.int64]
    members: NDArray[np.int32]
    first_cell: NDArray[np.int64]
    cells: NDArray[np.int32]


def moves_of(reach: PersonReach, action_cost: float) -> Moves:
    """Put a person's reach into this form. `action_cost` is the price of each feature that moves, beside its effort."""
    start, units = reach.cell_targets.start, reach.alternatives
    price = reach.prices() + action_cost
    price[start[:-1] + reach.cells] = 0.0
    return Moves(
        start=np.concatenate([start, start[-1] + units.unit_start[1:]]).astype(np.int64),
        own=np.concatenate([reach.cells, np.zeros(len(units.unit_start) - 1, np.int32)]),
        price=np.concatenate([price, units.price + action_cost * units.moved]),
        first_member=units.member_start,
        members=units.members,
        first_cell=units.cell_start,
        cells=units.cells,
    )


def without(moves: Moves, slot: int) -> Moves:
    """Give the same moves with one slot kept where it is."""
    price = moves.price.copy()
    price[moves.start[slot] : moves.start[slot + 1]] = np.inf
    price[moves.start[slot] + moves.own[slot]] = 0.0
    return moves._replace(price=price)


def no_moves(trees: CellTrees) -> Moves:
    """Give the moves of a person whom nothing is permitted."""
    features = len(trees.by_rank)
    own, starts = np.zeros(features, np.int32), np.zeros(1, np.int64)
    price = np.full(int(trees.start[-1]), np.inf)
    price[trees.start[:-1]] = 0.0
    empty = np.empty(0, np.int32)
    return Moves(trees.start, own, price, starts, empty, starts, empty)


def state_of(
    reach: PersonReach, moves: Moves, target: NDArray[np.float64], cells: Cells, known: Cells
) -> NDArray[np.int32]:
    """Give the state of a target row that was made of a person's moves. Shapes: target (features,) -> (slots,).

    `cells` are those of `moves`; `known` those in which the target was made, the same or coarser. A unit takes the
    alternative with the target's cells, else the cheapest in its `known` cells, else its own.
    """
    at_cells = cells.of(target[None])[0]
    state = np.concatenate([at_cells, np.zeros(len(moves.own) - len(at_cells), np.int32)]).astype(np.int32)
    for u in range(len(state) - len(at_cells)):
        at = moves.members[moves.first_member[u] : moves.first_member[u + 1]]
        own_cells, values = reach.alternatives.of(u)
        same = (own_cells == at_cells[at]).all(axis=1)
        if not same.any():
            coarse = [known.of_column(j, values[:, k]) == known.cell(j, target[j]) for k, j in enumerate(at.tolist())]
            same = np.logical_and.reduce(coarse)
        state[len(at_cells) + u] = same.argmax()
        state[at] = own_cells[same.argmax()]
    return state


def target_of(reach: PersonReach, state: NDArray[np.int32]) -> NDArray[np.float64]:
    """Give the row of a state. Shapes: state (slots,) -> (features,) float64."""
    features = len(reach.row)
    own, alone = state[:features] == reach.cells, reach.cell_targets.alone
    target_value = reach.target_value[reach.cell_targets.start[:-1] + state[:features]]
    target = np.where(own | ~alone, reach.row, target_value)
    for u, unit in enumerate(reach.cell_targets.units):
        target[[one.j for one in unit.members]] = reach.alternatives.of(u)[1][state[features + u]]
    return target


@numba.njit(cache=True, nogil=True, forceinline=True)
def options_of(moves: Moves, slot: int) -> tuple[int, int]:
    """The first option of a slot, and the end of them."""
    return moves.start[slot], moves.start[slot + 1]


@numba.njit(cache=True, nogil=True, forceinline=True)
def members_of(moves: Moves, u: int) -> tuple[int, int]:
    """The first member of a unit in `moves.members`, and the end of them."""
    return moves.first_member[u], moves.first_member[u + 1]


@numba.njit(cache=True, nogil=True, forceinline=True)
def first_cell_of(moves: Moves, u: int, option: int) -> int:
    """Where the cells of a unit's alternative begin in `moves.cells`, one per member."""
    return int(moves.first_cell[u] + option * (moves.first_member[u + 1] - moves.first_member[u]))


@numba.njit(cache=True, nogil=True, forceinline=True)
def price_at(moves: Moves, slot: int, option: int) -> float:
    """The price of a slot's option."""
    return float(moves.price[moves.start[slot] + option])


@numba.njit(cache=True, nogil=True, forceinline=True)
def moves_itself(moves: Moves, state: NDArray[np.int32], slot: int) -> bool:
    """Whether a slot has moved by itself: a feature that its unit has moved has no price of its own."""
    return state[slot] != moves.own[slot] and price_at(moves, slot, state[slot]) < np.inf


@numba.njit(cache=True, nogil=True, forceinline=True)
def price_paid(moves: Moves, state: NDArray[np.int32], slot: int) -> float:
    """What a state pays for one slot: 0 where it has not moved by itself."""
    return price_at(moves, slot, state[slot]) if moves_itself(moves, state, slot) else 0.0


@numba.njit(cache=True, nogil=True)
def price_of(moves: Moves, state: NDArray[np.int32]) -> float:
    """What a state costs. Shape: (slots,)."""
    price = 0.0
    for slot in range(state.shape[0]):
        price += price_paid(moves, state, slot)
    return price


@numba.njit(cache=True, nogil=True)
def move(moves: Moves, features: int, state: NDArray[np.int32], slot: int, option: int) -> None:
    """Move a slot of a state to an option; a unit takes its members along."""
    state[slot] = option
    if slot >= features:
        _move_members(moves, state, slot - features, option)


@numba.njit(cache=True, nogil=True)
def gains_of(trees: CellTrees, moves: Moves, state: NDArray[np.int32], gains: NDArray[np.float64]) -> float:
    """Fill in what the margin gains when one slot alone moves to an option; return the sum over all trees.

    Shapes: state (slots,) -> gains (options + 1,), the last without meaning, as of `profile`.
    """
    features = trees.by_rank.shape[0]
    total = profile(trees, state[:features], gains[: trees.start[features] + 1])
    moved = state[:features].copy()
    for u in range(moves.own.shape[0] - features):
        first, end = options_of(moves, features + u)
        for option in range(end - first):
            _move_members(moves, moved, u, option)
            gains[first + option] = 0.0
            for at in range(trees.first_unit_tree[u], trees.first_unit_tree[u + 1]):
                gains[first + option] += weight_reached(trees, trees.root[trees.trees_of_unit[at]], moved)
        _move_members(moves, moved, u, state[features + u])
        own = gains[first + state[features + u]]
        for option in range(first, end):
            gains[option] -= own
    return total


@numba.njit(cache=True, nogil=True)
def _move_members(moves: Moves, row: NDArray[np.int32], u: int, option: int) -> None:
    first, end = members_of(moves, u)
    cell = first_cell_of(moves, u, option)
    for k in range(end - first):
        row[moves.members[first + k]] = moves.cells[cell + k]
