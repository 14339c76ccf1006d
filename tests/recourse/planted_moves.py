"""A planted model, its shadows, and random moves of one person; prices are in eighths, so that all sums are exact in any order."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import pairwise, product

import numpy as np

from stream.forest.cells import Cells, cells_of, common_cells
from stream.recourse.space.joint_trees import JointTrees, joint_trees
from stream.recourse.space.margin_profiles import cell_trees
from stream.recourse.space.moves import Moves
from stream.recourse.space.reachable_leaves import ReachableLeaves, reachable_leaves
from tests.recourse.lenders import Library, Rows
from tests.recourse.planted import CellsOfRow, Planted, Sort, planted_family

ACTION = 0.125
SORTS: tuple[Sort, ...] = ("number", "number", "category", "zero")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """Several models in common cells, and the moves of one person. `units`: of features that move together."""

    models: tuple[Planted, ...]
    cells: Cells
    joint: JointTrees
    moves: Moves
    units: tuple[tuple[int, ...], ...]
    sign: int

    @property
    def features(self) -> int:
        """How many features there are."""
        return len(self.moves.own) - len(self.units)

    def after(self, state: CellsOfRow, slot: int, option: int) -> CellsOfRow:
        """The state after one move. Shapes: state (slots,) -> (slots,)."""
        found = state.copy()
        found[slot] = option
        if slot >= self.features:
            found[list(self.units[slot - self.features])] = self.alternative(slot - self.features, option)
        return found

    def alternative(self, u: int, option: int) -> CellsOfRow:
        """The cells of all members of a unit at one of its alternatives."""
        first = int(self.moves.first_cell[u]) + option * len(self.units[u])
        return self.moves.cells[first : first + len(self.units[u])]

    def options(self, slot: int) -> list[int]:
        """The permitted options of a slot, the own one among them."""
        first, end = self.moves.start[slot : slot + 2]
        return np.flatnonzero(np.isfinite(self.moves.price[first:end])).tolist()

    def paid(self, state: CellsOfRow) -> float:
        """The cost of a state: the price of each slot that has moved by itself."""
        prices = [float(self.moves.price[self.moves.start[slot] + option]) for slot, option in enumerate(state)]
        return sum(p for p, own, at in zip(prices, self.moves.own, state, strict=True) if at != own and np.isfinite(p))

    def states(self) -> Iterator[CellsOfRow]:
        """Every permitted state."""
        slots = [self.options(slot) for slot in range(len(self.moves.own))]
        for at in product(*slots):
            state = np.array(at, np.int32)
            for u in range(len(self.units)):
                state = self.after(state, self.features + u, at[self.features + u])
            yield state

    def state(self, rng: np.random.Generator) -> CellsOfRow:
        """A permitted state, at random."""
        state = self.moves.own.copy()
        for slot in range(len(state)):
            state = self.after(state, slot, int(rng.choice(self.options(slot))))
        return state

    def sums(self, m: int, states: CellsOfRow) -> Rows:
        """What the leaves of model m sum to in each state, in integers. Shapes: (n, slots) -> (n,)."""
        return self.models[m].sums(np.ascontiguousarray(states[:, : self.features]))

    def margins(self, states: CellsOfRow) -> Rows:
        """The margin of each state by every model; more is better. Shapes: (n, slots) -> (n, models)."""
        base = [self.sign * float(model.forest.base_margin) for model in self.models]
        return np.column_stack([self.sums(m, states) + own for m, own in enumerate(base)])

    def some_states(self, rng: np.random.Generator, most: int) -> CellsOfRow:
        """Every permitted state, where there are at most `most`, else that many at random. Shape: (n, slots)."""
        count = np.prod([len(self.options(slot)) for slot in range(len(self.moves.own))])
        return np.array([*self.states()] if count <= most else [self.state(rng) for _ in range(most)])

    def leaves(self) -> ReachableLeaves:
        """The reachable leaves of every model."""
        return reachable_leaves(self.joint, self.moves, np.arange(len(self.models)))


def case_at_random(
    rng: np.random.Generator, library: Library, *, models: int, features: int = 4, trees: int = 4, depth: int = 3
) -> Case:
    """Random moves; in half of the cases two features move together, or three, or two and another two."""
    sorts = tuple(rng.permutation(np.array(SORTS, object))[: int(rng.integers(1, features + 1))].tolist())
    forests, sign = planted_family(rng, library, sorts, models=models, trees=trees, depth=depth)
    cells = common_cells([cells_of(forest) for forest in forests])
    units = _units(rng, len(sorts)) if len(sorts) > 1 and rng.random() < 0.5 else ()
    alone = [cell_trees(forest, cells, sign, units) for forest in forests]
    parts = [Planted(forest=f, cells=cells, trees=one, sign=sign) for f, one in zip(forests, alone, strict=True)]
    return Case(
        models=tuple(parts),
        cells=cells,
        joint=joint_trees(forests, cells, sign),
        moves=_moves(rng, cells, len(sorts), units),
        units=units,
        sign=sign,
    )


def _units(rng: np.random.Generator, features: int) -> tuple[tuple[int, ...], ...]:
    """Choose which features move together."""
    mixed, first = rng.permutation(features).tolist(), int(rng.integers(2, min(features, 3) + 1))
    parts = [mixed[:first], mixed[first:] if rng.random() < 0.5 else []]
    return tuple(tuple(sorted(part)) for part in parts if len(part) > 1)


def _moves(rng: np.random.Generator, cells: Cells, features: int, units: tuple[tuple[int, ...], ...]) -> Moves:
    counts = [cells.count(j) for j in range(features)]
    start = np.cumsum([0, *counts])
    own = np.array([rng.integers(count) for count in counts], np.int32)
    price = rng.integers(1, 17, int(start[-1])) / 8 + ACTION
    price[rng.random(len(price)) < 0.2] = np.inf
    for j, (first, end) in enumerate(pairwise(start)):
        price[[first + k for k in range(end - first) if cells.is_missing(j, k)]] = np.inf
        if any(j in unit for unit in units):
            price[first:end] = np.inf
    price[start[:-1] + own] = 0.0
    alternatives = [_alternatives(rng, cells, own, unit) for unit in units]
    unit_prices = [np.array([0.0, *(rng.integers(1, 33, len(one) - 1) / 8 + ACTION)]) for one in alternatives]
    return Moves(
        start=np.concatenate([start, start[-1] + np.cumsum([len(one) for one in alternatives])]).astype(np.int64),
        own=np.concatenate([own, np.zeros(len(units), np.int32)]).astype(np.int32),
        price=np.concatenate([price, *unit_prices]),
        first_member=np.cumsum([0, *map(len, units)]).astype(np.int64),
        members=np.array([j for unit in units for j in unit], np.int32),
        first_cell=np.cumsum([0, *(one.size for one in alternatives)]).astype(np.int64),
        cells=np.concatenate([np.empty(0, np.int32), *(one.ravel() for one in alternatives)]).astype(np.int32),
    )


def _alternatives(rng: np.random.Generator, cells: Cells, own: CellsOfRow, unit: tuple[int, ...]) -> CellsOfRow:
    """Alternatives of a unit, the person's own first, no two alike, none to missing."""
    found = {tuple(own[list(unit)].tolist()): None}
    for _ in range(int(rng.integers(0, 9))):
        at = tuple(int(rng.integers(cells.count(j))) for j in unit)
        if not any(cells.is_missing(j, k) and own[j] != k for j, k in zip(unit, at, strict=True)):
            found[at] = None
    return np.array(list(found), np.int32)
