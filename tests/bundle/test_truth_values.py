"""Columns of true and false: a category of a DataFrame's booleans, and booleans that a model takes for numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import lightgbm as lgb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

from stream.bundle.build import BuiltBundle, build_bundle
from stream.bundle.open import open_bundle
from stream.bundle.pool import read_pool
from stream.errors import ConfigurationError, WrongFeatureType
from stream.forest.walk import margins_of
from stream.recourse.rules.features import read_features

TABLE: Final = '[{name}]\ntype = "{kind}"\nmutability = "mutable"\n{more}\n'
LIGHTGBM: Final = {"objective": "binary", "num_leaves": 5, "verbose": -1, "num_threads": 1, "min_data_per_group": 5}
NUMBERS: Final = '[a]\ntype = "number"\nmutability = "mutable"\n[b]\ntype = "integer"\nmutability = "mutable"\n'


def people() -> tuple[pd.DataFrame, Any]:
    """People with an income and whether they own a home, and whether they paid back."""
    rng = np.random.default_rng(4)
    income, owns = rng.normal(30, 10, 400), rng.random(400) < 0.5
    table = pd.DataFrame({"income": income, "owns": owns})
    return table, (income - 30) / 10 + 2 * owns + rng.normal(-1, 0.5, 400) > 0


def features(more: str = "") -> str:
    return TABLE.format(name="income", kind="number", more="") + TABLE.format(name="owns", kind="category", more=more)


def trained(folder: Path) -> tuple[lgb.Booster, pd.DataFrame]:
    table, paid = people()
    as_category = table.assign(owns=table["owns"].astype("category"))
    booster = lgb.train(LIGHTGBM, lgb.Dataset(as_category, paid), 8)
    booster.save_model(folder / "model.txt")
    (folder / "features.toml").write_text(features())
    return booster, as_category


def build(folder: Path, pool: str, out: str = "bundle") -> BuiltBundle:
    return build_bundle(
        model_path=folder / "model.txt",
        pool_path=folder / pool,
        features_path=folder / "features.toml",
        threshold=0.5,
        out_dir=folder / out,
    )


def test_a_category_of_truth_values_is_exact_from_every_pool(tmp_path: Path) -> None:
    """Given a model of a boolean category, pools of words, of 0 and 1, and of Parquet's booleans give one bundle, with the library's own bits."""
    booster, as_category = trained(tmp_path)
    table, _ = people()
    table.to_csv(tmp_path / "words.csv", index=False)
    table.assign(owns=table["owns"].astype(int)).to_csv(tmp_path / "numbers.csv", index=False)
    table.to_parquet(tmp_path / "pool.parquet")
    made = {build(tmp_path, pool, pool[:3]).bundle_sha256 for pool in ("words.csv", "numbers.csv", "pool.parquet")}
    assert len(made) == 1
    model = open_bundle(tmp_path / "wor")
    assert model.rules.rules[1].categories == (0.0, 1.0)
    rows = [model.rules.encode({"income": i, "owns": int(o)}) for i, o in table.itertuples(index=False)]
    assert (
        margins_of(model.forest, np.array(rows)).tobytes()
        == np.asarray(booster.predict(as_category, raw_score=True)).tobytes()
    )
    with pytest.raises(WrongFeatureType, match="for true and false write 1 and 0"):
        model.rules.encode({"income": 1.0, "owns": True})


@pytest.mark.parametrize(
    ("categories", "said"),
    [
        ("categories = [false, true]", "holds true or false, which are 1 and 0 to the model: write 0 and 1"),
        ('categories = ["False", "True"]', r"leave `categories` out.*true and false are the numbers 1 and 0"),
    ],
)
def test_words_for_truth_values_are_told_what_they_are(tmp_path: Path, categories: str, said: str) -> None:
    """Given truth values or their words as `categories`, the error says that the model holds 1 and 0."""
    trained(tmp_path)
    people()[0].to_csv(tmp_path / "pool.csv", index=False)
    (tmp_path / "features.toml").write_text(features(categories))
    with pytest.raises(ConfigurationError, match=said):
        build(tmp_path, "pool.csv")
    (tmp_path / "features.toml").write_text(features("categories = [0, 1]"))
    assert build(tmp_path, "pool.csv").advice.unproven_words == ()


def test_a_column_of_true_and_false_is_one_and_zero(tmp_path: Path) -> None:
    """Given a CSV's truth values for numbers, they are 1 and 0; beside a number that is neither, the column is refused."""
    rules = read_features(NUMBERS, ("a", "b"))
    path = tmp_path / "pool.csv"
    path.write_text("a,b\nTrue,false\n,TRUE\nFalse,1\n")
    rows = read_pool(path, rules, target_column=None).rows
    assert rows[:, 1].tolist() == [0, 1, 1]
    assert rows[[0, 2], 0].tolist() == [1, 0]
    assert np.isnan(rows[1, 0])
    path.write_text("a,b\nTrue,false\n2,TRUE\n")
    with pytest.raises(ConfigurationError, match="column 'a' holds text where a number is due"):
        read_pool(path, rules, target_column=None)
    late = "a,b\n" + "True,0\n" * 200_000 + "2,0\n"
    path.write_text(late)
    with pytest.raises(ConfigurationError, match="column 'a' holds true and false, and something else beside them"):
        read_pool(path, rules, target_column=None)


def test_words_that_only_features_toml_gives_are_named(tmp_path: Path) -> None:
    """Given a model of codes whose words features.toml lists, the build names the feature; claims that are equal leave nothing to name."""
    table, paid = people()
    codes = table.assign(owns=table["owns"].astype(int))
    booster = lgb.train(LIGHTGBM, lgb.Dataset(codes, paid, categorical_feature=["owns"]), 8)
    booster.save_model(tmp_path / "model.txt")
    words = np.where(table["owns"], "yes", "no")
    codes.assign(owns=words, score=booster.predict(codes)).to_csv(tmp_path / "pool.csv", index=False)
    (tmp_path / "features.toml").write_text(features('categories = ["no", "yes"]'))
    built = build(tmp_path, "pool.csv")
    assert built.advice.unproven_words == ("owns",)
    claimed = build_bundle(
        model_path=tmp_path / "model.txt",
        pool_path=tmp_path / "pool.csv",
        features_path=tmp_path / "features.toml",
        threshold=0.5,
        out_dir=tmp_path / "claimed",
        claim_column="score",
    )
    assert claimed.advice.unproven_words == ()
    (tmp_path / "features.toml").write_text(features())
    with pytest.raises(
        ConfigurationError, match=r"its file does not hold the words .* in the order of the training cat"
    ):
        build(tmp_path, "pool.csv", "another")


def test_text_for_categories_that_are_numbers_says_so(tmp_path: Path) -> None:
    """Given text where the training categories are numbers, the error says so, and not to list words."""
    text = '[a]\ntype = "category"\nmutability = "mutable"\n'
    rules = read_features(text, ("a",), words=((0.0, 1.0),), is_category=(True,))
    (tmp_path / "pool.csv").write_text("a\n1\nperhaps\n")
    with pytest.raises(ConfigurationError, match="its training categories are numbers: write these") as refused:
        read_pool(tmp_path / "pool.csv", rules, target_column=None)
    assert "perhaps" not in str(refused.value)
