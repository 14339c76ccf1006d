"""Decision -> recommendation + audit body: a pure function of decision, model and engine version."""

from __future__ import annotations

from dataclasses import dataclass

from stream.canonical import sha256
from stream.events import AuditBody, Decision, Recommendation
from stream.recourse.finding import find, score
from stream.recourse.model import PublishedModel
from stream.recourse.record.audit_body import audit_body
from stream.recourse.record.recommendation import recommendation_of


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
    finding = find(decision, model)
    body = audit_body(decision, model, finding)
    body_sha256 = sha256(body)
    recommendation = recommendation_of(decision, model, finding, body)
    return Answer(recommendation=recommendation, body=body, body_sha256=body_sha256)


def answer_if_declined(decision: Decision, model: PublishedModel) -> Answer | None:
    """Answer a row that carries no outcome of its own: None where the model accepts it. Raises: as `answer`."""
    return None if score(decision, model).accepted else answer(decision, model)
