"""The least effort at which the model accepts: a beam search over moves of single features, then polish.

A state is expanded by every permitted move of one slot, a feature or a unit of those that move together, each at the
price of the nearest permitted value there plus a price for the action itself, which keeps lists short. States that are accepted
compete by price; of the others those stay that would be cheapest if the rest of the gap cost as much as what they have
gained so far. Polish takes the winner and looks along every line, and along every line with one move given back, for a
cheaper one that is accepted too.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from stream.recourse.space.margin_profiles import CellTrees
from stream.recourse.space.moves import Moves, gains_of, move, price_of

BEAM_WIDTH = 3
MOVES_MAX = 16  # features that move at once; lists that long are no advice
POLISH_ROUNDS_MAX = 20


def least_effort(trees: CellTrees, moves: Moves, gap: float) -> NDArray[np.int32] | None:
    """Find the cheapest state found at which the sum of the leaves gains `gap`; None where none is.

    Shape: (slots,) int32. The sum is float64: score what is found again.
    """
    best = np.empty_like(moves.own)
    return None if math.isinf(_search(trees, moves, gap, best)) else best


def cheapened(trees: CellTrees, moves: Moves, gap: float, start: NDArray[np.int32]) -> NDArray[np.int32]:
    """Polish a state that somebody else found; `start` itself where nothing cheaper gains `gap`. Shapes: (slots,)."""
    best = start.copy()
    goal = float(gains_of(trees, moves, moves.own, np.empty(moves.start[-1] + 1))) + gap
    _polish(trees, moves, goal, best)
    return best


@numba.njit(cache=True, nogil=True)
def _search(  # noqa: C901  (a kernel: passing its arrays on costs more than it would read better)
    trees: CellTrees, moves: Moves, gap: float, best: NDArray[np.int32]
) -> float:
    slots, features, own = moves.own.shape[0], trees.by_rank.shape[0], moves.own
    gains = np.empty(moves.start[slots] + 1)
    states = np.empty((BEAM_WIDTH, slots), np.int32)
    paid = np.zeros(BEAM_WIDTH)
    states[0], held, best_price, began = own, 1, np.inf, 0.0
    # Of each state and slot, the most promising move.
    promise = np.empty(BEAM_WIDTH * slots)
    to_place = np.empty(BEAM_WIDTH * slots, np.int32)
    to_price = np.empty(BEAM_WIDTH * slots)
    for depth in range(MOVES_MAX):
        promise[:] = np.inf
        for s in range(held):
            reached = gains_of(trees, moves, states[s], gains)
            if depth == 0:
                began = reached
            for slot in range(slots):
                first, at = moves.start[slot], s * slots + slot
                kept = paid[s] - moves.price[first + states[s, slot]]
                for place in range(moves.start[slot + 1] - first):
                    price = kept + moves.price[first + place]
                    # What moved comes back in the polish: of a place without a value the gain is not known here.
                    if place == states[s, slot] or place == own[slot] or not price < best_price:
                        continue
                    gained = reached + gains[first + place] - began
                    if gained >= gap:
                        best_price = price
                        best[:] = states[s]
                        move(moves, features, best, slot, place)
                    elif gains[first + place] > 0.0 and gained > 0.0 and price * gap / gained < promise[at]:
                        promise[at], to_place[at], to_price[at] = price * gap / gained, place, price
        states, paid, held = _kept(moves, features, states, promise, to_place, to_price, best_price)
        if held == 0:
            break
    if best_price < np.inf:
        best_price = _polish(trees, moves, began + gap, best)
    return best_price


@numba.njit(cache=True, nogil=True)
def _kept(
    moves: Moves,
    features: int,
    states: NDArray[np.int32],
    promise: NDArray[np.float64],
    to_place: NDArray[np.int32],
    to_price: NDArray[np.float64],
    best_price: float,
) -> tuple[NDArray[np.int32], NDArray[np.float64], int]:
    """The most promising successors that differ and cost less than the best: states, prices, and how many."""
    slots = states.shape[1]
    kept, paid, held = np.empty_like(states), np.zeros(BEAM_WIDTH), 0
    while held < BEAM_WIDTH:
        at = promise.argmin()  # of equal ones the first
        if not promise[at] < np.inf:
            break
        promise[at] = np.inf
        if not to_price[at] < best_price:
            continue
        kept[held] = states[at // slots]
        move(moves, features, kept[held], at % slots, to_place[at])
        paid[held] = to_price[at]
        known = False
        for other in range(held):
            differ = 0
            for slot in range(slots):
                differ += kept[other, slot] != kept[held, slot]
            known = known or differ == 0
        held += not known
    return kept, paid, held


@numba.njit(cache=True, nogil=True)
def _polish(trees: CellTrees, moves: Moves, goal: float, best: NDArray[np.int32]) -> float:
    """Make `best` cheaper, round by round, as long as the sum of the leaves stays at `goal`; return its price."""
    gains = np.empty(moves.start[best.shape[0]] + 1)
    price = price_of(moves, best)
    for _ in range(POLISH_ROUNDS_MAX):
        cheaper = _cheapest_beside(trees, moves, goal, best, price, gains)
        if not cheaper < price:
            break
        price = cheaper
    return price


@numba.njit(cache=True, nogil=True)
def _cheapest_beside(
    trees: CellTrees, moves: Moves, goal: float, best: NDArray[np.int32], best_price: float, gains: NDArray[np.float64]
) -> float:
    """Replace `best` by the cheapest accepted state that differs in one slot, or in one given back and another moved."""
    slots, features, own = best.shape[0], trees.by_rank.shape[0], moves.own
    before = best.copy()
    for given in range(-1, slots):
        if given >= 0 and (before[given] == own[given] or not moves.price[moves.start[given] + before[given]] < np.inf):
            continue  # where no price is, a member of a unit has moved with it
        trial = before.copy()
        if given >= 0:
            move(moves, features, trial, given, own[given])
        paid = price_of(moves, trial)
        if not paid < best_price and given >= 0:
            continue
        reached = gains_of(trees, moves, trial, gains)
        if reached >= goal and paid < best_price:
            best_price = paid
            best[:] = trial
        for slot in range(slots):
            first, end = moves.start[slot], moves.start[slot + 1]
            kept = paid - (0.0 if trial[slot] == own[slot] else moves.price[first + trial[slot]])
            for place in range(end - first):
                if place == trial[slot] or place == own[slot]:  # a move that is given back has a turn of its own
                    continue
                price = kept + moves.price[first + place]
                if price < best_price and reached + gains[first + place] >= goal:
                    best_price = price
                    best[:] = trial
                    move(moves, features, best, slot, place)
    return best_price
