"""Targets that last: descent on effort, what the shadows object, and the distance to people who were really accepted.

A recommendation is a promise that outlives the model, so models that were trained on other samples of the same people
are asked too. Each should accept with a surplus of margin; what it is short of that has a price, and so has the
distance to accepted people. The descent makes the best single move, round by round; where none is left, the best exchange
of one move for another; and it ends where neither is. Every state moved to is one that the model itself accepts.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from stream.recourse.comparators.people import mean_of_nearest, square, squares_to
from stream.recourse.space.incremental_margins import IncrementalMargins, apply_move, incremental_margins, margin_gains
from stream.recourse.space.moves import Moves, move, price_of
from stream.recourse.space.reachable_leaves import ReachableLeaves

ROUNDS_MAX = 60  # of moves and exchanges
EXCHANGES_MAX = 10  # of looks for an exchange, each of which looks from every move given back
NEIGHBOURS = 32  # of the neighbourhood, to whom a move's distance is measured; looked for anew after each move
LEAST_STEP = 1e-9  # of the objective: what rounding could make of nothing is no step


class Objective(NamedTuple):
    """What a target is worth. goals (models,): the margins, times the policy's sign, at which each model accepts; the rest is prices of one.

    Asked are the shadows, or where there are none the model itself.
    """

    goals: NDArray[np.float64]
    surplus: float  # of margin past the goals
    surplus_price: float  # of margin that the models asked are short of that, on average
    reserve: float  # of margin past the goals, at which there is nothing left to wish for
    reserve_price: float  # of margin that they are short of that, besides
    distance_price: float  # of distance to accepted people; 0: it is not looked at


class Neighbourhood(NamedTuple):
    """The accepted people around one person, and where the person's own places are among them.

    Shapes: place (n, features) float32, nominal (features,) as of `People`; row (features,) float32: the person's; value
    (places of features,) float32: of a feature that moves alone; of_cells float32: of units, aligned with Moves.cells.
    """

    place: NDArray[np.float32]
    nominal: NDArray[np.bool_]
    row: NDArray[np.float32]
    value: NDArray[np.float32]
    of_cells: NDArray[np.float32]


class SearchState(NamedTuple):
    """What is known around one state.

    Shapes: gains (places, models); x (features,) float32; near (neighbours, features) float32 and squares (neighbours,):
    the nearest of the neighbourhood; without, with_it (neighbours,): their squares without a slot, and with it elsewhere; to_all
    (n,): squares to the whole neighbourhood.
    """

    gains: NDArray[np.float64]
    x: NDArray[np.float32]
    near: NDArray[np.float32]
    squares: NDArray[np.float32]
    without: NDArray[np.float32]
    with_it: NDArray[np.float32]
    to_all: NDArray[np.float32]


@numba.njit(cache=True, nogil=True)
def descend(
    leaves: ReachableLeaves,
    moves: Moves,
    objective: Objective,
    neighbourhood: Neighbourhood,
    starts: NDArray[np.int32],
    exchanges: int,
) -> tuple[float, NDArray[np.int32]]:
    """Go from each start to where no move is worth it, and from the best of these to where none of `exchanges` is either.

    Shape: starts (n, slots), n > 0. Gives back the objective, and the state (slots,); of equal ones that of the earlier start.
    The objective is inf where the model declines every start and every move from it.
    """
    sight = _new_sight(leaves, moves, neighbourhood)
    here = incremental_margins(leaves, moves, starts[0])
    best, found = np.inf, starts[0].copy()
    for k in range(starts.shape[0]):
        state = starts[k].copy()
        _stand(leaves, moves, here, state)
        worth = _descend(leaves, moves, objective, neighbourhood, state, here, sight, 0)
        if worth < best:
            best, found = worth, state
    _stand(leaves, moves, here, found)
    return _descend(leaves, moves, objective, neighbourhood, found, here, sight, exchanges), found


@numba.njit(cache=True, nogil=True)
def _stand(leaves: ReachableLeaves, moves: Moves, here: IncrementalMargins, state: NDArray[np.int32]) -> None:
    for slot in range(state.shape[0]):
        if here.place[slot] != state[slot]:
            apply_move(leaves, moves, here, slot, state[slot])


@numba.njit(cache=True, nogil=True)
def _descend(
    leaves: ReachableLeaves,
    moves: Moves,
    objective: Objective,
    neighbourhood: Neighbourhood,
    state: NDArray[np.int32],
    here: IncrementalMargins,
    sight: SearchState,
    exchanges: int,
) -> float:
    """Move `state` to where no move, nor one of `exchanges` exchanges, is worth it; return the objective."""
    features = neighbourhood.row.shape[0]
    _look(leaves, moves, objective, neighbourhood, state, here, sight)
    best = _worth_here(moves, objective, state, here, sight)
    for _ in range(ROUNDS_MAX):
        before = state.copy()
        slot, place, worth = _best_move(moves, objective, neighbourhood, state, here, sight, best)
        if slot < 0 and exchanges > 0:
            exchanges -= 1
            given, slot, place, worth = _best_exchange(
                leaves, moves, objective, neighbourhood, state, here, sight, best
            )
            if slot >= 0:
                move(moves, features, state, given, moves.own[given])
        if slot < 0:
            break
        move(moves, features, state, slot, place)
        _stand(leaves, moves, here, state)
        _look(leaves, moves, objective, neighbourhood, state, here, sight)
        # Others may be near by now; and beside a value thousands of scales away float32 forgets all other distances.
        worth = _worth_here(moves, objective, state, here, sight)
        if not worth < best:
            state[:] = before
            break
        best = worth
    return best


@numba.njit(cache=True, nogil=True)
def _best_exchange(
    leaves: ReachableLeaves,
    moves: Moves,
    objective: Objective,
    neighbourhood: Neighbourhood,
    state: NDArray[np.int32],
    here: IncrementalMargins,
    sight: SearchState,
    best: float,
) -> tuple[int, int, int, float]:
    """The move given back, alone or for another, that is worth most: it, slot, place, objective; slot -1: none is.

    Distances are to those who are near before anything is given back.
    """
    features = neighbourhood.row.shape[0]
    given, slot, place = -1, -1, -1
    for back in range(state.shape[0]):
        if state[back] == moves.own[back] or not moves.price[moves.start[back] + state[back]] < np.inf:
            continue
        trial = state.copy()
        move(moves, features, trial, back, moves.own[back])
        apply_move(leaves, moves, here, back, moves.own[back])
        margin_gains(leaves, moves, here, sight.gains)
        if objective.distance_price > 0.0:
            _put(moves, neighbourhood, trial, sight.x)
            squares_to(sight.near, neighbourhood.nominal, sight.x, sight.squares)
        held = _worth_here(moves, objective, trial, here, sight)
        if held < best - LEAST_STEP:
            best, given, slot, place = held, back, back, int(moves.own[back])
        found, to, worth = _best_move(moves, objective, neighbourhood, trial, here, sight, best)
        if found >= 0:
            best, given, slot, place = worth, back, found, to
        apply_move(leaves, moves, here, back, state[back])
    return given, slot, place, best


@numba.njit(cache=True, nogil=True)
def _new_sight(leaves: ReachableLeaves, moves: Moves, neighbourhood: Neighbourhood) -> SearchState:
    features, near = neighbourhood.row.shape[0], min(NEIGHBOURS, neighbourhood.place.shape[0])
    return SearchState(
        np.zeros((moves.start[-1], leaves.base.shape[0])), np.empty(features, np.float32),
        np.empty((near, features), np.float32), np.empty(near, np.float32), np.empty(near, np.float32),
        np.empty(near, np.float32), np.empty(neighbourhood.place.shape[0], np.float32),
    )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def _look(
    leaves: ReachableLeaves,
    moves: Moves,
    objective: Objective,
    neighbourhood: Neighbourhood,
    state: NDArray[np.int32],
    here: IncrementalMargins,
    sight: SearchState,
) -> None:
    """Fill in every model's gains, and the people around."""
    margin_gains(leaves, moves, here, sight.gains)
    if objective.distance_price > 0.0:
        _put(moves, neighbourhood, state, sight.x)
        squares_to(neighbourhood.place, neighbourhood.nominal, sight.x, sight.to_all)
        _keep_nearest(neighbourhood.place, sight)


@numba.njit(cache=True, nogil=True)
def _keep_nearest(place: NDArray[np.float32], sight: SearchState) -> None:
    """Fill in those of the neighbourhood who are nearest, in the order of their distance, of equal ones the earlier first."""
    count, nearest = sight.squares.shape[0], np.empty(sight.squares.shape[0], np.int64)
    sight.squares[:] = np.inf
    for i in range(sight.to_all.shape[0]):
        if not sight.to_all[i] < sight.squares[count - 1]:
            continue
        k = count - 1
        while k > 0 and sight.squares[k - 1] > sight.to_all[i]:
            sight.squares[k], nearest[k] = sight.squares[k - 1], nearest[k - 1]
            k -= 1
        sight.squares[k], nearest[k] = sight.to_all[i], i
    for k in range(count):
        sight.near[k] = place[nearest[k]]


@numba.njit(cache=True, nogil=True)
def _put(moves: Moves, neighbourhood: Neighbourhood, state: NDArray[np.int32], x: NDArray[np.float32]) -> None:
    """Fill in where a state lies. Shape: x (features,)."""
    features = x.shape[0]
    for j in range(features):
        x[j] = neighbourhood.row[j] if state[j] == moves.own[j] else neighbourhood.value[moves.start[j] + state[j]]
    for u in range(state.shape[0] - features):
        first, members = moves.first_member[u], moves.first_member[u + 1] - moves.first_member[u]
        for k in range(members):
            x[moves.members[first + k]] = neighbourhood.of_cells[
                moves.first_cell[u] + state[features + u] * members + k
            ]


@numba.njit(cache=True, nogil=True)
def _worth_here(
    moves: Moves, objective: Objective, state: NDArray[np.int32], here: IncrementalMargins, sight: SearchState
) -> float:
    """The objective of the state itself; inf where the model declines it."""
    if not here.totals[0] >= objective.goals[0]:
        return np.inf
    worth = price_of(moves, state) + _deficit(objective, here, sight, -1)
    if objective.distance_price > 0.0:
        worth += objective.distance_price * mean_of_nearest(sight.squares)
    return worth


@numba.njit(cache=True, nogil=True, inline="always")
def _deficit(objective: Objective, here: IncrementalMargins, sight: SearchState, at: int) -> float:
    """What the models asked are short of, priced; `at` a place, or -1 where the state is."""
    models = objective.goals.shape[0]
    first = 1 if models > 1 else 0
    total = 0.0
    for m in range(first, models):
        short = objective.goals[m] - here.totals[m]
        if at >= 0:
            short -= sight.gains[at, m]
        if short + objective.surplus > 0.0:
            total += objective.surplus_price * (short + objective.surplus)
        if short + objective.reserve > 0.0:
            total += objective.reserve_price * (short + objective.reserve)
    return float(total / (models - first))


@numba.njit(cache=True, nogil=True)
def _best_move(  # noqa: C901  (a kernel, as `profile`)
    moves: Moves,
    objective: Objective,
    neighbourhood: Neighbourhood,
    state: NDArray[np.int32],
    here: IncrementalMargins,
    sight: SearchState,
    best: float,
) -> tuple[int, int, float]:
    """The single move that is worth most, and better than `best`: slot, place and objective; slot -1 where there is none."""
    paid = price_of(moves, state)
    found, to = -1, -1
    for slot in range(state.shape[0]):
        first = moves.start[slot]
        kept = paid
        if state[slot] != moves.own[slot] and moves.price[first + state[slot]] < np.inf:
            kept -= moves.price[first + state[slot]]
        least_distance = -1.0  # not known before a place asks for it
        for place in range(moves.start[slot + 1] - first):
            at = first + place
            worth = kept + moves.price[at]
            # What moved comes back by an exchange: of a place without a value the gain is not known here.
            if place == state[slot] or place == moves.own[slot] or not worth < best:
                continue
            if not here.totals[0] + sight.gains[at, 0] >= objective.goals[0]:
                continue
            worth += _deficit(objective, here, sight, at)
            if not worth < best:
                continue
            if objective.distance_price > 0.0:
                if least_distance < 0.0:
                    least_distance = _without(moves, neighbourhood, sight, slot)
                if not worth + objective.distance_price * least_distance < best:
                    continue
                worth += objective.distance_price * _with(moves, neighbourhood, sight, slot, place)
            if worth < best - LEAST_STEP:
                best, found, to = worth, slot, place
    return found, to, best


@numba.njit(cache=True, nogil=True)
def _without(moves: Moves, neighbourhood: Neighbourhood, sight: SearchState, slot: int) -> float:
    """Fill in the squares to those around without what a slot moves; below their mean distance no move of it comes."""
    features = sight.x.shape[0]
    sight.without[:] = sight.squares
    if slot < features:
        for i in range(sight.without.shape[0]):
            sight.without[i] -= square(sight.x[slot], sight.near[i, slot], neighbourhood.nominal[slot])
    else:
        u = slot - features
        for k in range(moves.first_member[u], moves.first_member[u + 1]):
            j = moves.members[k]
            for i in range(sight.without.shape[0]):
                sight.without[i] -= square(sight.x[j], sight.near[i, j], neighbourhood.nominal[j])
    return mean_of_nearest(sight.without)


@numba.njit(cache=True, nogil=True)
def _with(moves: Moves, neighbourhood: Neighbourhood, sight: SearchState, slot: int, place: int) -> float:
    """The mean distance to the nearest of those around with the slot at a place; after `_without` of the slot."""
    features = sight.x.shape[0]
    sight.with_it[:] = sight.without
    if slot < features:
        value = neighbourhood.value[moves.start[slot] + place]
        for i in range(sight.with_it.shape[0]):
            sight.with_it[i] += square(value, sight.near[i, slot], neighbourhood.nominal[slot])
    else:
        u = slot - features
        first, members = moves.first_member[u], moves.first_member[u + 1] - moves.first_member[u]
        for k in range(members):
            j = moves.members[first + k]
            value = neighbourhood.of_cells[moves.first_cell[u] + place * members + k]
            for i in range(sight.with_it.shape[0]):
                sight.with_it[i] += square(value, sight.near[i, j], neighbourhood.nominal[j])
    return mean_of_nearest(sight.with_it)
