from __future__ import annotations

import dataclasses
import re
from typing import Any
from unittest import mock

import numpy as np
import pytest

from stream.bundle.gate.owner import XgboostOwner
from stream.bundle.gate.probe import probe
from stream.bundle.gate.probe_rows import COMBINATIONS, TRIPPING
from stream.errors import ProbeMismatch
from stream.events import ThresholdScale
from stream.forest.cutoffs import Approve, Link
from stream.forest.link import link_of
from stream.forest.trees import CATEGORY, INSIDE, Floats, Forest
from stream.forest.walk import leaf_slots, margins, margins_of
from tests.bundle.kinds import BEYOND_ASCII, LIGHTGBM, XGBOOST, Made, xgboost
from tests.forest.models import USUAL, forest_of, lightgbm_model, owner_of, xgboost_model

LIBRARIES = [xgboost_model, lightgbm_model]
POOL = USUAL.data()[0]
CATEGORIES = dataclasses.replace(USUAL, categories=2, cardinality=40)


def file_of(booster: Any) -> bytes:
    if hasattr(booster, "save_raw"):
        return bytes(booster.save_raw("json"))
    return bytes(booster.model_to_string().encode())


def changed(forest: Forest, **fields: Any) -> Forest:
    """Give the forest with other arrays."""
    kept = {f.name: getattr(forest, f.name) for f in dataclasses.fields(forest) if f.init}
    return Forest(**(kept | fields))


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
def test_a_true_forest_passes_and_every_kind_was_asked(model: Any) -> None:
    """Given the library's own model, the gate passes and tells how many rows it asked of each kind."""
    booster = model(USUAL)
    forest = forest_of(booster)
    heard: list[tuple[int, int]] = []
    report = probe(forest, link_of(forest), file_of(booster), POOL, progress=lambda *told: heard.append(told))
    thresholds = sum(len(forest.thresholds(j)) for j in range(4))
    assert report.counts["threshold"] > 2 * thresholds
    splits = int((forest.left != INSIDE).sum())
    assert report.counts["node"] >= 6 * splits - 2 * (forest.threshold > np.finfo(np.float32).max).sum()
    assert report.counts | {"threshold": 0, "node": 0} == {
        "pool": len(POOL),
        "threshold": 0,
        "category": 0,
        "tripping": len(TRIPPING) * 4,
        "combination": COMBINATIONS,
        "node": 0,
    }
    assert heard[-1] == (report.rows, report.rows)
    assert [done for done, _ in heard] == sorted({done for done, _ in heard})
    assert report.leaf_rows + report.leaves_unreachable == len(forest.weight)
    assert report.splits == splits
    assert (report.library, report.word_rows, report.integer_rows) == (forest.library, 0, 0)


@pytest.mark.parametrize("model", LIBRARIES)
def test_a_threshold_one_ulp_off_is_found(model: Any) -> None:
    """Given a forest with a root's threshold moved by one ulp, when refused, then the message names the tree and the node."""
    booster = model(USUAL)
    forest = forest_of(booster)
    root = int(forest.first_node[7])
    wrong = changed(forest, threshold=one_ulp_up(forest.threshold, root))
    told = rf"tree 7 parts at node {forest.node_id[root]} \(on '{USUAL.names[forest.split_feature[root]]}'\): it reaches leaf"
    with pytest.raises(ProbeMismatch, match=told):
        probe(wrong, link_of(wrong), file_of(booster), POOL)


def test_a_refusal_names_the_row_what_was_put_there_the_node_and_both_margins() -> None:
    """Given a wrong threshold that no pool row lies on, when refused, then all of it is told, and no value of the pool."""
    booster = lightgbm_model(USUAL)
    forest = forest_of(booster)
    root = int(forest.first_node[7])
    wrong = changed(forest, threshold=one_ulp_up(forest.threshold, root))
    with pytest.raises(ProbeMismatch) as refusal:
        probe(wrong, link_of(wrong), file_of(booster), POOL)
    told = re.search(
        r"on threshold probe (\d+), which is row (\d+) of the pool \(from 0\) with '(f\d)' put to (\S+), tree 7 parts .* "
        r"reaches leaf (\d+) here and leaf (\d+) there, so the margin is (\S+) here and (\S+) there; what lightgbm",
        str(refusal.value),
    )
    assert told is not None, refusal.value
    number, pool_row, feature, value, ours, theirs, here, there = told.groups()
    assert int(pool_row) == int(number) % len(POOL)
    assert USUAL.names[forest.split_feature[root]] == feature
    assert float(value) in (forest.threshold[root], wrong.threshold[root])
    row = POOL[int(pool_row)].copy()
    row[USUAL.names.index(feature)] = float(value)
    assert (float(here), float(there)) == (
        float(margins_of(wrong, row[None])[0]),
        float(margins_of(forest, row[None])[0]),
    )
    leaves = [int(f.leaf_id[leaf_slots(f, row[None])[0, 7]]) for f in (wrong, forest)]
    assert leaves == [int(ours), int(theirs)]
    others = {repr(float(cell)) for j, cell in enumerate(row) if USUAL.names[j] != feature}
    assert not [cell for cell in others if cell in str(refusal.value)]


@pytest.mark.parametrize("model", LIBRARIES)
def test_a_default_direction_the_wrong_way_is_found(model: Any) -> None:
    """Given a forest that sends missing values the other way at the first root, then the gate names the tree and the node."""
    booster = model(USUAL)
    forest = forest_of(booster)
    other_way = forest.default_left.copy()
    other_way[0] = not other_way[0]
    with pytest.raises(ProbeMismatch, match="tree 0 parts at node 0 "):
        probe(changed(forest, default_left=other_way), link_of(forest), file_of(booster), POOL)


@pytest.mark.parametrize("model", LIBRARIES)
def test_a_leaf_one_ulp_off_is_found(model: Any) -> None:
    """Given a forest with one leaf off by one ulp of its own, which no margin shows, then its tree alone does, and both numbers are told."""
    booster = model(USUAL)
    forest = forest_of(booster)
    slots = leaf_slots(forest, POOL)
    off = (  # from the smallest on: margins are larger, and round last bits away
        (slot, changed(forest, weight=one_ulp_up(forest.weight, slot)))
        for slot in np.argsort(np.abs(forest.weight)).tolist()
    )
    true = margins(forest, slots).tobytes()
    slot, wrong = next((slot, other) for slot, other in off if margins(other, slots).tobytes() == true)
    tree = int(np.searchsorted(forest.first_leaf, slot, side="right")) - 1
    numbers = rf"{re.escape(str(wrong.weight[slot]))} here and {re.escape(str(forest.weight[slot]))} there"
    told = rf"leaf probe \d+, which is row \d+ of the pool .*, leaf {forest.leaf_id[slot]} of tree {tree} alone is {numbers}"
    with pytest.raises(ProbeMismatch, match=told):
        probe(wrong, link_of(forest), file_of(booster), POOL)


@pytest.mark.parametrize("model", LIBRARIES)
def test_a_base_margin_one_ulp_off_is_found(model: Any) -> None:
    """Given a forest that begins its sums elsewhere, then the gate finds a margin of which all leaves are right."""
    booster = model(USUAL)
    forest = forest_of(booster)
    base = np.nextafter(forest.base_margin, forest.dtype.type(1)) + np.spacing(forest.dtype.type(1))
    with pytest.raises(ProbeMismatch, match="all trees reach the same leaves, but the margin is"):
        probe(changed(forest, base_margin=base), link_of(forest), file_of(booster), POOL)


@pytest.mark.parametrize("model", LIBRARIES)
def test_a_prediction_one_ulp_off_is_found(model: Any) -> None:
    """Given a link that is wrong in one last bit, the gate names the row, its margin and both predictions."""
    booster = model(USUAL)
    forest = forest_of(booster)
    margin = owner_of(booster, forest).ask(POOL, "margin")[3]
    with pytest.raises(ProbeMismatch, match=rf"pool probe 3, .* the prediction of margin {re.escape(str(margin))} is"):
        probe(forest, WrongLink(link_of(forest)), file_of(booster), POOL)


@pytest.mark.parametrize("model", LIBRARIES)
def test_a_code_that_no_person_of_the_pool_has_is_asked(model: Any) -> None:
    """Given a split that lists one code too many or too few, of which the pool has nobody, the gate finds it."""
    booster = model(CATEGORIES, max_cat_to_onehot=1)
    forest = forest_of(booster)
    node = int(np.flatnonzero((forest.kind == CATEGORY) & (forest.split_feature == 0))[0])
    code = forest.listed(node)[0]
    bits = forest.category_bits.copy()
    bits[forest.category_start[node] + code // 32] ^= np.uint32(1 << code % 32)
    pool = CATEGORIES.data()[0]
    pool = pool[pool[:, 0] != code]
    wrong = changed(forest, category_bits=bits)
    with pytest.raises(ProbeMismatch, match=rf"on category probe \d+, .* with 'f0' put to {code}\.0, tree \d+ parts"):
        probe(wrong, link_of(wrong), file_of(booster), pool)


@pytest.mark.parametrize("other", [-998.0, float(np.nextafter(np.float32(-999), np.float32(0)))])
def test_another_sentinel_than_the_decider_s_is_found(other: float | None) -> None:
    """Given a library that is told of a sentinel, when the forest knows another one, or its neighbour, then the gate finds it."""
    recipe = dataclasses.replace(USUAL, sentinel=-999.0)
    booster = xgboost_model(recipe)
    forest = forest_of(booster, missing=-999.0)
    pool = np.where(recipe.data()[0] == -999.0, np.nan, recipe.data()[0])
    report = probe(forest, link_of(forest), file_of(booster), pool)
    assert report.counts["tripping"] == 4 * (len(TRIPPING) + 5)  # the sentinel and its neighbours in both floats
    wrong, told = changed(forest, missing=other), XgboostOwner(forest, file_of(booster))
    with (
        mock.patch("stream.bundle.gate.probe.owner_of", return_value=told),
        pytest.raises(ProbeMismatch, match="parts at node"),
    ):
        probe(wrong, link_of(wrong), file_of(booster), pool)


@pytest.mark.parametrize("kinds", [XGBOOST, LIGHTGBM], ids=["xgboost", "lightgbm"])
def test_words_that_stand_for_other_codes_are_found(kinds: Any) -> None:
    """Given a forest that takes two training categories for each other, when asked in words, then the gate says which row."""
    made: Made = next(kinds["categories of a DataFrame, with their words in the file"].models())
    forest = _read(made)
    words = forest.words[2]
    assert words is not None
    swapped = (*forest.words[:2], (words[1], words[0], *words[2:]))
    pool = np.column_stack([made.pool["income"], made.pool["debt"], made.pool["city"].cat.codes]).astype(np.float64)
    pool[pool[:, 2] < 0, 2] = np.nan
    assert probe(forest, link_of(forest), made.content, pool).word_rows == len(pool) + len(words) + 1
    with pytest.raises(ProbeMismatch, match=r"on word probe \d+, which is row \d+ of the pool \(from 0\) in words"):
        probe(changed(forest, words=swapped), link_of(forest), made.content, pool)
    with pytest.raises(ProbeMismatch, match="reads other categories of 'city' than we do"):
        probe(changed(forest, words=(*forest.words[:2], (*words[:-1], "Rome"))), link_of(forest), made.content, pool)


def test_words_that_the_library_itself_does_not_know_again_are_refused() -> None:
    """Given an XGBoost file that holds words cut wrongly, as it saves those beyond ASCII, when asked in these words, then it is refused."""
    made = xgboost(categories="words", cities=BEYOND_ASCII, max_cat_to_onehot=1)
    forest = _read(made)
    assert forest.words[2] is None
    cut = ("Aix", "Brno", "Cork", "Delft", "Évor", "aFuld", "aGen")
    pool = np.column_stack([made.pool["income"], made.pool["debt"], made.pool["city"].cat.codes]).astype(np.float64)
    with pytest.raises(ProbeMismatch, match="xgboost does not score a table of the training categories"):
        probe(changed(forest, words=(None, None, cut)), link_of(forest), made.content, pool)


def test_a_table_is_asked_in_words_only_where_every_category_has_them() -> None:
    """Given a category without words beside one that has them, then no table of words is asked, for it could not say both."""
    made: Made = next(LIGHTGBM["categories of a DataFrame, with their words in the file"].models())
    forest = _read(made)
    pool = np.column_stack([made.pool["income"], made.pool["debt"], made.pool["city"].cat.codes]).astype(np.float64)
    other = changed(forest, is_category=(False, True, True))
    assert probe(other, link_of(other), made.content, pool).word_rows == 0


def test_a_leaf_or_a_tree_that_only_the_library_has_is_told() -> None:
    """Given a forest of other leaf ids, or of more trees than the library finds, then the refusal says that, not a node."""
    booster = lightgbm_model(USUAL)
    forest = forest_of(booster)
    with pytest.raises(
        ProbeMismatch, match=r"leaf [0-9]+ there, which our reading of the file does not have, so the margin"
    ):
        probe(changed(forest, leaf_id=forest.leaf_id + np.int32(50)), link_of(forest), file_of(booster), POOL)
    shorter = lightgbm_model(dataclasses.replace(USUAL, trees=9))
    with pytest.raises(ProbeMismatch, match=r"on pool probe 0, .*, the library walks 9 trees and we 20"):
        probe(forest, link_of(forest), file_of(shorter), POOL)


def _read(made: Made) -> Forest:
    from stream.forest.lightgbm.reader import read_lightgbm  # noqa: PLC0415 - the one place that reads a file's bytes
    from stream.forest.xgboost.reader import read_xgboost  # noqa: PLC0415 - as above

    if made.suffix == ".txt":
        return read_lightgbm(made.content.decode(), trees=None)
    return read_xgboost(made.content, ubj=made.suffix == ".ubj", trees=None, missing=None)
