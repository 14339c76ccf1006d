from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.forest.trees import ENDS_OF_ZERO, Forest
from stream.recourse.cells import cells_of, common_cells
from stream.recourse.joint import of_model
from stream.recourse.moves import gains_of
from stream.recourse.within_reach import within_reach
from tests.recourse.lenders import Library, Rows
from tests.recourse.planted import LEAST_CODES, SENTINEL, Sort, planted_family
from tests.recourse.planted_moves import Case, case_at_random

LIBRARIES = pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
SEEDS = st.integers(0, 2**32 - 1)
SORTS = st.lists(st.sampled_from(["number", "category", "zero"]), min_size=1, max_size=4).map(tuple)


def telling_values(forests: list[Forest], j: int) -> Rows:
    """Values of feature j on either side of everything that any forest tells apart."""
    edges = [float(t) for forest in forests for t in forest.thresholds(j)] + [*map(float, ENDS_OF_ZERO), 0.0, SENTINEL]
    beside = [float(np.nextafter(np.float32(x), np.float32(way))) for x in edges for way in (-np.inf, np.inf)]
    return np.array([*edges, *beside, *LEAST_CODES, 4.0, 77.0, -3.0, 1e-40, -1e-40, 1e9, -1e9, math.nan])


@LIBRARIES
@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, sorts=SORTS, models=st.integers(1, 4))
def test_values_of_one_common_cell_are_of_one_cell_of_every_model(
    library: Library, seed: int, sorts: tuple[Sort, ...], models: int
) -> None:
    """Given any models, values in the same common cell are in the same cell of each of them, and each common cell holds the value that stands for it."""
    forests, _ = planted_family(np.random.default_rng(seed), library, sorts, models=models, trees=4, depth=3)
    parts = [cells_of(forest) for forest in forests]
    common = common_cells(parts)
    for j in range(len(sorts)):
        inside = np.array([common.inside(j, k) for k in range(common.count(j))])
        assert common.of_column(j, inside).tolist() == list(range(common.count(j)))
        values = np.concatenate([telling_values(forests, j), inside])
        joint = common.of_column(j, values)
        for part in parts:
            own = part.of_column(j, values)
            assert len(set(zip(joint.tolist(), own.tolist(), strict=True))) == len(set(joint.tolist()))


@LIBRARIES
@settings(max_examples=50, deadline=None)
@given(seed=SEEDS, sorts=SORTS)
def test_one_model_s_common_cells_are_its_own(library: Library, seed: int, sorts: tuple[Sort, ...]) -> None:
    """Given a model and itself for a shadow, the common cells are those of the model."""
    [forest], _ = planted_family(np.random.default_rng(seed), library, sorts, models=1, trees=6, depth=3)
    own = cells_of(forest)
    common = common_cells([own, own])
    for j in range(len(sorts)):
        values = telling_values([forest], j)
        assert common.count(j) == own.count(j)
        assert common.of_column(j, values).tolist() == own.of_column(j, values).tolist()


def ways_out(case: Case) -> list[tuple[int, int]]:
    """Every move of one slot, but none to missing: slot and place."""
    moves = case.moves
    return [
        (slot, place)
        for slot in range(len(moves.own))
        for place in range(int(moves.start[slot + 1] - moves.start[slot]))
        if slot >= case.features or place == moves.own[slot] or not case.cells.is_missing(slot, place)
    ]


@LIBRARIES
@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, models=st.integers(1, 4))
def test_each_model_s_sum_and_gains_are_those_that_scoring_the_rows_gives(
    library: Library, seed: int, models: int
) -> None:
    """Given any models and state, the sum and the gain of each move, of a unit too, are for every model the exact ones, and those of its own trees alone."""
    rng = np.random.default_rng(seed)
    case = case_at_random(rng, library, models=models)
    state = case.state(rng)
    out = [(slot, place) for slot, place in ways_out(case) if slot >= case.features or state[slot] != place]
    # A feature that is missing goes back to missing by an exchange alone.
    out = [(s, p) for s, p in out if s >= case.features or not case.cells.is_missing(s, p)]
    moved = np.array([case.after(state, slot, place) for slot, place in out] or [state])
    at = [int(case.moves.start[slot]) + place for slot, place in out]
    for m, model in enumerate(case.models):
        gains, alone = (np.full(int(case.moves.start[-1]) + 1, math.nan) for _ in range(2))
        total = gains_of(of_model(case.joint, m), case.moves, state, gains)
        assert total == gains_of(model.trees, case.moves, state, alone) == case.sums(m, state[None])[0]
        assert gains[:-1].tolist() == alone[:-1].tolist()
        if out:
            assert gains[at].tolist() == (case.sums(m, moved) - total).tolist()
        assert case.joint.base[m] == case.sign * float(model.forest.base_margin)


@LIBRARIES
@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, models=st.integers(1, 4))
def test_what_is_cut_down_says_the_same_of_all_within_reach(library: Library, seed: int, models: int) -> None:
    """Given any models and moves, trees cut down to them give for every state the same margin, and each permitted move the same gain."""
    rng = np.random.default_rng(seed)
    case = case_at_random(rng, library, models=models)
    cut = within_reach(case.joint, case.moves)
    assert len(cut.trees.root) <= len(case.joint.trees.root)
    for _ in range(3):
        state = case.state(rng)
        at = [
            int(case.moves.start[slot]) + place
            for slot in range(len(state))
            for place in case.places(slot)
            if slot >= case.features or not case.cells.is_missing(slot, place)
        ]
        for m in range(models):
            whole, less = (np.full(int(case.moves.start[-1]) + 1, math.nan) for _ in range(2))
            total = gains_of(of_model(case.joint, m), case.moves, state, whole)
            assert gains_of(of_model(cut, m), case.moves, state, less) + cut.base[m] == total + case.joint.base[m]
            assert less[at].tolist() == whole[at].tolist()
