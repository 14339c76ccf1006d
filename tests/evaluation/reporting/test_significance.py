from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]

from tests.evaluation.reporting.significance import corrected_t_test, holm

DIFFERENCES = [0.12, 0.08, 0.15, 0.05, 0.11, 0.09, 0.13, 0.02, 0.10, 0.07]
FOLD_IN_FIVE = 0.25


def test_without_shared_training_rows_the_test_is_the_paired_t_test() -> None:
    """Given no overlap of training rows, when tested, then p and interval are scipy's of a plain t-test on one sample."""
    found = corrected_t_test(DIFFERENCES, 0.0)
    plain = stats.ttest_1samp(DIFFERENCES, 0.0)
    low, high = plain.confidence_interval(0.95)
    assert found is not None
    np.testing.assert_allclose([found.p, found.low, found.high], [plain.pvalue, low, high], rtol=1e-12)


def test_shared_training_rows_widen_the_interval_as_the_source_says() -> None:
    """Given ten splits of a fold in five, when tested, then the error is sqrt(1/10 + 1/4) of the standard deviation."""
    found = corrected_t_test(DIFFERENCES, FOLD_IN_FIVE)
    mean = math.fsum(DIFFERENCES) / 10
    variance = math.fsum((d - mean) ** 2 for d in DIFFERENCES) / 9
    statistic = mean / math.sqrt(variance * (1 / 10 + 1 / 4))
    density = [(1 + t * t / 9) ** -5 for t in np.linspace(0, statistic, 200_001)]  # Student's, of 9 degrees, by hand
    inside = (
        2
        * np.trapezoid(density, dx=statistic / 200_000)
        / (math.sqrt(9) * math.gamma(4.5) * math.sqrt(math.pi) / math.gamma(5))
    )
    assert found is not None
    assert abs(found.p - (1 - inside)) < 1e-9
    assert found.splits == 10
    of_a_table = 2.262157162740992  # Student's t of 9 degrees at 97.5 %
    assert abs((found.high - found.low) / 2 - of_a_table * mean / statistic) < 1e-9


@pytest.mark.parametrize(("differences", "p"), [([0.0, 0.0, 0.0], 1.0), ([0.5, 0.5, 0.5], 0.0)])
def test_differences_without_spread_are_certain(differences: list[float], p: float) -> None:
    """Given splits that all differ by the same, when tested, then nothing is divided by zero: p is 1 for 0, else 0."""
    found = corrected_t_test(differences, FOLD_IN_FIVE)
    assert found is not None
    assert (found.p, found.low, found.high) == (p, differences[0], differences[0])


def test_one_split_says_nothing() -> None:
    """Given a single split, when tested, then there is no result."""
    assert corrected_t_test([0.3], FOLD_IN_FIVE) is None


def test_holm_steps_down() -> None:
    """Given four p values, when corrected, then they are the textbook's, in the order given."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == [0.03, 0.06, 0.06, 0.02]


@given(p=st.lists(st.floats(0, 1), max_size=12))
def test_holm_rejects_what_its_definition_rejects(p: list[float]) -> None:
    """Given any family, when corrected at 5 %, then rejected is just what the step-down procedure rejects one by one."""
    corrected = holm(p)
    rejected = set()
    for k, i in enumerate(sorted(range(len(p)), key=lambda i: (p[i], i))):
        if p[i] * (len(p) - k) >= 0.05:
            break
        rejected.add(i)
    assert {i for i, value in enumerate(corrected) if value < 0.05} == rejected
