"""The audit body: everything that proves an answer, as a pure function of decision, model and engine version."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from stream.events import AuditBody, AuditedReason, AuditTier, Category, Decision, Ledger, Other, ReasonsLedger, Splits
from stream.forest.ledger import exact_sums, in_units
from stream.forest.walk import leaf_ids, leaf_slots, margins, margins_of
from stream.recourse.explain.attribution import Contrast, RowSides, SplitRows, by_feature, contrast, ledger
from stream.recourse.explain.reasons import reasons_ledger
from stream.recourse.finding import Explanation, Finding, Scored
from stream.recourse.model import PublishedModel
from stream.recourse.record.decision_record import ENGINE_VERSION, decision_by_value, recommendation_id
from stream.recourse.search.tier_targets import TierTarget
from stream.recourse.space.person_reach import PersonReach


def audit_body(decision: Decision, model: PublishedModel, finding: Finding) -> AuditBody:
    """Write the audit body of a finding."""
    forest, policy, scored = model.forest, model.policy, finding.scored
    explained = _Explained(model, scored, finding.explanation)
    by_value = decision_by_value(decision)
    exact = exact_sums(model.units, scored.slots[None])[0]
    body: AuditBody = {
        "engine_version": ENGINE_VERSION,
        "recommendation_id": recommendation_id(by_value, model.identity["bundle_sha256"], ENGINE_VERSION),
        "status": finding.status,
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
        "splits": explained.splits,
        "reasons_ledger": explained.reasons_ledger,
        "tiers": explained.tiers,
        "reasons": explained.reasons,
        "reasons_mapping": model.identity["features_sha256"],
    }
    if forest.missing is not None:
        body["missing"] = forest.missing
    return body


class _Explained:
    """The parts of a body that an explanation fills. Ledgers come in one order, for they share one table of splits."""

    def __init__(self, model: PublishedModel, scored: Scored, found: Explanation | None) -> None:
        self.reasons_ledger: ReasonsLedger | None = None
        self.tiers: list[AuditTier] = []
        self.reasons: list[AuditedReason] = []
        self.splits: Splits | None = None
        if found is None:
            return
        splits = SplitRows(model.forest, model.rules) if model.audit_trees else None
        self.reasons_ledger = reasons_ledger(
            found.band, model.rules, scored.slots, found.shortfalls, found.shares, scored.row, splits
        )
        self.reasons = found.reasons
        self.tiers = [tier_of(model, scored, found.reach, target, splits) for target in found.targets]
        self.splits = None if splits is None else splits.table()


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
    moved = moved_features(scored.row, found.target)
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
        return {"cell": None, "categories": said_in(model, j, cell), "value": None, "missing": False}
    return {
        "cell": None if missing else model.cells.interval(j, cell),
        "categories": None,
        "value": None,
        "missing": missing,
    }


def said_in(model: PublishedModel, j: int, cell: int) -> list[Category]:
    """Say a category's cell: its words, or where there are none the codes in it that a split lists."""
    words = model.rules.rules[j].categories
    if words is None:
        return [float(code) for code in model.cells.listed(j, cell)]
    cells = model.cells.of_column(j, np.arange(len(words), dtype=np.float64))
    return [words[code] for code in np.flatnonzero(cells == cell).tolist()]


def moved_features(row: NDArray[np.float64], target: NDArray[np.float64]) -> list[int]:
    """List the features that a target moves; shapes: row, target (features,)."""
    return np.flatnonzero((target != row) & ~np.isnan(target)).tolist()
