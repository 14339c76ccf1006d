"""Writes the two records: the recommendation for the person, and the audit body that proves it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from stream.canonical import sha256
from stream.errors import InvalidDecision
from stream.events import (
    Action,
    AuditBody,
    AuditTier,
    Category,
    Decision,
    DecisionByValue,
    Ledger,
    Other,
    Recommendation,
    RecommendedTier,
    ThresholdScale,
)
from stream.forest.ledger import exact_sums, in_units
from stream.forest.walk import leaf_ids, leaf_slots, margins, margins_of
from stream.recourse.explain.attribution import Contrast, RowSides, SplitRows, by_feature, contrast, ledger
from stream.recourse.model import PublishedModel
from stream.recourse.search.tier_targets import TierTarget
from stream.recourse.space.person_reach import PersonReach

ENGINE_VERSION = "2"  # raised only when answers change
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scored:
    """A decision as the model sees it. row (features,) float64; slots (trees,) int32; margins are native."""

    row: NDArray[np.float64]
    slots: NDArray[np.int32]
    margin: float
    probability: float
    threshold: float
    threshold_scale: ThresholdScale
    cutoff: float
    accepted: bool


def rfc3339(ms: int) -> str:
    """Spell a time, in milliseconds since 1970 UTC, as RFC 3339 with milliseconds and Z."""
    return (EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def decision_by_value(decision: Decision) -> DecisionByValue:
    """Write the decision down; the trace context is transport, not content, and stays out."""
    return {
        "decision_id": decision.decision_id,
        "subject_ref": decision.subject_ref,
        "event_time": None if decision.event_time_ms is None else rfc3339(decision.event_time_ms),
        "model_id": decision.model_id,
        "model_version": decision.model_version,
        "features": dict(decision.features),
        "outcome": decision.outcome,
        "decline_basis": decision.decline_basis,
        "margin": decision.margin,
        "probability": decision.probability,
        "threshold": decision.threshold,
        "threshold_scale": decision.threshold_scale,
        "product": decision.product,
        "jurisdiction": decision.jurisdiction,
        "policy_overrides": dict(decision.policy_overrides),
        "disclosures": dict(decision.disclosures),
    }


def recommendation_id(decision: DecisionByValue, bundle_sha256: str, engine_version: str) -> str:
    """Name an answer by what it is a function of."""
    return sha256({"bundle_sha256": bundle_sha256, "decision": decision, "engine_version": engine_version})


def body_of(decision: Decision, model: PublishedModel, scored: Scored) -> AuditBody:
    """Write what holds for every answer; ledgers, tiers and reasons are added by who finds them."""
    forest, policy = model.forest, model.policy
    by_value = decision_by_value(decision)
    exact = exact_sums(model.units, scored.slots[None])[0]
    body: AuditBody = {
        "engine_version": ENGINE_VERSION,
        "recommendation_id": recommendation_id(by_value, model.identity["bundle_sha256"], ENGINE_VERSION),
        "status": "no_feasible_recourse",
        "decision": by_value,
        "bundle": model.identity.copy(),
        "library": forest.library,
        "library_version": forest.library_version,
        "objective": forest.objective,
        "trees_used": forest.trees,
        "summation": f"base margin, then trees in order, in {forest.dtype.name}",
        "approve": policy.approve,
        "threshold": scored.threshold,
        "threshold_scale": scored.threshold_scale,
        "cutoff_margin": scored.cutoff,
        "epsilon": float(policy.epsilon),
        "beta": float(policy.beta),
        "scales": dict(zip(forest.features, model.matrix.scales.tolist(), strict=True)),
        "unit_log2": model.units.unit_log2,
        "margin": scored.margin,
        "probability": scored.probability,
        "margin_exact": str(exact),
        "margin_rounding": str(in_units(model.units, scored.margin) - exact),
        "query_leaves": leaf_ids(forest, scored.slots).tolist() if model.audit_trees else None,
        "splits": None,
        "reasons_ledger": None,
        "tiers": [],
        "reasons": [],
        "reasons_mapping": model.identity["features_sha256"],
    }
    if forest.missing is not None:
        body["missing"] = forest.missing
    return body


def recommendation_of(decision: Decision, model: PublishedModel, body: AuditBody) -> Recommendation:
    """Write what holds for every recommendation."""
    return {
        "recommendation_id": body["recommendation_id"],
        "decision_id": decision.decision_id,
        "subject_ref": decision.subject_ref,
        "model_id": decision.model_id,
        "model_version": decision.model_version,
        "revision": model.identity["revision"],
        "status": body["status"],
        "proven": None,
        "tiers": [],
        "reasons": [],
        "disclosures": dict(decision.disclosures),
        "expires_at": _days_after(decision.event_time_ms, model.policy.expiry_days),
        "notice_due_at": _days_after(decision.event_time_ms, model.policy.notice_days),
        "replay": False,
        "run_id": None,
    }


def tier_of(
    model: PublishedModel, scored: Scored, reach: PersonReach, found: TierTarget, splits: SplitRows | None
) -> AuditTier:
    """Write one tier of the audit body: both ledgers, and the margin after the actions as the library gives it."""
    forest, units = model.forest, model.units
    comparator_cells = model.matrix.cells[found.comparator]
    comparator_slots = forest.first_leaf[:-1] + model.matrix.codes[found.comparator].astype(np.int32)
    target_slots = leaf_slots(forest, found.target[None])
    native = margins(forest, target_slots)
    toward = contrast(forest, units, scored.slots, comparator_slots)
    reached = contrast(forest, units, scored.slots, target_slots[0])
    moved = _moved(scored.row, found.target)
    exact_query = exact_sums(units, scored.slots[None])[0]
    return {
        "tier": found.tier,
        "rank": found.rank,
        "from_tercile": found.from_tercile,
        "comparator": {
            "reference": model.matrix.references[found.comparator].tobytes().hex(),
            "key_id": model.policy.reference_key_id,
        },
        "target": {forest.features[j]: model.rules.value_of(j, float(found.target[j])) for j in moved},
        "margin": float(native[0]),
        "margin_rounding": str(in_units(units, float(native[0])) - exact_query - reached.gap),
        "probability": float(model.link.probabilities(native)[0]),
        "effort": math.fsum(reach.effort(j, float(found.target[j])) for j in moved),
        "robust_share": _robust_share(model, scored, found),
        "ledgers": {
            "comparator": _ledger(model, scored, toward, _comparator_sides(model, reach, comparator_cells), splits),
            "target": _ledger(model, scored, reached, _target_sides(model, found.target), splits),
        },
    }


def _robust_share(model: PublishedModel, scored: Scored, found: TierTarget) -> float | None:
    """What share of the shadows that a tier's search did not ask accepts its target; None without any. Near asks none."""
    sign, shadows = model.policy.sign, model.shadows
    ring = shadows.ring(scored.row)
    unasked = ring if found.tier == "near" else ring[shadows.searched :]
    if not unasked:
        return None
    margins = [float(margins_of(shadows.forests[k], found.target[None])[0]) for k in unasked]
    return sum(sign * margin >= sign * scored.cutoff for margin in margins) / len(margins)


def recommended_tier(model: PublishedModel, scored: Scored, found: TierTarget, audited: AuditTier) -> RecommendedTier:
    """Write one tier of the recommendation; nothing in it comes from the comparator but its cells.

    Near's actions need not lead to the comparator: what is withheld on the way there is not told of what they move.
    """
    moved = _moved(scored.row, found.target)
    acted = {model.forest.features[j] for j in moved}
    contribution = {f["feature"]: f["contribution"] for f in audited["ledgers"]["target"]["features"]}
    withheld = [
        {"feature": f["feature"], "why": f["why_not"]}
        for f in audited["ledgers"]["comparator"]["features"]
        if f["why_not"] is not None and f["feature"] not in acted
    ]
    own, to = scored.row.tolist(), found.target.tolist()
    return {
        "tier": found.tier,
        "actions": [_action(model, j, own[j], to[j], model.cells.cell(j, to[j]), contribution) for j in moved],
        "margin": audited["margin"],
        "probability": audited["probability"],
        "effort": audited["effort"],
        "robust_share": audited["robust_share"],
        "withheld": [{"feature": w["feature"], "why": w["why"] or ""} for w in withheld],
    }


def _action(model: PublishedModel, j: int, own: float, to: float, cell: int, contribution: dict[str, str]) -> Action:
    rule = model.rules.rules[j]
    if rule.is_unrecorded(own):
        direction = "provide"
    elif rule.type == "category":
        direction = "change"
    else:
        direction = "increase" if to > own else "decrease"
    lowest = float(model.cell_targets.from_below[int(model.cell_targets.start[j]) + cell])
    from_above = direction == "decrease" or (direction == "provide" and rule.type != "category" and to != lowest)
    action: Action = {
        "feature": rule.name,
        "label": rule.label,
        "direction": direction,
        "from": model.rules.value_of(j, own),
        "to": model.rules.value_of(j, to),
        "unit": rule.unit,
        "binding_threshold": None,
        "contribution": contribution.get(rule.name, "0"),
    }
    if model.cells.category(j) is None:
        at = int(model.cell_targets.start[j]) + cell
        ends = (model.cell_targets.from_below[at], model.cell_targets.from_above[at])
        if cell != model.cells.cell(j, own) and to in ends:  # a target that lasts can stand at a shadow's threshold
            action["binding_threshold"] = model.cells.interval(j, cell)["high" if from_above else "low"]
    else:
        action["binding_categories"] = _said_in(model, j, cell)
    return action


def _ledger(
    model: PublishedModel,
    scored: Scored,
    found: Contrast,
    sides: dict[int, tuple[float, Other, str | None]],
    splits: SplitRows | None,
) -> Ledger:
    """Write a ledger, with the margin shift of each feature moved alone."""
    shares = by_feature(model.forest, found.decisive())
    alone = np.repeat(scored.row[None], len(shares), axis=0)
    for k, j in enumerate(shares):
        alone[k, j] = sides[j][0]
    exact = exact_sums(model.units, np.concatenate([scored.slots[None], leaf_slots(model.forest, alone)]))
    rows = {
        j: RowSides(
            query_value=model.rules.value_of(j, float(scored.row[j])),
            other=sides[j][1],
            why_not=sides[j][2],
            solo_shift=exact[1 + k] - exact[0],
        )
        for k, j in enumerate(shares)
    }
    return ledger(model.forest, model.rules, found, shares, rows, splits)


def _comparator_sides(
    model: PublishedModel, reach: PersonReach, cells: NDArray[np.int32]
) -> dict[int, tuple[float, Other, str | None]]:
    """Per feature whose cell differs: a value in the comparator's cell, the cell itself, and why one cannot move there."""
    sides: dict[int, tuple[float, Other, str | None]] = {}
    for j in np.flatnonzero(cells != reach.cells).tolist():
        cell = int(cells[j])
        sides[j] = (model.cells.inside(j, cell), _other(model, j, cell), reach.why_not(j, cells))
    return sides


def _target_sides(model: PublishedModel, target: NDArray[np.float64]) -> dict[int, tuple[float, Other, str | None]]:
    return {
        j: (
            float(x),
            {"cell": None, "categories": None, "value": model.rules.value_of(j, float(x)), "missing": math.isnan(x)},
            None,
        )
        for j, x in enumerate(target.tolist())
    }


def _other(model: PublishedModel, j: int, cell: int) -> Other:
    missing = model.cells.is_missing(j, cell)
    has_words = model.rules.rules[j].categories is not None
    if not missing and (has_words or model.cells.category(j) is not None):
        return {"cell": None, "categories": _said_in(model, j, cell), "value": None, "missing": False}
    return {
        "cell": None if missing else model.cells.interval(j, cell),
        "categories": None,
        "value": None,
        "missing": missing,
    }


def _said_in(model: PublishedModel, j: int, cell: int) -> list[Category]:
    """Say a category's cell: its words, or where there are none the codes in it that a split lists."""
    words = model.rules.rules[j].categories
    if words is None:
        return [float(code) for code in model.cells.listed(j, cell)]
    cells = model.cells.of_column(j, np.arange(len(words), dtype=np.float64))
    return [words[code] for code in np.flatnonzero(cells == cell).tolist()]


def _moved(row: NDArray[np.float64], target: NDArray[np.float64]) -> list[int]:
    return np.flatnonzero((target != row) & ~np.isnan(target)).tolist()


def _days_after(ms: int | None, days: int) -> str | None:
    if ms is None:
        return None
    try:
        return rfc3339(ms + days * DAY_MS)
    except OverflowError:
        msg = f"event_time lies so late that {days} days after it the calendar has ended"
        raise InvalidDecision(msg) from None
