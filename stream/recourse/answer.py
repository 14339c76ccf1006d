"""Decision -> Recommendation + audit body. Composes the room; a pure function of decision, model and engine version."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream.canonical import sha256
from stream.errors import ClaimMismatch, NonFiniteFeature
from stream.events import AuditBody, Decision, Recommendation
from stream.forest.walk import leaf_slots, margins
from stream.recourse.comparators.leaf_matrix import without_no_record
from stream.recourse.comparators.ranking import ranking
from stream.recourse.explain.attribution import SplitRows, by_feature
from stream.recourse.explain.reasons import principal_reasons, reasons_ledger, shortfalls
from stream.recourse.model import PublishedModel
from stream.recourse.record.records import Scored, body_of, recommendation_of, recommended_tier, tier_of
from stream.recourse.search.tier_targets import targets_of
from stream.recourse.space.person_reach import person_reach


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What goes out for one declined decision."""

    recommendation: Recommendation
    body: AuditBody
    body_sha256: str


def answer(decision: Decision, model: PublishedModel) -> Answer:
    """Answer one declined decision.

    Raises: InvalidDecision (and its kinds) for a decision that does not fit the model; ClaimMismatch where the
    claimed margin or probability is not what the model gives.
    """
    scored = score(decision, model)
    mutability = model.rules.mutabilities(decision.policy_overrides)
    body = body_of(decision, model, scored)
    recommendation = recommendation_of(decision, model, body)
    if decision.decline_basis == "model" and not scored.accepted:
        _explain(model, scored, mutability, body, recommendation)
    else:
        body["status"] = recommendation["status"] = "not_model_decline"
    return Answer(recommendation=recommendation, body=body, body_sha256=sha256(body))


def answer_if_declined(decision: Decision, model: PublishedModel) -> Answer | None:
    """Answer a row that carries no outcome of its own: None where the model accepts it. Raises: as `answer`."""
    return None if score(decision, model).accepted else answer(decision, model)


def score(decision: Decision, model: PublishedModel) -> Scored:
    """Score a decision's row as the owner library does, and hold its claims against that.

    Raises: InvalidDecision (and its kinds), ClaimMismatch.
    """
    forest = model.forest
    row = model.rules.encode(decision.features)
    with np.errstate(over="ignore"):
        too_large = np.isinf(row.astype(forest.dtype))
    if too_large.any():
        name = forest.features[int(np.flatnonzero(too_large)[0])]
        msg = f"{name} is too large for the {forest.dtype.name} that the model computes in"
        raise NonFiniteFeature(msg)
    slots = leaf_slots(forest, row[None])
    native = margins(forest, slots)
    probability = model.link.probabilities(native)
    for name, claim, own in (("margin", decision.margin, native), ("probability", decision.probability, probability)):
        if claim is not None and model.cells.read(claim) != own[0]:
            msg = (
                f"the claimed {name} is not what {decision.model_id} {decision.model_version} gives for these features"
            )
            raise ClaimMismatch(msg)
    threshold, scale, cutoff = model.threshold_for(decision)
    sign = model.policy.sign
    return Scored(
        row=row,
        slots=slots[0],
        margin=float(native[0]),
        probability=float(probability[0]),
        threshold=threshold,
        threshold_scale=scale,
        cutoff=cutoff,
        accepted=sign * float(native[0]) >= sign * cutoff,
    )


def _explain(
    model: PublishedModel,
    scored: Scored,
    mutability: NDArray[np.int8],
    body: AuditBody,
    recommendation: Recommendation,
) -> None:
    """Fill in the reasons and, per tier, what would change the outcome."""
    forest, sign = model.forest, model.policy.sign
    splits = SplitRows(forest, model.rules) if model.audit_trees else None
    band = model.band(scored.cutoff)
    found = shortfalls(band, scored.slots)
    shares = by_feature(forest, found)
    body["reasons_ledger"] = reasons_ledger(band, model.rules, scored.slots, found, shares, scored.row, splits)
    body["reasons"] = principal_reasons(forest, model.rules, shares, scored.row, sign)
    recommendation["reasons"] = [
        {"code": r["code"], "text": r["text"], "feature": r["feature"]} for r in body["reasons"]
    ]
    reach = person_reach(
        model.rules,
        model.matrix,
        model.cell_targets,
        row=scored.row,
        cells=model.cells.of(scored.row[None])[0],
        mutability=mutability,
    )
    first = model.matrix.first_past(scored.cutoff + sign * model.policy.epsilon, sign)
    ranked = ranking(
        forest,
        model.matrix,
        model.rules,
        query_slots=scored.slots,
        query_row=without_no_record(scored.row[None], model.rules)[0],
        mutability=mutability,
        first=first,
        beta=model.policy.beta,
        magnitudes=model.magnitudes,
    )
    result = targets_of(model, reach, ranked, first=first, cutoff=scored.cutoff)
    for target in result.targets:
        tier = tier_of(model, scored, reach, target, splits)
        body["tiers"].append(tier)
        recommendation["tiers"].append(recommended_tier(model, scored, target, tier))
    body["splits"] = splits.table() if splits is not None else None
    body["status"] = recommendation["status"] = "ok" if body["tiers"] else "no_feasible_recourse"
    recommendation["proven"] = None if body["tiers"] else result.proven
