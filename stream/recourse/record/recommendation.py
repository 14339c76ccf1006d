"""The recommendation: what the applicant is told. Nothing of a comparator is in it but its cells."""

from __future__ import annotations

from stream.errors import InvalidDecision
from stream.events import Action, AuditBody, AuditTier, Decision, Recommendation, RecommendedTier
from stream.recourse.finding import Finding, Scored
from stream.recourse.model import PublishedModel
from stream.recourse.record.audit_body import moved_features, said_in
from stream.recourse.search.tier_targets import TierTarget
from stream.times import rfc3339

DAY_MS = 86_400_000


def recommendation_of(decision: Decision, model: PublishedModel, finding: Finding, body: AuditBody) -> Recommendation:
    """Write the recommendation of a finding. Ledger sums come from its audit body.

    Raises: InvalidDecision for an event_time so late that its days end after the calendar does.
    """
    found = finding.explanation
    targets = () if found is None else found.targets
    return {
        "recommendation_id": body["recommendation_id"],
        "decision_id": decision.decision_id,
        "subject_ref": decision.subject_ref,
        "model_id": decision.model_id,
        "model_version": decision.model_version,
        "revision": model.identity["revision"],
        "status": finding.status,
        "proven": None if found is None or targets else found.proven,
        "tiers": [
            recommended_tier(model, finding.scored, target, tier)
            for target, tier in zip(targets, body["tiers"], strict=True)
        ],
        "reasons": [{"code": r["code"], "text": r["text"], "feature": r["feature"]} for r in body["reasons"]],
        "disclosures": dict(decision.disclosures),
        "expires_at": _days_after(decision.event_time_ms, model.policy.expiry_days),
        "notice_due_at": _days_after(decision.event_time_ms, model.policy.notice_days),
        "replay": False,
        "run_id": None,
    }


def recommended_tier(model: PublishedModel, scored: Scored, found: TierTarget, audited: AuditTier) -> RecommendedTier:
    """Write one tier of the recommendation; nothing in it comes from the comparator but its cells.

    Near's actions need not lead to the comparator: what is withheld on the way there is not told of what they move.
    """
    moved = moved_features(scored.row, found.target)
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
        action["binding_categories"] = said_in(model, j, cell)
    return action


def _days_after(ms: int | None, days: int) -> str | None:
    if ms is None:
        return None
    try:
        return rfc3339(ms + days * DAY_MS)
    except ValueError:
        message = f"event_time lies so late that {days} days after it the calendar has ended"
        raise InvalidDecision(message) from None
