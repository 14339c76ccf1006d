from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from stream.errors import RecommendationRefused
from stream.notify.letters.contract import check_contract
from tests.notify.answers import IMMUTABLE, ok_one, recommendations

Change = Callable[[dict[str, Any]], Any]


def first_action(one: dict[str, Any]) -> dict[str, Any]:
    action: dict[str, Any] = one["tiers"][0]["actions"][0]
    return action


BREACHES: dict[str, tuple[Change, str]] = {
    "five reasons": (
        lambda one: one.update(reasons=[{"code": str(n), "text": "t", "feature": "f"} for n in range(5)]),
        "5 reasons",
    ),
    "no reason": (lambda one: one.update(reasons=[]), "0 reasons"),
    "a code twice": (lambda one: one.update(reasons=2 * one["reasons"][:1]), "twice"),
    "a reason without text": (lambda one: one["reasons"][0].update(text=" "), "text of a reason is empty"),
    "ok without tiers": (lambda one: one.update(tiers=[]), "ok with 0 tiers"),
    "no recourse with tiers": (lambda one: one.update(status="no_feasible_recourse"), "with"),
    "a tier twice": (lambda one: one.update(tiers=2 * one["tiers"][:1]), "a tier comes twice"),
    "a fourth tier": (
        lambda one: one.update(tiers=[{**one["tiers"][0], "tier": name} for name in ("near", "mid", "far", "beyond")]),
        "4 tiers",
    ),
    "a tier without actions": (lambda one: one["tiers"][0].update(actions=[]), "has 0 actions"),
    "an action without `to`": (lambda one: first_action(one).update(to=None), "has no `to`"),
    "an action without label": (lambda one: first_action(one).update(label=""), "label of the action"),
    "an action that leads nowhere": (lambda one: first_action(one).update(to=first_action(one)["from"]), "does not"),
    "a direction against the numbers": (
        lambda one: first_action(one).update({"direction": "increase", "from": 2.0, "to": 1.0}),
        "does not increase",
    ),
    "an unknown direction": (lambda one: first_action(one).update(direction="sideways"), "sideways"),
    "a number that is none": (lambda one: first_action(one).update({"from": 1.0, "to": float("inf")}), "does not"),
    "two actions on one feature": (
        lambda one: one["tiers"][0].update(actions=2 * one["tiers"][0]["actions"][:1]),
        "two actions",
    ),
    "an action that is withheld": (
        lambda one: one["tiers"][0]["withheld"].append({"feature": first_action(one)["feature"], "why": "x"}),
        "which is withheld",
    ),
    "an action that another tier calls immutable": (
        lambda one: one.update(
            tiers=[
                one["tiers"][0],
                {
                    **one["tiers"][0],
                    "tier": "other",
                    "actions": [{**first_action(one), "feature": "else"}],
                    "withheld": [{"feature": first_action(one)["feature"], "why": "immutable"}],
                },
            ]
        ),
        "which is withheld",
    ),
    "no end": (lambda one: one.update(expires_at=None), "expires_at is null"),
    "an end in the year 1": (
        lambda one: one.update(expires_at="0001-01-01T00:00:00.000Z"),
        "before 1970 or after 9998",
    ),
    "an end in 9999": (lambda one: one.update(expires_at="9999-12-31T23:59:59.999Z"), "before 1970 or after 9998"),
    "an end that is no time": (lambda one: one.update(expires_at="soon"), "before 1970 or after 9998"),
    "a control character": (lambda one: one["reasons"][0].update(text="a\x07b"), "cannot be printed"),
    "an endless disclosure": (lambda one: one.update(disclosures={"x": "y" * 3_000}), "longer than"),
}


@pytest.mark.parametrize("name", BREACHES)
def test_a_breach_of_the_contract_is_refused(name: str) -> None:
    """Given a recommendation that breaks a rule, when held against the contract, then it is refused, naming the rule and no value."""
    change, message = BREACHES[name]
    one: dict[str, Any] = copy.deepcopy(dict(ok_one()))
    change(one)
    with pytest.raises(RecommendationRefused, match=message) as raised:
        check_contract(one)  # type: ignore[arg-type]
    assert raised.value.stage == "notify"
    value = ok_one()["tiers"][0]["actions"][0]["from"]
    assert str(value) not in str(raised.value) or len(str(value)) < 5


def test_the_engines_own_answers_keep_the_contract() -> None:
    """Given a hundred answers of the engine, when held against the contract, then all pass, and none acts on what is immutable."""
    for one in recommendations(100):
        check_contract(one)
        assert not {action["feature"] for tier in one["tiers"] for action in tier["actions"]} & set(IMMUTABLE)
