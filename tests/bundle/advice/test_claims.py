from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xgboost as xgb

from stream.bundle.build import BuiltBundle
from stream.bundle.open import open_bundle
from stream.errors import ClaimsDiffer, ConfigurationError, ModelRefused
from tests.bundle.inputs import Inputs, ModelForm, inputs, write_table
from tests.forest.models import USUAL, Rows, forest_of, owner_of, xgboost_matrix, xgboost_model

FORMS: list[ModelForm] = ["json", "txt"]
BEST_ITERATION = 4


def scored(given: Inputs, scores: Any, path: str = "scored.csv") -> Path:
    """Write the pool with a column of scores."""
    rows, target = USUAL.data()
    columns = {name: pa.array(rows[:, i], from_pandas=True) for i, name in enumerate(USUAL.names)}
    write_table(
        given.folder / path,
        pa.table({**columns, "target": pa.array(target), "score": pa.array(scores, from_pandas=True)}),
    )
    return given.folder / path


def build(given: Inputs, scores: Any, **changes: Any) -> BuiltBundle:
    settings: dict[str, Any] = {"pool_path": scored(given, scores), "claim_column": "score"}
    return given.build(**(settings | changes))


def scores_of(given: Inputs, what: Any = "probability") -> Any:
    return owner_of(given.booster, forest_of(given.booster)).ask(USUAL.data()[0], what)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", ["probability", "margin"])
def test_scores_of_the_model_itself_are_accepted_and_counted(tmp_path: Path, form: ModelForm, scale: Any) -> None:
    """Given the library's own scores as a column, then the bundle is the one without them, and the report counts them."""
    given = inputs(tmp_path, form)
    plain = given.build("plain")
    built = build(given, scores_of(given, scale), claim_scale=scale)
    assert built.advice.claims is not None
    assert (built.advice.claims.column, built.advice.claims.scale, built.advice.claims.rows) == (
        "score",
        scale,
        USUAL.rows,
    )
    assert not built.advice.trees_by_claims
    assert built.bundle_sha256 == plain.bundle_sha256
    assert built.advice.ignored_columns == ()


def test_claims_in_parquet_and_empty_ones(tmp_path: Path) -> None:
    """Given scores as float32 in Parquet, of which ten are null, then the others are compared."""
    given = inputs(tmp_path)
    scores = scores_of(given).copy()
    scores[:10] = np.nan
    built = build(given, scores, pool_path=scored(given, scores, "scored.parquet"))
    assert built.advice.claims is not None
    assert built.advice.claims.rows == USUAL.rows - 10


@pytest.mark.parametrize("form", FORMS)
def test_one_score_that_differs_in_its_last_bit_refuses_the_bundle(tmp_path: Path, form: ModelForm) -> None:
    """Given one claim that is one ulp off behind an empty one, then its row, both numbers and the count are told, and nothing is left."""
    given = inputs(tmp_path, form)
    scores = scores_of(given).copy()
    ours = scores[7]
    scores[3] = np.nan
    scores[7] = np.nextafter(ours, scores.dtype.type(1))
    told = rf"1 of {USUAL.rows - 1} rows differ, first row 7 of the pool \(from 0\): probability {scores[7]!s} claimed, {ours!s} by the model; no other reading .* compare the model file and the pool"
    with pytest.raises(ClaimsDiffer, match=told):
        build(given, scores)
    assert not (tmp_path / "bundle").exists()


def early(tmp_path: Path) -> Inputs:
    """A model with trees past its best iteration."""
    given = inputs(tmp_path)
    booster = xgb.Booster(model_file=given.model)
    booster.set_attr(best_iteration=str(BEST_ITERATION))
    booster.save_model(given.model)
    return given


def by(given: Inputs, iterations: int, rows: Rows | None = None) -> Any:
    matrix = xgb.DMatrix(USUAL.data()[0] if rows is None else rows, feature_names=USUAL.names)
    return given.booster.predict(matrix, iteration_range=(0, iterations))


@pytest.mark.parametrize(("iterations", "trees"), [(BEST_ITERATION + 1, "best"), (0, "all")])
def test_claims_tell_which_trees_are_meant(tmp_path: Path, iterations: int, trees: Any) -> None:
    """Given an early-stopped model and no --trees, then the scores decide, and the bundle is that of saying it."""
    given = early(tmp_path)
    with pytest.raises(ModelRefused, match="--trees best"):
        given.build()
    built = build(given, by(given, iterations))
    assert built.advice.trees_by_claims
    assert built.manifest["trees"] == trees
    assert open_bundle(built.folder).forest.trees == (iterations or USUAL.trees)
    assert given.build("said", trees=trees).bundle_sha256 == built.bundle_sha256


def test_claims_that_fit_neither_choice_say_how_many_each_reproduces(tmp_path: Path) -> None:
    """Given scores half by the best trees and half by all, then both counts are told."""
    given = early(tmp_path)
    best, every = by(given, BEST_ITERATION + 1), by(given, 0)
    mixed = np.where(np.arange(USUAL.rows) < 100, best, every)
    counts = [int((mixed == scores).sum()) for scores in (best, every)]
    told = rf"neither reading .* of 400 rows with a claim, --trees best {counts[0]} and --trees all {counts[1]}; say --trees"
    with pytest.raises(ClaimsDiffer, match=told):
        build(given, mixed)


def test_claims_that_fit_both_choices_do_not_decide(tmp_path: Path) -> None:
    """Given a model whose last trees add nothing, and its scores, then both readings fit, and --trees must be said."""
    given = inputs(tmp_path, eta=0.0)
    booster = xgb.Booster(model_file=given.model)
    booster.set_attr(best_iteration=str(BEST_ITERATION))
    booster.save_model(given.model)
    with pytest.raises(ClaimsDiffer, match="both readings of the file reproduces all"):
        build(given, scores_of(given), threshold=0.1)
    assert build(given, scores_of(given), threshold=0.1, trees="all").manifest["trees"] == "all"


def test_a_file_that_is_refused_for_another_reason_says_that_one(tmp_path: Path) -> None:
    """Given claims and a model that cannot be read with any trees, then the refusal is the model's own."""
    given = inputs(tmp_path, booster="gblinear")
    with pytest.raises(ModelRefused, match="gblinear"):
        build(given, by(given, 0))


def test_where_the_other_trees_fit_it_is_said(tmp_path: Path) -> None:
    """Given --trees best and the scores of all trees, then the error says that --trees all reproduces all."""
    given = early(tmp_path)
    with pytest.raises(ClaimsDiffer, match=r"; with --trees all all of them are equal$"):
        build(given, by(given, 0), trees="best")


def test_where_the_other_scale_fits_it_is_said(tmp_path: Path) -> None:
    """Given margins as if they were probabilities, then the error names the scale."""
    given = inputs(tmp_path)
    with pytest.raises(ClaimsDiffer, match=r"; with --claim-scale margin all of them are equal$"):
        build(given, scores_of(given, "margin"))


@pytest.mark.parametrize(("iterations", "trees"), [(BEST_ITERATION + 1, "best"), (0, "all")])
def test_where_the_other_scale_fits_one_choice_of_trees_both_are_said(
    tmp_path: Path, iterations: int, trees: Any
) -> None:
    """Given margins of an early-stopped model as if they were probabilities, then the error names the trees and the scale, and with the latter the claims decide."""
    given = early(tmp_path)
    matrix = xgb.DMatrix(USUAL.data()[0], feature_names=USUAL.names)
    margins = given.booster.predict(matrix, iteration_range=(0, iterations), output_margin=True)
    told = rf"neither reading .*; with --trees {trees} --claim-scale margin all of them are equal$"
    with pytest.raises(ClaimsDiffer, match=told):
        build(given, margins)
    assert build(given, margins, claim_scale="margin").manifest["trees"] == trees


def test_where_an_early_stopped_model_was_told_a_usual_sentinel_it_is_said(tmp_path: Path) -> None:
    """Given scores of the best trees of an XGBoost that takes -999 for missing, then the error names both flags."""
    recipe = dataclasses.replace(USUAL, sentinel=-999.0)
    given = inputs(tmp_path)
    booster = xgboost_model(recipe)
    booster.set_attr(best_iteration=str(BEST_ITERATION))
    booster.save_model(given.model)
    rows, target = recipe.data()
    scores = booster.predict(xgboost_matrix(rows, recipe), iteration_range=(0, BEST_ITERATION + 1))
    columns = {name: pa.array(rows[:, i]) for i, name in enumerate(USUAL.names)}
    write_table(tmp_path / "scored.csv", pa.table({**columns, "target": pa.array(target), "score": pa.array(scores)}))
    with pytest.raises(ClaimsDiffer, match=r"neither .*; with --trees best --missing -999 all of them are equal$"):
        given.build(pool_path=tmp_path / "scored.csv", claim_column="score")


def test_where_an_early_stopped_model_s_scores_were_rounded_it_is_said(tmp_path: Path) -> None:
    """Given the best trees' scores with five decimals, then the error names the trees and the rounding."""
    given = early(tmp_path)
    rounded = [round(score, 5) for score in by(given, BEST_ITERATION + 1).tolist()]
    with pytest.raises(
        ClaimsDiffer, match=r"; with --trees best they are all equal once ours are rounded to 5 decimals"
    ):
        build(given, rounded)


def test_a_lightgbm_file_holds_one_choice_of_trees(tmp_path: Path) -> None:
    """Given a text with trees past the best iteration, then all of them are used, and --trees best is refused with what to do."""
    given = inputs(tmp_path, "txt")
    given.booster.best_iteration = BEST_ITERATION
    given.booster.save_model(given.model, num_iteration=-1)
    with pytest.raises(
        ModelRefused, match=r"names no best iteration.*save_model\(num_iteration=booster.best_iteration\)"
    ):
        given.build(trees="best")
    every = given.booster.predict(USUAL.data()[0], num_iteration=-1)
    built = build(given, every, trees="all")
    assert built.manifest["trees_used"] == USUAL.trees
    given.booster.save_model(given.model)
    assert given.build("best").manifest["trees_used"] == BEST_ITERATION
    with pytest.raises(ClaimsDiffer, match="of the pool"):
        build(given, every, out_dir=tmp_path / "other")


def test_where_a_usual_sentinel_fits_it_is_said(tmp_path: Path) -> None:
    """Given a pool with -999 in it, and scores of an XGBoost that was told to take it for missing, then the error names --missing, and with it the claims are equal."""
    recipe = dataclasses.replace(USUAL, sentinel=-999.0)
    given = inputs(tmp_path)
    booster = xgboost_model(recipe)
    booster.save_model(given.model)
    rows, target = recipe.data()
    scores = booster.predict(xgboost_matrix(rows, recipe))
    columns = {name: pa.array(rows[:, i]) for i, name in enumerate(USUAL.names)}
    write_table(tmp_path / "scored.csv", pa.table({**columns, "target": pa.array(target), "score": pa.array(scores)}))
    settings: dict[str, Any] = {"pool_path": tmp_path / "scored.csv", "claim_column": "score"}
    with pytest.raises(ClaimsDiffer, match=r"; with --missing -999 all of them are equal$"):
        given.build(**settings)
    claims = given.build(**settings, missing=-999.0).advice.claims
    assert claims is not None
    assert claims.rows == USUAL.rows


@pytest.mark.parametrize("form", FORMS)
def test_where_rounded_scores_fit_it_is_said(tmp_path: Path, form: ModelForm) -> None:
    """Given scores that were written with five decimals, then the error says so."""
    given = inputs(tmp_path, form)
    rounded = [round(score, 5) for score in scores_of(given).tolist()]
    with pytest.raises(
        ClaimsDiffer, match=r"once ours are rounded to 5 decimals: write the claims with all their digits$"
    ):
        build(given, rounded)


@pytest.mark.parametrize("scale", ["probability", "margin"])
def test_scores_of_inplace_predict_of_a_dart_model_are_told_apart(tmp_path: Path, scale: Any) -> None:
    """Given a DART model and what XGBClassifier gives for it, then the error names inplace_predict and what to use instead."""
    given = inputs(tmp_path, booster="dart", rate_drop=0.5, one_drop=1, eta=1.0, normalize_type="forest")
    what = "value" if scale == "probability" else "margin"
    in_place = given.booster.inplace_predict(USUAL.data()[0], predict_type=what, validate_features=False)
    assert in_place.tobytes() != scores_of(given, scale).tobytes()
    with pytest.raises(ClaimsDiffer, match=r"they are what inplace_predict .* gives: it rounds a DART model otherwise"):
        build(given, in_place, claim_scale=scale)


WRONG: dict[str, tuple[Any, dict[str, Any]]] = {
    "is empty in every row": ([None] * USUAL.rows, {}),
    "column 'score' holds text where a number is due$": (["high"] * USUAL.rows, {}),
    "no column 'nothing', which --claim-column names": ([0.5] * USUAL.rows, {"claim_column": "nothing"}),
    "'f1' is a feature of the model, so it cannot be the claim column": ([0.5] * USUAL.rows, {"claim_column": "f1"}),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_column_that_holds_no_claims_is_named(tmp_path: Path, what: str) -> None:
    """Given a column that is empty, holds words, does not exist or is a feature, then the error says so."""
    scores, changes = WRONG[what]
    with pytest.raises(ConfigurationError, match=what):
        build(inputs(tmp_path), scores, **changes)
