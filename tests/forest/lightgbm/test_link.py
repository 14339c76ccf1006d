from __future__ import annotations

import math

import numpy as np
import pytest

from stream.errors import CorruptionError, InvalidDecision
from stream.forest.cutoffs import Approve
from stream.forest.lightgbm.link import LightgbmLink, kind_of_link, lightgbm_link

LINES = {
    "binary sigmoid:1": "logistic",
    "binary sigmoid:0.37": "logistic",
    "cross_entropy": "logistic",
    "cross_entropy_lambda": "log1p_exp",
    "poisson": "exp",
    "gamma": "exp",
    "tweedie": "exp",
    "regression": "identity",
    "": "identity",
    "quantile": "identity",
    "regression sqrt": "sqrt",
    "mape sqrt": "sqrt",
}
SPREAD = np.concatenate([np.linspace(-30, 30, 500), [-1e300, -1e-36, -5e-324, 0.0, 5e-324, 1e-36, 1e300]])


@pytest.mark.parametrize("line", LINES)
def test_a_link_is_called_what_it_is(line: str) -> None:
    """Given an objective's line, its link has a name, rises with the margin, and is what the name says where that is plain."""
    link = LightgbmLink(line, 1)
    assert link.name == LINES[line]
    ordered = link.probabilities(np.sort(SPREAD))
    assert (np.diff(ordered[np.isfinite(ordered)]) >= 0).all()
    at_zero = {"logistic": 0.5, "exp": 1.0, "identity": 0.0, "sqrt": 0.0, "log1p_exp": math.log1p(1.0)}
    assert link.probabilities(np.array([0.0]))[0] == at_zero[link.name]


def test_identity_and_sqrt_keep_margins_that_lightgbm_would_take_for_zero() -> None:
    """Given margins nearer to zero than a float32's 1e-35, the identity gives them back, and the signed square is exact."""
    assert lightgbm_link("regression").probabilities(SPREAD).tobytes() == SPREAD.tobytes()
    with np.errstate(over="ignore"):
        squared = np.sign(SPREAD) * SPREAD * SPREAD
    assert (lightgbm_link("regression sqrt").probabilities(SPREAD) == squared).all()


@pytest.mark.parametrize("trees", [1, 2, 3, 500])
def test_a_mean_is_taken_over_as_many_trees_as_there_are(trees: int) -> None:
    """Given a number of trees averaged, the link divides by it, once, before anything else."""
    mean = lightgbm_link("regression", trees).probabilities(SPREAD)
    assert mean.tobytes() == (SPREAD / trees).tobytes()
    linked = lightgbm_link("binary sigmoid:1", trees).probabilities(SPREAD)
    assert linked.tobytes() == lightgbm_link("binary sigmoid:1").probabilities(mean).tobytes()


def test_links_of_an_objective_are_shared_and_those_of_other_means_are_not() -> None:
    """Given the same line and number of trees, the link is the same object."""
    assert lightgbm_link("gamma", 5) is lightgbm_link("gamma", 5)
    assert lightgbm_link("gamma", 5) is not lightgbm_link("gamma", 6)


@pytest.mark.parametrize(
    "line", ["binary", "binary sigmoid:1 more", "huber sqrt", "poisson sqrt", "lambdarank", "regressio"]
)
def test_a_line_that_is_not_known_has_no_link(line: str) -> None:
    """Given a line of which we cannot say what LightGBM makes of it, there is no name, and no link is made."""
    assert kind_of_link(line) is None
    with pytest.raises(CorruptionError, match="not known"):
        LightgbmLink(line, 1)


OUTSIDE = {
    "binary sigmoid:1": [0.0, 1.0, -0.1, 1.5, math.nan, math.inf],
    "poisson": [0.0, -0.0, -1.0, math.nan, math.inf, -math.inf],
    "cross_entropy_lambda": [0.0, -1e-300, math.nan, math.inf],
    "regression": [math.nan, math.inf, -math.inf],
    "regression sqrt": [math.nan, math.inf, -math.inf],
}


@pytest.mark.parametrize("approve", ["above", "below"])
@pytest.mark.parametrize("line", OUTSIDE)
def test_a_threshold_outside_what_a_model_predicts_is_refused(line: str, approve: Approve) -> None:
    """Given a threshold that no prediction can be compared with, cutoff() raises what becomes a dead letter."""
    for threshold in OUTSIDE[line]:
        with pytest.raises(InvalidDecision, match="probability scale"):
            lightgbm_link(line).cutoff(threshold, "probability", approve)


INSIDE = {
    "binary sigmoid:0.37": [0.1, 0.5],
    "poisson": [1e-9, 0.3, 1.0, 3000.0],
    "cross_entropy_lambda": [1e-9, 0.3, 17.0],
    "regression": [-3e9, -1e-40, 0.0, 0.3, 1e5],
    "regression sqrt": [-40.0, 0.0, 1e-80, 2.0],
}


@pytest.mark.parametrize("trees", [1, 7])
@pytest.mark.parametrize("line", INSIDE)
def test_a_threshold_becomes_the_first_margin_that_reaches_it(line: str, trees: int) -> None:
    """Given a threshold, the cutoff's prediction passes it, and that of the next double on the other side does not."""
    link = lightgbm_link(line, trees)
    for threshold in INSIDE[line]:
        above = link.cutoff(threshold, "probability", "above")
        at, before = link.probabilities(np.array([above, np.nextafter(above, -np.inf)]))
        assert at >= threshold > before
        below = link.cutoff(threshold, "probability", "below")
        at, after = link.probabilities(np.array([below, np.nextafter(below, np.inf)]))
        assert at <= threshold < after
