from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream.errors import ModelRefused
from stream.forest.lightgbm.reader import read_lightgbm
from stream.forest.link import link_of
from stream.forest.trees import Forest
from stream.forest.walk import leaf_ids, leaf_slots, margins
from stream.forest.xgboost.reader import read_xgboost

OLD = Path(__file__).parent / "old"
XGBOOST = ["1.7.6", "2.0.3", "2.1.4", "3.0.5", "3.1.3"]
LIGHTGBM = ["3.3.5", "4.0.0", "4.3.0", "4.6.0"]


def every_answer() -> Iterator[Any]:
    """Each model file, with what its version gave for it; twice where the best trees and all of them were asked."""
    for model in sorted(OLD.glob("*/*")):
        if model.suffix in (".txt", ".ubj", ".json") and not model.name.endswith(".expected.json"):
            expected = json.loads(model.with_suffix(".expected.json").read_text())
            for given in expected.pop("given"):
                name = f"{model.parent.name}/{model.name}"
                trees = f" {given['trees']}" if given["trees"] else ""
                yield pytest.param(model, {**expected, **given}, id=f"{name}{trees}")


ANSWERS = list(every_answer())


def read_old(model: Path, expected: dict[str, Any]) -> Forest:
    if model.suffix == ".txt":
        return read_lightgbm(model.read_text("utf-8"), trees=expected["trees"])
    ubj = model.suffix == ".ubj"
    return read_xgboost(model.read_bytes(), ubj=ubj, trees=expected["trees"], missing=expected["missing"])


@pytest.mark.parametrize(("model", "expected"), ANSWERS)
def test_a_model_of_an_old_version_gives_what_that_version_gave(model: Path, expected: dict[str, Any]) -> None:
    """Given a file written years ago, leaves, margins and predictions are those of the version that wrote it."""
    forest = read_old(model, expected)
    slots = leaf_slots(forest, np.array(expected["rows"], np.float64))
    scored = margins(forest, slots)
    assert leaf_ids(forest, slots).tolist() == expected["leaves"]
    assert [float(margin).hex() for margin in scored] == expected["margins"]
    assert [float(p).hex() for p in link_of(forest).probabilities(scored)] == expected["predictions"]


@pytest.mark.parametrize(("model", "expected"), ANSWERS)
def test_a_model_of_an_old_version_tells_what_it_was_trained_on(model: Path, expected: dict[str, Any]) -> None:
    """Given a file written years ago, its version, which features hold categories, and their words are known."""
    forest = read_old(model, expected)
    assert forest.library_version == expected["version"]
    assert forest.is_category == tuple(expected["is_category"])
    assert forest.words == tuple(words and tuple(words) for words in expected["words"])


def test_every_version_wrote_every_kind_of_model() -> None:
    """Given the versions of each library, when their folders are compared, then none lacks a file that another has."""
    for library, versions, one_of_them in (("xgboost", XGBOOST, "dart-words.json"), ("lightgbm", LIGHTGBM, "rf.txt")):
        folders = sorted(OLD.glob(f"{library}-*"))
        assert [folder.name for folder in folders] == [f"{library}-{version}" for version in versions]
        kinds = [{file.name for file in folder.iterdir()} - {"binary.model"} for folder in folders]
        assert one_of_them in kinds[0]
        assert all(there == kinds[0] for there in kinds)


def test_the_old_binary_format_is_refused_with_what_to_do() -> None:
    """Given a real file of the binary format that XGBoost dropped, the refusal says how to convert it."""
    raw = (OLD / "xgboost-1.7.6" / "binary.model").read_bytes()
    with pytest.raises(ModelRefused, match=r"old binary format.*load it with the version that wrote it"):
        read_xgboost(raw, ubj=False, trees=None, missing=None)
