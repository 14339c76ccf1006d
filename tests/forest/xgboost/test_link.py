from __future__ import annotations

import numpy as np
import pytest

from stream.errors import InvalidDecision
from stream.forest.link import link_of
from stream.forest.xgboost.link import LINK_OF_OBJECTIVE, XgboostLink
from tests.forest.xgboost.models import (
    read,
    trained,
)


@pytest.mark.parametrize("objective", LINK_OF_OBJECTIVE)
def test_a_formula_stands_in_for_every_link_with_the_library_s_bits(objective: str) -> None:
    """Given margins of any size, each link's formula proves itself, and agrees with the booster beyond its proof."""
    link = XgboostLink(objective)
    anything = np.random.default_rng(5).integers(0, 2**32, 120_000, dtype=np.uint32).view(np.float32)
    asked = anything[np.isfinite(anything)]
    assert link.compiled
    assert link.probabilities(asked).tobytes() == link.owner.probabilities(asked).tobytes()
    link.compiled = False
    assert link.probabilities(asked[:9]).tobytes() == link.owner.probabilities(asked[:9]).tobytes()


@pytest.mark.parametrize(
    ("objective", "inside", "outside", "said"),
    [
        ("reg:logistic", 0.5, [0.0, 1.0, -1.0, np.nan], "strictly between 0 and 1"),
        ("binary:hinge", 0.5, [0.0, 1.0, -1.0, np.nan], "strictly between 0 and 1"),
        ("count:poisson", 3000.0, [0.0, -1.0, np.inf, np.nan], "above 0"),
        ("survival:aft", 0.25, [0.0, -1.0, np.inf, np.nan], "above 0"),
        ("reg:squarederror", -7.5, [np.inf, -np.inf, np.nan], "finite"),
    ],
)
def test_a_threshold_must_be_one_that_a_prediction_can_pass(
    objective: str, inside: float, outside: list[float], said: str
) -> None:
    """Given a threshold inside the range of the link, the cutoff turns there; given one outside, it is refused."""
    link = link_of(read(trained(objective, rounds=1)))
    above = np.float32(link.cutoff(inside, "probability", "above"))
    at, before = link.probabilities(np.array([above, np.nextafter(above, np.float32(-np.inf))])).tolist()
    assert at >= inside > before
    for threshold in outside:
        with pytest.raises(InvalidDecision, match=said):
            link.cutoff(threshold, "probability", "above")
