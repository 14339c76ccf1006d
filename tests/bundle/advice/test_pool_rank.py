from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from stream.bundle.advice.pool_rank import PoolRank, rank_pool

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


def ranked(target: Any) -> PoolRank:
    """Rank a target by the margins above, of which the upper ones are accepted."""
    return rank_pool("repaid", target, MARGINS, MARGINS > 0)


@pytest.mark.parametrize("what", TARGETS)
def test_the_ranking_of_every_kind_of_outcome(what: str) -> None:
    """Given a target column of any type, the larger of two numbers is the good one, words go the better way, the rest says why not."""
    target, expected = TARGETS[what]
    for column in (target, pa.chunked_array([target])):
        rank = ranked(column)
        assert rank.auc == expected
        assert (rank.why_not is None) == (expected is not None)


def test_a_ranking_near_guessing_is_doubtful() -> None:
    """Given margins that go with neither outcome it is guessing; with one that goes with either, in either direction, it is not."""
    guessing = {what: ranked(target).is_guessing for what, (target, _) in TARGETS.items()}
    assert not any(guessing.values())
    assert rank_pool("repaid", pa.array([0, 1, 0, 1]), np.array([1.0, 1.0, 2.0, 2.0]), np.arange(4) > 1).is_guessing


@pytest.mark.parametrize(
    ("what", "shares"),
    [
        ("numbers", ("1", 0.5, 0.5)),
        ("two other numbers", ("7.5", 0.5, 0.5)),
        ("truth values", ("1", 0.5, 0.5)),
        ("words", ("good", 0.5, 0.5)),
        ("words the other way round", ("y", 0.5, 0.5)),
    ],
)
def test_an_outcome_is_counted_on_either_side(what: str, shares: tuple[str, float, float]) -> None:
    """Given a target of two outcomes, then the share of the second one is told of those accepted and of those declined, rows without an outcome left out."""
    found = rank_pool("repaid", TARGETS[what][0], MARGINS, np.array([True, False, True, False, True])).shares
    assert found is not None
    assert (found.outcome, found.accepted, found.declined) == shares


def test_a_side_with_nobody_has_no_share() -> None:
    """Given a model that declines nobody, then the share of the declined is not a number."""
    found = rank_pool("repaid", pa.array([0, 1]), np.array([1.0, 2.0]), np.array([True, True])).shares
    assert found is not None
    assert found.accepted == 0.5
    assert np.isnan(found.declined)
