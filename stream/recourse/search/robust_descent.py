"""Robust targets: descent on effort, on the margin that shadows are short of, and on the distance to accepted people.

A recommendation is a promise that outlives the model, so models trained on other samples of the same people are searched
too. Each should accept with a surplus of margin; what it is short of that has a price, and so has the distance to accepted
people. The descent makes the best single move, round by round; where none is left, the best exchange of one move for
another; and it ends where there is neither. The model itself accepts every state that the descent moves to.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from stream.recourse.comparators.people import mean_of_nearest, square, squares_to
from stream.recourse.space.incremental_margins import IncrementalMargins, apply_move, incremental_margins, margin_gains
from stream.recourse.space.moves import (
    Moves,
    first_cell_of,
    members_of,
    move,
    moves_itself,
    options_of,
    price_of,
    price_paid,
)
from stream.recourse.space.reachable_leaves import ReachableLeaves

# Bounds chosen by judgement; docs/recourse.md states them, and `python -m tests.evaluation --only bars` measures what they give.
ROUNDS_MAX = 60  # moves and exchanges of one descent
EXCHANGES_MAX = 10  # searches for an exchange in one descent, each from every move taken back
NEIGHBOURS = 32  # people to whom a move's distance is measured: the nearest, found anew after each move
LEAST_STEP = 1e-9  # of the objective, in scales of effort: a smaller gain may be rounding alone


class Objective(NamedTuple):
    """What a target is to minimise, besides its price; goals (models,) float64: the margins, times the policy's sign, at which each model accepts.

    The shadows are measured, or where there are none the model itself.
    """

    goals: NDArray[np.float64]
    surplus: float  # of margin past the goals
    surplus_price: float  # per unit of margin that the models are short of that, on average
    reserve: float  # of margin past the goals, beyond which more buys nothing
    reserve_price: float  # per unit of margin that the models are short of that, in addition
    distance_price: float  # per scale of distance to accepted people; 0: distance is not looked at


class Neighbourhood(NamedTuple):
    """The accepted people around one person, and where the person's options are among them.

    Shapes: people (n, features) float32, nominal (features,) as of `People`; own (features,) float32: the person;
    options (options of features,) float32: of a feature that moves alone; cells float32: of units, aligned with Moves.cells.
    """

    people: NDArray[np.float32]
    nominal: NDArray[np.bool_]
    own: NDArray[np.float32]
    options: NDArray[np.float32]
    cells: NDArray[np.float32]


class SearchState(NamedTuple):
    """A search and what is known around its present state, overwritten by every step.

    Shapes: gains (options, models); x (features,) float32: the state among people; near (neighbours, features) float32 and
    squares (neighbours,): the nearest people and their squared distances; squares_without, squares_with (neighbours,): the
    same without a slot, and with one of its options; all_squares (n,): those of the whole neighbourhood.
    """

    leaves: ReachableLeaves
    moves: Moves
    objective: Objective
    neighbourhood: Neighbourhood
    margins: IncrementalMargins
    gains: NDArray[np.float64]
    x: NDArray[np.float32]
    near: NDArray[np.float32]
    squares: NDArray[np.float32]
    squares_without: NDArray[np.float32]
    squares_with: NDArray[np.float32]
    all_squares: NDArray[np.float32]


@numba.njit(cache=True, nogil=True)
def descend(
    leaves: ReachableLeaves,
    moves: Moves,
    objective: Objective,
    neighbourhood: Neighbourhood,
    starts: NDArray[np.int32],
    exchanges: int,
) -> tuple[float, NDArray[np.int32]]:
    """Descend by moves from each start, then by moves and up to `exchanges` exchanges from the best end.

    Shape: starts (n, slots), n > 0. Returns the objective and the state (slots,); of equal ends that of the earlier start.
    The objective is inf where the model declines every start and every move from it.
    """
    features, near = neighbourhood.own.shape[0], min(NEIGHBOURS, neighbourhood.people.shape[0])
    search = SearchState(
        leaves, moves, objective, neighbourhood, incremental_margins(leaves, moves, starts[0]),
        np.zeros((moves.start[-1], leaves.base.shape[0])), np.empty(features, np.float32),
        np.empty((near, features), np.float32), np.empty(near, np.float32), np.empty(near, np.float32),
        np.empty(near, np.float32), np.empty(neighbourhood.people.shape[0], np.float32),
    )  # fmt: skip
    best, found = np.inf, starts[0].copy()
    for k in range(starts.shape[0]):
        state = starts[k].copy()
        value = _descend(search, state, 0)
        if value < best:
            best, found = value, state
    return _descend(search, found, exchanges), found


@numba.njit(cache=True, nogil=True)
def _descend(search: SearchState, state: NDArray[np.int32], exchanges: int) -> float:
    """Move `state`, in place, to where no move and none of `exchanges` exchanges lowers the objective; return the objective."""
    moves, features = search.moves, search.x.shape[0]
    _measure(search, state)
    best = _objective_at(search, state)
    for _ in range(ROUNDS_MAX):
        before = state.copy()
        slot, option, value = _best_move(search, state, best)
        if slot < 0 and exchanges > 0:
            exchanges -= 1
            given_back, slot, option = _best_exchange(search, state, best)
            if slot >= 0:
                move(moves, features, state, given_back, moves.own[given_back])
        if slot < 0:
            break
        move(moves, features, state, slot, option)
        _measure(search, state)
        # The nearest people may be others now; and beside a value thousands of scales away float32 forgets other distances.
        value = _objective_at(search, state)
        if not value < best:
            state[:] = before
            break
        best = value
    return best


@numba.njit(cache=True, nogil=True)
def _best_exchange(search: SearchState, state: NDArray[np.int32], best: float) -> tuple[int, int, int]:
    """The best state with one move taken back, alone or for another: that move's slot, and the slot and option moved to; slot -1: none.

    Distances are to the people nearest before anything is taken back.
    """
    moves, leaves, margins = search.moves, search.leaves, search.margins
    given_back, slot, option = -1, -1, -1
    for back in range(state.shape[0]):
        if not moves_itself(moves, state, back):
            continue
        trial = state.copy()
        move(moves, search.x.shape[0], trial, back, moves.own[back])
        apply_move(leaves, moves, margins, back, moves.own[back])
        margin_gains(leaves, moves, margins, search.gains)
        if search.objective.distance_price > 0.0:
            _locate(search, trial)
            squares_to(search.near, search.neighbourhood.nominal, search.x, search.squares)
        value = _objective_at(search, trial)
        if value < best - LEAST_STEP:
            best, given_back, slot, option = value, back, back, int(moves.own[back])
        found, to, value = _best_move(search, trial, best)
        if found >= 0:
            best, given_back, slot, option = value, back, found, to
        apply_move(leaves, moves, margins, back, state[back])
    return given_back, slot, option


@numba.njit(cache=True, nogil=True)
def _measure(search: SearchState, state: NDArray[np.int32]) -> None:
    """Bring margins, gains and nearest people up to date with a state."""
    for slot in range(state.shape[0]):
        if search.margins.state[slot] != state[slot]:
            apply_move(search.leaves, search.moves, search.margins, slot, state[slot])
    margin_gains(search.leaves, search.moves, search.margins, search.gains)
    if search.objective.distance_price > 0.0:
        _locate(search, state)
        squares_to(search.neighbourhood.people, search.neighbourhood.nominal, search.x, search.all_squares)
        _keep_nearest(search)


@numba.njit(cache=True, nogil=True)
def _keep_nearest(search: SearchState) -> None:
    """Fill in the nearest people, nearest first, of equal ones the earlier."""
    count, squares, all_squares = search.squares.shape[0], search.squares, search.all_squares
    nearest = np.empty(count, np.int64)
    squares[:] = np.inf
    for i in range(all_squares.shape[0]):
        if not all_squares[i] < squares[count - 1]:
            continue
        k = count - 1
        while k > 0 and squares[k - 1] > all_squares[i]:
            squares[k], nearest[k] = squares[k - 1], nearest[k - 1]
            k -= 1
        squares[k], nearest[k] = all_squares[i], i
    for k in range(count):
        search.near[k] = search.neighbourhood.people[nearest[k]]


@numba.njit(cache=True, nogil=True)
def _locate(search: SearchState, state: NDArray[np.int32]) -> None:
    """Fill in where a state lies among people."""
    moves, neighbourhood, x = search.moves, search.neighbourhood, search.x
    features = x.shape[0]
    for j in range(features):
        x[j] = neighbourhood.own[j] if state[j] == moves.own[j] else neighbourhood.options[moves.start[j] + state[j]]
    for u in range(state.shape[0] - features):
        first, end = members_of(moves, u)
        cell = first_cell_of(moves, u, state[features + u])
        for k in range(end - first):
            x[moves.members[first + k]] = neighbourhood.cells[cell + k]


@numba.njit(cache=True, nogil=True)
def _objective_at(search: SearchState, state: NDArray[np.int32]) -> float:
    """The objective of the present state; inf where the model declines it."""
    objective = search.objective
    if not search.margins.totals[0] >= objective.goals[0]:
        return np.inf
    value = price_of(search.moves, state) + _shortfall_price(search, -1)
    if objective.distance_price > 0.0:
        value += objective.distance_price * mean_of_nearest(search.squares)
    return value


@numba.njit(cache=True, nogil=True, forceinline=True)
def _shortfall_price(search: SearchState, at: int) -> float:
    """The price of the models' mean shortfall; `at` an index into gains, or -1 for the present state."""
    objective, models = search.objective, search.objective.goals.shape[0]
    first = 1 if models > 1 else 0
    total = 0.0
    for m in range(first, models):
        short = objective.goals[m] - search.margins.totals[m]
        if at >= 0:
            short -= search.gains[at, m]
        if short + objective.surplus > 0.0:
            total += objective.surplus_price * (short + objective.surplus)
        if short + objective.reserve > 0.0:
            total += objective.reserve_price * (short + objective.reserve)
    return float(total / (models - first))


@numba.njit(cache=True, nogil=True)
def _best_move(search: SearchState, state: NDArray[np.int32], best: float) -> tuple[int, int, float]:
    """The single move with the least objective below `best`: slot, option and objective; slot -1 where there is none."""
    moves, objective = search.moves, search.objective
    paid = price_of(moves, state)
    found, to = -1, -1
    for slot in range(state.shape[0]):
        first, end = options_of(moves, slot)
        others = paid - price_paid(moves, state, slot)
        least_distance = -1.0  # unknown until an option needs it
        for option in range(end - first):
            at = first + option
            value = others + moves.price[at]
            # Moves are taken back by an exchange: the gain of the missing option is not known here.
            if option == state[slot] or option == moves.own[slot] or not value < best:
                continue
            if not search.margins.totals[0] + search.gains[at, 0] >= objective.goals[0]:
                continue
            value += _shortfall_price(search, at)
            if not value < best:
                continue
            if objective.distance_price > 0.0:
                if least_distance < 0.0:
                    least_distance = _distance_without(search, slot)
                if not value + objective.distance_price * least_distance < best:
                    continue
                value += objective.distance_price * _distance_with(search, slot, option)
            if value < best - LEAST_STEP:
                best, found, to = value, slot, option
    return found, to, best


@numba.njit(cache=True, nogil=True)
def _distance_without(search: SearchState, slot: int) -> float:
    """Leave a slot's features out of the squared distances; the mean distance then bounds that of each of its options."""
    moves, features = search.moves, search.x.shape[0]
    search.squares_without[:] = search.squares
    if slot < features:
        _add_feature(search, search.squares_without, slot, search.x[slot], np.float32(-1.0))
    else:
        first, end = members_of(moves, slot - features)
        for k in range(first, end):
            j = moves.members[k]
            _add_feature(search, search.squares_without, j, search.x[j], np.float32(-1.0))
    return mean_of_nearest(search.squares_without)


@numba.njit(cache=True, nogil=True)
def _distance_with(search: SearchState, slot: int, option: int) -> float:
    """The mean distance to the nearest people with a slot at an option; call `_distance_without` of the slot first."""
    moves, neighbourhood, features = search.moves, search.neighbourhood, search.x.shape[0]
    search.squares_with[:] = search.squares_without
    if slot < features:
        coordinate = neighbourhood.options[moves.start[slot] + option]
        _add_feature(search, search.squares_with, slot, coordinate, np.float32(1.0))
    else:
        first, end = members_of(moves, slot - features)
        cell = first_cell_of(moves, slot - features, option)
        for k in range(end - first):
            coordinate = neighbourhood.cells[cell + k]
            _add_feature(search, search.squares_with, moves.members[first + k], coordinate, np.float32(1.0))
    return mean_of_nearest(search.squares_with)


@numba.njit(cache=True, nogil=True, forceinline=True)
def _add_feature(
    search: SearchState, squares: NDArray[np.float32], j: int, coordinate: np.float32, sign: np.float32
) -> None:
    """Add one feature's squared distance from each of the nearest people, or take it away."""
    for i in range(squares.shape[0]):
        squares[i] += sign * square(coordinate, search.near[i, j], search.neighbourhood.nominal[j])
