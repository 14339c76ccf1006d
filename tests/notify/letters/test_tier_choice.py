from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.events import Recommendation
from stream.notify.letters.tier_choice import choose_tiers, side_of_approval
from stream.notify.letters.view import view_of
from stream.notify.notices.notice import answer_sha256
from stream.recourse.answer import answer
from tests.notify.answers import NOW_MS, ok_one, recommendations, replaced
from tests.notify.letter_builder import CREDITOR, PAT, letter_of, shipped
from tests.notify.world import World
from tests.recourse.lenders import Approve, Lender, lender

NAMES = ("near", "mid", "far")


def tier(name: str, *, effort: float, margin: float, contributions: Sequence[str] = ("1",), to: float = 2.0) -> Any:
    """A tier with one step a contribution."""
    actions = [
        {
            "feature": f"f{n}", "label": f"Thing {n}", "direction": "increase", "from": 1.0, "to": to, "unit": None,
            "binding_threshold": None, "contribution": one,
        }
        for n, one in enumerate(contributions)
    ]  # fmt: skip
    return {
        "tier": name, "actions": actions, "margin": margin, "probability": 0.5, "effort": effort, "robust_share": None,
        "withheld": [],
    }  # fmt: skip


def left_by_the_rule(tiers: Sequence[Any], sign: int) -> set[str]:
    """The rule, word by word: a tier goes when another takes no more effort and scores at least as far past the line; of equals the first stays."""
    gone = set()
    for (i, one), (j, other) in itertools.permutations(enumerate(tiers), 2):
        no_more, as_far = other["effort"] <= one["effort"], sign * other["margin"] >= sign * one["margin"]
        same = (other["effort"], other["margin"]) == (one["effort"], one["margin"])
        if no_more and as_far and (not same or j < i):
            gone.add(one["tier"])
    return {one["tier"] for one in tiers} - gone


@pytest.mark.parametrize("approve", ["above", "below"])
def test_the_side_of_approval_is_the_lenders(approve: Approve) -> None:
    """Given answers for a lender who approves above, or below, when the side is read from the contributions, then it is the lender's in each answer."""
    small = made_lender(approve)
    found = [one.recommendation["tiers"] for one in small.answers(30) if one.recommendation["tiers"]]
    assert len(found) > 15
    assert {side_of_approval(tiers) for tiers in found} == {1 if approve == "above" else -1}


def made_lender(approve: Approve) -> Lender:
    return lender("xgboost", approve, trees=14, depth=3)


@pytest.mark.parametrize("approve", ["above", "below"])
def test_a_letter_leaves_out_what_another_way_outdoes(approve: Approve) -> None:
    """Given answers of the engine, when the ways are chosen, then those stay that the rule leaves, each next one asks for more and scores further past the lender's own cutoff, and the model approves each."""
    small = made_lender(approve)
    sign = small.sign
    dropped = 0
    for row in small.declined(60):
        tiers = answer(small.decide(row), small.model).recommendation["tiers"]
        chosen, is_further = choose_tiers(tiers)
        assert {one["tier"] for one in chosen} == left_by_the_rule(tiers, sign)
        assert is_further == bool(tiers)
        assert all(sign * one["margin"] >= sign * small.cutoff for one in chosen)
        for one, other in itertools.pairwise(chosen):
            assert one["effort"] < other["effort"]
            assert sign * one["margin"] < sign * other["margin"]
        dropped += len(tiers) - len(chosen)
    assert dropped, "none of these answers tries the rule"


@given(
    scores=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=3),
    sign=st.sampled_from([1, -1]),
)
def test_any_tiers_are_chosen_by_the_rule(scores: list[tuple[int, int]], sign: int) -> None:
    """Given tiers of any efforts and scores, ties too, when chosen, then those stay that the rule leaves, in the order of their effort."""
    tiers = [
        tier(name, effort=float(effort), margin=float(sign * margin), contributions=[str(sign * 2**70), str(-sign)])
        for name, (effort, margin) in zip(NAMES, scores, strict=False)
    ]
    chosen, is_further = choose_tiers(tiers)
    assert is_further
    assert {one["tier"] for one in chosen} == left_by_the_rule(tiers, sign)
    assert [one["effort"] for one in chosen] == sorted(one["effort"] for one in chosen)


@pytest.mark.parametrize(
    "contributions",
    [
        (["5", "-5"], ["1"]),
        (["5"], ["-1"]),
        (["5"], ["0"]),
        (["5"], ["1.5"]),
        (["5"], ["1_0"]),
        (["5"], [str(2**70), str(-(2**70) - 1), "1"]),
    ],
)
def test_where_the_side_is_not_told_all_ways_stay(contributions: tuple[list[str], list[str]]) -> None:
    """Given contributions that add up to nothing, to different sides or to no integer, when chosen, then both ways stay, by effort, and no title says more than is known."""
    tiers = [
        tier(name, effort=effort, margin=1.0, contributions=one, to=effort + 2)
        for name, effort, one in zip(NAMES, (2.0, 1.0), contributions, strict=False)
    ]
    chosen, is_further = choose_tiers(tiers)
    assert ([one["tier"] for one in chosen], is_further) == (["mid", "near"], False)
    options = view(replaced(ok_one(), tiers=tiers))["options"]
    assert [(one["number"], one["title"]) for one in options] == [(1, ""), (2, "")]
    letter = letter_of(replaced(ok_one(), tiers=tiers))
    assert "to spare" not in letter.text + letter.html


def view(one: Recommendation) -> Any:
    return view_of(one, CREDITOR, recipient=PAT, words=shipped().words, now_ms=NOW_MS)


def test_ways_that_read_the_same_are_told_once() -> None:
    """Given a second tier whose steps differ from the first's in what a letter does not show, when told, then there is one way, and no title beside nothing."""
    tiers = [
        tier("near", effort=1.0, margin=1.0, to=31.500000000000007),
        tier("mid", effort=2.0, margin=2.0, to=31.500000000000011),
    ]
    [option] = view(replaced(ok_one(), tiers=tiers))["options"]
    assert (option["tier"], option["title"]) == ("near", "")


def test_ways_are_named_by_what_is_known_of_them() -> None:
    """Given answers with several ways, when told, then text and HTML give each its title, in order, and claim of no step that it is needed."""
    several = [one for one in recommendations(60) if len(view(one)["options"]) > 1]
    assert {len(view(one)["options"]) for one in several} == {2, 3}
    for one in several:
        letter = letter_of(one)
        for option in view(one)["options"]:
            title = f"Way {option['number']}: {shipped().words.ways[option['number'] - 1]}"
            assert title in letter.text
            assert title in letter.html
        assert "eeded" not in letter.text + letter.html


def test_a_code_for_no_record_stands_in_no_letter() -> None:
    """Given a step from the code -9, or a word for unknown, when written, then text and HTML say that there is no information and never the code."""
    for code in (-9.0, "A65"):
        bare = tier("near", effort=1.0, margin=1.0, to=27.0)
        bare["actions"][0] |= {"direction": "provide", "from": code, "unit": "%"}
        letter = letter_of(replaced(ok_one(), tiers=[bare]))
        assert "Thing 0: 27% (on our records: no information)" in letter.text
        assert "<td>no information</td>" in letter.html
        shown = letter.text + letter.html.partition("</style>")[2]
        assert "A65" not in shown
        assert "-9" not in shown


def test_the_notice_names_the_whole_recommendation(tmp_path: Path) -> None:
    """Given a recommendation with a way that its letter leaves out, when the letter goes out, then its notice holds the hash of all of the recommendation."""
    one = next(one for one in recommendations(60) if len(choose_tiers(one["tiers"])[0]) < len(one["tiers"]))
    here = World(folder=tmp_path)
    here.put(one)
    here.run()
    [done] = here.notices_with("printed")
    assert done["recommendation_sha256"] == answer_sha256(one)
    fewer = replaced(one, tiers=choose_tiers(one["tiers"])[0])
    assert done["recommendation_sha256"] != answer_sha256(fewer)
