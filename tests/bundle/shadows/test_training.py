"""What `--shadows` needs: flags that fit each other, a train.json, outcomes that the objective can learn from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream.bundle.manifest_fields import SHADOWS_MAX
from stream.bundle.open import open_bundle
from stream.bundle.shadows import training
from stream.bundle.shadows.training import ROUNDS_MAX, read_train_params
from stream.errors import ConfigurationError
from stream.forest.lightgbm.library import lightgbm as lightgbm_library
from stream.forest.walk import margins_of
from tests.bundle.inputs import content_of
from tests.bundle.kinds import TREES, lightgbm, target, xgboost
from tests.bundle.shadows.shadow_inputs import ShadowInputs, shadow_inputs


@pytest.fixture
def plain(tmp_path: Path) -> ShadowInputs:
    return shadow_inputs(tmp_path, xgboost())


@pytest.fixture
def of_lightgbm(tmp_path: Path) -> ShadowInputs:
    return shadow_inputs(tmp_path, lightgbm())


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"shadows": 2}, "--shadows needs --train-params: .* neither eta nor the depth"),
        ({"shadows": 2, "train": True, "target_column": None}, "--shadows needs --target-column"),
        ({"train": True}, "--train-params says how --shadows trains"),
        ({"shadows": 2, "train": True, "given": 1}, "say one of the two"),
        ({"shadows": 0, "train": True}, "--shadows 0: train 1 to 64"),
        ({"shadows": SHADOWS_MAX + 1, "train": True}, "--shadows 65: train 1 to 64"),
        ({"given": SHADOWS_MAX + 1}, "--shadow-models names 65 files; give 64 at most"),
    ],
)
def test_flags_that_do_not_fit_are_refused_before_anything_is_read(
    plain: ShadowInputs, flags: dict[str, Any], told: str
) -> None:
    """Given flags of shadows that contradict each other or lack one, the build says which, and reads not even the model."""
    given = {name: value for name, value in flags.items() if name not in ("train", "given")}
    path = plain.train_json() if "train" in flags else None
    (plain.folder / "model.json").unlink()
    with pytest.raises(ConfigurationError, match=told):
        plain.build(train_params_path=path, shadow_model_paths=[Path("x.json")] * flags.get("given", 0), **given)


def test_a_train_json_is_read_as_it_stands(tmp_path: Path) -> None:
    """Given params and rounds, they are what the file says, without what is null, which is the library's default."""
    path = tmp_path / "train.json"
    path.write_text('{"rounds": 3, "params": {"eta": 0.1, "gamma": null, "interaction_constraints": [["a", "b"]]}}')
    read = read_train_params(path)
    assert (read.params, read.rounds) == ({"eta": 0.1, "interaction_constraints": [["a", "b"]]}, 3)
    assert read.content == path.read_bytes()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"params": {"eta": NaN}, "rounds": 1}', "is not JSON .*NaN is no number"),
        (b'{"params": {"eta": 1, "eta": 2}, "rounds": 1}', "'eta' occurs twice"),
        (b"[]", "must be an object of params and rounds and nothing else"),
        (b'{"params": {}}', "must be an object of params and rounds"),
        (b'{"params": {}, "rounds": 1, "early_stopping_rounds": 5}', "and nothing else"),
        (b'{"params": [], "rounds": 1}', "`params` must be an object"),
        (b'{"params": "eta=0.1", "rounds": 1}', "`params` must be an object"),
        *(
            (json.dumps({"params": {}, "rounds": rounds}).encode(), "`rounds` must be a whole number from 1 to 100000")
            for rounds in (0, -1, 1.0, "3", True, None, ROUNDS_MAX + 1)
        ),
    ],
)
def test_a_train_json_of_another_shape_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    """Given a file that is not an object of params and rounds, the message names the file and what is wrong, in one line."""
    path = tmp_path / "train.json"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=told) as refused:
        read_train_params(path)
    assert str(refused.value).startswith(f"--train-params {path} ")
    assert "\n" not in str(refused.value)


def test_a_train_json_has_a_largest_size_and_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a file of one byte more than the bound, or none, it is refused."""
    path = tmp_path / "train.json"
    path.write_text('{"params": {}, "rounds": 1}')
    monkeypatch.setattr(training, "TRAIN_BYTES_MAX", path.stat().st_size)
    assert read_train_params(path).rounds == 1
    path.write_text('{"params": {}, "rounds": 12}')
    with pytest.raises(ConfigurationError, match="has more than"):
        read_train_params(path)
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        read_train_params(tmp_path / "absent.json")


XGBOOST_SAYS: list[tuple[dict[str, Any], str]] = [
    ({"ete": 0.1}, 'Parameters: { "ete" } are not used; give the'),
    ({"n_estimators": 5}, '"n_estimators" } are not used'),
    ({"max_depth": "deep"}, "Invalid Parameter format for max_depth"),
    ({"objective": "binary:nonsense"}, "Unknown objective function"),
    ({"tree_method": "gpu_hist"}, "Invalid Input: 'gpu_hist'"),
    ({"monotone_constraints": {"height": 1}}, "Constrained features are not a subset"),
    ({"process_type": "update"}, "can not be used to modify existing trees"),
]
LIGHTGBM_SAYS: list[tuple[dict[str, Any], str]] = [
    ({"ete": 0.1}, "Unknown parameter: ete"),
    ({"num_iterations": 5}, "`params` holds num_iterations; say it as `rounds`"),
    ({"max_depth": "deep"}, "Parameter max_depth should be of type int"),
    ({"objective": "nonsense"}, "Unknown objective type name"),
    ({"learning_rate": {"a": 1}}, "Unknown type of parameter:learning_rate"),
    ({"early_stopping_round": 3}, "For early stopping, at least one dataset"),
]


def refused_params(given: ShadowInputs, params: dict[str, Any]) -> str:
    path = given.train_json(**params)
    with pytest.raises(ConfigurationError) as refused:
        given.train(1, train_json=path)
    said = str(refused.value)
    assert said.startswith(f"--train-params {path}: ")
    assert "\n" not in said
    assert not (given.folder / "bundle").exists()
    return said


@pytest.mark.parametrize(("params", "told"), XGBOOST_SAYS)
def test_what_xgboost_does_not_take_is_told(plain: ShadowInputs, params: dict[str, Any], told: str) -> None:
    """Given a parameter that XGBoost refuses, or would pass over as one that it does not know, the build repeats what it says."""
    assert told in refused_params(plain, params)


@pytest.mark.parametrize(("params", "told"), LIGHTGBM_SAYS)
def test_what_lightgbm_does_not_take_is_told(
    of_lightgbm: ShadowInputs, params: dict[str, Any], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a parameter that LightGBM refuses, or would pass over, the build repeats what it says, and nothing of it lands on stdout; its log is silent afterwards."""
    assert told in refused_params(of_lightgbm, params)
    data = lightgbm_library().Dataset(np.zeros((20, 1)), np.zeros(20), params={"verbosity": 1})
    lightgbm_library().train({"objective": "binary", "verbosity": 1, "nonsense": 1}, data, 1)
    assert capsys.readouterr().out == ""


def test_another_objective_than_the_models_is_refused(plain: ShadowInputs, of_lightgbm: ShadowInputs) -> None:
    """Given a train.json without an objective, of which the library has another default, the shadow is refused for it."""
    for given in (plain, of_lightgbm):
        path = given.train_json()
        path.write_text('{"params": {"max_depth": 3}, "rounds": 2}')
        with pytest.raises(ConfigurationError, match="so that one cutoff does not serve both") as refused:
            given.train(1, train_json=path)
        assert f"trained as --train-params {path} says is no shadow of the model" in str(refused.value)


@pytest.mark.parametrize("form", ["xgboost", "lightgbm"])
def test_threads_seeds_and_devices_are_the_builds_own(tmp_path: Path, form: str) -> None:
    """Given a train.json with threads, seeds, a verbosity or a device by any of their names, the shadows are those without."""
    given = shadow_inputs(tmp_path, xgboost() if form == "xgboost" else lightgbm())
    names: dict[str, Any] = {"nthread": 2, "n_jobs": 3, "seed": 7, "random_state": 8, "device": "cuda"}
    more: dict[str, Any] = {"verbose": 2, "num_threads": 2, "force_col_wise": True, "categorical_feature": "name:city"}
    plain, other = given.train(2), given.train_json(**names, **({} if form == "xgboost" else more))
    told = given.train(2, "other", train_json=other)
    ours, theirs = (content_of(built.folder / "shadows") for built in (plain, told))
    assert ours == theirs


def test_rounds_are_what_is_trained(plain: ShadowInputs) -> None:
    """Given more rounds than the model has trees, the shadows have as many trees as rounds."""
    built = plain.train(2, train_json=plain.train_json(rounds=TREES + 3))
    assert [forest.trees for forest in open_bundle(built.folder).shadows.forests] == 2 * [TREES + 3]


@pytest.mark.parametrize(
    ("outcomes", "told"),
    [
        (np.where(target() > 0, "good", "bad"), "does not hold numbers alone"),
        (np.where(target() > 0, "2026-01-01", ""), "does not hold numbers alone"),
        (target() + 1, "must hold 0 and 1 alone, for the model's objective is binary:logistic"),
        (target() / 2, "must hold 0 and 1 alone"),
        (np.where(target() > 0, np.inf, 0.0), "holds inf"),
        (np.full(len(target()), np.nan), "holds no outcome in any row"),
        (1 - target(), "ranks those whom the model accepts below those whom it declines"),
    ],
)
def test_outcomes_that_the_objective_cannot_learn_are_refused(plain: ShadowInputs, outcomes: Any, told: str) -> None:
    """Given words, other numbers, inf, nothing or the opposite in the target column, the build says so and repeats no cell."""
    plain.write_pool(outcomes)
    with pytest.raises(ConfigurationError, match=told) as refused:
        plain.train(1)
    assert "'outcome'" in str(refused.value)
    assert "good" not in str(refused.value)
    assert "2026" not in str(refused.value)


@pytest.mark.parametrize("form", ["pool.csv", "pool.parquet"])
def test_rows_without_an_outcome_are_not_learnt_from(plain: ShadowInputs, form: str) -> None:
    """Given a pool of which the last rows have no outcome, shadows are what they are for the pool without those rows, in either form of the file."""
    known = len(target()) - 40
    outcomes = np.where(np.arange(len(target())) < known, target(), np.nan)
    plain.write_pool(outcomes, form)
    with_gaps = open_bundle(plain.train(1, pool_path=plain.folder / form).folder)
    cut = plain.made.pool.assign(outcome=target()).head(known)
    cut.to_csv(plain.folder / "cut.csv", index=False)
    without = open_bundle(plain.train(1, "cut", pool_path=plain.folder / "cut.csv").folder)
    assert with_gaps.shadows.forests[0].digest == without.shadows.forests[0].digest
    assert len(with_gaps.matrix) == len(without.matrix) + 40


def test_true_and_false_of_a_parquet_are_outcomes(plain: ShadowInputs) -> None:
    """Given a Parquet pool whose target is a column of booleans, shadows are those of 1 and 0."""
    plain.write_pool(target() > 0, "pool.parquet")
    of_booleans = plain.train(1, "booleans", pool_path=plain.folder / "pool.parquet")
    assert content_of(of_booleans.folder / "shadows") == content_of(plain.train(1).folder / "shadows")


def test_a_share_is_an_outcome_where_the_objective_takes_shares(tmp_path: Path) -> None:
    """Given cross_entropy and outcomes between 0 and 1, shadows are trained; outcomes beyond 1 are refused."""
    given = shadow_inputs(tmp_path, lightgbm("share", objective="cross_entropy"), objective="cross_entropy")
    given.write_pool(target("share"))
    (shadow,) = open_bundle(given.train(1).folder).shadows.forests
    assert np.ptp(margins_of(shadow, given.coded())) > 0
    given.write_pool(target("share") * 2)
    with pytest.raises(ConfigurationError, match="must hold numbers from 0 to 1"):
        given.train(1, "other")


def test_an_amount_is_an_outcome_of_a_regression(tmp_path: Path) -> None:
    """Given reg:squarederror, outcomes may be any numbers."""
    params: dict[str, Any] = {"objective": "reg:squarederror"}
    given = shadow_inputs(tmp_path, xgboost("amount", **params), **params)
    given.write_pool(target("amount"))
    assert open_bundle(given.train(2).folder).shadows.searched == 1


def test_training_is_told_as_it_goes(plain: ShadowInputs) -> None:
    """Given three shadows to train, the build tells before each how many are done, and at last that all are."""
    told: list[tuple[str, int, int]] = []
    plain.train(3, progress=lambda *step: told.append(step))
    assert [step for step in told if step[0] == "training shadows"] == [("training shadows", i, 3) for i in range(4)]
