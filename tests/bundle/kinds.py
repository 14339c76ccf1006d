"""Real models of every kind that docs/models.md lists, small, with the pool that each was trained on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import lightgbm as lgb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import xgboost as xgb

ROWS: Final = 160
NAMES: Final = ("income", "debt", "city")
CITIES: Final = ("Aix", "Brno", "Cork", "Delft", "Evora", "Fulda", "Gent")  # the last is declared, in no row
BEYOND_ASCII: Final = ("Aix", "Brno", "Cork", "Delft", "Évora", "Fulda", "Gent")
NUMBERS: Final = (70, 20, 50, 10, 60, 30, 40)
TREES: Final = 4
OLD: Final = Path(__file__).parents[1] / "forest" / "old"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A model file with its pool, and the flags that its build needs."""

    suffix: str
    content: bytes
    pool: pd.DataFrame
    categories: bool = False
    flags: dict[str, Any] = field(default_factory=dict)
    listed: Sequence[str] | None = None  # `categories` of features.toml


def table(*, words: bool = False, missing: float = np.nan, cities: Sequence[Any] = CITIES) -> pd.DataFrame:
    """People with an income, a debt and a city, some of them unknown; the city as a number unless in `words`."""
    rng = np.random.default_rng(7)
    city = rng.integers(0, len(CITIES) - 1, ROWS)
    made = pd.DataFrame(
        {
            "income": np.round(rng.normal(30, 12, ROWS), 1),
            "debt": np.round(rng.normal(0, 5, ROWS), 1) * (rng.random(ROWS) < 0.7),
            "city": city.astype(np.float64),
        }
    )
    made.loc[rng.random(ROWS) < 0.1, "income"] = missing
    if words:
        made["city"] = pd.Categorical.from_codes(np.where(rng.random(ROWS) < 0.1, -1, city), list(cities))
    return made


def target(kind: str = "accepted") -> Any:
    """What the people turned out to be: accepted or not, a count, a share, an amount that may be negative, or a class."""
    people = table()
    rng = np.random.default_rng(8)
    city = np.array([1.0, -1.0, 0.5, -0.5, 2.0, 0.0])[people["city"].astype(int)]
    score = (people["income"].fillna(30) - 30) / 12 - people["debt"] / 3 + city + rng.normal(0, 0.7, ROWS)
    kinds = {
        "accepted": score > 0,
        "count": np.round(np.exp(score / 2) * 3) + 1,
        "share": 1 / (1 + np.exp(-score)),
        "amount": score,
        "class": np.digitize(score, [-0.7, 0.7]),
    }
    return np.asarray(kinds[kind], np.float64)


def xgboost(
    learns: Any = "accepted",
    *,
    suffix: str = ".json",
    categories: str = "none",
    missing: float = np.nan,
    flags: dict[str, Any] | None = None,
    named: bool = True,
    cities: Sequence[Any] = CITIES,
    listed: Sequence[str] | None = None,
    **settings: Any,
) -> Made:
    """An XGBoost model; `categories` none, codes or words."""
    pool = table(words=categories == "words", missing=missing, cities=cities)
    label = target(learns) if isinstance(learns, str) else learns
    matrix = xgb.DMatrix(
        pool if categories == "words" else pool.to_numpy(np.float64),
        label,
        feature_names=list(NAMES) if named else None,
        feature_types=None if categories == "words" else ["float", "float", "c" if categories == "codes" else "float"],
        enable_categorical=True,
        missing=missing,
        nthread=1,
    )
    if settings.get("objective", "").startswith("rank:"):
        matrix.set_group([ROWS // 2, ROWS // 2])
    if settings.get("objective") == "survival:aft":
        matrix.set_float_info("label_lower_bound", label)
        matrix.set_float_info("label_upper_bound", label)
    usual = {"objective": "binary:logistic", "max_depth": 3, "nthread": 1, "seed": 0, "verbosity": 0}
    booster = xgb.train({**usual, **settings}, matrix, TREES)
    content = bytes(booster.save_raw("ubj" if suffix == ".ubj" else "json"))
    return Made(
        suffix=suffix, content=content, pool=pool, categories=categories != "none", flags=flags or {}, listed=listed
    )


def lightgbm(
    learns: str = "accepted",
    *,
    categories: str = "none",
    flags: dict[str, Any] | None = None,
    named: bool = True,
    cities: Sequence[Any] = CITIES,
    **settings: Any,
) -> Made:
    """A LightGBM model; `categories` none, codes or words."""
    pool = table(words=categories == "words", cities=cities)
    data = lgb.Dataset(
        pool if categories == "words" else pool.to_numpy(np.float64),
        target(learns),
        feature_name=list(NAMES) if named else "auto",
        categorical_feature=["city"] if categories == "codes" else "auto",
        group=[ROWS // 2, ROWS // 2] if settings.get("objective") in ("lambdarank", "rank_xendcg") else None,
        free_raw_data=False,
    )
    usual = {"objective": "binary", "max_depth": 3, "verbose": -1, "num_threads": 1, "seed": 0, "min_data_in_leaf": 2}
    category = {"min_data_per_group": 1, "cat_smooth": 1.0, "max_cat_to_onehot": 1}
    booster = lgb.train({**usual, **category, **settings}, data, TREES)
    text = booster.model_to_string()
    return Made(suffix=".txt", content=text.encode(), pool=pool, categories=categories != "none", flags=flags or {})


def stopped(*, trees: str, **settings: Any) -> Made:
    """An XGBoost model whose best iteration is not its last."""
    made = xgboost(flags={"trees": trees}, **settings)
    booster = xgb.Booster(model_file=bytearray(made.content))
    booster.set_attr(best_iteration="1")
    return Made(suffix=".json", content=bytes(booster.save_raw("json")), pool=made.pool, flags=made.flags)


def lightgbm_stopped(saved: int | None = None, **flags: Any) -> Made:
    """A LightGBM model that stopped early, saved up to its best iteration, or with -1 whole."""
    pool = table()
    data = lgb.Dataset(pool.to_numpy(), target(), feature_name=list(NAMES), free_raw_data=False)
    held_out = data.create_valid(pool.to_numpy()[:40], 1 - target()[:40])
    settings = {"objective": "binary", "verbose": -1, "num_threads": 1}
    callbacks: list[Callable[..., Any]] = [lgb.early_stopping(1, verbose=False)]
    booster = lgb.train(settings, data, 9, valid_sets=[held_out], callbacks=callbacks, keep_training_booster=True)
    assert 0 < booster.best_iteration < 9
    text = booster.model_to_string(num_iteration=saved)
    assert (text.count("Tree=") == booster.best_iteration) == (saved is None)
    return Made(suffix=".txt", content=text.encode(), pool=pool, flags=flags)


def own_objective() -> Made:
    """A LightGBM model of an objective that its user wrote."""

    def squares(margins: Any, data: lgb.Dataset) -> tuple[Any, Any]:
        return margins - data.get_label(), np.ones(len(margins))

    return lightgbm("amount", objective=squares)


def with_infinite_threshold() -> Made:
    """An XGBoost model of which one threshold is inf, as a damaged or hand-made file has it."""
    made = xgboost()
    model = json.loads(made.content)
    model["learner"]["gradient_booster"]["model"]["trees"][0]["split_conditions"][0] = float("inf")
    return Made(suffix=".json", content=json.dumps(model).replace("Infinity", "1e39").encode(), pool=made.pool)


def old_binary() -> Made:
    """The binary format that XGBoost 1.7 wrote."""
    (file,) = (OLD / "xgboost-1.7.6").glob("*.model")
    return Made(suffix=".json", content=file.read_bytes(), pool=table())


def two_targets(**settings: Any) -> Made:
    """An XGBoost model of two targets."""
    return xgboost(np.column_stack([target(), 1 - target()]), **settings)


def each(make: Callable[..., Made], key: str, *values: Any, **usual: Any) -> Callable[[], Iterator[Made]]:
    """Models that differ in one setting."""
    return lambda: (make(**{**usual, key: value}) for value in values)


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the table: its models, and the name of the old file that is of this kind, if there is one."""

    models: Callable[[], Iterator[Made]]
    old: str | None = None


def one(make: Callable[..., Made], *more: dict[str, Any], old: str | None = None, **settings: Any) -> Kind:
    """One model, or several by different settings."""
    return Kind(lambda: (make(**changes) for changes in (settings, *more)), old)


DART: Final = {"booster": "dart", "rate_drop": 0.5, "one_drop": 1}
XGBOOST: Final[dict[str, Kind]] = {
    "`binary:logistic`": one(xgboost, {"suffix": ".ubj"}, old="binary"),
    "any `base_score`: given, estimated, or a vector of one": one(xgboost, {"base_score": 0.1}, old="binary"),
    "`tree_method` exact, approx and hist; grown by depth or by loss": one(
        xgboost, {"tree_method": "approx"}, {"grow_policy": "lossguide", "max_leaves": 5}, tree_method="exact"
    ),
    "monotone and interaction constraints": one(
        xgboost, monotone_constraints="(1,-1,0)", interaction_constraints="[[0,1],[2]]"
    ),
    "single-leaf trees, constant columns, missing values": one(xgboost, gamma=1e6),
    "early stopping": one(
        stopped,
        {"trees": "all"},
        {"trees": "best", "num_parallel_tree": 3, "subsample": 0.6},
        {"trees": "best", **DART},
        trees="best",
        old="early",
    ),
    "DART": one(xgboost, {**DART, "categories": "words"}, **DART, old="dart"),
    "`num_parallel_tree` (random forests, boosted or not)": one(
        xgboost, {**DART, "num_parallel_tree": 2}, num_parallel_tree=3, subsample=0.6, old="parallel"
    ),
    "a sentinel for missing": one(xgboost, missing=-999.0, flags={"missing": -999.0}, old="sentinel"),
    "categories as codes, one-hot and partition": one(
        xgboost, {"categories": "codes", "max_cat_to_onehot": 100}, categories="codes", max_cat_to_onehot=1, old="codes"
    ),
    "categories of a DataFrame, with their words in the file": one(
        xgboost,
        {"categories": "words", "suffix": ".ubj"},
        {"categories": "words", "cities": NUMBERS},
        categories="words",
        max_cat_to_onehot=1,
        old="words",
    ),
    "words beyond ASCII": one(
        xgboost, categories="words", cities=BEYOND_ASCII, listed=BEYOND_ASCII, max_cat_to_onehot=1
    ),
    "`reg:logistic`": one(xgboost, learns="share", objective="reg:logistic"),
    "`binary:logitraw`": one(xgboost, objective="binary:logitraw"),
    "`binary:hinge`": one(xgboost, objective="binary:hinge"),
    "`count:poisson`": one(xgboost, learns="count", objective="count:poisson", old="poisson"),
    "`reg:gamma`, `reg:tweedie`, `survival:cox`, `survival:aft`": Kind(
        each(xgboost, "objective", "reg:gamma", "reg:tweedie", "survival:cox", "survival:aft", learns="count")
    ),
    "`reg:squarederror`, `reg:squaredlogerror`, `reg:pseudohubererror`, `reg:absoluteerror`, `reg:quantileerror` with one alpha": one(
        xgboost,
        {"objective": "reg:squaredlogerror", "learns": "count"},
        {"objective": "reg:pseudohubererror", "learns": "amount"},
        {"objective": "reg:absoluteerror", "learns": "amount"},
        {"objective": "reg:quantileerror", "learns": "amount", "quantile_alpha": 0.3},
        objective="reg:squarederror",
        learns="amount",
    ),
    "more than one class": one(xgboost, learns="class", objective="multi:softprob", num_class=3),
    "more than one target": one(two_targets, objective="reg:squarederror"),
    "`reg:quantileerror` with several alphas": one(
        xgboost, learns="amount", objective="reg:quantileerror", quantile_alpha=[0.3, 0.6]
    ),
    "vector leaves (`multi_output_tree`)": one(
        two_targets, objective="reg:squarederror", multi_strategy="multi_output_tree"
    ),
    "ranking (`rank:...`)": one(xgboost, objective="rank:ndcg"),
    "linear models (`gblinear`)": one(xgboost, booster="gblinear"),
    "the old binary format, and pickles": one(old_binary, old="binary"),
    "features without names": one(xgboost, named=False),
    "a threshold of inf": one(with_infinite_threshold),
}
LIGHTGBM: Final[dict[str, Kind]] = {
    "`binary`": one(lightgbm, old="binary"),
    "`sigmoid` other than 1, with and without `boost_from_average`, `is_unbalance`": one(
        lightgbm, {"boost_from_average": False}, {"is_unbalance": True}, sigmoid=0.37
    ),
    "`cross_entropy`": one(lightgbm, learns="share", objective="cross_entropy", old="cross-entropy"),
    "`cross_entropy_lambda`": one(lightgbm, learns="share", objective="cross_entropy_lambda"),
    "DART": one(lightgbm, boosting="dart", drop_rate=0.5, skip_drop=0.0, old="dart"),
    "random forests (`boosting=rf`)": one(lightgbm, boosting="rf", bagging_freq=1, bagging_fraction=0.6, old="rf"),
    "early stopping": one(
        lightgbm_stopped, {"trees": "all"}, {"saved": -1}, {"saved": -1, "trees": "all"}, old="early"
    ),
    "missing values by NaN, and by none (`use_missing=false`)": one(lightgbm, {}, use_missing=False, old="no-missing"),
    "`zero_as_missing`": one(lightgbm, zero_as_missing=True, old="zero-as-missing"),
    "categories as codes": one(lightgbm, categories="codes", old="codes"),
    "categories of a DataFrame, with their words in the file": one(
        lightgbm,
        {"categories": "words", "cities": BEYOND_ASCII},
        {"categories": "words", "cities": NUMBERS},
        categories="words",
        old="words",
    ),
    "monotone constraints, `extra_trees`, `path_smooth`, single-leaf trees": one(
        lightgbm, {"min_gain_to_split": 1e6}, monotone_constraints=[1, -1, 0], extra_trees=True, path_smooth=1.0
    ),
    "`regression`, also with `reg_sqrt`, `regression_l1`, `huber`, `fair`, `quantile`, `mape`": one(
        lightgbm,
        {"objective": "regression", "learns": "amount", "reg_sqrt": True},
        *({"objective": o, "learns": "amount"} for o in ("regression_l1", "huber", "fair", "quantile", "mape")),
        objective="regression",
        learns="amount",
    ),
    "`poisson`": one(lightgbm, learns="count", objective="poisson", old="poisson"),
    "`gamma`, `tweedie`": Kind(each(lightgbm, "objective", "gamma", "tweedie", learns="count")),
    "an objective of one's own": one(own_objective),
    "more than one class": one(lightgbm, learns="class", objective="multiclass", num_class=3),
    "ranking (`lambdarank`, `rank_xendcg`)": one(lightgbm, objective="lambdarank"),
    "linear trees": one(lightgbm, learns="amount", objective="regression", linear_tree=True),
    "features without names": one(lightgbm, named=False),
    "a sentinel for missing (`--missing`)": one(lightgbm, flags={"missing": -999.0}),
}
