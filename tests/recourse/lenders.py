"""Lenders for the tests of this room: a real model of a real library, its training pool, and rules for its features.

The owner library stays at hand as the oracle of what the model says. The pool's numbers have seventeen digits where
nothing says otherwise, so that a value that leaks is recognised.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

import lightgbm as lgb
import numpy as np
import numpy.typing as npt
import xgboost as xgb

from stream.events import BundleIdentity, Decision, ThresholdScale, Value
from stream.forest.cells import cells_of
from stream.forest.trees import Forest, Kind
from stream.recourse.answer import Answer, answer
from stream.recourse.comparators.leaf_matrix import build_leaf_matrix
from stream.recourse.model import PublishedModel, published_model
from stream.recourse.rules.features import rules_for
from stream.recourse.rules.policy import Policy
from tests.forest.models import Owner, forest_of, owner_of
from tests.oracles.trees import Tree, trees_of

Rows: TypeAlias = npt.NDArray[np.float64]
Library: TypeAlias = Literal["xgboost", "lightgbm"]
Approve: TypeAlias = Literal["above", "below"]

FEATURES = ("income", "share", "age", "accounts", "debts", "purpose", "region", "limit", "balance")
RULES = """
[income]
type = "number"
mutability = "mutable"
min = 0
unit = "EUR"
label = "monthly income"
reason = { code = "R1", too_low = "income too low", too_high = "income too high", missing = "income not known" }

[share]
type = "number"
mutability = "mutable"
min = 0
max = 1
step = 0.01

[age]
type = "integer"
mutability = "immutable"
reason = "R2"

[accounts]
type = "integer"
mutability = "increase_only"
min = 0
max = 40
no_record = [-9, -8]

[debts]
type = "integer"
mutability = "decrease_only"
min = 0
reason = { code = "R3", too_high = "too many debts" }
cost = 2

[purpose]
type = "category"
mutability = "mutable"
categories = ["car", "furniture", "radio", "école", "business"]

[region]
type = "category"
mutability = "mutable"

[limit]
type = "number"
mutability = "mutable"
group = "card"

[balance]
type = "number"
mutability = "decrease_only"
min = 0
group = "card"
reason = "R3"
"""
IDENTITY: BundleIdentity = {
    "bundle_sha256": "b" * 64,
    "model_sha256": "0" * 64,
    "pool_sha256": "1" * 64,
    "features_sha256": "2" * 64,
    "policy_sha256": "3" * 64,
    "model_id": "consumer-loan",
    "model_version": "2026-10",
    "revision": 1,
}
EVENT_TIME_MS = 1_795_774_500_250


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lender:
    """One published model, and what made it. `pool` (rows, features) in pool order; `trees` as the library has them."""

    model: PublishedModel
    owner: Owner
    pool: Rows
    trees: list[Tree]
    reference_key: bytes = b"key of the tests"

    @property
    def sign(self) -> int:
        """+1 where a higher margin is better for the applicant."""
        return self.model.policy.sign

    def accepts(self, rows: Rows, cutoff: float | None = None) -> npt.NDArray[np.bool_]:
        """Whether the owner library accepts these rows, by its own margins."""
        at = self.cutoff if cutoff is None else cutoff
        return self.sign * self.owner.ask(rows, "margin").astype(np.float64) >= self.sign * at

    @property
    def cutoff(self) -> float:
        """The cutoff margin of the bundle's own threshold."""
        return self.model.threshold_for(self.decide(self.pool[0]))[2]

    def features_of(self, row: npt.NDArray[np.float64]) -> dict[str, Value]:
        """A row as a decision says it."""
        return {name: self.model.rules.value_of(j, float(row[j])) for j, name in enumerate(self.model.forest.features)}

    def decide(self, row: npt.NDArray[np.float64], **changes: Any) -> Decision:
        """A declined decision on this row."""
        usual = Decision(
            decision_id="d-4711",
            event_time_ms=EVENT_TIME_MS,
            model_id="consumer-loan",
            model_version="2026-10",
            features=self.features_of(row),
            outcome="declined",
            decline_basis="model",
            subject_ref="s-09ae",
            margin=None,
            probability=None,
            threshold=None,
            threshold_scale=None,
            product="loan",
            jurisdiction="US",
            policy_overrides={},
            disclosures={"credit_bureau": "Büro"},
            traceparent=None,
        )
        return dataclasses.replace(usual, **changes)

    def declined(self, count: int) -> Rows:
        """The first rows of the pool that the owner library declines."""
        return self.pool[~self.accepts(self.pool)][:count]

    def answers(self, count: int) -> list[Answer]:
        """Answers to the first declined rows."""
        return [answer(self.decide(row), self.model) for row in self.declined(count)]

    def with_policy(self, **changes: Any) -> Lender:
        """The same lender under other settings that the leaf matrix does not depend on."""
        policy = dataclasses.replace(self.model.policy, **changes)
        return self.with_model(policy=policy)

    def with_model(self, **changes: Any) -> Lender:
        """The same lender with parts of its published model exchanged; nothing is remembered from before."""
        kept = {name: getattr(self.model, name) for name in PUBLISHED} | changes
        return dataclasses.replace(self, model=published_model(cells=cells_of(kept["forest"]), **kept))

    def with_pool(self, pool: Rows) -> Lender:
        """The same model over another pool."""
        rules, approve = self.model.rules, self.model.policy.approve
        matrix = build_leaf_matrix(self.model.forest, pool, rules, approve, self.reference_key)
        return dataclasses.replace(self.with_model(matrix=matrix), pool=pool)


PUBLISHED = (
    "identity",
    "forest",
    "rules",
    "policy",
    "matrix",
    "threshold",
    "threshold_scale",
    "audit_trees",
    "shadows",
)


@cache
def lender(
    library: Library, approve: Approve = "above", *, seed: int = 0, rows: int = 240, trees: int = 14, depth: int = 3
) -> Lender:
    """Train a small model on made-up applicants and publish it. Cached: whoever exchanges a part makes a new lender."""
    pool, target = applicants(seed, rows)
    booster = _train(library, pool, target if approve == "above" else 1 - target, trees, depth)
    return lender_of(booster, pool, approve)


def lender_of(
    booster: Any,
    pool: Rows,
    approve: Approve,
    *,
    forest: Forest | None = None,
    features_toml: str = RULES,
    threshold: float = 0.5,
    scale: ThresholdScale = "probability",
) -> Lender:
    """Publish a model that was trained on this pool; `forest` is what is read of it, where more is to be said of it."""
    forest = forest_of(booster) if forest is None else forest
    rules = rules_for(forest, features_toml)
    pool.setflags(write=False)
    return Lender(
        model=published_model(
            identity=IDENTITY.copy(),
            forest=forest,
            cells=cells_of(forest),
            rules=rules,
            policy=Policy(approve=approve, band_size=24),
            matrix=build_leaf_matrix(forest, pool, rules, approve, b"key of the tests"),
            threshold=threshold,
            threshold_scale=scale,
            audit_trees=True,
        ),
        owner=owner_of(booster, forest),
        pool=pool,
        trees=trees_of(booster),
    )


LENDERS: list[tuple[Library, Approve]] = [
    ("xgboost", "above"), ("xgboost", "below"), ("lightgbm", "above"), ("lightgbm", "below"),
]  # fmt: skip


def applicants(seed: int, rows: int) -> tuple[Rows, npt.NDArray[np.int64]]:
    """Made-up applicants and whether they paid back (1)."""
    rng = np.random.default_rng(seed)
    table = np.column_stack(
        [
            rng.lognormal(8, 0.5, rows),
            rng.integers(0, 101, rows) / 100,
            rng.integers(18, 80, rows),
            np.where(rng.random(rows) < 0.1, -9, rng.integers(0, 16, rows)),
            rng.integers(0, 31, rows),
            rng.integers(0, 5, rows),
            rng.integers(0, 4, rows),
            rng.lognormal(7, 1, rows),
            rng.lognormal(6, 1, rows),
        ]
    ).astype(np.float64)
    good = (
        (np.log(table[:, 0]) - 8) * 2
        + table[:, 1]
        + table[:, 2] / 60
        + 0.1 * table[:, 3]
        - 0.1 * table[:, 4]
        + np.isin(table[:, 5], [1, 3])
        - 0.5 * (table[:, 6] == 2)
        + 0.3 * (np.log(table[:, 7]) - np.log(table[:, 8]))
        + rng.normal(0, 0.7, rows)
    )
    for j in (0, 2, 5, 8):
        table[rng.random(rows) < 0.06, j] = np.nan
    return table, (good > np.quantile(good, 0.55)).astype(np.int64)


def _train(library: Library, pool: Rows, target: npt.NDArray[np.int64], trees: int, depth: int) -> Any:
    if library == "xgboost":
        settings = {"objective": "binary:logistic", "max_depth": depth, "eta": 0.3, "nthread": 1, "seed": 0}
        matrix = xgb.DMatrix(pool, target, feature_names=list(FEATURES), nthread=1)
        return xgb.train(settings | {"verbosity": 0}, matrix, trees)
    settings = {"objective": "binary", "max_depth": depth, "num_leaves": 2**depth, "learning_rate": 0.3, "verbose": -1}
    settings |= {"num_threads": 1, "deterministic": True, "min_data_in_leaf": 5, "seed": 0}
    return lgb.train(settings, lgb.Dataset(pool, target, feature_name=list(FEATURES)), trees)


def kind(library: Library, features: tuple[str, ...], **changes: Any) -> Kind:
    """What a model file says of a forest that a test plants: features are numbers unless `words` or `is_category` say else."""
    usual: dict[str, Any] = {
        "library": library,
        "library_version": "",
        "objective": "binary:logistic" if library == "xgboost" else "binary",
        "link_line": "binary:logistic" if library == "xgboost" else "binary sigmoid:1",
        "features": features,
        "is_category": (False,) * len(features),
        "words": (None,) * len(features),
        "base_margin": 0.0,
    }
    return Kind(**usual | changes)


def as_json(value: Any) -> str:
    """A record's JSON, for comparing two of them as text."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
