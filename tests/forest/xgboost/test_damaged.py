from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
import xgboost as xgb

from stream.errors import ModelRefused
from stream.forest.walk import margins_of
from stream.forest.xgboost.reader import read_xgboost
from stream.forest.xgboost.ubjson import read_ubjson
from tests.forest.models import USUAL, xgboost_matrix, xgboost_model
from tests.forest.xgboost.models import (
    CATEGORICAL,
    changed,
    refused,
    saved,
    with_words,
)


def damages() -> dict[str, Any]:
    """What a damaged file may hold in its second tree or beside its trees, each a way to crash XGBoost or to hang it."""

    def tree(change: Any) -> Any:
        return lambda learner: change(learner["gradient_booster"]["model"]["trees"][1])

    def model(change: Any) -> Any:
        return lambda learner: change(learner["gradient_booster"]["model"])

    return {
        "a cycle": tree(lambda t: t["left_children"].__setitem__(2, 0)),
        "a child twice": tree(lambda t: t["right_children"].__setitem__(0, t["left_children"][0])),
        "a child beyond the tree": tree(lambda t: t["left_children"].__setitem__(0, 10**6)),
        "another parent": tree(lambda t: t["parents"].__setitem__(1, 2)),
        "a feature beyond the names": tree(lambda t: t["split_indices"].__setitem__(0, 4)),
        "a short array": tree(lambda t: t["split_conditions"].pop()),
        "no array": tree(lambda t: t.pop("split_conditions")),
        "words for numbers": tree(lambda t: t["left_children"].__setitem__(0, "1")),
        "too many nodes": tree(lambda t: t["tree_param"].update(num_nodes="999999999999")),
        "a child before all": tree(lambda t: t["left_children"].__setitem__(t["left_children"].index(-1), -(2**31))),
        "a category split for a leaf": tree(lambda t: t["split_type"].__setitem__(t["left_children"].index(-1), 1)),
        "negative leaves": tree(lambda t: t["tree_param"].update(size_leaf_vector="-1")),
        "a category beyond all": tree(lambda t: t["categories"].__setitem__(0, 2**31 - 1)),
        "a list beyond the lists": tree(lambda t: t["categories_sizes"].__setitem__(0, 10**9)),
        "a list before the lists": tree(lambda t: t["categories_segments"].__setitem__(0, -5)),
        "a list for no split": tree(lambda t: t["categories_nodes"].__setitem__(0, 10**6)),
        "lists in another order": tree(lambda t: t["categories_nodes"].reverse()),
        "a split without its list": tree(lambda t: t["categories_nodes"].pop()),
        "fewer trees": model(lambda m: m["trees"].pop()),
        "other iterations": model(lambda m: m["iteration_indptr"].__setitem__(-1, 10**6)),
        "no trees at all": model(lambda m: m.update(trees=None)),
        "a tree of another class": model(lambda m: m["tree_info"].__setitem__(1, 7)),
        "more features": lambda learner: learner["learner_model_param"].update(num_feature="2000000000"),
        "fewer types": lambda learner: learner["feature_types"].pop(),
        "an iteration of Arabic digits": lambda learner: learner["attributes"].update(best_iteration="٣"),
        "no booster": lambda learner: learner.pop("gradient_booster"),
        "another shape": lambda learner: learner.update(objective=[]),
    }


@pytest.mark.parametrize("what", damages())
def test_a_damaged_file_is_refused_before_xgboost_follows_it(what: str) -> None:
    """Given JSON whose parts do not fit together, it is refused as damaged; XGBoost itself could crash on it."""
    raw = changed(xgboost_model(CATEGORICAL), damages()[what])
    assert "damaged" in refused(raw)


@pytest.mark.parametrize(
    "change",
    [
        lambda cats: cats["enc"][1]["offsets"].__setitem__(1, 10**9),
        lambda cats: cats["enc"][1]["values"].pop(),
        lambda cats: cats["enc"][1]["values"].__setitem__(0, 2**70),
        lambda cats: cats["enc"][1]["values"].__setitem__(0, "r"),
        lambda cats: cats["feature_segments"].pop(),
        lambda cats: cats["sorted_idx"].__setitem__(0, 10**6),
        lambda cats: cats["enc"].pop(),
    ],
)
def test_damaged_words_are_refused(change: Any) -> None:
    """Given training categories whose arrays do not fit together, the file is refused as damaged."""
    booster = with_words(["rent", "own", "free"])
    raw = changed(booster, lambda learner: change(learner["gradient_booster"]["model"]["cats"]))
    assert "training categories" in refused(raw)


def test_a_name_twice_in_one_object_is_refused() -> None:
    """Given JSON that says two things under one name, of which readers take either, it is refused."""
    raw = saved(xgboost_model(USUAL)).replace(b'"attributes":{}', b'"attributes":{},"attributes":{}')
    assert "occurs twice" in refused(raw)


@pytest.mark.parametrize("deep", [b'{"a":' * 100_000, b"{" + b"L\0\0\0\0\0\0\0\1a{" * 100_000])
def test_endless_nesting_is_refused(deep: bytes) -> None:
    """Given a file of nothing but openings, neither reader overflows its stack."""
    with pytest.raises(ModelRefused, match="the file is not"):
        read_xgboost(deep, ubj=b"L" in deep, trees=None, missing=None)


def test_a_ubjson_file_cut_off_anywhere_is_refused() -> None:
    """Given the beginning of a UBJSON file, it is refused wherever it was cut."""
    whole = saved(xgboost_model(dataclasses.replace(USUAL, trees=2)), "ubj")
    for end in range(1, len(whole), 37):
        with pytest.raises(ModelRefused, match="not UBJSON"):
            read_xgboost(whole[:end], ubj=True, trees=None, missing=None)


def test_ubjson_with_a_length_beyond_the_file_is_refused() -> None:
    """Given an array that claims more numbers than there are bytes, nothing is allocated for it."""
    with pytest.raises(ValueError, match="cut off or damaged"):
        read_ubjson(b"{L" + (1).to_bytes(8) + b"a[$L#L" + (2**62).to_bytes(8))


def flipped(raw: bytes, seed: int) -> bytes:
    """The file with one to four bytes changed."""
    chance = random.Random(seed)  # noqa: S311 - damage, not a secret
    changing = bytearray(raw)
    for _ in range(chance.choice([1, 1, 2, 4])):
        changing[chance.randrange(len(changing))] = chance.randrange(256)
    return bytes(changing)


@pytest.mark.parametrize("form", ["json", "ubj"])
def test_a_file_with_flipped_bytes_is_read_or_refused(form: str) -> None:
    """Given files with random damage, each is read as XGBoost reads it or refused: none crashes, none raises else."""
    raw = saved(xgboost_model(dataclasses.replace(CATEGORICAL, trees=3)), form)
    rows = CATEGORICAL.data()[0]
    matrix = xgboost_matrix(rows, CATEGORICAL)
    read_at_all = 0
    for seed in range(150):
        spoilt = flipped(raw, seed)
        try:
            forest = read_xgboost(spoilt, ubj=form == "ubj", trees="all", missing=None)
        except ModelRefused:
            continue
        booster = xgb.Booster({"nthread": 1}, model_file=bytearray(spoilt))
        owner = booster.predict(matrix, output_margin=True, validate_features=False)
        assert margins_of(forest, rows).tobytes() == owner.tobytes()
        read_at_all += 1
    assert read_at_all
