"""A recommendation as a person reads it: why, what would change the outcome, and what was checked."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from stream.events import AuditBody, Recommendation, RecommendedTier, Value

WIDTH: Final = 100
SIDES: Final[tuple[Literal["comparator", "target"], ...]] = ("comparator", "target")
ALL_TOGETHER: Final = "  What would have changed the outcome: all of these steps together"
ONE_OF: Final = "  What would have changed the outcome: any one of these blocks, all of its steps together"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thirds:
    """The training pool's approved people in thirds by score: the margins at which the middle and the highest begin."""

    middle: float
    highest: float

    def third_of(self, margin: float, *, approve: Literal["above", "below"]) -> str:
        """Say in which third a score is."""
        sign = 1 if approve == "above" else -1
        third = (sign * margin >= sign * self.middle) + (sign * margin >= sign * self.highest)
        return f"as the {('lowest', 'middle', 'highest')[third]} third of the approved"


def letter(recommendation: Recommendation, body: AuditBody, thirds: Thirds) -> str:
    """Write out one answer as text of at most WIDTH columns."""
    sides = "approved from" if body["approve"] == "above" else "approved up to"
    score = f"scored {body['probability']:.3f}, {sides} {body['threshold']:g}"
    if body["threshold_scale"] == "margin":
        score = f"scored a margin of {body['margin']:.3f}, {sides} {body['threshold']:g}"
    lines = [f"{recommendation['decision_id']}  declined: {score}", "", "  Why"]
    lines += [f"    {i}. {reason['text']}" for i, reason in enumerate(recommendation["reasons"], 1)]
    worth, left_out = _worth_saying(recommendation["tiers"], 1 if body["approve"] == "above" else -1)
    lines += ["", (ALL_TOGETHER if len(worth) == 1 else ONE_OF) if worth else "  No feasible change was found"]
    for tier in worth:
        lines += list(_tier(tier, thirds.third_of(tier["margin"], approve=body["approve"])))
    return "\n".join([*lines, *left_out, "", *_checked(body)])


def _worth_saying(tiers: Sequence[RecommendedTier], sign: int) -> tuple[list[RecommendedTier], list[str]]:
    """The tiers that offer something of their own, and a line for each other one."""
    distinct: list[RecommendedTier] = []
    left_out = []
    for tier in tiers:
        same = next((one for one in distinct if one["actions"] == tier["actions"]), None)
        if same is None:
            distinct.append(tier)
        else:
            left_out.append(f"    ({tier['tier']}: the same steps as {same['tier']})")
    worth = []
    for tier in distinct:
        at_most_its_effort = (one for one in distinct if one["effort"] <= tier["effort"])
        better = next((one for one in at_most_its_effort if sign * one["margin"] > sign * tier["margin"]), None)
        if better is None:
            worth.append(tier)
        else:
            left_out.append(f"    ({tier['tier']}: left out; {better['tier']} takes no more effort and scores better)")
    return worth, left_out


def _tier(tier: RecommendedTier, third: str) -> Iterator[str]:
    yield f"    {tier['tier']}: the score would be {tier['probability']:.3f}, {third}"
    for action in tier["actions"]:
        unit = f" {action['unit']}" if action["unit"] else ""
        text = f"{action['label']}: from {_shown(action['from'])} to {_shown(action['to'])}{unit}"
        yield from textwrap.wrap(text, WIDTH, initial_indent="      - ", subsequent_indent="        ")


def _shown(value: Value) -> str:
    if value is None:
        return "(not known)"
    return f'"{value}"' if isinstance(value, str) else f"{value:g}" if abs(value) < 1e6 else f"{value:,.0f}"  # noqa: PLR2004


def _checked(body: AuditBody) -> Iterator[str]:
    ledgers = [tier["ledgers"][side] for tier in body["tiers"] for side in SIDES]
    rows = sum(len(ledger["features"]) for ledger in ledgers)
    yield f"  Audit record {body['recommendation_id'][:16]}: the score is the sum of {body['trees_used']} trees' leaves;"
    yield f"  {len(ledgers)} ledgers with {rows} rows, each summing to its gap exactly, in units of 2^{body['unit_log2']}"
