from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream.errors import ModelRefused
from stream.forest.from_lightgbm import read_lightgbm
from stream.forest.from_xgboost import read_xgboost
from stream.forest.link import link_of
from stream.forest.trees import Forest
from stream.forest.walk import leaf_ids, leaf_slots, margins

OLD = Path(__file__).parent / "old"


def read_old(name: str) -> Forest:
    if name.endswith(".txt"):
        return read_lightgbm((OLD / name).read_text(), trees=None)
    return read_xgboost((OLD / name).read_bytes(), ubj=name.endswith(".ubj"), trees=None)


@pytest.mark.parametrize(
    ("name", "version"), [("xgboost-1.7.6.json", "1.7.6"), ("xgboost-1.7.6.ubj", "1.7.6"), ("lightgbm-3.3.5.txt", "v3")]
)
def test_a_model_of_an_old_version_gives_what_that_version_gave(name: str, version: str) -> None:
    """Given a file written years ago, leaves, margins and probabilities are those of the version that wrote it."""
    expected: dict[str, Any] = json.loads((OLD / f"{Path(name).stem}.expected.json").read_text())
    forest = read_old(name)
    rows = np.array(expected["rows"], np.float64)
    slots = leaf_slots(forest, rows)
    scored = margins(forest, slots)
    assert forest.library_version == version
    assert leaf_ids(forest, slots).tolist() == expected["leaves"]
    assert [float(m).hex() for m in scored] == expected["margins"]
    assert [float(p).hex() for p in link_of(forest).probabilities(scored)] == expected["probabilities"]


def test_the_old_binary_format_is_refused_with_what_to_do() -> None:
    """Given a real file of the binary format that XGBoost dropped, the refusal says how to convert it."""
    with pytest.raises(ModelRefused, match=r"old binary format.*load it with the version that wrote it"):
        read_old("xgboost-1.7.6.model")
