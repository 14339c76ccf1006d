"""The demo's decision messages: each application that the scoring model decided becomes one JSON decision."""

from __future__ import annotations

from datetime import UTC, datetime

import orjson

from stream.demo.preparation import Prepared
from stream.demo.traffic import Post


def decisions(prepared: Prepared, *, threshold: float, decided_at: datetime, run: str = "") -> list[Post]:
    """Decide about every application: approved where the model's probability is at or above the threshold.

    A `run` goes into the decision ids, so that a later run's are others.
    What the model said is claimed in the decision, and the worker holds the claim against its own score, bit by bit.
    """
    event_time = decided_at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    scores, model_id = prepared.scores, prepared.manifest["model_id"]
    posts = []
    for i, features in enumerate(prepared.data.applications):
        declined = bool(scores.probabilities[i] < threshold)
        decision_id = f"{model_id}-{run}{i + 1:05d}"
        decision = {
            "decision_id": decision_id,
            "subject_ref": f"applicant-{i + 1:05d}",
            "event_time": event_time,
            "model_id": model_id,
            "model_version": prepared.manifest["model_version"],
            "features": features,
            "outcome": "declined" if declined else "approved",
            "decline_basis": "model",
            "margin": float(scores.margins[i]),
            "probability": float(scores.probabilities[i]),
            "threshold": threshold,
            "threshold_scale": "probability",
        }
        posts.append(Post(decision_id=decision_id, value=orjson.dumps(decision), declined=declined))
    return posts
