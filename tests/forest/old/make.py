"""Small models of the library version that is installed, and what this version itself gives: `python make.py OUT_DIR`.

Run it inside an environment of the old version (README.md beside it says how to make one). It needs nothing of ours.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd  # type: ignore[import-untyped]

if importlib.util.find_spec("xgboost"):
    import xgboost as xgb
if importlib.util.find_spec("lightgbm"):
    import lightgbm as lgb

Floats = npt.NDArray[Any]

ROWS = 200
FEATURES = ["income", "debt", "city", "grade"]
CITY, GRADE = 2, 3
CITIES = ["Aix", "Brno", "Cork", "Delft", "Evora", "Fulda", "Gent"]  # more than the libraries part one by one
GRADES = [10, 20, 40]
ACCENTED = ["Évora", *CITIES[1:4], "Aix", *CITIES[5:]]
SENTINEL = -999.0
EARLY_STOPPING_ROUNDS = 2
ODD_NUMBERS = [0.0, -0.0, 1e-36, -1e-36, float(np.float32(1e-35)), 1.1e-35, -1.1e-35, 16777217.0]
KNOWN_CODES = [float(code) for code in range(len(CITIES))]
ODD_CODES = [-1.0, -0.5, 2.7, 7.0, 31.0, 32.0, 16777217.0, 3e9]  # cut off, unknown, and beyond what the libraries know
SENTINEL_AND_NEIGHBOURS = [SENTINEL, -999.00001, -999.001, np.nan]  # the second is the sentinel, in float32


@dataclass(frozen=True)
class Recipe:
    """One model: what is set besides the usual, what it learns, and from which data."""

    settings: dict[str, Any] = field(default_factory=dict)
    target: Literal["accepted", "half", "count", "share"] = "accepted"
    categories: Literal["none", "codes", "words", "accents"] = "none"
    missing: float = np.nan
    stops_early: bool = False
    rounds: int = 3

    @property
    def is_category(self) -> list[bool]:
        """Per feature."""
        return [self.categories != "none" and name in ("city", "grade") for name in FEATURES]


XGBOOST = {
    "binary": Recipe(),
    "dart": Recipe({"booster": "dart", "rate_drop": 0.5, "one_drop": 1}, rounds=4),
    "parallel": Recipe({"num_parallel_tree": 2, "subsample": 0.6}, rounds=2),
    "words": Recipe(categories="words"),
    "accents": Recipe(categories="accents"),
    "codes": Recipe(categories="codes"),
    "one-leaf": Recipe({"gamma": 1e9}),
    "zero": Recipe({"gamma": 1e9, "base_score": 0.5}, target="half"),  # the base margin and each leaf are -0.0
    "dart-zero": Recipe({"gamma": 1e9, "base_score": 0.5, "booster": "dart"}, target="half"),
    "dart-words": Recipe({"booster": "dart", "rate_drop": 0.5, "one_drop": 1}, categories="words"),
    "poisson": Recipe({"objective": "count:poisson", "base_score": 3000.0}, target="count"),
    "early": Recipe({"eta": 2.0}, stops_early=True, rounds=9),
    "early-parallel": Recipe({"eta": 2.5, "num_parallel_tree": 2, "subsample": 0.6}, stops_early=True, rounds=9),
    "sentinel": Recipe(missing=SENTINEL),
}
LIGHTGBM = {
    "binary": Recipe(),
    "dart": Recipe({"boosting": "dart", "drop_rate": 0.5, "skip_drop": 0.0}, rounds=4),
    "rf": Recipe({"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.6}),
    "words": Recipe(categories="words"),
    "accents": Recipe(categories="accents"),
    "codes": Recipe(categories="codes"),
    "one-leaf": Recipe({"min_gain_to_split": 1e9}),
    "poisson": Recipe({"objective": "poisson"}, target="count"),
    "early": Recipe({"learning_rate": 1.5}, stops_early=True, rounds=9),
    "zero-as-missing": Recipe({"zero_as_missing": True}),
    "no-missing": Recipe({"use_missing": False}),
    "cross-entropy": Recipe({"objective": "cross_entropy"}, target="share"),
}


def data(recipe: Recipe, seed: int = 11) -> tuple[Floats, Floats]:
    """Rows, categories as codes, missing as the recipe has it, and a target."""
    rng = np.random.default_rng(seed)
    rows = np.column_stack(
        [
            np.round(rng.normal(30, 12, ROWS), 1),
            np.round(rng.normal(0, 5, ROWS), 1) * (rng.random(ROWS) < 0.7),
            rng.integers(0, len(CITIES), ROWS),
            rng.integers(0, len(GRADES), ROWS),
        ]
    ).astype(np.float64)
    city_counts = np.array([1.0, -1.0, 0.5, -0.5, 2.0, 0.0, -2.0])[rows[:, CITY].astype(int)]
    grade_counts = np.where(rows[:, GRADE] == 1, 1.0, -1.0)
    score = (rows[:, 0] - 30) / 12 - rows[:, 1] / 3 + city_counts + grade_counts + rng.normal(0, 1, ROWS)
    target = {
        "accepted": score > 0,
        "half": score > np.median(score),
        "count": rng.poisson(3000 * np.exp(score / 5)),
        "share": 1 / (1 + np.exp(-score)),
    }[recipe.target]
    rows[rng.random(rows.shape) < 0.1] = recipe.missing
    return rows, target.astype(np.float64)


def words_of(recipe: Recipe) -> list[list[str] | list[int] | None]:
    """Per feature, the training categories by code; None where the training data had codes or numbers."""
    cities = {"words": CITIES, "accents": ACCENTED}.get(recipe.categories)
    return [None, None, cities, GRADES if cities else None]


def frame(recipe: Recipe, rows: Floats) -> pd.DataFrame:
    """The rows with words in the place of codes."""
    table = pd.DataFrame(rows, columns=FEATURES)
    for name, words in zip(FEATURES, words_of(recipe), strict=True):
        if words is not None:
            table[name] = pd.Categorical.from_codes(table[name].fillna(-1).astype(int), words)
    return table


def probes(recipe: Recipe, thresholds: list[tuple[int, float]]) -> Floats:
    """Rows of the data, and one of them with, in each feature in turn, every number that is worth asking."""
    rows, _ = data(recipe)
    usual = np.array([25.5, -1.5, 2.0, 1.0])
    made = [*rows[:6], np.full(len(FEATURES), recipe.missing)]
    for feature, is_category in enumerate(recipe.is_category):
        exactly = np.unique([threshold for at, threshold in thresholds if at == feature])
        on = exactly.astype(np.float32)[:2]
        below, above = np.nextafter(on, np.float32(-np.inf)), np.nextafter(on, np.float32(np.inf))
        values = np.unique(np.concatenate([exactly, below, on, above])).tolist()
        values += KNOWN_CODES + ODD_CODES if is_category else ODD_NUMBERS if FEATURES[feature] == "debt" else []
        values += [np.nan] if np.isnan(recipe.missing) else SENTINEL_AND_NEIGHBOURS
        for value in values:
            made.append(usual.copy())
            made[-1][feature] = value
    return np.array(made)


def save_expected(path: Path, recipe: Recipe, version: str, rows: Floats, given: list[dict[str, Any]]) -> None:
    """Write beside a model what its file says of itself and of the training data, and what the library gave."""
    expected = {
        "version": version,
        "missing": None if np.isnan(recipe.missing) else recipe.missing,
        "is_category": recipe.is_category,
        "words": words_in(path, recipe),
        "rows": [[None if np.isnan(value) else value for value in row] for row in rows.tolist()],
        "given": given,
    }
    path.with_suffix(".expected.json").write_text(json.dumps(expected) + "\n")


def words_in(path: Path, recipe: Recipe) -> list[list[str] | list[int] | None]:
    """Per feature, the words of its codes as far as the file can be believed: LightGBM's, XGBoost's since 3.1.

    With a letter beyond ASCII, XGBoost 3.1 and 3.2 cut the words at wrong places (https://github.com/dmlc/xgboost/pull/12371).
    """
    if path.suffix == ".txt":
        return words_of(recipe)
    if '"cats":{' not in path.read_text("utf-8"):
        return [None] * len(FEATURES)
    return [words if str(words).isascii() else None for words in words_of(recipe)]


def answer(trees: str | None, leaves: Any, margins: Any, predictions: Any) -> dict[str, Any]:
    """What the library gives where these trees count, floats as hex."""
    hexes = {"margins": [float(m).hex() for m in margins], "predictions": [float(p).hex() for p in predictions]}
    return {"trees": trees, "leaves": leaves.astype(int).reshape(len(margins), -1).tolist(), **hexes}


def xgboost_matrix(recipe: Recipe, rows: Floats, target: Floats | None = None) -> Any:
    types = ["c" if is_category else "float" for is_category in recipe.is_category]
    named = {"feature_names": FEATURES, "feature_types": types}
    return xgb.DMatrix(rows, target, missing=recipe.missing, enable_categorical=True, **named)


def xgboost_model(recipe: Recipe) -> Any:
    rows, target = data(recipe)
    settings = {"objective": "binary:logistic", "tree_method": "hist", "max_depth": 2, "nthread": 1, "seed": 5}
    train = xgboost_matrix(recipe, rows, target)
    if any(words_of(recipe)):
        train = xgb.DMatrix(frame(recipe, rows), target, enable_categorical=True)
    stopping: dict[str, Any] = {}
    if recipe.stops_early:
        held_out = xgboost_matrix(recipe, *data(recipe, seed=12))
        stopping = {"evals": [(held_out, "later")], "early_stopping_rounds": EARLY_STOPPING_ROUNDS}
    return xgb.train({**settings, **recipe.settings}, train, recipe.rounds, verbose_eval=False, **stopping)


def make_xgboost(name: str, recipe: Recipe, out: Path) -> None:
    booster, path = xgboost_model(recipe), out / f"{name}.json"
    booster.save_model(path)
    if name in ("binary", "dart"):
        booster.save_model(path.with_suffix(".ubj"))
    if name == "binary" and xgb.__version__.startswith("1."):
        booster.save_model(path.with_suffix(".model"))  # the binary format that XGBoost 3.1 dropped
    rows = probes(recipe, xgboost_thresholds(path))
    matrix = xgboost_matrix(recipe, rows)
    used: dict[str | None, tuple[int, int]] = {None: (0, 0)}  # all of them
    if recipe.stops_early:
        used = {"best": (0, booster.best_iteration + 1), "all": (0, 0)}
    given = [
        answer(
            trees,
            booster.predict(matrix, pred_leaf=True, iteration_range=iterations),
            booster.predict(matrix, output_margin=True, iteration_range=iterations),
            booster.predict(matrix, iteration_range=iterations),
        )
        for trees, iterations in used.items()
    ]
    save_expected(path, recipe, xgb.__version__, rows, given)


def xgboost_thresholds(path: Path) -> list[tuple[int, float]]:
    """Feature and threshold of each split of a model that is not by category."""
    booster = json.loads(path.read_text("utf-8"))["learner"]["gradient_booster"]
    columns = ("split_indices", "split_conditions", "left_children", "split_type")
    return [
        (feature, condition)
        for tree in booster.get("gbtree", booster)["model"]["trees"]  # a dart holds a gbtree
        for feature, condition, left, by_category in zip(*(tree[column] for column in columns), strict=True)
        if left >= 0 and not by_category
    ]


def lightgbm_model(recipe: Recipe) -> Any:
    rows, target = data(recipe)
    by_code = [name for name, is_category in zip(FEATURES, recipe.is_category, strict=True) if is_category]
    settings = {"objective": "binary", "num_leaves": 4, "min_data_in_leaf": 5, "cat_smooth": 1, "min_data_per_group": 5}
    settings |= {"num_threads": 1, "deterministic": True, "seed": 5, "verbose": -1}
    table = frame(recipe, rows) if any(words_of(recipe)) else rows
    train = lgb.Dataset(table, target, feature_name=FEATURES, categorical_feature=by_code, free_raw_data=False)
    stopping: dict[str, Any] = {}
    if recipe.stops_early:
        held_out = lgb.Dataset(*data(recipe, seed=12), reference=train)
        stopping = {"valid_sets": [held_out], "callbacks": [lgb.early_stopping(EARLY_STOPPING_ROUNDS, verbose=False)]}
    return lgb.train({**settings, **recipe.settings}, train, recipe.rounds, **stopping)


def make_lightgbm(name: str, recipe: Recipe, out: Path) -> None:
    booster, path = lightgbm_model(recipe), out / f"{name}.txt"
    booster.save_model(path)  # the trees up to the best iteration, as its predict uses
    text = path.read_text("utf-8")
    rows = probes(recipe, lightgbm_thresholds(text))
    leaves, margins = booster.predict(rows, pred_leaf=True), booster.predict(rows, raw_score=True)
    version = text.partition("version=")[2].partition("\n")[0]  # of the format: the text says no other
    save_expected(path, recipe, version, rows, [answer(None, leaves, margins, booster.predict(rows))])


def lightgbm_thresholds(text: str) -> list[tuple[int, float]]:
    """Feature and threshold of each split of a model that is not by category."""
    found = []
    for tree in text.split("\nTree=")[1:]:
        lines = dict(line.partition("=")[::2] for line in tree.splitlines())
        columns = (lines[column].split() for column in ("split_feature", "threshold", "decision_type"))
        for feature, threshold, decision in zip(*columns, strict=True):
            if not int(decision) & 1:  # the bit of a category
                found.append((int(feature), float(threshold)))
    return found


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for library, recipes, make in (("xgboost", XGBOOST, make_xgboost), ("lightgbm", LIGHTGBM, make_lightgbm)):
        if importlib.util.find_spec(library):
            for name, recipe in recipes.items():
                make(name, recipe, out)


if __name__ == "__main__":
    main()
