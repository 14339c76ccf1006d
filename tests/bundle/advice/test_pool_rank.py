from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from stream.bundle.advice.pool_rank import Approve, rank_pool

MARGINS = np.array([-1.0, 0.0, 0.0, 2.0, 9.0], np.float32)
TARGETS: dict[str, tuple[Any, float | None]] = {
    "numbers": (pa.array([0, 0, 1, 1, None]), 3.5 / 4),
    "numbers the other way round": (pa.array([1, 1, 0, 0, None]), 0.5 / 4),
    "two other numbers": (pa.array([-3.0, -3.0, 7.5, 7.5, float("nan")]), 3.5 / 4),
    "truth values": (pa.array([False, False, True, True, None]), 3.5 / 4),
    "numbers as text": (pa.array(["0", "0", "1", "1", None]), 3.5 / 4),
    "words": (pa.array(["bad", "bad", "good", "good", None]), 3.5 / 4),
    "words the other way round": (pa.array(["y", "y", "n", "n", None]), 3.5 / 4),
    "words in a dictionary": (pa.array(["bad", "bad", "good", "good", None]).dictionary_encode(), 3.5 / 4),
    "one value": (pa.array([1, 1, 1, 1, None]), None),
    "three values": (pa.array([1, 2, 3, 3, None]), None),
    "nothing": (pa.array([None] * 5, pa.string()), None),
    "lists": (pa.array([[0], [0], [1], [1], None]), None),
}


@pytest.mark.parametrize("what", TARGETS)
def test_the_ranking_of_every_kind_of_outcome(what: str) -> None:
    """Given a target column of any type, the larger of two numbers is the good one, words go the better way, the rest says why not."""
    target, expected = TARGETS[what]
    for column in (target, pa.chunked_array([target])):
        rank = rank_pool("repaid", column, MARGINS, "above")
        assert rank.auc == expected
        assert (rank.why_not is None) == (expected is not None)


def test_a_ranking_near_guessing_is_doubtful() -> None:
    """Given an AUC as of guessing or below, it is doubtful; a good one and none are not."""
    doubtful = {
        what: rank_pool("repaid", target, MARGINS, "above").is_doubtful for what, (target, _) in TARGETS.items()
    }
    assert [what for what, yes in doubtful.items() if yes] == ["numbers the other way round"]


@pytest.mark.parametrize(
    ("what", "approve", "asked"),
    [
        ("numbers", "above", []),
        ("numbers", "below", ["(below) has the smaller value of repaid", "`approve` of policy.toml"]),
        (
            "numbers the other way round",
            "above",
            ["(above) has the smaller value of repaid", "`approve` of policy.toml", "the pool that the model"],
        ),
        (
            "numbers the other way round",
            "below",
            ["(below) has the larger value of repaid", "`approve` of policy.toml"],
        ),
        ("words", "below", []),
        ("one value", "below", []),
    ],
)
def test_the_side_that_is_approved_is_part_of_the_question(what: str, approve: Approve, asked: list[str]) -> None:
    """Given a model that approves above or below, it is asked whether the outcome that its side has more often is the good one; a low AUC is no doubt below."""
    rank = rank_pool("repaid", TARGETS[what][0], MARGINS, approve)
    assert len(rank.questions) == len(asked)
    assert all(part in question for part, question in zip(asked, rank.questions, strict=True))
    assert rank.is_doubtful == (len(asked) == 3)


@pytest.mark.parametrize("approve", ["above", "below"])
def test_guessing_is_doubtful_on_either_side(approve: Approve) -> None:
    """Given margins that go with neither outcome, whatever is approved, it is asked whether this is the right pool."""
    rank = rank_pool("repaid", pa.array([0, 1, 0, 1]), np.array([1.0, 1.0, 2.0, 2.0]), approve)
    assert rank.auc == 0.5
    assert [question[:21] for question in rank.questions] == ["is this the pool that"]
