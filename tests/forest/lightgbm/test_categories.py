"""Which features are categories, and their words, of real models of DataFrames."""

from __future__ import annotations

import re
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

from stream.forest.lightgbm.reader import read_lightgbm
from stream.forest.trees import Forest
from tests.forest.lightgbm.models import CATEGORICAL, mixed, trained

ROWS, TARGET = mixed()
CODES = np.nan_to_num(ROWS[:, 3]).astype(int)
COUNT = len(ROWS)


def column(words: list[Any], **options: Any) -> Any:
    return pd.Categorical.from_codes(CODES % len(words), words, **options)


TABLE = pd.DataFrame(
    {
        "number": ROWS[:, 0],
        "town": column(["Aix", "Brno", "Evora la Vella", "Gr\u00fcn\n", "\u5317\u4eac"]),
        "constant": pd.Categorical(["only"] * COUNT),
        "same": np.full(COUNT, 7.0),
        "grade": column([10, 20, 40]),
        "rate": column([0.5, 1.25]),
        "flag": column([False, True]),
    }
)
WORDS = (None, tuple(TABLE["town"].cat.categories), ("only",), None, (10.0, 20.0, 40.0), (0.5, 1.25), (0.0, 1.0))


def forest(table: pd.DataFrame = TABLE, *, without: str | None = None, **parameters: Any) -> Forest:
    text = trained(table, TARGET, **CATEGORICAL, **parameters)
    return read_lightgbm(text if without is None else re.sub(without, "", text), trees=None)


def test_words_are_those_of_the_dataframe_in_the_order_of_codes() -> None:
    """Given category columns of strings, numbers and truth values, one constant, each has its words by code."""
    found = forest()
    assert found.is_category == (False, True, True, False, True, True, True)
    assert found.words == WORDS


def test_words_of_a_model_in_a_file_are_the_same(tmp_path: Any) -> None:
    """Given a model saved as a file and loaded and saved again, its words are those of the first."""
    text = trained(TABLE, TARGET, **CATEGORICAL)
    lgb.Booster(model_str=text).save_model(tmp_path / "model.txt")
    assert read_lightgbm((tmp_path / "model.txt").read_text("utf-8"), trees=None).words == WORDS


def test_codes_of_an_array_have_no_words() -> None:
    """Given a model trained on codes in an array, its categories are known and have no words."""
    found = read_lightgbm(
        trained(ROWS, TARGET, feature_name=list("abcd"), categorical_feature=[2, 3], **CATEGORICAL), trees=None
    )
    assert (found.is_category, found.words) == ((False, False, True, True), (None,) * 4)


def test_a_number_named_among_the_categories_leaves_the_words_to_the_decider() -> None:
    """Given whole numbers named in categorical_feature beside a DataFrame's categories, no list is given to either."""
    table = pd.DataFrame({"whole": CODES, "town": column(list("abc")), "number": ROWS[:, 0]})
    found = forest(table, categorical_feature=["whole", "town"])
    assert (found.is_category, found.words) == ((True, True, False), (None,) * 3)


def test_categories_in_an_order_are_numbers_and_leave_the_words_to_the_decider() -> None:
    """Given a category column whose categories are ordered, which LightGBM takes for a number, no words are guessed."""
    table = pd.DataFrame({"grade": column([1, 2, 3], ordered=True), "town": column(list("ab")), "number": ROWS[:, 0]})
    found = forest(table)
    assert (found.is_category, found.words) == ((False, True, False), (None,) * 3)


def test_more_codes_than_words_are_no_match() -> None:
    """Given as many lists as categories of which one has more codes than words, none is taken to be the other's."""
    table = pd.DataFrame({"whole": CODES, "town": column(list("ab")), "number": ROWS[:, 0]})
    found = forest(table, categorical_feature=["whole"])
    assert (found.is_category, found.words) == ((True, False, False), (None,) * 3)


@pytest.mark.parametrize("constant", [True, False])
def test_a_file_without_its_parameters_has_words_where_no_column_is_constant(*, constant: bool) -> None:
    """Given a file that lost what the training declared, a constant column may be anything, and no words are guessed."""
    table = pd.DataFrame({"town": column(list("ab")), "number": ROWS[:, 0], "same": 1.0 if constant else ROWS[:, 1]})
    found = forest(table, without=r"\[categorical_feature.*\]\n")
    assert (found.is_category, found.words) == ((True, False, False), (None if constant else ("a", "b"), None, None))


@pytest.mark.parametrize(
    "lists",
    ["[[null, 1]]", "[[1, 1.0]]", "[[1e999, 2]]", "[[9007199254740993, 2]]", "[[[], 2]]", f"[[{'9' * 400}, 2]]"],
)
def test_what_is_no_list_of_distinct_words_gives_none(lists: str) -> None:
    """Given categories that are no distinct strings or doubles, they are left to the decider."""
    table = pd.DataFrame({"town": column(list("ab")), "number": ROWS[:, 0]})
    text = trained(table, TARGET, **CATEGORICAL)
    found = read_lightgbm(text.replace('[["a", "b"]]', lists), trees=None)
    assert (found.is_category, found.words) == ((True, False), (None, None))
