from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stream.bundle.gate import node_rows, probe_nodes
from stream.bundle.gate.node_rows import ENDS_OF_ZERO, NodeRows
from stream.bundle.gate.probe_nodes import FRACTION, NodeProbes, evenly
from stream.bundle.gate.probe_rows import ProbeRows
from stream.forest.trees import CATEGORY, INSIDE, ZERO_IS_MISSING, Forest, Kind, Library, SavedNode, build_forest
from stream.forest.walk import leaf_slots
from tests.bundle.cells import reached
from tests.forest.models import USUAL, Rows, forest_of, lightgbm_model, xgboost_model

NAMES = ("number", "other", "code")
FORESTS = 60


def random_forest(rng: np.random.Generator, library: Library, missing: float | None = None) -> Forest:
    """Trees of random splits on few numbers, so that many paths contradict themselves."""
    zeros = library == "lightgbm" and bool(rng.integers(2))

    def split(number: int) -> SavedNode:
        feature = int(rng.integers(3))
        return SavedNode(
            number=number,
            feature=feature,
            value=float(rng.choice([-2, -1, -1e-35, 0, 1e-36, 1e-35, 1, 2])) if feature < 2 else 0.0,
            left=2 * number + 1,
            right=2 * number + 2,
            default_left=bool(rng.integers(2)) and not (library == "lightgbm" and feature == 2),
            zero_is_missing=zeros and feature < 2,
            categories=frozenset(np.flatnonzero(rng.integers(0, 2, 5)).tolist()) if feature == 2 else None,
        )

    inner = 15
    trees = [
        [split(n) if n < inner else SavedNode(number=n, value=float(n)) for n in range(2 * inner + 1)] for _ in range(2)
    ]
    kind = Kind(
        library=library,
        library_version="",
        objective="",
        link_line="",
        features=NAMES,
        is_category=(False, False, True),
        words=(None, None, None),
        base_margin=0.0,
        missing=missing,
    )
    return build_forest(trees, kind)


def come_to(forest: Forest, nodes: Any, rows: Rows) -> bool:
    """Whether each row comes to its node, by the walk."""
    slots = leaf_slots(forest, rows)
    for node, leaves in zip(nodes.tolist(), slots.tolist(), strict=True):
        tree = int(np.searchsorted(forest.first_node, node, side="right")) - 1
        here = int(forest.leaf_node[leaves[tree]])
        while here not in (node, INSIDE):
            here = int(forest.parent[here])
        if here != node:
            return False
    return True


@pytest.mark.parametrize(("library", "missing"), [("xgboost", None), ("xgboost", -1.0), ("lightgbm", None)])
def test_a_node_has_a_row_that_comes_to_it_or_none_can(library: Library, missing: float | None) -> None:
    """Given random trees and a pool of two people, then a row comes to each node to which brute force over all cells finds one."""
    rng = np.random.default_rng(3)
    contradictory = mended = 0
    for _ in range(FORESTS):
        forest = random_forest(rng, library, missing)
        pool = np.array([[0.0, 7.0, 3.0], [np.nan, -7.0, np.nan]])
        found = NodeRows(forest, pool)
        assert found.reachable.tobytes() == reached(forest).tobytes()
        nodes = np.flatnonzero(found.reachable)
        rows = found.rows(nodes)
        assert come_to(forest, nodes, rows)
        contradictory += int((~found.reachable).sum())
        mended += sum(row.tobytes() not in {person.tobytes() for person in pool} for row in rows)
    assert min(contradictory, mended) > 5 * FORESTS


@pytest.mark.parametrize("model", [xgboost_model, lightgbm_model])
def test_a_row_is_a_person_s_where_one_comes_to_the_node(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a pool, then nodes that people come to have the row of one of them, and only the others are mended, in small batches too."""
    forest, pool = forest_of(model(USUAL)), USUAL.data()[0][:40]
    whole = NodeRows(forest, pool)
    monkeypatch.setattr(node_rows, "BATCH_ROWS", 7)
    found = NodeRows(forest, pool)
    nodes = np.flatnonzero(found.reachable)
    rows, began = found.rows(nodes), pool[found.pool_rows(nodes)]
    assert rows.tobytes() == whole.rows(nodes).tobytes()
    assert come_to(forest, nodes, rows)
    seen = np.zeros(len(forest.left), np.bool_)
    seen[forest.leaf_node[np.unique(leaf_slots(forest, pool))]] = True
    for node in range(len(seen) - 1, -1, -1):
        if forest.left[node] != INSIDE:
            seen[node] = seen[forest.left[node]] or seen[forest.right[node]]
    own = np.array([row.tobytes() == person.tobytes() for row, person in zip(rows, began, strict=True)])
    assert own.tobytes() == seen[nodes].tobytes()
    assert 0 < own.sum() < len(own)


def test_each_split_is_asked_on_every_value_that_parts_there() -> None:
    """Given random trees, then at each reachable split stand its threshold, its neighbours in both floats, missing, zero's ends, and its codes."""
    rng = np.random.default_rng(4)
    kinds = set()
    for library in ("xgboost", "lightgbm", "lightgbm"):
        forest = random_forest(rng, library)
        asked = NodeProbes(forest, NodeRows(forest, np.zeros((1, 3))), [np.empty(0), np.empty(0), np.arange(9.0)])
        for node in np.flatnonzero(reached(forest) & (forest.left != INSIDE)).tolist():
            found = asked.value[asked.node == node]
            assert np.isnan(found).sum() == 1
            listed = forest.listed(node)
            if forest.kind[node] == CATEGORY:
                wanted = {-1.0, *np.arange(10.0).tolist(), *(code + FRACTION for code in listed[:1])}
            else:
                on = forest.threshold[node]
                beside = [
                    np.nextafter(float_(on), float_(end)) for float_ in (np.float32, np.float64) for end in (-9, 9)
                ]
                wanted = {float(on), *map(float, beside)}
            if forest.kind[node] == ZERO_IS_MISSING:
                wanted |= set(ENDS_OF_ZERO)
            assert {number for number in found.tolist() if number == number} == wanted  # noqa: PLR0124 - all but NaN
            kinds.add(int(forest.kind[node]))
    assert kinds == {0, 1, 2}


@pytest.mark.parametrize("model", [xgboost_model, lightgbm_model])
def test_a_bound_keeps_each_distinct_decision_and_tells_what_it_cuts(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given more splits than the bound, then each feature and threshold is asked once, then others up to the bound, and the rest is counted."""
    forest, pool = forest_of(model(USUAL)), USUAL.data()[0]
    splits = np.flatnonzero(forest.left != INSIDE)
    decisions = {(int(forest.split_feature[n]), float(forest.threshold[n])) for n in splits.tolist()}
    for bound in (len(decisions), 20):
        monkeypatch.setattr(probe_nodes, "NODES_PROBED_MAX", bound)
        asked = ProbeRows(forest, pool).nodes
        nodes = np.unique(asked.node).tolist()
        assert len(nodes) == bound
        assert asked.left_out == asked.splits - asked.unreachable - bound
        assert len({(int(forest.split_feature[n]), float(forest.threshold[n])) for n in nodes}) == bound


def test_codes_are_cut_evenly_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given splits on categories of more codes than the bound, then some listed and some other codes of each are asked, and the rest is counted."""
    forest = random_forest(np.random.default_rng(4), "xgboost")
    monkeypatch.setattr(probe_nodes, "CODES_OF_NODE_MAX", 4)
    monkeypatch.setattr(probe_nodes, "CODES_OF_NODE_MIN", 4)
    asked = NodeProbes(forest, NodeRows(forest, np.zeros((1, 3))), [np.empty(0), np.empty(0), np.arange(9.0)])
    left_out = 0
    for node in np.unique(asked.node[forest.kind[asked.node] == CATEGORY]).tolist():
        values = asked.value[asked.node == node]
        codes = {code for code in values.tolist() if code in range(9)}
        listed = set(forest.listed(node))
        assert len(codes) == 4
        assert len(codes & listed) == min(2, len(listed))
        left_out += 9 - 4
    assert asked.codes_left_out == left_out > 0


def test_evenly_takes_other_places_each_turn() -> None:
    """Given more places than may be taken, then they are spread over all, and turns take all of them between them."""
    assert evenly(3, 5).tolist() == [0, 1, 2]
    assert evenly(10, 5).tolist() == [0, 2, 4, 6, 8]
    assert evenly(10, 5, 1).tolist() == [1, 3, 5, 7, 9]
    assert evenly(10, 0).tolist() == []
