from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import xgboost as xgb
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream.errors import ModelRefused
from stream.forest.from_xgboost import read_xgboost
from stream.forest.trees import TreesUsed
from stream.forest.walk import margins_of
from tests.forest.models import USUAL, Owner, xgboost_model


def saved(booster: xgb.Booster, form: str = "json") -> bytes:
    return bytes(booster.save_raw(form))


def trained(matrix: xgb.DMatrix, *, objective: str = "binary:logistic", rounds: int = 2, **parameters: Any) -> bytes:
    return saved(xgb.train({"objective": objective, "nthread": 1, "verbosity": 0, **parameters}, matrix, rounds))


def matrix_of(target: Any = None, **options: Any) -> xgb.DMatrix:
    rows, labels = USUAL.data()
    named = {"feature_names": USUAL.names, "nthread": 1, **options}
    return xgb.DMatrix(rows, labels if target is None else target, **named)


@pytest.mark.parametrize("form", ["json", "ubj"])
def test_both_forms_of_a_file_are_one_forest(form: str) -> None:
    """Given one booster saved as JSON and as UBJSON, both are read as the same forest, writer's version included."""
    booster = xgboost_model(USUAL)
    forest = read_xgboost(saved(booster, form), ubj=form == "ubj", trees=None)
    assert forest.digest == read_xgboost(saved(booster), ubj=False, trees=None).digest
    assert forest.library_version == xgb.__version__
    assert (forest.features, forest.trees, forest.objective) == (("f0", "f1", "f2", "f3"), 20, "binary:logistic")


def test_the_arrays_of_a_forest_cannot_be_changed() -> None:
    """Given a forest, writing into one of its arrays raises: its digest stays true."""
    forest = read_xgboost(saved(xgboost_model(USUAL)), ubj=False, trees=None)
    with pytest.raises(ValueError, match="read-only"):
        forest.weight[0] = 0


def test_a_classifier_s_file_is_read_like_a_booster_s() -> None:
    """Given an XGBClassifier fitted on a named table, its saved booster is read and scores as it does."""
    pd = pytest.importorskip("pandas")
    rows, target = USUAL.data()
    table = pd.DataFrame(rows, columns=USUAL.names)
    classifier = xgb.XGBClassifier(n_estimators=9, max_depth=2, n_jobs=1).fit(table, target)
    forest = read_xgboost(saved(classifier.get_booster()), ubj=False, trees=None)
    assert margins_of(forest, rows).tobytes() == classifier.predict(table, output_margin=True).tobytes()


def stopped_early() -> xgb.Booster:
    """Build a booster with trees past its best iteration, as early stopping leaves one."""
    rows, target = USUAL.data()
    other = xgb.DMatrix(rows, np.roll(target, 1), feature_names=USUAL.names, nthread=1)
    settings = {"objective": "binary:logistic", "nthread": 1, "eta": 1.0}
    watched = [(other, "other")]
    return xgb.train(settings, matrix_of(), 30, evals=watched, early_stopping_rounds=4, verbose_eval=False)


def test_trees_past_the_best_iteration_need_a_word() -> None:
    """Given an early-stopped model and no word on its trees, it is refused with both choices named."""
    with pytest.raises(ModelRefused, match=r"--trees best .* --trees all"):
        read_xgboost(saved(stopped_early()), ubj=False, trees=None)


@pytest.mark.parametrize("trees", ["best", "all"])
def test_the_trees_asked_for_are_the_trees_used(trees: TreesUsed) -> None:
    """Given an early-stopped model, best and all each score as the library does with so many iterations."""
    booster = stopped_early()
    forest = read_xgboost(saved(booster), ubj=False, trees=trees)
    assert forest.trees == (booster.best_iteration + 1 if trees == "best" else booster.num_boosted_rounds())
    rows = USUAL.data()[0]
    owner = Owner(booster, USUAL.names, forest.trees)
    assert margins_of(forest, rows).tobytes() == owner.ask(rows, "margin").tobytes()


def with_base_score(written: str) -> bytes:
    model = json.loads(saved(xgboost_model(USUAL)))
    model["learner"]["learner_model_param"]["base_score"] = written
    return json.dumps(model).encode()


@pytest.mark.parametrize("written", ["5E-1", "[5E-1]", "0.5"])
def test_a_base_score_of_one_half_adds_nothing(written: str) -> None:
    """Given any form in which a version of XGBoost wrote one half, the base margin is zero."""
    assert read_xgboost(with_base_score(written), ubj=False, trees=None).base_margin == 0.0


@pytest.mark.parametrize("written", ["[5E-1,5E-1]", "-1", "1.5E0", "nan"])
def test_a_base_score_without_a_margin_is_refused(written: str) -> None:
    """Given a base score that no single finite margin stands for, the model is refused."""
    with pytest.raises(ModelRefused, match=r"XGBoost model refused: .*; "):
        read_xgboost(with_base_score(written), ubj=False, trees=None)


def refused() -> dict[str, bytes]:
    """Real files that the library wrote, by what their refusal has to say."""
    rows, target = USUAL.data()
    three = np.arange(len(target)) % 3
    wide = np.where(rows > 0, np.nan, 3e38)
    wide[:5] = 3.4e38
    code = np.abs(np.nan_to_num(rows)).round() % 5
    category = {"feature_types": ["c"] * 4, "enable_categorical": True}
    by_category = xgb.DMatrix(code, target, feature_names=USUAL.names, nthread=1, **category)
    both = np.stack([target, 1 - target], axis=1)
    overflowing = xgb.DMatrix(wide, rows[:, 0] > 0, feature_names=USUAL.names, nthread=1)
    return {
        "dart": trained(matrix_of(), booster="dart"),
        "gblinear": trained(matrix_of(), booster="gblinear"),
        "3 classes": trained(matrix_of(three), objective="multi:softprob", num_class=3),
        "2 targets": trained(matrix_of(both)),
        "reg:squarederror": trained(matrix_of(), objective="reg:squarederror"),
        "binary:hinge": trained(matrix_of(), objective="binary:hinge"),
        "binary:logitraw": trained(matrix_of(), objective="binary:logitraw"),
        "survival:cox": trained(matrix_of(np.where(target, 1.0, -1.0)), objective="survival:cox"),
        "num_parallel_tree is 3": trained(matrix_of(), num_parallel_tree=3, subsample=0.5),
        "no names": trained(matrix_of(feature_names=None)),
        "categorical": trained(by_category, tree_method="hist"),
        "holds inf": trained(overflowing),
        "no trees": trained(matrix_of(), rounds=0),
        "not JSON": saved(xgboost_model(USUAL), "ubj"),
        "cannot load it": b'{"version":[3,2,0],"learner":{}}',
        "damaged": damaged(),
    }


def damaged() -> bytes:
    """A file whose first tree leads back to its own root."""
    model = json.loads(saved(xgboost_model(USUAL)))
    tree = model["learner"]["gradient_booster"]["model"]["trees"][0]
    inner = next(i for i, left in enumerate(tree["left_children"]) if left > 1)
    tree["left_children"][inner] = 0
    return json.dumps(model).encode()


REFUSED = refused()


@pytest.mark.parametrize("what", REFUSED)
def test_what_we_cannot_reproduce_is_refused_by_name(what: str) -> None:
    """Given a real file of a kind out of scope, the refusal names the library, the reason and what to do."""
    with pytest.raises(ModelRefused, match=rf"(?s){what}.*; .+") as refusal:
        read_xgboost(REFUSED[what], ubj=False, trees="all")
    assert "\n" not in str(refusal.value)


def test_a_truncated_ubjson_file_is_refused() -> None:
    """Given half of a UBJSON file, it is refused as one that XGBoost cannot load."""
    whole = saved(xgboost_model(USUAL), "ubj")
    with pytest.raises(ModelRefused, match="cannot load it"):
        read_xgboost(whole[: len(whole) // 2], ubj=True, trees=None)


def test_a_base_margin_of_minus_zero_keeps_its_sign() -> None:
    """Given a base score of one half and leaves of minus zero, our margin is minus zero as the library's is."""
    booster = xgboost_model(dataclasses.replace(USUAL, trees=2), gamma=1e9, base_score=0.5, max_delta_step=1e-30)
    rows = USUAL.data()[0][:1]
    forest = read_xgboost(saved(booster), ubj=False, trees=None)
    assert margins_of(forest, rows).tobytes() == Owner(booster, USUAL.names, 2).ask(rows, "margin").tobytes()
    assert np.signbit(forest.base_margin)


@settings(max_examples=60)
@example(score=0.4844989478588104)  # a correctly rounded logarithm differs from XGBoost's in the last bit
@example(score=1e-7)  # XGBoost 3.2.0 clamps it to 1e-6
@given(score=st.floats(1e-9, 1 - 1e-7))
def test_any_base_score_becomes_the_library_s_base_margin(score: float) -> None:
    """Given any base score, margins have the bits of the library's."""
    raw = with_base_score(f"[{float(np.float32(score))!r}]")
    booster = xgb.Booster({"nthread": 1}, model_file=bytearray(raw))
    forest = read_xgboost(raw, ubj=False, trees=None)
    rows = USUAL.data()[0][:20]
    assert margins_of(forest, rows).tobytes() == Owner(booster, USUAL.names, 20).ask(rows, "margin").tobytes()
