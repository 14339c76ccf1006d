"""Traps that are publicly known of XGBoost models, each shown on the library itself and answered with its bits."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd  # type: ignore[import-untyped]
import pytest
import xgboost as xgb

from stream.errors import UnknownCategory
from stream.forest.trees import Forest
from stream.forest.walk import margins_of
from stream.forest.xgboost.reader import read_xgboost
from stream.recourse.rules.features import rules_for
from tests.forest.exactness import assert_equals_owner
from tests.forest.models import USUAL, Rows, xgboost_matrix, xgboost_model
from tests.forest.xgboost.models import SETTINGS, assert_exact, changed, read, saved, trained

PURPOSES = ["car", "home", "boat", "shop", "trip"]  # by code; one in two of them is accepted
ROWS = USUAL.data()[0]


def table_of(purposes: list[str], categories: list[str] | None = None) -> pd.DataFrame:
    """Rows that differ in their purpose only."""
    return pd.DataFrame({"purpose": pd.Categorical(purposes, categories=categories), "age": [40.0] * len(purposes)})


def purposes_model(missing: float = 0.0, **parameters: Any) -> xgb.Booster:
    """A model trained on a table with words, where this share of the cells holds none; who has one there is refused."""
    rng = np.random.default_rng(4)
    codes = rng.integers(0, len(PURPOSES), 400)
    table = table_of([PURPOSES[code] for code in codes], PURPOSES).assign(age=rng.normal(40, 9, 400))
    accepted = (codes % 2 == 0) ^ (rng.random(400) < 0.1)
    nothing = rng.random(table.shape) < missing
    table, accepted = table.mask(nothing), accepted & ~nothing.any(axis=1)
    matrix = xgb.DMatrix(table, accepted, enable_categorical=True, nthread=1)
    return xgb.train({**SETTINGS, "max_cat_to_onehot": 1, **parameters}, matrix, 8)


def by_words(booster: xgb.Booster, table: pd.DataFrame) -> npt.NDArray[np.float32]:
    """Margins of a table, as the library gives them."""
    matrix = xgb.DMatrix(table, enable_categorical=True, nthread=1)
    margins: npt.NDArray[np.float32] = booster.predict(matrix, output_margin=True)
    return margins


def by_codes(booster: xgb.Booster, codes: list[float]) -> npt.NDArray[np.float32]:
    """Margins of rows with these numbers in the column of categories, as the library gives them."""
    rows = np.array([[code, 40.0] for code in codes])
    matrix = xgb.DMatrix(rows, feature_names=["purpose", "age"], feature_types=["c", "float"], nthread=1)
    margins: npt.NDArray[np.float32] = booster.predict(matrix, output_margin=True)
    return margins


def ours(forest: Forest, codes: list[float]) -> npt.NDArray[np.float32]:
    """Our margins of the same rows."""
    return margins_of(forest, np.array([[code, 40.0] for code in codes]))


def same(booster: xgb.Booster, forest: Forest, rows: Any, numbers: Rows, **options: Any) -> None:
    """The library given `rows`, with these options, and we given them as float64 reach the same to the bit."""
    matrix = xgb.DMatrix(rows, feature_names=list(forest.features), nthread=1, **options)
    leaves, scored = booster.predict(matrix, pred_leaf=True), booster.predict(matrix, output_margin=True)
    assert_equals_owner(forest, leaves, scored, booster.predict(matrix), numbers)


def test_base_score_as_a_vector_string_of_3_1() -> None:
    """Given base_score as 3.1 writes it, "[4.7E-1]", it is read as the number that it is, bit for bit."""
    booster = trained()
    written = json.loads(saved(booster))["learner"]["learner_model_param"]["base_score"]
    assert (written[0], written[-1]) == ("[", "]")
    plain = changed(booster, lambda learner: learner["learner_model_param"].update(base_score=written[1:-1]))
    forest = read(booster)
    assert read_xgboost(plain, ubj=False, trees=None, missing=None).digest == forest.digest
    assert_exact(booster, forest, ROWS)


def test_dart_weights_are_folded_into_the_leaves() -> None:
    """Given DART, the leaves without their trees' weights miss the library's margin, and with them they meet it."""
    booster = xgboost_model(USUAL, booster="dart", rate_drop=0.5, one_drop=1)
    weights = json.loads(saved(booster))["learner"]["gradient_booster"]["weight_drop"]
    assert len(set(weights)) > 2
    forest = read(booster)
    raw = changed(booster, lambda learner: learner["gradient_booster"].update(weight_drop=[1.0] * len(weights)))
    unweighted = read_xgboost(raw, ubj=False, trees=None, missing=None)
    owner = booster.predict(xgboost_matrix(ROWS, USUAL), output_margin=True)
    assert not np.array_equal(margins_of(unweighted, ROWS), owner)
    assert_exact(booster, forest, ROWS)


def test_early_stopping_scores_differently_by_booster_and_by_classifier() -> None:
    """Given an early-stopped model, "all" is what Booster.predict gives and "best" what XGBClassifier gives."""
    rows, target = USUAL.data()
    table = pd.DataFrame(rows, columns=USUAL.names)
    classifier = xgb.XGBClassifier(n_estimators=40, learning_rate=1.0, early_stopping_rounds=5, n_jobs=1)
    classifier.fit(table, target, eval_set=[(table, np.roll(target, 1))], verbose=False)
    booster = classifier.get_booster()
    by_booster = booster.predict(xgb.DMatrix(table, nthread=1), output_margin=True)
    by_classifier = classifier.predict(table, output_margin=True)
    assert by_booster.tobytes() != by_classifier.tobytes()
    assert margins_of(read(booster, trees="all"), rows).tobytes() == by_booster.tobytes()
    assert margins_of(read(booster, trees="best"), rows).tobytes() == by_classifier.tobytes()


def test_poisson_with_base_score_3000_starts_from_its_logarithm() -> None:
    """Given a count model that starts from 3000, the margin starts from its logarithm, not from 3000."""
    booster = trained("count:poisson", base_score=3000.0)
    forest = read(booster)
    assert float(forest.base_margin) == float(np.float32(np.log(3000.0)))
    assert_exact(booster, forest, ROWS)


def test_unseen_category_is_scored_as_another_one_by_3_2_0_and_is_no_word_of_ours() -> None:
    """Given a word that training never saw, the library takes it for the next in the alphabet, or raises after the last.

    Ours has no code for it, so that the room of features can say that it is unknown.
    """
    booster = purposes_model()
    forest = read(booster)
    assert by_words(booster, table_of(["bus"])).tobytes() == by_words(booster, table_of(["car"])).tobytes()
    assert by_words(booster, table_of(["cat"])).tobytes() == by_words(booster, table_of(["home"])).tobytes()
    with pytest.raises(xgb.core.XGBoostError, match="not in the training set"):
        by_words(booster, table_of(["yacht"]))
    words = forest.words[0]
    assert words == tuple(PURPOSES)
    assert not {"bus", "cat", "yacht"} & set(words)


def test_codes_that_training_never_saw_go_where_the_library_sends_them() -> None:
    """Given codes beyond the listed ones, all of them go to the left at every split, as in the library."""
    booster = purposes_model()
    codes = [5.0, 6.0, 31.0, 32.0, 63.0, 64.0, 1000.0, 2.0**24 - 1, 2.0**24, 2.0**31, 1e30]
    assert ours(read(booster), codes).tobytes() == by_codes(booster, codes).tobytes()


FEATURES_TOML = """
[purpose]
type = "category"
mutability = "mutable"

[age]
type = "number"
mutability = "immutable"
"""


@pytest.mark.parametrize("extra", ["bus", "cat", "apple"])
@pytest.mark.parametrize("at", [0, len(PURPOSES)])
def test_new_category_of_3_1_before_the_last_scores_as_the_next_word_and_has_no_code_of_ours(
    extra: str, at: int
) -> None:
    """Given a dtype with a category more, other rows keep their scores; its own rows get those of the next word, silently.

    Ours has no code for the category and refuses it; a code taken from the dtype would score the others wrongly.
    """
    booster = purposes_model()
    rules = rules_for(read(booster), FEATURES_TOML)
    dtype = [*PURPOSES[:at], extra, *PURPOSES[at:]]
    rows = np.array([rules.encode({"purpose": word, "age": 40.0}) for word in PURPOSES])
    same(booster, read(booster), table_of(PURPOSES, dtype), rows, enable_categorical=True)
    next_word = min(word for word in PURPOSES if word > extra)
    asked = table_of([*PURPOSES, extra], dtype)
    scores = by_words(booster, asked)
    assert scores.tobytes() == by_words(booster, table_of([*PURPOSES, next_word])).tobytes()
    assert scores.tobytes() == booster.inplace_predict(asked, predict_type="margin").tobytes()
    codes = pd.Categorical(PURPOSES, categories=dtype).codes.tolist()
    assert (ours(read(booster), codes).tobytes() == scores[: len(PURPOSES)].tobytes()) == (at == len(PURPOSES))
    with pytest.raises(UnknownCategory, match="purpose holds a category"):
        rules.encode({"purpose": extra, "age": 40.0})


@pytest.mark.parametrize("at", [0, len(PURPOSES)])
@pytest.mark.parametrize("used", [False, True])
def test_new_category_of_3_1_past_the_last_is_an_error_even_where_no_row_has_it(at: int, used: bool) -> None:  # noqa: FBT001
    """Given a dtype with a category past the last of training, the library raises for any rows; we refuse its rows only."""
    booster = purposes_model()
    rules = rules_for(read(booster), FEATURES_TOML)
    table = table_of([*PURPOSES, "yacht"] if used else PURPOSES, [*PURPOSES[:at], "yacht", *PURPOSES[at:]])
    with pytest.raises(xgb.core.XGBoostError, match="not in the training set"):
        by_words(booster, table)
    with pytest.raises(xgb.core.XGBoostError, match="not in the training set"):
        booster.inplace_predict(table, predict_type="margin")
    rows = np.array([rules.encode({"purpose": word, "age": 40.0}) for word in PURPOSES])
    same(booster, read(booster), table_of(PURPOSES, PURPOSES), rows, enable_categorical=True)
    with pytest.raises(UnknownCategory, match="purpose holds a category"):
        rules.encode({"purpose": "yacht", "age": 40.0})


def test_words_in_another_order_shift_no_code() -> None:
    """Given a table whose words have other codes than in training, 3.1 looks up the words, and so do our codes."""
    booster = purposes_model()
    forest = read(booster)
    assert forest.words[0] is not None
    reordered = ["trip", "car", "shop", "home", "boat"]
    owner = by_words(booster, table_of(PURPOSES, reordered))
    assert ours(forest, [forest.words[0].index(word) for word in PURPOSES]).tobytes() == owner.tobytes()
    naive = pd.Categorical(PURPOSES, categories=reordered).codes.tolist()
    assert ours(forest, naive).tobytes() != owner.tobytes()


def test_dropped_column_is_refused_by_the_library_and_by_us() -> None:
    """Given a row with a column less, neither guesses: both raise."""
    booster = xgboost_model(USUAL)
    with pytest.raises(ValueError, match="feature_names mismatch"):
        booster.predict(xgb.DMatrix(ROWS[:, :3], feature_names=USUAL.names[:3], nthread=1))
    with pytest.raises(ValueError, match="do not fit a forest of 4 features"):
        margins_of(read(booster), ROWS[:, :3])


@pytest.mark.parametrize("nothing", [None, np.nan], ids=["None", "NaN"])
def test_none_against_nan_makes_no_difference(nothing: float | None) -> None:
    """Given None or NaN in any form of rows that the library takes, it scores as we score a decision's null, to the bit."""
    booster = purposes_model(missing=0.2)
    forest = read(booster)
    rules = rules_for(forest, FEATURES_TOML)
    words, ages = [nothing, "boat", nothing, "boat"], [40.0, nothing, nothing, 40.0]
    codes = [[nothing, 40.0], [2.0, nothing], [nothing, nothing], [2.0, 40.0]]
    decisions = '[[null, 40.0], ["boat", null], [null, null], ["boat", 40.0]]'
    rows = np.array([rules.encode(dict(zip(forest.features, one, strict=True))) for one in json.loads(decisions)])
    held = np.array(codes, dtype=object)
    assert held[0, 0] is nothing
    for form in (codes, held):
        same(booster, forest, form, rows, feature_types=["c", "float"])
    word = pd.Series(words, dtype=object).astype(pd.CategoricalDtype(PURPOSES))
    for age in (ages, pd.array(ages, dtype="Float64")):
        same(booster, forest, pd.DataFrame({"purpose": word, "age": age}), rows, enable_categorical=True)
    scored = margins_of(forest, rows)
    assert scored[0] != scored[3] != scored[1]  # a value there would have scored otherwise


@pytest.mark.parametrize("column", ["purpose", "age"])
def test_none_in_a_column_of_objects_is_refused_by_the_library(column: str) -> None:
    """Given None in a DataFrame's column of objects, the library raises, so that there is no score to differ from."""
    table = table_of(["car", "boat"], PURPOSES)
    table[column] = pd.Series([None, table[column][1]], dtype=object)
    assert table[column][0] is None
    booster = purposes_model()
    with pytest.raises(ValueError, match=f"(?s)must be int, float, bool or category.*{column}"):
        by_words(booster, table)
    with pytest.raises(ValueError, match=f"(?s)must be int, float, bool or category.*{column}"):
        booster.inplace_predict(table)


def test_a_row_on_every_threshold_goes_right() -> None:
    """Given a value equal to a threshold, it is not less and goes right; one ulp below, in float32, it goes left."""
    booster = xgboost_model(USUAL)
    forest = read(booster)
    for feature in range(4):
        on = forest.thresholds(feature)
        assert len(on)
        beside = [np.nextafter(on, np.float32(-np.inf)), on, np.nextafter(on, np.float32(np.inf))]
        rows = np.repeat(ROWS[:1], 3 * len(on), axis=0)
        rows[:, feature] = np.concatenate(beside)
        same(booster, forest, rows, rows)


def test_categorical_minus_1_nan_and_3_7() -> None:
    """Given -1, it goes left like a code that no split lists; NaN takes the default; 3.7 is 3."""
    booster = purposes_model()
    forest = read(booster)
    codes = [-1.0, -0.5, np.nan, 3.7, 3.0, -1e9]
    owner = by_codes(booster, codes)
    assert ours(forest, codes).tobytes() == owner.tobytes()
    assert owner[3] == owner[4]
    assert owner[0] == by_codes(booster, [1000.0])[0]


@pytest.mark.parametrize("sentinel", [-999.0, 0.0, 0.1, 1e30])
def test_sentinel_minus_999_is_missing_after_float32(sentinel: float) -> None:
    """Given missing=-999 in the decider, so are the doubles that float32 rounds to it, and NaN is missing as well."""
    recipe = dataclasses.replace(USUAL, sentinel=sentinel, missing=0.3)
    booster = xgboost_model(recipe)
    forest = read(booster, missing=sentinel)
    rows = recipe.data()[0]
    assert_exact(booster, forest, rows)
    assert margins_of(read(booster), rows).tobytes() != margins_of(forest, rows).tobytes()


def test_sentinel_minus_999_00001_is_minus_999() -> None:
    """Given a value that only a double tells from the sentinel, the library takes it for missing, and so do we."""
    recipe = dataclasses.replace(USUAL, sentinel=-999.0, missing=0.3)
    booster = xgboost_model(recipe)
    forest = read(booster, missing=-999.0)
    rows = np.repeat(ROWS[:1], 4, axis=0)
    rows[:, 0] = -999.0, -999.00001, np.nan, -999.0001
    same(booster, forest, rows, rows, missing=-999.0)
    scored = margins_of(forest, rows)
    assert scored[0] == scored[1] == scored[2]


def test_float64_input_to_float32_thresholds_is_rounded_first() -> None:
    """Given doubles just below a threshold that float32 rounds up to it, they go right, as in the library."""
    booster = xgboost_model(USUAL)
    forest = read(booster)
    for feature in range(4):
        on = forest.thresholds(feature).astype(np.float64)
        rows = np.repeat(ROWS[:1], len(on), axis=0)
        rows[:, feature] = np.nextafter(on, -np.inf)
        same(booster, forest, rows, rows)
        at = rows.copy()
        at[:, feature] = on
        assert margins_of(forest, rows).tobytes() == margins_of(forest, at).tobytes()


@pytest.mark.parametrize("dtype", ["int64", "uint32", "int32"])
def test_integer_columns_beyond_2_to_the_24_are_rounded_like_the_library_s(dtype: str) -> None:
    """Given whole numbers that float32 cannot tell apart, they are rounded as the library rounds its columns."""
    rng = np.random.default_rng(8)
    whole = rng.integers(2**24, 2**31 - 1, (300, 2)).astype(dtype)
    table = pd.DataFrame(whole, columns=["id", "sum"])
    matrix = xgb.DMatrix(table, whole[:, 1] % 3 == 0, nthread=1)
    booster = xgb.train({**SETTINGS, "min_child_weight": 0}, matrix, 12)
    forest = read(booster)
    on = np.concatenate([forest.thresholds(0), forest.thresholds(1)]).astype(np.int64)
    near = np.concatenate([on + step for step in range(-130, 131, 10)])
    asked = np.stack([near, near[::-1]], axis=1).clip(0, 2**31 - 1).astype(dtype)
    same(booster, forest, pd.DataFrame(asked, columns=["id", "sum"]), asked.astype(np.float64))


def test_custom_objective_leaves_no_trace_and_is_what_the_file_says() -> None:
    """Given an objective of the trainer's own, the file says reg:squarederror, and so score a loaded booster and we."""
    rows, target = USUAL.data()

    def gradient(predicted: Any, _: xgb.DMatrix) -> tuple[Any, Any]:
        return predicted - target, np.ones_like(predicted)

    matrix = xgboost_matrix(rows, USUAL, target)
    parameters = {key: value for key, value in SETTINGS.items() if key != "objective"}
    raw = saved(xgb.train(parameters, matrix, 4, obj=gradient))
    forest = read_xgboost(raw, ubj=False, trees=None, missing=None)
    assert forest.objective == "reg:squarederror"
    assert_exact(xgb.Booster({"nthread": 1}, model_file=bytearray(raw)), forest, rows)
