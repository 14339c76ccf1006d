"""Decisions in the shape in which producers write them."""

from __future__ import annotations

from typing import Any

from stream.events import Decision
from stream.recourse.record.decision_record import decision_by_value


def decision_dict(decision: Decision) -> dict[str, Any]:
    """The JSON shape of a decision, as `encode("Decision", ...)` takes it."""
    return {**decision_by_value(decision), "traceparent": decision.traceparent}
