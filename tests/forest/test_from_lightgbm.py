from __future__ import annotations

from typing import Any

import lightgbm as lgb
import numpy as np
import pytest

from stream.errors import ModelRefused
from stream.forest.from_lightgbm import read_lightgbm
from stream.forest.walk import leaf_slots, margins_of
from tests.forest.models import USUAL, forest_of, lightgbm_model


def trained(rows: Any = None, target: Any = None, names: Any = None, **parameters: Any) -> str:
    usual_rows, usual_target = USUAL.data()
    data = lgb.Dataset(
        usual_rows if rows is None else rows,
        usual_target if target is None else target,
        feature_name=USUAL.names if names is None else names,
        categorical_feature=parameters.pop("categorical_feature", []),
        params={"linear_tree": parameters.get("linear_tree", False), "verbose": -1},
        group=parameters.pop("group", None),
    )
    return str(lgb.train({"verbose": -1, "num_threads": 1, **parameters}, data, 2).model_to_string())


def test_a_forest_says_what_it_was_read_from() -> None:
    """Given a model text, the forest holds its names, trees, objective, link scale and format version."""
    forest = forest_of(lightgbm_model(USUAL, sigmoid=0.37))
    assert (forest.library, forest.library_version, forest.objective) == ("lightgbm", "v4", "binary")
    assert (forest.features, forest.trees, forest.sigmoid) == (("f0", "f1", "f2", "f3"), 20, 0.37)
    assert forest.base_margin == 0


def test_leaf_ids_are_the_places_of_the_slots() -> None:
    """Given a LightGBM forest, slots of a tree follow its leaf indices 0, 1, 2, ..."""
    forest = forest_of(lightgbm_model(USUAL))
    for first, end in zip(forest.first_leaf[:-1], forest.first_leaf[1:], strict=True):
        assert forest.leaf_id[first:end].tolist() == list(range(end - first))


def test_a_split_at_infinity_parts_missing_from_every_value() -> None:
    """Given a split that LightGBM writes as `inf`, the largest finite values still go its way."""
    rows = np.full((200, 1), np.nan)
    rows[:100, 0] = np.arange(100)
    target = np.isnan(rows[:, 0]).astype(int)
    text = trained(rows, target, ["a"], objective="binary", min_data_in_leaf=5)
    assert "threshold=inf" in text
    asked = np.array([[1e300], [np.finfo(float).max], [-np.finfo(float).max], [0.0], [np.nan]])
    want = lgb.Booster(model_str=text).predict(asked, raw_score=True)
    assert margins_of(read_lightgbm(text, trees=None), asked).tobytes() == np.asarray(want).tobytes()


def test_values_that_lightgbm_takes_for_zero_go_where_zero_goes() -> None:
    """Given thresholds next to zero, values nearer than 1e-35 reach the leaves that pred_leaf says."""
    booster = lightgbm_model(USUAL)
    forest = forest_of(booster)
    near = [0.0, -0.0, 5e-324, 1e-36, -1e-36, 1e-35, -1e-35, 1.0000000180025095e-35, -1.0000000180025095e-35]
    asked = np.array([[value] * 4 for value in near])
    want = np.asarray(booster.predict(asked, pred_leaf=True))
    assert np.array_equal(forest.leaf_id[leaf_slots(forest, asked)], want)


def refused() -> dict[str, str]:
    """Real texts that the library wrote, or damaged ones, by what their refusal has to say."""
    rows, target = USUAL.data()
    code = np.abs(np.nan_to_num(rows)).round() % 5
    whole = trained(objective="binary")
    by_category = {"categorical_feature": [0, 1, 2, 3], "min_data_per_group": 1, "cat_smooth": 0}
    return {
        "3 classes": trained(target=np.arange(len(target)) % 3, objective="multiclass", num_class=3),
        "averages its trees": trained(objective="binary", boosting="rf", bagging_fraction=0.5, bagging_freq=1),
        "linear_tree": trained(objective="binary", linear_tree=True),
        "objective is regression": trained(objective="regression"),
        "objective is lambdarank": trained(objective="lambdarank", group=[len(target)]),
        "objective is cross_entropy": trained(objective="cross_entropy"),
        "zero_as_missing": trained(objective="binary", zero_as_missing=True),
        "categorical": trained(code, objective="binary", **by_category),
        "no names": trained(names="auto", objective="binary"),
        "not a whole": whole[: len(whole) // 3],
        "number of trees": whole.replace("\nTree=1\n", "\n"),
        "tree 0 is damaged": whole.replace("leaf_value=", "leaf_valu=", 1),
        "tree 1 is damaged": whole[::-1].replace("=dlohserht\n", "9 9=dlohserht\n", 1)[::-1],
        "empty or something else": "",
    }


REFUSED = refused()


@pytest.mark.parametrize("what", REFUSED)
def test_what_we_cannot_reproduce_is_refused_by_name(what: str) -> None:
    """Given a real file of a kind out of scope, the refusal names the library, the reason and what to do."""
    expected = "not a whole" if what == "empty or something else" else what
    with pytest.raises(ModelRefused, match=rf"LightGBM.*{expected}.*; .+") as refusal:
        read_lightgbm(REFUSED[what], trees=None)
    assert "\n" not in str(refusal.value)


def test_a_model_without_a_tree_is_refused() -> None:
    """Given a text with no tree, there is nothing to explain and it is refused."""
    rows, target = USUAL.data()
    booster = lgb.Booster({"objective": "binary", "verbose": -1}, lgb.Dataset(rows, target, feature_name=USUAL.names))
    with pytest.raises(ModelRefused, match="no trees"):
        read_lightgbm(booster.model_to_string(), trees=None)


def test_a_link_that_leads_outside_its_tree_is_refused() -> None:
    """Given a child number that no node has, the file is refused before LightGBM would end the process."""
    text = trained(objective="binary")
    with pytest.raises(ModelRefused, match="tree 0 is damaged"):
        read_lightgbm(text.replace("left_child=", "left_child=99 ", 1).replace("99 ", "99", 1), trees=None)


def test_a_link_back_to_the_root_is_refused() -> None:
    """Given a tree whose links form a circle, the file is refused instead of walked forever."""
    text = trained(objective="binary")
    line = next(line for line in text.splitlines() if line.startswith("left_child="))
    circle = " ".join(["0", *line.removeprefix("left_child=").split()[1:]])
    with pytest.raises(ModelRefused, match="damaged"):
        read_lightgbm(text.replace(line, f"left_child={circle}", 1), trees=None)
