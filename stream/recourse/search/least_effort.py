"""The least effort at which the model accepts: a beam search over moves of one feature or unit each, then polish.

A state is expanded by every permitted move of one slot, a feature or a unit of features. Each move costs its effort plus a
price for the action itself, which keeps lists short. Accepted states compete by price. Of the others the beam keeps those
that would be cheapest if the rest of the gap cost as much per margin as what they have gained so far. Polish then looks
for a cheaper accepted neighbour of the best state: with one move changed, or one taken back and another changed.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from stream.recourse.space.margin_profiles import CellTrees
from stream.recourse.space.moves import Moves, gains_of, move, moves_itself, options_of, price_at, price_of, price_paid

# Bounds chosen by judgement, see docs/recourse.md; `python -m tests.evaluation --only bars` measures what they give.
BEAM_WIDTH = 3  # states kept at each depth
MOVES_MAX = 16  # slots that move, and so the depth of the beam; longer lists are no advice
POLISH_ROUNDS_MAX = 20  # changes to the best state


def least_effort(trees: CellTrees, moves: Moves, gap: float) -> NDArray[np.int32] | None:
    """Find the cheapest state at which the sum of the leaves gains `gap`, in margin; None where none is found.

    Shape: (slots,) int32. The sum is float64: let the model score the state.
    """
    best = np.empty_like(moves.own)
    return None if math.isinf(_search(trees, moves, gap, best)) else best


def polished(trees: CellTrees, moves: Moves, gap: float, start: NDArray[np.int32]) -> NDArray[np.int32]:
    """Polish a state found elsewhere; `start` itself where nothing cheaper gains `gap`. Shapes: (slots,)."""
    best = start.copy()
    goal = float(gains_of(trees, moves, moves.own, np.empty(moves.start[-1] + 1))) + gap
    _polish(trees, moves, goal, best)
    return best


@numba.njit(cache=True, nogil=True)
def _search(trees: CellTrees, moves: Moves, gap: float, best: NDArray[np.int32]) -> float:  # noqa: C901  (one branch too many: the hot loop stays in one place)
    """Fill in the best state found, polished; return its price, inf where none is found."""
    slots, features, own = moves.own.shape[0], trees.by_rank.shape[0], moves.own
    gains = np.empty(moves.start[slots] + 1)
    beam = np.empty((BEAM_WIDTH, slots), np.int32)
    paid = np.zeros(BEAM_WIDTH)
    beam[0], width, best_price, own_sum = own, 1, np.inf, 0.0
    # For each state and slot the most promising move: the price projected to the whole gap, the option and the price.
    projected = np.empty(BEAM_WIDTH * slots)
    to_option = np.empty(BEAM_WIDTH * slots, np.int32)
    to_price = np.empty(BEAM_WIDTH * slots)
    for depth in range(MOVES_MAX):
        projected[:] = np.inf
        for s in range(width):
            reached = gains_of(trees, moves, beam[s], gains)
            if depth == 0:
                own_sum = reached
            for slot in range(slots):
                first, end = options_of(moves, slot)
                at, others = s * slots + slot, paid[s] - price_paid(moves, beam[s], slot)
                for option in range(end - first):
                    price = others + moves.price[first + option]
                    # Polish takes moves back: the gain of the missing option is not known here.
                    if option == beam[s, slot] or option == own[slot] or not price < best_price:
                        continue
                    gained = reached + gains[first + option] - own_sum
                    if gained >= gap:
                        best_price = price
                        best[:] = beam[s]
                        move(moves, features, best, slot, option)
                    elif gains[first + option] > 0.0 and gained > 0.0 and price * gap / gained < projected[at]:
                        projected[at], to_option[at], to_price[at] = price * gap / gained, option, price
        beam, paid, width = _next_beam(moves, features, beam, projected, to_option, to_price, best_price)
        if width == 0:
            break
    if best_price < np.inf:
        best_price = _polish(trees, moves, own_sum + gap, best)
    return best_price


@numba.njit(cache=True, nogil=True)
def _next_beam(
    moves: Moves,
    features: int,
    beam: NDArray[np.int32],
    projected: NDArray[np.float64],
    to_option: NDArray[np.int32],
    to_price: NDArray[np.float64],
    best_price: float,
) -> tuple[NDArray[np.int32], NDArray[np.float64], int]:
    """Take the most promising successors, all different and cheaper than the best state: states, prices, and how many."""
    slots = beam.shape[1]
    states, paid, width = np.empty_like(beam), np.zeros(BEAM_WIDTH), 0
    while width < BEAM_WIDTH:
        at = projected.argmin()  # of equal ones the first
        if not projected[at] < np.inf:
            break
        projected[at] = np.inf
        if not to_price[at] < best_price:
            continue
        states[width] = beam[at // slots]
        move(moves, features, states[width], at % slots, to_option[at])
        paid[width] = to_price[at]
        known = False
        for other in range(width):
            known = known or (states[other] == states[width]).all()
        width += not known
    return states, paid, width


@numba.njit(cache=True, nogil=True)
def _polish(trees: CellTrees, moves: Moves, goal: float, best: NDArray[np.int32]) -> float:
    """Make `best` cheaper, round by round, while the sum of the leaves stays at `goal`; return its price."""
    gains = np.empty(moves.start[best.shape[0]] + 1)
    price = price_of(moves, best)
    for _ in range(POLISH_ROUNDS_MAX):
        cheaper = _cheapest_neighbour(trees, moves, goal, best, price, gains)
        if not cheaper < price:
            break
        price = cheaper
    return price


@numba.njit(cache=True, nogil=True)
def _cheapest_neighbour(
    trees: CellTrees, moves: Moves, goal: float, best: NDArray[np.int32], best_price: float, gains: NDArray[np.float64]
) -> float:
    """Replace `best` by the cheapest accepted state with one move changed, or one taken back and another changed."""
    slots, features, own = best.shape[0], trees.by_rank.shape[0], moves.own
    before = best.copy()
    for back in range(-1, slots):
        if back >= 0 and not moves_itself(moves, before, back):
            continue
        trial = before.copy()
        if back >= 0:
            move(moves, features, trial, back, own[back])
        paid = price_of(moves, trial)
        if not paid < best_price and back >= 0:
            continue
        reached = gains_of(trees, moves, trial, gains)
        if reached >= goal and paid < best_price:
            best_price = paid
            best[:] = trial
        for slot in range(slots):
            first, end = options_of(moves, slot)
            others = paid - price_paid(moves, trial, slot)
            for option in range(end - first):
                if option == trial[slot] or option == own[slot]:  # `back` takes moves back
                    continue
                price = others + price_at(moves, slot, option)
                if price < best_price and reached + gains[first + option] >= goal:
                    best_price = price
                    best[:] = trial
                    move(moves, features, best, slot, option)
    return best_price
