from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.forest.cells import Cells
from stream.recourse.space.moves import Moves, gains_of, move, moves_of, no_moves, price_of, state_of, target_of
from stream.recourse.space.person_reach import PersonReach, person_reach
from tests.examples import examples
from tests.recourse.lenders import LENDERS, Approve, Lender, Library, Rows, lender
from tests.recourse.planted import CellsOfRow, Planted
from tests.recourse.planted_moves import case_at_random
from tests.recourse.unit_people import Person, people

LIBRARIES = pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
PAIRS = pytest.mark.parametrize(("library", "approve"), LENDERS)
ACTION = 0.12


def a_state(rng: np.random.Generator, reach: PersonReach, moves: Moves) -> CellsOfRow:
    """Any state that the person can be in."""
    state, features = moves.own.copy(), len(reach.row)
    for slot in range(len(state)):
        first, end = moves.start[slot : slot + 2]
        open_to = np.flatnonzero(np.isfinite(moves.price[first:end]))
        move(moves, features, state, slot, int(rng.choice(open_to)))
    return state


def paid(reach: PersonReach, target: Rows, action: float) -> float:
    """What a target costs by `PersonReach.effort`, feature by feature."""
    moved = [j for j, (own, to) in enumerate(zip(reach.row, target, strict=True)) if to != own and not math.isnan(to)]
    return math.fsum(reach.effort(j, float(target[j])) + action for j in moved)


@settings(max_examples=examples(100), deadline=None)
@given(person=people(), seed=st.integers(0, 2**32 - 1))
def test_a_state_is_a_target_and_back(person: Person, seed: int) -> None:
    """Given features that move together, the target of a state lies in its cells, is the row where nothing moves, and gives the state back."""
    reach = person.reach()
    moves = moves_of(reach, ACTION)
    assert target_of(reach, moves.own).tobytes() == reach.row.tobytes()
    for k in range(3):
        state = a_state(np.random.default_rng(seed + k), reach, moves)
        target = target_of(reach, state)
        cells = person.cells.of(target[None])[0]
        assert cells.tolist() == state[: len(cells)].tolist()
        assert state_of(reach, moves, target, person.cells, person.cells).tolist() == state.tolist()


def coarser(cells: Cells) -> Cells:
    """Cells with every other threshold."""
    return dataclasses.replace(cells, thresholds=tuple(t[::2] for t in cells.thresholds), insides={})


def matched(reach: PersonReach, u: int, target: Rows, cells: Cells, known: Cells) -> tuple[int, str]:
    """The reference: the first alternative of a unit that a target matches, and by what; the own one, by nothing."""
    at = [one.j for one in reach.cell_targets.units[u].members]
    ways = [dict(zip(at, way.tolist(), strict=True)) for way in reach.alternatives.of(u)[1]]
    to = {j: float(target[j]) for j in at}
    by: dict[str, Callable[[int, float, float], bool]] = {
        "values": lambda _, a, b: a == b or (math.isnan(a) and math.isnan(b)),
        "cells": lambda j, a, b: cells.cell(j, a) == cells.cell(j, b),
        "known": lambda j, a, b: known.cell(j, a) == known.cell(j, b),
    }
    for name, same in by.items():
        for k, way in enumerate(ways):
            if all(same(j, way[j], to[j]) for j in at):
                return k, name
    return 0, "nothing"


def a_target(rng: np.random.Generator, reach: PersonReach, cells: Cells) -> Rows:
    """A row whose units are at alternatives, or beside them in the same cells, or in any cells."""
    target = reach.row.copy()
    for u, unit in enumerate(reach.cell_targets.units):
        ways = reach.alternatives.of(u)[1]
        way = ways[int(rng.integers(len(ways)))]
        for one, value in zip(unit.members, way.tolist(), strict=True):
            j, kind = one.j, rng.random()
            cell = cells.cell(j, value) if kind < 0.7 else int(rng.integers(cells.count(j)))
            target[j] = value if kind < 0.4 else cells.inside(j, cell)
    return target


def check_matches(seed: int, reach: PersonReach, cells: Cells) -> list[str]:
    """Compare the state of a target with the reference; say what each unit was matched by."""
    known, moves = coarser(cells), moves_of(reach, ACTION)
    target = a_target(np.random.default_rng(seed), reach, cells)
    state, features = state_of(reach, moves, target, cells, known), len(reach.row)
    found, wanted = [], cells.of(target[None])[0]
    for u, unit in enumerate(reach.cell_targets.units):
        k, by = matched(reach, u, target, cells, known)
        found.append(by)
        assert state[features + u] == k
        wanted[[one.j for one in unit.members]] = reach.alternatives.of(u)[0][k]
    assert state[:features].tolist() == wanted.tolist()
    return found


@settings(max_examples=examples(100), deadline=None)
@given(person=people(), seed=st.integers(0, 2**32 - 1))
def test_a_unit_is_matched_by_values_then_cells_then_known_cells(person: Person, seed: int) -> None:
    """Given any target, each unit takes the alternative with equal values, else with equal cells, else the first with equal known cells, else its own; and its members take that one's cells."""
    check_matches(seed, person.reach(), person.cells)


@PAIRS
def test_a_unit_is_matched_in_each_of_these_ways(library: Library, approve: Approve) -> None:
    """Given a lender with a group and its cells known more coarsely, units are matched by values, by cells, by known cells, and by nothing, each as the reference says."""
    shop: Lender = lender(library, approve)
    model, ways = shop.model, []
    for seed, row in enumerate(shop.declined(40)):
        cells, labels = model.cells.of(row[None])[0], model.rules.mutabilities({})
        reach = person_reach(model.rules, model.matrix, model.cell_targets, row=row, cells=cells, mutability=labels)
        ways += check_matches(seed, reach, model.cells)
    assert {*ways} == {"values", "cells", "known", "nothing"}


@settings(max_examples=examples(100), deadline=None)
@given(person=people(), seed=st.integers(0, 2**32 - 1), action=st.sampled_from([0.0, ACTION, 3.0]))
def test_a_state_costs_its_efforts_and_an_action_for_each_feature(person: Person, seed: int, action: float) -> None:
    """Given any state, its price is, within rounding, the sum of the efforts of all moves and an action's price for each; 0 where nothing moves."""
    reach = person.reach()
    moves = moves_of(reach, action)
    assert price_of(moves, moves.own) == 0.0
    for k in range(3):
        state = a_state(np.random.default_rng(seed + k), reach, moves)
        assert math.isclose(
            price_of(moves, state), paid(reach, target_of(reach, state), action), rel_tol=1e-14, abs_tol=1e-12
        )


@settings(max_examples=examples(100), deadline=None)
@given(person=people())
def test_an_option_has_a_price_where_the_rules_permit_it(person: Person) -> None:
    """Given any person, a feature that moves alone has a price where it has a target value and at its own option, one that moves with others only at its own; every alternative of a unit has one."""
    reach = person.reach()
    moves, cell_targets = moves_of(reach, ACTION), reach.cell_targets
    for slot in range(len(moves.own)):
        price = moves.price[moves.start[slot] : moves.start[slot + 1]]
        assert price[moves.own[slot]] == 0.0
        if slot >= len(reach.row):
            assert np.isfinite(price).all()
            continue
        target_value = reach.target_value[cell_targets.start[slot] : cell_targets.start[slot + 1]]
        open_to = ~np.isnan(target_value) & bool(cell_targets.alone[slot])
        open_to[moves.own[slot]] = True
        assert np.isfinite(price).tolist() == open_to.tolist()


@LIBRARIES
@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_unit_takes_its_members_along(library: Library, seed: int) -> None:
    """Given any moves in any order, a state holds the cells that the last move of each slot put there, and costs what each slot's option does."""
    rng = np.random.default_rng(seed)
    case = case_at_random(rng, library, models=1)
    state, wanted = case.moves.own.copy(), case.moves.own.copy()
    for _ in range(6):
        slot = int(rng.integers(len(state)))
        option = int(rng.choice(case.options(slot)))
        move(case.moves, case.features, state, slot, option)
        wanted = case.after(wanted, slot, option)
        assert state.tolist() == wanted.tolist()
        assert price_of(case.moves, state) == case.paid(state)


@LIBRARIES
@settings(max_examples=examples(100), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_sum_and_gains_are_what_scoring_the_rows_gives(library: Library, seed: int) -> None:
    """Given a planted model and any state, the sum of its trees, and the gain of each move of a feature or a unit to any cell but missing, are the exact ones."""
    rng = np.random.default_rng(seed)
    case = case_at_random(rng, library, models=1)
    [model], moves, state = case.models, case.moves, case.state(rng)
    gains = np.full(int(moves.start[-1]) + 1, math.nan)
    [own] = case.sums(0, state[None])
    assert gains_of(model.trees, moves, state, gains) == own
    for slot in range(len(state)):
        for option in range(int(moves.start[slot + 1] - moves.start[slot])):
            if slot >= case.features or not case.cells.is_missing(slot, option):
                [moved] = case.sums(0, case.after(state, slot, option)[None])
                assert gains[moves.start[slot] + option] == moved - own


@PAIRS
def test_gains_of_units_are_those_of_their_targets(library: Library, approve: Approve) -> None:
    """Given a lender with a group, the gain of each permitted move, of the group too, is within rounding what scoring its target gives."""
    shop: Lender = lender(library, approve)
    model, of_units = shop.model, 0
    forest = Planted(forest=model.forest, cells=model.cells, trees=model.trees, sign=shop.sign)
    for row in shop.declined(8):
        cells, labels = model.cells.of(row[None])[0], model.rules.mutabilities({})
        reach = person_reach(model.rules, model.matrix, model.cell_targets, row=row, cells=cells, mutability=labels)
        moves = moves_of(reach, ACTION)
        gains = np.empty(int(moves.start[-1]) + 1)
        total = gains_of(model.trees, moves, moves.own, gains)
        own = forest.sums(cells[None])[0]
        bound = model.forest.trees * 2.0**-40 * model.trees.magnitude
        assert abs(total - own) <= bound
        for slot in range(len(moves.own)):
            first, end = moves.start[slot : slot + 2]
            for option in np.flatnonzero(np.isfinite(moves.price[first:end])).tolist():
                if slot < len(cells) and option == moves.own[slot]:
                    continue
                state = moves.own.copy()
                move(moves, len(cells), state, slot, option)
                target = model.cells.of(target_of(reach, state)[None])
                assert abs(gains[first + option] - (forest.sums(target)[0] - own)) <= bound
                of_units += slot >= len(cells) and bool(gains[first + option])
    assert of_units > 20


@LIBRARIES
def test_without_permitted_moves_there_is_one_state(library: Library) -> None:
    """Given no permitted moves, each slot has only its own option, at price 0."""
    case = case_at_random(np.random.default_rng(1), library, models=1)
    moves = no_moves(case.models[0].trees)
    assert np.isfinite(moves.price).sum() == len(moves.own) == case.features
    assert price_of(moves, moves.own) == 0.0
