from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.recourse.comparators.people import NEAREST
from stream.recourse.search.robust_descent import (
    EXCHANGES_MAX,
    LEAST_STEP,
    NEIGHBOURS,
    Neighbourhood,
    Objective,
    descend,
)
from stream.recourse.space.reachable_leaves import reachable_leaves
from tests.examples import examples
from tests.recourse.lenders import Library, Rows
from tests.recourse.planted import CellsOfRow
from tests.recourse.planted_moves import Case, case_at_random

LIBRARIES = pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
SEEDS = st.integers(0, 2**32 - 1)
ROUNDING = 1e-4  # of float32 distances, relative to the objective
PLENTY = 1000  # of exchanges


class Problem:
    """One person's descent over planted models, and the same objective in plain Python."""

    def __init__(
        self, seed: int, library: Library, *, features: int = 3, priced: bool = True, likeness: bool = True
    ) -> None:
        """`priced`: whether a shortfall has a price; `likeness`: whether distance may have one."""
        rng = np.random.default_rng(seed)
        self.case: Case = case_at_random(rng, library, models=int(rng.integers(1, 5)), features=features)
        case = self.case
        self.start = case.state(rng)
        spread = np.ptp(case.margins(np.array([case.state(rng) for _ in range(8)])), axis=0)
        goals = case.margins(self.start[None])[0]
        goals[0] -= rng.integers(0, 9) / 8 * rng.integers(0, 2)
        goals[1:] += np.round(8 * rng.uniform(-0.5, 1.0, len(goals) - 1) * spread[1:]) / 8
        prices = rng.integers(0, 9, 2) / 2 * priced
        self.objective = Objective(
            goals=goals,
            surplus=float(rng.integers(0, 9)) / 8,
            surplus_price=float(prices[0]),
            reserve=float(rng.integers(0, 17)) / 8,
            reserve_price=float(prices[1]),
            distance_price=float(rng.choice([0.0, 0.5, 4.0])) * likeness,
        )
        people = int(rng.integers(0, 41))
        self.neighbourhood = Neighbourhood(
            people=self.values(rng, (people, case.features)),
            nominal=rng.random(case.features) < 0.3,
            own=self.values(rng, (case.features,)),
            options=self.values(rng, (int(case.moves.start[case.features]),)),
            cells=self.values(rng, (len(case.moves.cells),)),
        )
        for u, unit in enumerate(case.units):
            first = int(case.moves.first_cell[u])
            self.neighbourhood.cells[first : first + len(unit)] = self.neighbourhood.own[list(unit)]

    @staticmethod
    def values(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        """Coordinates at random, some of them unknown."""
        found = rng.integers(-8, 9, shape) / 4
        return np.where(rng.random(shape) < 0.15, np.nan, found).astype(np.float32)

    def descended(self, exchanges: int = PLENTY, starts: CellsOfRow | None = None) -> tuple[float, CellsOfRow]:
        """The end of a descent from the one start, or from `starts`: objective and state."""
        given = self.start[None] if starts is None else starts
        said, state = descend(
            self.case.leaves(), self.case.moves, self.objective, self.neighbourhood, given.copy(), exchanges
        )
        return said, state

    def coordinates(self, state: CellsOfRow) -> Rows:
        """Where a state lies among people."""
        case, neighbourhood = self.case, self.neighbourhood
        start = case.moves.start[: case.features] + state[: case.features]
        alone = state[: case.features] == case.moves.own[: case.features]
        x = np.where(alone, neighbourhood.own, neighbourhood.options[start]).astype(np.float64)
        for u, unit in enumerate(case.units):
            first = int(case.moves.first_cell[u]) + int(state[case.features + u]) * len(unit)
            x[list(unit)] = neighbourhood.cells[first : first + len(unit)]
        return x

    def squares(self, state: CellsOfRow) -> list[float]:
        """The squared distances to everyone in the neighbourhood, in their order."""
        x, neighbourhood = self.coordinates(state), self.neighbourhood
        found = []
        for other in neighbourhood.people.astype(np.float64):
            total = 0.0
            for a, b, nominal in zip(x, other, neighbourhood.nominal, strict=True):
                if np.isnan(a) or np.isnan(b):
                    total += 0.0 if np.isnan(a) and np.isnan(b) else 1.0
                else:
                    total += float(a != b) if nominal else (a - b) ** 2
            found.append(total)
        return found

    def distance(self, state: CellsOfRow, known: list[int] | None = None) -> float:
        """The mean distance to the five nearest of the whole neighbourhood, or of those known."""
        squares = self.squares(state)
        nearest = sorted(squares if known is None else [squares[i] for i in known])[:NEAREST]
        return sum(map(math.sqrt, nearest)) / len(nearest) if nearest else 0.0

    def known(self, state: CellsOfRow) -> list[int]:
        """The people to whom distances of a move from this state are measured: the nearest, of equal ones the earlier."""
        squares = self.squares(state)
        return sorted(range(len(squares)), key=squares.__getitem__)[:NEIGHBOURS]

    def accepts(self, state: CellsOfRow) -> bool:
        """Whether the model itself accepts a state."""
        return bool(self.case.margins(state[None])[0, 0] >= self.objective.goals[0])

    def value(self, state: CellsOfRow, known: list[int] | None = None) -> float:
        """The objective in plain Python, distances to the whole neighbourhood or to those known; inf where the model declines."""
        if not self.accepts(state):
            return np.inf
        objective, models = self.objective, range(len(self.objective.goals))
        asked = [m for m in models if m] or [0]
        short: list[float] = (objective.goals - self.case.margins(state[None])[0])[asked].tolist()
        wishes = [
            objective.surplus_price * max(0.0, one + objective.surplus)
            + objective.reserve_price * max(0.0, one + objective.reserve)
            for one in short
        ]
        likeness = objective.distance_price * self.distance(state, known) if objective.distance_price else 0.0
        return self.case.paid(state) + sum(wishes) / len(asked) + likeness

    def is_state(self, state: CellsOfRow) -> bool:
        """Whether a state is permitted: each slot at a permitted option, and a unit's members in its alternative's cells."""
        case = self.case
        together = all(
            case.alternative(u, int(state[case.features + u])).tolist() == state[list(unit)].tolist()
            for u, unit in enumerate(case.units)
        )
        members = {j for unit in case.units for j in unit}
        return together and all(at in case.options(s) for s, at in enumerate(state.tolist()) if s not in members)

    def moved(self, state: CellsOfRow) -> list[CellsOfRow]:
        """Every state one move away, except those that take a move back."""
        case = self.case
        return [
            case.after(state, s, option)
            for s in range(len(state))
            for option in case.options(s)
            if option not in (state[s], case.moves.own[s])
        ]

    def neighbours(self, state: CellsOfRow) -> list[CellsOfRow]:
        """Every state one move away, with one move taken back, and with one taken back for another."""
        case, price = self.case, self.case.moves.price
        back = [
            case.after(state, s, int(case.moves.own[s]))
            for s in range(len(state))
            if state[s] != case.moves.own[s] and np.isfinite(price[case.moves.start[s] + state[s]])
        ]
        return [*back, *(one for given in [state, *back] for one in self.moved(given))]


@LIBRARIES
@settings(max_examples=examples(60), deadline=None)
@given(seed=SEEDS)
def test_a_descent_ends_no_worse_than_its_start_at_the_objective_returned(library: Library, seed: int) -> None:
    """Given any models, moves, objective and neighbourhood, the end is a permitted state that the model accepts; its objective in plain Python is the one returned, and no more than the start's."""
    problem = Problem(seed, library)
    said, state = problem.descended(EXCHANGES_MAX)
    assert problem.accepts(state)
    assert problem.is_state(state)
    assert said == problem.value(state) <= problem.value(problem.start)


@LIBRARIES
@settings(max_examples=examples(60), deadline=None)
@given(seed=SEEDS, priced=st.booleans())
def test_no_move_and_no_exchange_is_better_than_where_a_descent_ends(
    library: Library, seed: int, *, priced: bool
) -> None:
    """Given any neighbourhood, no state one move or one exchange away is better than the end by more than the least step, with distances to the people nearest to the end."""
    problem = Problem(seed, library, likeness=priced)
    said, state = problem.descended()
    known = problem.known(state)
    assert said == problem.value(state, known)
    assert not [one for one in problem.neighbours(state) if problem.value(one, known) < said - LEAST_STEP]


@LIBRARIES
@settings(max_examples=examples(60), deadline=None)
@given(seed=SEEDS)
def test_without_exchanges_no_single_move_is_better(library: Library, seed: int) -> None:
    """Given no exchanges, no single move from the end, but one taken back, is better by more than the least step; and with exchanges the end is no worse."""
    problem = Problem(seed, library)
    said, state = problem.descended(0)
    known = problem.known(state)
    assert not [one for one in problem.moved(state) if problem.value(one, known) < said - LEAST_STEP]
    assert problem.descended(1)[0] <= said


@LIBRARIES
@settings(max_examples=examples(150), deadline=None)
@given(seed=SEEDS, count=st.integers(2, 5), priced=st.booleans())
def test_of_several_starts_the_best_end_is_kept(library: Library, seed: int, count: int, *, priced: bool) -> None:
    """Given several starts, each descends as if it were alone, and exchanges start from the best end, of equal ones the earliest; so the order of starts matters only among equal ends."""
    problem = Problem(seed, library, priced=priced, likeness=priced)  # without prices more ends are equal
    rng = np.random.default_rng(seed)
    starts = np.array([problem.start, *(problem.case.state(rng) for _ in range(count - 1))])
    ends = [problem.descended(0, one[None]) for one in starts]
    first = int(np.argmin([said for said, _ in ends]))
    said, state = problem.descended(0, starts)
    assert (said, state.tolist()) == (ends[first][0], ends[first][1].tolist())
    exchanged, end = problem.descended(EXCHANGES_MAX, starts)
    again, same_end = problem.descended(EXCHANGES_MAX, state[None])
    assert (exchanged, end.tolist()) == (again, same_end.tolist())
    assert exchanged == problem.value(end) <= min(map(problem.value, starts))
    if len({end.tobytes() for value, end in ends if value == ends[first][0]}) == 1:
        turned, other = problem.descended(EXCHANGES_MAX, starts[rng.permutation(count)])
        assert (turned, other.tolist()) == (exchanged, end.tolist())


@LIBRARIES
@settings(max_examples=examples(60), deadline=None)
@given(seed=SEEDS)
def test_a_declined_start_is_left_for_an_accepted_neighbour(library: Library, seed: int) -> None:
    """Given a start that the model declines, the end is accepted where a state one move or exchange away is; else the objective is inf and the start is the end."""
    problem = Problem(seed, library)
    problem.objective.goals[0] = problem.case.margins(problem.start[None])[0, 0] + 0.125
    assert not problem.accepts(problem.start)
    said, state = problem.descended()
    assert said == problem.value(state)
    near = any(map(problem.accepts, problem.neighbours(problem.start)))
    assert np.isfinite(said) == near
    if not near:
        assert state.tolist() == problem.start.tolist()


@LIBRARIES
@settings(max_examples=examples(40), deadline=None)
@given(seed=SEEDS)
def test_the_order_of_shadows_does_not_matter(library: Library, seed: int) -> None:
    """Given the same shadows in any order, end and objective are the same."""
    problem = Problem(seed, library)
    rng, case = np.random.default_rng(seed), problem.case
    order = np.array([0, *(1 + rng.permutation(len(case.models) - 1)).tolist()])
    leaves = reachable_leaves(case.joint, case.moves, order)
    objective = problem.objective._replace(goals=problem.objective.goals[order])
    value, state = descend(
        leaves, case.moves, objective, problem.neighbourhood, problem.start[None].copy(), EXCHANGES_MAX
    )
    said, end = problem.descended(EXCHANGES_MAX)
    assert (value, state.tolist()) == (said, end.tolist())


@LIBRARIES
@settings(max_examples=examples(40), deadline=None)
@given(seed=SEEDS)
def test_where_nothing_else_has_a_price_it_costs_no_more_than_its_start(library: Library, seed: int) -> None:
    """Given that only effort and actions have a price, the end is accepted and costs no more than the start, whatever the shadows say."""
    problem = Problem(seed, library, priced=False, likeness=False)
    said, state = problem.descended(EXCHANGES_MAX)
    assert problem.accepts(state)
    assert said == problem.case.paid(state) <= problem.case.paid(problem.start)


@LIBRARIES
@settings(max_examples=examples(40), deadline=None)
@given(seed=SEEDS, wild=st.sampled_from([1e4, -1e6, 1e9]))
def test_a_value_far_from_everyone_s_does_not_mislead(library: Library, seed: int, wild: float) -> None:
    """Given a person with a value thousands of scales away, beside which float32 forgets other distances, the objective returned is still right within rounding, and the end no worse than the start."""
    problem = Problem(seed, library)
    problem.neighbourhood.own[0] = wild
    for u, unit in enumerate(problem.case.units):
        first = int(problem.case.moves.first_cell[u])
        problem.neighbourhood.cells[first : first + len(unit)] = problem.neighbourhood.own[list(unit)]
    said, state = problem.descended(EXCHANGES_MAX)
    assert math.isclose(said, problem.value(state), rel_tol=ROUNDING, abs_tol=1e-12)
    assert said <= problem.value(problem.start) * (1 + ROUNDING)


@LIBRARIES
def test_where_everything_is_declined_the_start_is_the_end(library: Library) -> None:
    """Given a goal that nothing reaches, the objective is inf and the start is left as it was."""
    for seed in range(10):
        problem = Problem(seed, library)
        problem.objective.goals[0] = 1e6
        said, state = problem.descended()
        assert said == np.inf
        assert state.tolist() == problem.start.tolist()


@LIBRARIES
def test_shadows_pull_and_people_pull(library: Library) -> None:
    """Given forty problems, where a shortfall has a price the ends fall less short than where it has none, and likewise with distance, in enough of them."""
    shorter, nearer = 0, 0
    for seed in range(40):
        problem, plain = Problem(seed, library), Problem(seed, library, priced=False, likeness=False)
        assert problem.start.tolist() == plain.start.tolist()
        _, end = problem.descended()
        _, cheap = plain.descended()
        shorter += problem.value(end) < problem.value(cheap) - ROUNDING
        nearer += problem.distance(end) < problem.distance(cheap) - ROUNDING
    assert shorter > 8
    assert nearer > 4


def digest() -> str:
    """The ends of sixteen descents, in one digest."""
    found = hashlib.sha256()
    libraries: tuple[Library, ...] = ("xgboost", "lightgbm")
    for library in libraries:
        for seed in range(8):
            said, state = Problem(seed, library).descended(EXCHANGES_MAX)
            found.update(np.float64(said).tobytes() + state.tobytes())
    return found.hexdigest()


def test_descents_are_the_same_bytes_in_any_thread_and_process() -> None:
    """Given the same problems twice, in threads side by side, and in another process with another number of threads, ends and objectives are the same bytes."""
    own = digest()
    with ThreadPoolExecutor(2) as threads:
        assert set(threads.map(lambda _: digest(), range(2))) == {own}
    asked = "from tests.recourse.search.test_robust_descent import digest; print(digest())"
    environment = {**os.environ, "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "77"}
    other = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, env=environment)
    assert other.stdout.strip() == own
