from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.recourse.feasible import Reach, reach_of
from stream.recourse.moves import Moves, gains_of, move, moves_of, no_moves, price_of, state_of, target_of
from tests.recourse.lenders import LENDERS, Approve, Lender, Library, Rows, lender
from tests.recourse.planted import CellsOfRow, Planted
from tests.recourse.planted_moves import case_at_random
from tests.recourse.unit_people import Person, people

LIBRARIES = pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
PAIRS = pytest.mark.parametrize(("library", "approve"), LENDERS)
ACTION = 0.12


def a_state(rng: np.random.Generator, reach: Reach, moves: Moves) -> CellsOfRow:
    """Any state that the person can be in."""
    state, features = moves.own.copy(), len(reach.row)
    for slot in range(len(state)):
        first, end = moves.start[slot : slot + 2]
        open_to = np.flatnonzero(np.isfinite(moves.price[first:end]))
        move(moves, features, state, slot, int(rng.choice(open_to)))
    return state


def paid(reach: Reach, target: Rows, action: float) -> float:
    """What a target costs by `Reach.effort`, feature by feature."""
    moved = [j for j, (own, to) in enumerate(zip(reach.row, target, strict=True)) if to != own and not math.isnan(to)]
    return math.fsum(reach.effort(j, float(target[j])) + action for j in moved)


@settings(max_examples=100, deadline=None)
@given(person=people(), seed=st.integers(0, 2**32 - 1))
def test_a_state_is_a_target_and_back(person: Person, seed: int) -> None:
    """Given anyone with features that move together, the target of a state lies in its cells, is the row where nothing moves, and gives the state back."""
    reach = person.reach()
    moves = moves_of(reach, ACTION)
    assert target_of(reach, moves.own).tobytes() == reach.row.tobytes()
    for k in range(3):
        state = a_state(np.random.default_rng(seed + k), reach, moves)
        target = target_of(reach, state)
        cells = person.cells.of(target[None])[0]
        assert cells.tolist() == state[: len(cells)].tolist()
        assert state_of(reach, moves, target, cells).tolist() == state.tolist()


@settings(max_examples=100, deadline=None)
@given(person=people(), seed=st.integers(0, 2**32 - 1), action=st.sampled_from([0.0, ACTION, 3.0]))
def test_a_state_costs_its_efforts_and_an_action_for_each_feature(person: Person, seed: int, action: float) -> None:
    """Given anyone, a state's price is, to what rounding leaves, the sum of the efforts of what moves and an action's price for each; nothing where nothing moves."""
    reach = person.reach()
    moves = moves_of(reach, action)
    assert price_of(moves, moves.own) == 0.0
    for k in range(3):
        state = a_state(np.random.default_rng(seed + k), reach, moves)
        assert math.isclose(
            price_of(moves, state), paid(reach, target_of(reach, state), action), rel_tol=1e-14, abs_tol=1e-12
        )


@settings(max_examples=100, deadline=None)
@given(person=people())
def test_a_place_has_a_price_where_the_rules_let_one_go(person: Person) -> None:
    """Given anyone, a feature that moves alone has a price where it has a landing value and at its own place, one that moves with others only there; every alternative of a unit has one."""
    reach = person.reach()
    moves, landings = moves_of(reach, ACTION), reach.landings
    for slot in range(len(moves.own)):
        price = moves.price[moves.start[slot] : moves.start[slot + 1]]
        assert price[moves.own[slot]] == 0.0
        if slot >= len(reach.row):
            assert np.isfinite(price).all()
            continue
        landing = reach.landing[landings.start[slot] : landings.start[slot + 1]]
        open_to = ~np.isnan(landing) & bool(landings.alone[slot])
        open_to[moves.own[slot]] = True
        assert np.isfinite(price).tolist() == open_to.tolist()


@LIBRARIES
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_unit_takes_its_members_along(library: Library, seed: int) -> None:
    """Given any moves in any order, a state holds the cells that the last move of each slot put there, and costs what each slot's place does."""
    rng = np.random.default_rng(seed)
    case = case_at_random(rng, library, models=1)
    state, wanted = case.moves.own.copy(), case.moves.own.copy()
    for _ in range(6):
        slot = int(rng.integers(len(state)))
        place = int(rng.choice(case.places(slot)))
        move(case.moves, case.features, state, slot, place)
        wanted = case.after(wanted, slot, place)
        assert state.tolist() == wanted.tolist()
        assert price_of(case.moves, state) == case.paid(state)


@PAIRS
def test_gains_of_units_are_those_of_the_rows_that_people_are_told(library: Library, approve: Approve) -> None:
    """Given a lender with a group, the gain of each permitted move, of the group too, is within rounding what scoring its target gives."""
    shop: Lender = lender(library, approve)
    model, of_units = shop.model, 0
    forest = Planted(forest=model.forest, cells=model.cells, trees=model.trees, sign=shop.sign)
    for row in shop.declined(8):
        cells, labels = model.cells.of(row[None])[0], model.rules.mutabilities({})
        reach = reach_of(model.rules, model.matrix, model.landings, row=row, cells=cells, mutability=labels)
        moves = moves_of(reach, ACTION)
        gains = np.empty(int(moves.start[-1]) + 1)
        total = gains_of(model.trees, moves, moves.own, gains)
        own = forest.sums(cells[None])[0]
        bound = model.forest.trees * 2.0**-40 * model.trees.magnitude
        assert abs(total - own) <= bound
        for slot in range(len(moves.own)):
            first, end = moves.start[slot : slot + 2]
            for place in np.flatnonzero(np.isfinite(moves.price[first:end])).tolist():
                if slot < len(cells) and place == moves.own[slot]:
                    continue
                state = moves.own.copy()
                move(moves, len(cells), state, slot, place)
                target = model.cells.of(target_of(reach, state)[None])
                assert abs(gains[first + place] - (forest.sums(target)[0] - own)) <= bound
                of_units += slot >= len(cells) and bool(gains[first + place])
    assert of_units > 20


@LIBRARIES
def test_who_may_go_nowhere_has_one_state(library: Library) -> None:
    """Given no moves, each slot has its own place alone, at no price."""
    case = case_at_random(np.random.default_rng(1), library, models=1)
    moves = no_moves(case.models[0].trees)
    assert np.isfinite(moves.price).sum() == len(moves.own) == case.features
    assert price_of(moves, moves.own) == 0.0
