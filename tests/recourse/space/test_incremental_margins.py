from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.recourse.space.incremental_margins import IncrementalMargins, apply_move, incremental_margins, margin_gains
from stream.recourse.space.reachable_leaves import ReachableLeaves
from tests.examples import examples
from tests.recourse.lenders import Library, Rows
from tests.recourse.planted import CellsOfRow
from tests.recourse.planted_moves import Case, case_at_random

LIBRARIES = pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
SEEDS = st.integers(0, 2**32 - 1)
STATES, STEPS = 24, 12


def gains_at(case: Case, leaves: ReachableLeaves, margins: IncrementalMargins) -> Rows:
    """The gains of every option, filled into an array that held something else. Shape: (options, models)."""
    gains = np.full((int(case.moves.start[-1]), len(case.models)), np.nan)
    margin_gains(leaves, case.moves, margins, gains)
    return gains


def all_options(case: Case) -> list[tuple[int, int]]:
    """Every permitted option of every slot, the own one too, even if it is missing."""
    return [(slot, option) for slot in range(len(case.moves.own)) for option in case.options(slot)]


def options_alone(case: Case) -> list[tuple[int, int]]:
    """The same, without the own options of features that move with others: only their unit moves them."""
    together = {j for unit in case.units for j in unit}
    return [(slot, option) for slot, option in all_options(case) if slot not in together]


def check_against_scoring(case: Case, leaves: ReachableLeaves, margins: IncrementalMargins, state: CellsOfRow) -> None:
    """Compare totals and gains with what scoring the rows gives."""
    [total] = case.margins(state[None])
    assert margins.totals.tolist() == total.tolist()
    gains, out = gains_at(case, leaves, margins), options_alone(case)
    moved = case.margins(np.array([case.after(state, slot, option) for slot, option in out]))
    at = [int(case.moves.start[slot]) + option for slot, option in out]
    assert gains[at].tolist() == (moved - total).tolist()


@LIBRARIES
@settings(max_examples=examples(100), deadline=None)
@given(seed=SEEDS, models=st.integers(1, 4))
def test_totals_and_gains_are_what_scoring_the_rows_gives(library: Library, seed: int, models: int) -> None:
    """Given any models and moves, of features and of units, totals are each model's exact margin in every state, and the gain of every permitted move, back to missing too, is the margin after it less the margin before."""
    rng = np.random.default_rng(seed)
    case = case_at_random(rng, library, models=models)
    leaves = case.leaves()
    for state in case.some_states(rng, STATES):
        check_against_scoring(case, leaves, incremental_margins(leaves, case.moves, state), state)


@LIBRARIES
@settings(max_examples=examples(60), deadline=None)
@given(seed=SEEDS, models=st.integers(1, 4))
def test_a_missing_feature_can_become_missing_again(library: Library, seed: int, models: int) -> None:
    """Given a person whose features are all missing, totals and gains are exact in every state, and moving back loses what was gained."""
    rng = np.random.default_rng(seed)
    case = case_at_random(rng, library, models=models)
    moves = case.moves
    for slot in range(case.features):
        first, end = moves.start[slot : slot + 2]
        if not any(slot in unit for unit in case.units):
            moves.own[slot] = end - first - 1
            moves.price[end - 1] = 0.0
    leaves = case.leaves()
    for state in case.some_states(rng, STATES):
        check_against_scoring(case, leaves, incremental_margins(leaves, moves, state), state)
    margins = incremental_margins(leaves, moves, moves.own)
    for slot, option in options_alone(case):
        moved = incremental_margins(leaves, moves, case.after(moves.own, slot, option))
        back = gains_at(case, leaves, moved)[int(moves.start[slot] + moves.own[slot])]
        out = gains_at(case, leaves, margins)[int(moves.start[slot]) + option]
        assert back.tolist() == (-out).tolist()


@LIBRARIES
@settings(max_examples=examples(100), deadline=None)
@given(seed=SEEDS, models=st.integers(1, 4))
def test_moves_in_any_order_give_what_building_afresh_gives(library: Library, seed: int, models: int) -> None:
    """Given any sequence of moves, with a unit's members before it or after it, the incremental margins equal those built afresh for the state."""
    rng = np.random.default_rng(seed)
    case = case_at_random(rng, library, models=models)
    leaves, state = case.leaves(), case.state(rng)
    margins = incremental_margins(leaves, case.moves, state)
    assert not np.shares_memory(margins.state, state)
    for _ in range(STEPS):
        slot, option = all_options(case)[int(rng.integers(len(all_options(case))))]
        if slot < case.features and any(slot in unit for unit in case.units):
            continue
        state = case.after(state, slot, option)
        for moved in rng.permutation(np.flatnonzero(margins.state != state)).tolist():
            apply_move(leaves, case.moves, margins, moved, int(state[moved]))
        fresh = incremental_margins(leaves, case.moves, state)
        for name in IncrementalMargins._fields:
            assert getattr(margins, name).tolist() == getattr(fresh, name).tolist(), name
        assert gains_at(case, leaves, margins).tolist() == gains_at(case, leaves, fresh).tolist()


@LIBRARIES
@settings(max_examples=examples(60), deadline=None)
@given(seed=SEEDS, models=st.integers(1, 4))
def test_moving_to_the_present_option_changes_and_gains_nothing(library: Library, seed: int, models: int) -> None:
    """Given any state, moving a slot to its present option leaves everything as it is, and gains nothing for any model."""
    rng = np.random.default_rng(seed)
    case = case_at_random(rng, library, models=models)
    leaves, state = case.leaves(), case.state(rng)
    margins, fresh = (incremental_margins(leaves, case.moves, state) for _ in range(2))
    gains = gains_at(case, leaves, margins)
    for slot, option in enumerate(state.tolist()):
        apply_move(leaves, case.moves, margins, slot, option)
        assert not gains[case.moves.start[slot] + option].any()
    assert [kept.tolist() for kept in margins] == [wanted.tolist() for wanted in fresh]
