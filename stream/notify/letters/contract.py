"""The contract that a recommendation must keep to become a letter; a breach becomes a dead letter."""

from __future__ import annotations

import math
from typing import Final

from stream.errors import RecommendationRefused
from stream.events import TIERS, Action, Recommendation, RecommendedTier, Value
from stream.times import time_ms

REASONS_MAX: Final = 4  # Reg B commentary 9(b)(2)-1
ACTIONS_MAX: Final = 100
TEXT_CHARACTERS_MAX: Final = 2_000
ENDS_MS_MAX: Final = time_ms("9998-12-31T23:59:59Z")
IMMUTABLE: Final = "immutable"  # as `withheld` names it
DIRECTIONS: Final = ("increase", "decrease", "change", "provide")


def check_contract(recommendation: Recommendation) -> None:
    """Check everything that a letter states. Raises: RecommendationRefused with the rule and the feature, never a value."""
    tiers, reasons = recommendation["tiers"], recommendation["reasons"]
    _check_text(recommendation["decision_id"], "the decision_id")
    if (recommendation["status"] == "ok") != bool(tiers):
        _refuse(f"status is {recommendation['status']} with {len(tiers)} tiers")
    if not 1 <= len(reasons) <= REASONS_MAX:
        _refuse(f"there are {len(reasons)} reasons; a letter gives 1 to {REASONS_MAX}")
    if len({reason["code"] for reason in reasons}) < len(reasons):
        _refuse("a reason code comes twice")
    for reason in reasons:
        _check_text(reason["text"], "the text of a reason")
    for name, text in recommendation["disclosures"].items():
        _check_text(name, "the name of a disclosure")
        _check_text(text, "a disclosure")
    _check_end(recommendation["expires_at"])
    if len(tiers) > len(TIERS):
        _refuse(f"there are {len(tiers)} tiers; a letter gives at most {len(TIERS)}")
    if len({tier["tier"] for tier in tiers}) < len(tiers):
        _refuse("a tier comes twice")
    never = {
        row["feature"]
        for tier in tiers
        for row in tier["withheld"]
        if row["why"] == IMMUTABLE
    }  # fmt: skip
    for tier in tiers:
        _check_tier(tier, never)


def _check_end(expires_at: str | None) -> None:
    if expires_at is None:
        _refuse("expires_at is null, so a letter cannot say until when it holds")
    try:
        ends_ms = -1 if expires_at is None else time_ms(expires_at)
    except ValueError:
        ends_ms = -1
    if not 0 <= ends_ms <= ENDS_MS_MAX:  # leaves a day for any time zone
        _refuse("expires_at is before 1970 or after 9998, so a letter cannot name its day")


def _check_tier(tier: RecommendedTier, never: set[str]) -> None:
    actions = tier["actions"]
    if not 1 <= len(actions) <= ACTIONS_MAX:
        _refuse(f"tier {tier['tier']} has {len(actions)} actions")
    if len({action["feature"] for action in actions}) < len(actions):
        _refuse(f"tier {tier['tier']} has two actions on one feature")
    withheld = never | {row["feature"] for row in tier["withheld"]}
    for action in actions:
        if action["feature"] in withheld:
            _refuse(f"tier {tier['tier']} has an action on {action['feature']}, which is withheld")
        _check_action(action)


def _check_action(action: Action) -> None:
    where = f"the action on {action['feature']}"
    _check_text(action["label"], f"the label of {where}")
    if action["unit"] is not None:
        _check_text(action["unit"], f"the unit of {where}")
    start, end = action["from"], action["to"]
    for value in (start, end):
        if isinstance(value, str):
            _check_text(value, f"a word of {where}")
    if end is None:
        _refuse(f"{where} has no `to`")
    if not _leads(action["direction"], start, end):
        _refuse(f"{where} does not {action['direction']} anything from `from` to `to`")


def _leads(direction: str, start: Value, end: Value) -> bool:
    if any(isinstance(value, float) and not math.isfinite(value) for value in (start, end)):
        return False
    if direction in ("increase", "decrease"):
        if isinstance(start, str) or isinstance(end, str) or start is None or end is None:
            return False
        return end > start if direction == "increase" else end < start
    return direction in DIRECTIONS and start != end


def _check_text(text: str, what: str) -> None:
    if not text.strip():
        _refuse(f"{what} is empty")
    if len(text) > TEXT_CHARACTERS_MAX:
        _refuse(f"{what} is longer than {TEXT_CHARACTERS_MAX} characters")
    if any(not c.isprintable() and c not in "\n\t" for c in text):
        _refuse(f"{what} holds a character that cannot be printed")


def _refuse(rule: str) -> None:
    message = f"no letter can be made of this recommendation: {rule}"
    raise RecommendationRefused(message)
