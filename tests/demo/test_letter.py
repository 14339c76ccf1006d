from __future__ import annotations

from typing import cast

import pytest

from stream.demo.letter import ALL_TOGETHER, ONE_OF, WIDTH, Thirds, letter
from stream.events import Action, AuditBody, Recommendation, RecommendedTier, TierName, Value

LONG = "a word of features.toml that goes on for so long that no line of a letter can hold all of what it has to say"
THIRDS = Thirds(middle=1.0, highest=2.0)


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


def tier(name: TierName, *actions: Action, margin: float = 0.1, effort: float = 1.0) -> RecommendedTier:
    return {
        "tier": name,
        "actions": list(actions),
        "margin": margin,
        "probability": 0.525,
        "effort": effort,
        "robust_share": None,
        "withheld": [],
    }


def recommendation(*actions: Action, tiers: tuple[RecommendedTier, ...] = ()) -> Recommendation:
    tiers = tiers or ((tier("near", *actions),) if actions else ())
    return cast(
        "Recommendation",
        {
            "decision_id": "loan-7",
            "reasons": [{"code": "TERM", "text": "The term is long", "feature": "term"}],
            "tiers": list(tiers),
        },
    )


def body(scale: str = "probability", approve: str = "above") -> AuditBody:
    ledger: dict[str, list[dict[str, str]]] = {"features": [{}, {}]}
    return cast(
        "AuditBody",
        {
            "approve": approve,
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
    text = letter(
        recommendation(action("Term", 48.0, 12.0, "months"), action("Amount", 2_500_000.0, None)), body(), THIRDS
    )
    assert text.splitlines() == [
        "loan-7  declined: scored 0.100, approved from 0.5",
        "",
        "  Why",
        "    1. The term is long",
        "",
        "  What would have changed the outcome: all of these steps together",
        "    near: the score would be 0.525, as the lowest third of the approved",
        "      - Term: from 48 to 12 months",
        "      - Amount: from 2,500,000 to (not known)",
        "",
        "  Audit record 0123456789abcdef: the score is the sum of 150 trees' leaves;",
        "  2 ledgers with 4 rows, each summing to its gap exactly, in units of 2^-37",
    ]


def test_no_line_is_wider_than_a_page() -> None:
    """Given words of any length, when written out, then every line ends within the width."""
    text = letter(recommendation(action("Purpose", LONG, LONG)), body(), THIRDS)
    assert max(map(len, text.splitlines())) <= WIDTH
    assert " ".join(text.split()).count(LONG) == 2


def test_no_way_out_is_said_plainly() -> None:
    """Given an answer without a feasible change, when written out, then it says so instead of an empty list."""
    assert "No feasible change was found" in letter(recommendation(), body(), THIRDS)


def test_a_threshold_on_the_margin_is_shown_on_its_own_scale() -> None:
    """Given a threshold on the margin, when written out, then the score beside it is the margin too."""
    assert "scored a margin of -2.197, approved from 0.5" in letter(recommendation(), body("margin"), THIRDS)


TERM, AMOUNT, JOB = action("Term", 48.0, 12.0), action("Amount", 9.0, 5.0), action("Job", "none", "one")


def test_one_block_is_enough_and_takes_all_its_steps() -> None:
    """Given several tiers, when written out, then any one of them is said to do; given one, that its steps go together."""
    two = recommendation(tiers=(tier("near", TERM), tier("far", AMOUNT, JOB, margin=2.5, effort=3)))
    assert ONE_OF in letter(two, body(), THIRDS)
    assert ALL_TOGETHER in letter(recommendation(TERM, JOB), body(), THIRDS)


def test_the_same_steps_are_written_once() -> None:
    """Given a tier with the steps of an earlier one, when written out, then one line says so and the steps stand once."""
    text = letter(recommendation(tiers=(tier("near", TERM), tier("mid", TERM))), body(), THIRDS)
    assert text.count("- Term: from 48 to 12") == 1
    assert "    (mid: the same steps as near)" in text.splitlines()
    assert ALL_TOGETHER in text


@pytest.mark.parametrize(("approve", "sign"), [("above", 1), ("below", -1)])
def test_what_is_dearer_and_worse_is_left_out(approve: str, sign: int) -> None:
    """Given a tier that takes no less effort for a worse score than another, then one line says so; equals both stay."""
    worse = recommendation(tiers=(tier("near", TERM, effort=2), tier("mid", JOB, margin=sign * 1.5, effort=2)))
    text = letter(worse, body(approve=approve), THIRDS)
    assert "- Term" not in text
    assert "    (near: left out; mid takes no more effort and scores better)" in text.splitlines()
    cheaper = recommendation(tiers=(tier("near", TERM, effort=1), tier("mid", JOB, margin=sign * 1.5, effort=2)))
    assert "left out" not in letter(cheaper, body(approve=approve), THIRDS)
    equal = recommendation(tiers=(tier("near", TERM), tier("mid", JOB)))
    assert "left out" not in letter(equal, body(approve=approve), THIRDS)


@pytest.mark.parametrize(
    ("margin", "place"), [(0.5, "lowest"), (1.0, "middle"), (1.9, "middle"), (2.0, "highest"), (9.0, "highest")]
)
def test_the_place_is_that_of_the_score_itself(margin: float, place: str) -> None:
    """Given the far tier at any score, when written out, then the third named is the one that the score is in."""
    text = letter(recommendation(tiers=(tier("far", TERM, margin=margin),)), body(), THIRDS)
    assert f"as the {place} third of the approved" in text
    below = Thirds(middle=-1.0, highest=-2.0)
    assert below.third_of(-margin, approve="below") == f"as the {place} third of the approved"
