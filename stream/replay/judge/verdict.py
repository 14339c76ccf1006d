"""The verdict on one record: its outcome, what differs, and both sides of the comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from stream.canonical import sha256
from stream.errors import PoisonError
from stream.events import TIERS, Decision
from stream.recourse.answer import Answer

ModeName: TypeAlias = Literal["reproduce", "what-if", "backfill"]
MODES: Final[tuple[ModeName, ...]] = ("reproduce", "what-if", "backfill")

# Each record falls under exactly one of these.
ERROR: Final = "error"
OUTSIDE: Final = "outside_window"
OF_A_REPLAY: Final = "of_a_replay"
REPEAT: Final = "repeat"  # equal to an earlier record, so nothing is said about it again
APART: Final = (REPEAT, OUTSIDE, OF_A_REPLAY)  # read and not replayed: counted already, or by the request's own word
OUTCOMES: Final[Mapping[ModeName, tuple[str, ...]]] = {
    "reproduce": ("identical", "changed", "other_engine", "altered", ERROR, *APART),
    "what-if": (
        "still_approved",
        "newly_declined",
        "newly_approved",
        "still_declined",
        "approved_otherwise",
        "declined_otherwise",
        ERROR,
        *APART,
    ),
    "backfill": ("answered_before", "answered_now", "approved", ERROR, *APART),
}
DIFFERENCES: Final = ("changed", "other_engine", "altered", ERROR)  # of reproduce: what makes it exit with 1

Feasibility: TypeAlias = Literal["feasible", "infeasible", "not_model", "unknown"]
FEASIBILITY: Final[Mapping[str, Feasibility]] = {
    "ok": "feasible", "no_feasible_recourse": "infeasible", "not_model_decline": "not_model",
}  # fmt: skip
OF_THE_DELIVERY: Final = ("replay", "run_id")  # of a recommendation; all else follows from decision and bundle


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison. `tiers`: tier, effort, and the features that its actions change."""

    margin: float | None
    feasibility: Feasibility = "unknown"
    tiers: tuple[tuple[str, float, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Verdict:
    """The outcome of one record. `answer` is what goes out for it, with the decision that it answers.

    differs: parts of a stored answer, or of the letter; behind: numbers that no letter shows.
    told_before: whether the earlier answer is known. conflict: an earlier decision has this id and other content.
    decided_ms: when it was decided, of what is outside the window.
    """

    outcome: str
    decision_id: str | None
    differs: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    earlier_known: bool = True
    conflict: bool = False
    decided_ms: int | None = None
    error: PoisonError | None = None
    before: Side | None = None
    after: Side | None = None
    decision: Decision | None = None
    answer: Answer | None = None
    features_left_out: int = 0


def refused(decision_id: str | None, error: PoisonError) -> Verdict:
    """The verdict on a record that cannot be replayed: a dead letter."""
    return Verdict(outcome=ERROR, decision_id=decision_id, error=error)


def side_of(body: Mapping[str, Any]) -> Side:
    """Extract from an audit body what a report shows."""
    return Side(
        margin=float(body["margin"]),
        feasibility=FEASIBILITY.get(str(body["status"]), "unknown"),
        tiers=tuple((str(one["tier"]), float(one["effort"]), tuple(sorted(one["target"]))) for one in body["tiers"]),
    )


def differing_parts(made: Mapping[str, Any], stored: Mapping[str, Any]) -> tuple[str, ...]:
    """Name the parts in which two audit bodies differ; tiers each by its name."""
    found = []
    for key in sorted(made.keys() | stored.keys()):
        if key not in made or key not in stored or sha256(made[key]) != sha256(stored[key]):
            found += _differing_tiers(made, stored) if key == "tiers" else [key]
    return tuple(found)


def _differing_tiers(made: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    try:
        sides = [{one["tier"]: sha256(one) for one in body["tiers"]} for body in (made, stored)]
    except (KeyError, TypeError):
        return ["tiers"]
    return [f"tiers.{name}" for name in TIERS if sides[0].get(name) != sides[1].get(name)] or ["tiers"]


def differing_recommendation(made: Mapping[str, Any], stored: Mapping[str, Any]) -> tuple[str, ...]:
    """Name the fields in which two recommendations differ, but for those of the delivery."""
    keys = sorted((made.keys() | stored.keys()) - set(OF_THE_DELIVERY))
    return tuple(
        f"recommendation.{key}"
        for key in keys
        if key not in made or key not in stored or sha256(made[key]) != sha256(stored[key])
    )
