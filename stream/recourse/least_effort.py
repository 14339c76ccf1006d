"""The least effort at which the model accepts: a beam search over moves of single features, then polish.

A state is a row of cells. It is expanded by every permitted move of one feature, each at the price of the nearest
permitted value in its cell plus a price for the action itself, which keeps lists short. States that are accepted
compete by price; of the others those stay that would be cheapest if the rest of the gap cost as much as what they have
gained so far. Polish takes the winner and looks along every line, and along every line with one move given back, for a
cheaper one that is accepted too.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from stream.recourse.profiles import CellTrees, profile

BEAM_WIDTH = 3
MOVES_MAX = 16  # features that move at once; lists that long are no advice
POLISH_ROUNDS_MAX = 20


class Prices(NamedTuple):
    """What it costs one person to be elsewhere. Shape: cell (cells,): inf where not permitted, 0 at the own cell."""

    cell: NDArray[np.float64]
    action: float  # of each feature that moves, besides


def least_effort(
    trees: CellTrees, own: NDArray[np.int32], prices: Prices, gap: float
) -> tuple[float, NDArray[np.int32]] | None:
    """Find the cheapest cells found at which the sum of the leaves gains `gap`, and their price; None where none is.

    Shapes: own (features,) int32 cells -> (features,) int32. The sum is float64: score what is found again.
    """
    best = np.empty_like(own)
    price = _search(trees, own, prices, gap, best)
    return None if math.isinf(price) else (price, best)


def have_compiled(trees: CellTrees) -> None:
    """Search once where nothing is permitted: the first person asked for need not wait seconds for the compiler."""
    nowhere = Prices(np.full(trees.start[-1], np.inf), 0.0)
    least_effort(trees, np.zeros(len(trees.by_rank), np.int32), nowhere, 1.0)


def cheapened(
    trees: CellTrees, own: NDArray[np.int32], prices: Prices, gap: float, start: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Polish cells that somebody else found; what has no price in them stays as it is.

    Shapes: own, start (features,) int32 cells -> (features,) int32: `start` itself where nothing cheaper gains `gap`.
    """
    at = trees.start[:-1] + start
    frozen = np.isinf(prices.cell[at])
    cell = np.where(np.repeat(frozen, np.diff(trees.start)), np.inf, prices.cell)
    cell[at[frozen]] = 0.0
    best = start.copy()
    goal = float(profile(trees, own, np.empty(trees.start[-1] + 1))) + gap
    _polish(trees, np.where(frozen, start, own), Prices(cell, prices.action), goal, best)
    return best


@numba.njit(cache=True, nogil=True, inline="always")
def _price(trees: CellTrees, own: NDArray[np.int32], prices: Prices, j: int, cell: int) -> float:
    return 0.0 if cell == own[j] else prices.cell[trees.start[j] + cell] + prices.action


@numba.njit(cache=True, nogil=True)
def _search(  # noqa: C901  (a kernel: passing its arrays on costs more than it would read better)
    trees: CellTrees, own: NDArray[np.int32], prices: Prices, gap: float, best: NDArray[np.int32]
) -> float:
    features = own.shape[0]
    gains = np.empty(trees.start[features] + 1)
    states = np.empty((BEAM_WIDTH, features), np.int32)
    paid = np.zeros(BEAM_WIDTH)
    states[0], held, best_price, began = own, 1, np.inf, 0.0
    # Of each state and feature, the most promising move.
    promise = np.empty(BEAM_WIDTH * features)
    to_cell = np.empty(BEAM_WIDTH * features, np.int32)
    to_price = np.empty(BEAM_WIDTH * features)
    for moves in range(MOVES_MAX):
        promise[:] = np.inf
        for s in range(held):
            reached = profile(trees, states[s], gains)
            if moves == 0:
                began = reached
            for j in range(features):
                kept = paid[s] - _price(trees, own, prices, j, states[s, j])
                first, at = trees.start[j], s * features + j
                for cell in range(trees.start[j + 1] - first):
                    price = kept + _price(trees, own, prices, j, cell)
                    if cell == states[s, j] or not price < best_price:
                        continue
                    gained = reached + gains[first + cell] - began
                    if gained >= gap:
                        best_price = price
                        best[:] = states[s]
                        best[j] = cell
                    elif gains[first + cell] > 0.0 and gained > 0.0 and price * gap / gained < promise[at]:
                        promise[at], to_cell[at], to_price[at] = price * gap / gained, cell, price
        states, paid, held = _kept(states, promise, to_cell, to_price, best_price)
        if held == 0:
            break
    if best_price < np.inf:
        best_price = _polish(trees, own, prices, began + gap, best)
    return best_price


@numba.njit(cache=True, nogil=True)
def _kept(
    states: NDArray[np.int32],
    promise: NDArray[np.float64],
    to_cell: NDArray[np.int32],
    to_price: NDArray[np.float64],
    best_price: float,
) -> tuple[NDArray[np.int32], NDArray[np.float64], int]:
    """The most promising successors that differ and cost less than the best: states, prices, and how many."""
    features = states.shape[1]
    kept, paid, held = np.empty_like(states), np.zeros(BEAM_WIDTH), 0
    for at in np.argsort(promise, kind="mergesort"):
        if held == BEAM_WIDTH or not promise[at] < np.inf:
            break
        if not to_price[at] < best_price:
            continue
        kept[held] = states[at // features]
        kept[held, at % features] = to_cell[at]
        paid[held] = to_price[at]
        known = False
        for other in range(held):
            known = known or bool((kept[other] == kept[held]).all())
        held += not known
    return kept, paid, held


@numba.njit(cache=True, nogil=True)
def _polish(trees: CellTrees, own: NDArray[np.int32], prices: Prices, goal: float, best: NDArray[np.int32]) -> float:
    """Make `best` cheaper, round by round, as long as the sum of the leaves stays at `goal`; return its price."""
    gains = np.empty(trees.start[own.shape[0]] + 1)
    price = 0.0
    for j in range(own.shape[0]):
        price += _price(trees, own, prices, j, best[j])
    for _ in range(POLISH_ROUNDS_MAX):
        cheaper = _cheapest_beside(trees, own, prices, goal, best, price, gains)
        if not cheaper < price:
            break
        price = cheaper
    return price


@numba.njit(cache=True, nogil=True)
def _cheapest_beside(  # noqa: C901  (a kernel, as is the search above)
    trees: CellTrees,
    own: NDArray[np.int32],
    prices: Prices,
    goal: float,
    best: NDArray[np.int32],
    best_price: float,
    gains: NDArray[np.float64],
) -> float:
    """Replace `best` by the cheapest accepted state that differs in one feature, or in one given back and another moved."""
    features = own.shape[0]
    before = best.copy()
    for given in range(-1, features):
        if given >= 0 and before[given] == own[given]:
            continue
        trial = before.copy()
        if given >= 0:
            trial[given] = own[given]
        paid = 0.0
        for j in range(features):
            paid += _price(trees, own, prices, j, trial[j])
        if not paid < best_price and given >= 0:
            continue
        reached = profile(trees, trial, gains)
        if reached >= goal and paid < best_price:
            best_price = paid
            best[:] = trial
        for j in range(features):
            kept = paid - _price(trees, own, prices, j, trial[j])
            first, end = trees.start[j], trees.start[j + 1]
            for cell in range(end - first):
                if cell == trial[j] or cell == own[j]:  # a move that is given back has a turn of its own
                    continue
                price = kept + _price(trees, own, prices, j, cell)
                if price < best_price and reached + gains[first + cell] >= goal:
                    best_price = price
                    best[:] = trial
                    best[j] = cell
    return best_price
