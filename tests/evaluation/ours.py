"""This project's own answers, asked as the worker asks: a decision in, a recommendation and an audit record out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from stream.audit.verify.body import verify
from stream.events import AuditBody, BundleIdentity, Decision, Ledger, TierName, Value
from stream.forest.cells import cells_of
from stream.recourse.answer import Answer, answer
from stream.recourse.comparators.leaf_matrix import build_leaf_matrix
from stream.recourse.model import PublishedModel, published_model
from stream.recourse.rules.features import rules_for
from stream.recourse.rules.policy import Policy
from stream.recourse.search.shadows import Shadows
from tests.evaluation.baselines.interface import Rows, Setting
from tests.evaluation.datasets import features_toml
from tests.evaluation.training import Kind, bootstraps, forest_of

TIERS: Final[tuple[TierName, ...]] = ("near", "mid", "far")
POLICY: Final = Policy(scale="deviation")  # what the paper measures effort in
TOP_K: Final = (1, 3, 5, 8)
SHADOW_SEED: Final = 7_000_000  # far from those of the retrained models that judge
IDENTITY: Final[BundleIdentity] = {
    "bundle_sha256": "b" * 64,
    "model_sha256": "0" * 64,
    "pool_sha256": "1" * 64,
    "features_sha256": "2" * 64,
    "policy_sha256": "3" * 64,
    "model_id": "evaluated",
    "model_version": "1",
    "revision": 1,
}


def published(setting: Setting, kind: Kind, shadows: int) -> PublishedModel:
    """Publish a setting's model, with shadows on bootstraps of its training set, as `coach bundle build` would."""
    rules = rules_for(
        setting.forest, features_toml(setting.columns, setting.labels, setting.x, setting.nominal, setting.whole)
    )
    trained = bootstraps(kind, setting, shadows, SHADOW_SEED + setting.seed)
    return published_model(
        identity=IDENTITY.copy(),
        forest=setting.forest,
        cells=cells_of(setting.forest),
        rules=rules,
        policy=POLICY,
        matrix=build_leaf_matrix(
            setting.forest, setting.x, rules, "above", b"key of the evaluation", scale=POLICY.scale
        ),
        threshold=0.5,
        threshold_scale="probability",
        audit_trees=True,
        shadows=Shadows(forests=tuple(forest_of(booster, setting.library) for booster in trained)),
    )


def decision_of(model: PublishedModel, row: Rows, name: str = "d") -> Decision:
    """One declined row as a decision. Shape: row (features,)."""
    features: dict[str, Value] = {
        column: model.rules.value_of(j, float(row[j])) for j, column in enumerate(model.forest.features)
    }
    return Decision(
        decision_id=name,
        event_time_ms=None,
        model_id=model.identity["model_id"],
        model_version=model.identity["model_version"],
        features=features,
        outcome="declined",
        decline_basis="model",
        subject_ref=None,
        margin=None,
        probability=None,
        threshold=None,
        threshold_scale=None,
        product=None,
        jurisdiction=None,
        policy_overrides={},
        disclosures={},
        traceparent=None,
    )


def timed(model: PublishedModel, row: Rows) -> tuple[Answer, float]:
    """Answer one declined row, and say how many milliseconds that took."""
    decision = decision_of(model, row)
    began = time.perf_counter()
    found = answer(decision, model)
    return found, (time.perf_counter() - began) * 1000


def targets(row: Rows, found: Answer, columns: Sequence[str], most: int | None = None) -> dict[TierName, Rows]:
    """The target of each tier that has one, by its actions; `most` acts on as many with the largest contributions only."""
    by_tier = {}
    for tier in found.recommendation["tiers"]:
        target = row.copy()
        ranked = sorted(tier["actions"], key=lambda action: -int(action["contribution"]))
        for action in ranked[:most]:
            target[columns.index(action["feature"])] = float(action["to"] or 0)
        by_tier[tier["tier"]] = target
    return by_tier


def robust_shares(found: Answer) -> dict[TierName, float | None]:
    """The published share of held-out shadows that accept, by tier."""
    return {tier["tier"]: tier["robust_share"] for tier in found.recommendation["tiers"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """What a verifier with nothing but the record finds: the share of the gap that the rows carry, the error, the faults."""

    coverage: Fraction
    error: Fraction  # in margin, the largest of any ledger's rows against its gap, and of the sum against the margin
    faults: int


def audited(found: Answer) -> Audited:
    """Re-add one record in integers: every ledger's rows against its gap, and query plus gap against the margin."""
    body = found.body
    unit = Fraction(2) ** body["unit_log2"]
    ledgers = [ledger for tier in body["tiers"] for ledger in tier["ledgers"].values()]
    pairs = [_rows_and_gap(ledger) for ledger in ledgers]  # type: ignore[arg-type]
    errors = [abs(rows - gap) * unit for rows, gap in pairs] + list(_margin_errors(body, unit))
    shares = [Fraction(rows, gap) for rows, gap in pairs if gap]
    faults = verify(dict(body), found.body_sha256, dict(found.recommendation))
    return Audited(
        coverage=min(shares, default=Fraction(1)), error=max(errors, default=Fraction(0)), faults=len(faults)
    )


def _rows_and_gap(ledger: Ledger) -> tuple[int, int]:
    return sum(int(row["contribution"]) for row in ledger["features"]), int(ledger["margin_gap"])


def _margin_errors(body: AuditBody, unit: Fraction) -> Iterable[Fraction]:
    """The margin after the actions, as the library gives it, against query plus gap plus the published rounding."""
    for tier in body["tiers"]:
        gap = int(tier["ledgers"]["target"]["margin_gap"])
        reached = (int(body["margin_exact"]) + gap + int(tier["margin_rounding"])) * unit
        yield abs(reached - Fraction(tier["margin"]))
