from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.forest.cells import cells_of, common_cells
from stream.forest.trees import ENDS_OF_ZERO, Forest
from stream.recourse.space.margin_profiles import weight_reached
from tests.examples import examples
from tests.recourse.lenders import Library, Rows
from tests.recourse.planted import LEAST_CODES, SENTINEL, Sort, planted_family
from tests.recourse.planted_moves import case_at_random

LIBRARIES = pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
SEEDS = st.integers(0, 2**32 - 1)
SORTS = st.lists(st.sampled_from(["number", "category", "zero"]), min_size=1, max_size=4).map(tuple)


def telling_values(forests: list[Forest], j: int) -> Rows:
    """Values of feature j on either side of every threshold of every forest."""
    edges = [float(t) for forest in forests for t in forest.thresholds(j)] + [*map(float, ENDS_OF_ZERO), 0.0, SENTINEL]
    beside = [float(np.nextafter(np.float32(x), np.float32(way))) for x in edges for way in (-np.inf, np.inf)]
    return np.array([*edges, *beside, *LEAST_CODES, 4.0, 77.0, -3.0, 1e-40, -1e-40, 1e9, -1e9, math.nan])


@LIBRARIES
@settings(max_examples=examples(100), deadline=None)
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
@settings(max_examples=examples(50), deadline=None)
@given(seed=SEEDS, sorts=SORTS)
def test_one_model_s_common_cells_are_its_own(library: Library, seed: int, sorts: tuple[Sort, ...]) -> None:
    """Given a model that is its own shadow, the common cells are those of the model."""
    [forest], _ = planted_family(np.random.default_rng(seed), library, sorts, models=1, trees=6, depth=3)
    own = cells_of(forest)
    common = common_cells([own, own])
    for j in range(len(sorts)):
        values = telling_values([forest], j)
        assert common.count(j) == own.count(j)
        assert common.of_column(j, values).tolist() == own.of_column(j, values).tolist()


@LIBRARIES
@settings(max_examples=examples(100), deadline=None)
@given(seed=SEEDS, models=st.integers(1, 4))
def test_each_model_s_trees_among_all_sum_to_its_margin(library: Library, seed: int, models: int) -> None:
    """Given any models and state, each model's trees among the joint ones, with its base margin, sum to its exact margin."""
    rng = np.random.default_rng(seed)
    case = case_at_random(rng, library, models=models)
    state, joint = case.state(rng), case.joint
    assert len(joint.first) == models + 1
    for m, wanted in enumerate(case.margins(state[None])[0].tolist()):
        roots = joint.trees.root[joint.first[m] : joint.first[m + 1]].tolist()
        assert len(roots) == case.models[m].forest.trees
        assert joint.base[m] + sum(weight_reached(joint.trees, root, state) for root in roots) == wanted
        assert joint.by_rank[m].tolist() == case.models[m].trees.by_rank.tolist()
