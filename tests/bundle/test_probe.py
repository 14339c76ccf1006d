from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from stream.bundle.probe import TRIPPING, probe
from stream.errors import ProbeMismatch
from stream.events import ThresholdScale
from stream.forest.link import Approve, Link, link_of
from stream.forest.trees import Floats, Forest
from tests.forest.models import USUAL, forest_of, lightgbm_model, xgboost_model

LIBRARIES = [xgboost_model, lightgbm_model]
POOL = USUAL.data()[0]


def file_of(booster: Any) -> bytes:
    if hasattr(booster, "save_raw"):
        return bytes(booster.save_raw("json"))
    return bytes(booster.model_to_string().encode())


def changed(forest: Forest, **arrays: Any) -> Forest:
    """Give the forest with other arrays."""
    fields = {f.name: getattr(forest, f.name) for f in dataclasses.fields(forest) if f.init}
    return Forest(**(fields | arrays))


def one_ulp_up(values: Floats, place: int) -> Floats:
    moved = values.copy()
    moved[place] = np.nextafter(moved[place], moved.dtype.type(np.inf))
    return moved


class WrongLink:
    """A link that is one ulp off for one margin."""

    name = "wrong"

    def __init__(self, right: Link) -> None:
        self._right = right

    def probabilities(self, margins: Floats) -> Floats:
        """Give the right ones, but for the fourth."""
        return one_ulp_up(self._right.probabilities(margins), 3)

    def cutoff(self, threshold: float, scale: ThresholdScale, approve: Approve) -> float:
        """Give the right one."""
        return self._right.cutoff(threshold, scale, approve)


@pytest.mark.parametrize("model", LIBRARIES)
def test_a_true_forest_passes_and_every_threshold_was_asked(model: Any) -> None:
    """Given the library's own model, the gate passes and tells how many rows it asked of each kind."""
    booster = model(USUAL)
    forest = forest_of(booster)
    heard: list[tuple[int, int]] = []
    report = probe(forest, link_of(forest), file_of(booster), POOL, progress=lambda *told: heard.append(told))
    assert report.pool_rows == len(POOL)
    assert report.tripping_rows == len(TRIPPING) * 4
    assert report.threshold_rows > sum(2 * len(forest.thresholds(j)) for j in range(4))
    assert heard[-1] == (report.rows, report.rows)
    assert report.library == forest.library


@pytest.mark.parametrize("model", LIBRARIES)
def test_a_threshold_one_ulp_off_is_found(model: Any) -> None:
    """Given a forest with one threshold moved by one ulp, the row on that threshold finds it."""
    booster = model(USUAL)
    forest = forest_of(booster)
    wrong = changed(forest, threshold=one_ulp_up(forest.threshold, int(forest.first_node[7])))
    with pytest.raises(ProbeMismatch, match=r"tree 7 reaches another leaf, on (pool|threshold) probe \d+"):
        probe(wrong, link_of(wrong), file_of(booster), POOL)


def test_a_difference_away_from_the_pool_names_the_feature() -> None:
    """Given thresholds that no pool row lies on, the message names the feature that was put there."""
    booster = lightgbm_model(USUAL)
    forest = forest_of(booster)
    root = int(forest.first_node[7])
    wrong = changed(forest, threshold=one_ulp_up(forest.threshold, root))
    feature = USUAL.names[forest.split_feature[root]]
    with pytest.raises(ProbeMismatch, match=rf"on threshold probe \d+ of feature '{feature}'"):
        probe(wrong, link_of(wrong), file_of(booster), POOL)


@pytest.mark.parametrize("model", LIBRARIES)
def test_a_default_direction_the_wrong_way_is_found(model: Any) -> None:
    """Given a forest that sends missing values the other way at one node, the gate finds it."""
    booster = model(USUAL)
    forest = forest_of(booster)
    other_way = forest.default_left.copy()
    other_way[0] = not other_way[0]
    with pytest.raises(ProbeMismatch, match="tree 0 reaches another leaf"):
        probe(changed(forest, default_left=other_way), link_of(forest), file_of(booster), POOL)


@pytest.mark.parametrize("model", LIBRARIES)
def test_a_leaf_one_ulp_off_is_found(model: Any) -> None:
    """Given a forest with one leaf off by the last bits that its margins show, the gate finds the margin."""
    booster = model(USUAL)
    forest = forest_of(booster)
    weight = forest.weight.copy()
    weight[0] += np.spacing(weight.dtype.type(1))
    with pytest.raises(ProbeMismatch, match="the margin is"):
        probe(changed(forest, weight=weight), link_of(forest), file_of(booster), POOL)


@pytest.mark.parametrize("model", LIBRARIES)
def test_a_probability_one_ulp_off_is_found(model: Any) -> None:
    """Given a link that is wrong in one last bit, the gate names probe and probabilities."""
    booster = model(USUAL)
    forest = forest_of(booster)
    with pytest.raises(ProbeMismatch, match=r"the probability is .* on pool probe 3"):
        probe(forest, WrongLink(link_of(forest)), file_of(booster), POOL)
