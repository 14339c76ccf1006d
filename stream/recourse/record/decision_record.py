"""The decision as records hold it, and the name of its answer."""

from __future__ import annotations

from stream.canonical import sha256
from stream.events import Decision, DecisionByValue
from stream.times import rfc3339

ENGINE_VERSION = "2"  # raised only when answers change


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
