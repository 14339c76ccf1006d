"""A recommendation as a person reads it: why, what would change the outcome, and what was checked."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Final, Literal

from stream.events import Action, AuditBody, Recommendation, RecommendedTier, Value

WIDTH: Final = 100
SIDES: Final[tuple[Literal["comparator", "target"], ...]] = ("comparator", "target")
WHOM_IT_FOLLOWS: Final = {  # the tiers are thirds of the approved applicants, by the model's score
    "near": "as applicants just past the line",
    "mid": "as applicants in the middle of the approved",
    "far": "as applicants well past the line",
}


def letter(recommendation: Recommendation, body: AuditBody) -> str:
    """Write out one answer as text of at most WIDTH columns."""
    sides = "approved from" if body["approve"] == "above" else "approved up to"
    score = f"scored {body['probability']:.3f}, {sides} {body['threshold']:g}"
    if body["threshold_scale"] == "margin":
        score = f"scored a margin of {body['margin']:.3f}, {sides} {body['threshold']:g}"
    lines = [f"{recommendation['decision_id']}  declined: {score}", "", "  Why"]
    lines += [f"    {i}. {reason['text']}" for i, reason in enumerate(recommendation["reasons"], 1)]
    lines += [
        "",
        "  What would have changed the outcome" if recommendation["tiers"] else "  No feasible change was found",
    ]
    for tier in recommendation["tiers"]:
        lines += list(_tier(tier))
    return "\n".join([*lines, "", *_checked(body)])


def _tier(tier: RecommendedTier) -> Iterator[str]:
    yield f"    {tier['tier']}, {WHOM_IT_FOLLOWS[tier['tier']]}: the score would be {tier['probability']:.3f}"
    for action in tier["actions"]:
        yield from textwrap.wrap(_action(action), WIDTH, initial_indent="      - ", subsequent_indent="        ")


def _action(action: Action) -> str:
    unit = f" {action['unit']}" if action["unit"] else ""
    return f"{action['label']}: from {_shown(action['from'])} to {_shown(action['to'])}{unit}"


def _shown(value: Value) -> str:
    if value is None:
        return "(not known)"
    return f'"{value}"' if isinstance(value, str) else f"{value:g}" if abs(value) < 1e6 else f"{value:,.0f}"  # noqa: PLR2004


def _checked(body: AuditBody) -> Iterator[str]:
    ledgers = [tier["ledgers"][side] for tier in body["tiers"] for side in SIDES]
    rows = sum(len(ledger["features"]) for ledger in ledgers)
    yield f"  Audit record {body['recommendation_id'][:16]}: the score is the sum of {body['trees_used']} trees' leaves;"
    yield f"  {len(ledgers)} ledgers with {rows} rows, each summing to its gap exactly, in units of 2^{body['unit_log2']}"
