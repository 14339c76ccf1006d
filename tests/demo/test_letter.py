from __future__ import annotations

from typing import cast

from stream.demo.letter import WIDTH, letter
from stream.events import Action, AuditBody, Recommendation, Value

LONG = "a word of features.toml that goes on for so long that no line of a letter can hold all of what it has to say"


def action(label: str, from_: Value, to: Value, unit: str | None = None) -> Action:
    return {
        "feature": label.lower(),
        "label": label,
        "direction": "change",
        "from": from_,
        "to": to,
        "unit": unit,
        "binding_threshold": None,
        "contribution": "1",
    }


def recommendation(*actions: Action) -> Recommendation:
    tiers = [
        {
            "tier": "near",
            "actions": list(actions),
            "margin": 0.1,
            "probability": 0.525,
            "effort": 1.0,
            "robust_share": None,
            "withheld": [],
        }
    ]
    return cast(
        "Recommendation",
        {
            "decision_id": "loan-7",
            "reasons": [{"code": "TERM", "text": "The term is long", "feature": "term"}],
            "tiers": tiers if actions else [],
        },
    )


def body(scale: str = "probability") -> AuditBody:
    ledger: dict[str, list[dict[str, str]]] = {"features": [{}, {}]}
    return cast(
        "AuditBody",
        {
            "approve": "above",
            "probability": 0.1,
            "margin": -2.197,
            "threshold": 0.5,
            "threshold_scale": scale,
            "recommendation_id": "0123456789abcdef0123",
            "trees_used": 150,
            "unit_log2": -37,
            "tiers": [{"ledgers": {"comparator": ledger, "target": ledger}}],
        },
    )


def test_a_letter_says_why_and_what_would_change_it() -> None:
    """Given an answer, when written out, then score, reasons, actions in units, and what was checked all stand in it."""
    text = letter(recommendation(action("Term", 48.0, 12.0, "months"), action("Amount", 2_500_000.0, None)), body())
    assert text.splitlines() == [
        "loan-7  declined: scored 0.100, approved from 0.5",
        "",
        "  Why",
        "    1. The term is long",
        "",
        "  What would have changed the outcome",
        "    near, as applicants just past the line: the score would be 0.525",
        "      - Term: from 48 to 12 months",
        "      - Amount: from 2,500,000 to (not known)",
        "",
        "  Audit record 0123456789abcdef: the score is the sum of 150 trees' leaves;",
        "  2 ledgers with 4 rows, each summing to its gap exactly, in units of 2^-37",
    ]


def test_no_line_is_wider_than_a_page() -> None:
    """Given words of any length, when written out, then every line ends within the width."""
    text = letter(recommendation(action("Purpose", LONG, LONG)), body())
    assert max(map(len, text.splitlines())) <= WIDTH
    assert " ".join(text.split()).count(LONG) == 2


def test_no_way_out_is_said_plainly() -> None:
    """Given an answer without a feasible change, when written out, then it says so instead of an empty list."""
    assert "No feasible change was found" in letter(recommendation(), body())


def test_a_threshold_on_the_margin_is_shown_on_its_own_scale() -> None:
    """Given a threshold on the margin, when written out, then the score beside it is the margin too."""
    assert "scored a margin of -2.197, approved from 0.5" in letter(recommendation(), body("margin"))
