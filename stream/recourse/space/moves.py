"""What one person can do, in the form that the searches take: each place that a feature, or a unit of features, can move to.

A *slot* is a feature that moves alone, or one that moves with others and so has nowhere to go by itself; after the
features come the units, one slot each. The places of a feature are its cells, those of a unit its alternatives. A state
says of each slot where it is, and holds the cells of all features, whatever moved them.
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
    """One person's places and their prices, in the form that numba takes as one argument.

    Shapes: start (slots + 1,): the places of slot s are start[s]:start[s + 1]; own (slots,): where the person is; price
    (places,): effort and the price of the actions, 0 at the own place, inf where nobody may go; first_member (units +
    1,) and members: the features of each unit; first_cell (units + 1,) and cells: of a unit's alternatives, one after
    the other, the cells of all members.
    """

    start: NDArray[np.int64]
    own: NDArray[np.int32]
    price: NDArray[np.float64]
    first_member: NDArray[np.int64]
    members: NDArray[np.int32]
    first_cell: NDArray[np.int64]
    cells: NDArray[np.int32]


def moves_of(reach: PersonReach, action_cost: float) -> Moves:
    """List what a person can do. `action_cost` is the price of each feature that moves, beside its effort."""
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
    """Give the moves of somebody for whom one slot stays where it is."""
    price = moves.price.copy()
    price[moves.start[slot] : moves.start[slot + 1]] = np.inf
    price[moves.start[slot] + moves.own[slot]] = 0.0
    return moves._replace(price=price)


def no_moves(trees: CellTrees) -> Moves:
    """The moves of someone who may go nowhere."""
    features, places = len(trees.by_rank), int(trees.start[-1])
    own, starts = np.zeros(features, np.int32), np.zeros(1, np.int64)
    price = np.full(places, np.inf)
    price[trees.start[:-1]] = 0.0
    empty = np.empty(0, np.int32)
    return Moves(trees.start, own, price, starts, empty, starts, empty)


def state_of(
    reach: PersonReach, moves: Moves, target: NDArray[np.float64], cells: Cells, known: Cells
) -> NDArray[np.int32]:
    """Give the state of a target row that was made of a person's moves. Shapes: target (features,) -> (slots,).

    `cells` are those of `moves`; `known` those in which the target was made, which part values less finely or as much. Of a
    unit that is the alternative with the target's cells, else the cheapest in its `known` cells, else the own one.
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


@numba.njit(cache=True, nogil=True)
def price_of(moves: Moves, state: NDArray[np.int32]) -> float:
    """Say what it costs to be in a state. What a unit takes along has no price of its own."""
    price = 0.0
    for slot in range(state.shape[0]):
        if state[slot] != moves.own[slot] and moves.price[moves.start[slot] + state[slot]] < np.inf:
            price += moves.price[moves.start[slot] + state[slot]]
    return price


@numba.njit(cache=True, nogil=True)
def move(moves: Moves, features: int, state: NDArray[np.int32], slot: int, place: int) -> None:
    """Put a slot of a state at a place; a unit takes its members along."""
    state[slot] = place
    if slot >= features:
        u = slot - features
        first, members = moves.first_member[u], moves.first_member[u + 1] - moves.first_member[u]
        for k in range(members):
            state[moves.members[first + k]] = moves.cells[moves.first_cell[u] + place * members + k]


@numba.njit(cache=True, nogil=True)
def gains_of(trees: CellTrees, moves: Moves, state: NDArray[np.int32], gains: NDArray[np.float64]) -> float:
    """Fill in what the margin gains when one slot alone moves to a place; return the sum over all trees.

    Shapes: state (slots,) -> gains (places + 1,), the last of no meaning, as of `profile`.
    """
    features = trees.by_rank.shape[0]
    total = profile(trees, state[:features], gains[: trees.start[features] + 1])
    moved = state[:features].copy()
    for u in range(moves.own.shape[0] - features):
        slot = features + u
        first = moves.start[slot]
        for place in range(moves.start[slot + 1] - first):
            _put_members(moves, moved, u, place)
            gains[first + place] = 0.0
            for at in range(trees.first_unit_tree[u], trees.first_unit_tree[u + 1]):
                gains[first + place] += weight_reached(trees, trees.root[trees.trees_of_unit[at]], moved)
        _put_members(moves, moved, u, state[slot])
        held = gains[first + state[slot]]
        for place in range(moves.start[slot + 1] - first):
            gains[first + place] -= held
    return total


@numba.njit(cache=True, nogil=True)
def _put_members(moves: Moves, row: NDArray[np.int32], u: int, place: int) -> None:
    first, members = moves.first_member[u], moves.first_member[u + 1] - moves.first_member[u]
    for k in range(members):
        row[moves.members[first + k]] = moves.cells[moves.first_cell[u] + place * members + k]
