from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.bundle.advice.untrue_ratios import UntrueRatio, untrue_ratios
from stream.recourse.rules.features import FeatureRules, read_features
from tests.bundle.inputs import inputs, write_pool
from tests.bundle.test_command import build as command
from tests.examples import examples
from tests.forest.models import USUAL

NAMES = ("balance", "limit", "used")


def card(ratio: str = "", *, balance: str = "", used: str = "mutable") -> FeatureRules:
    """A used share of a limit, in percent, of which the balance moves."""
    return read_features(
        f"""
[balance]
type = "number"
mutability = "mutable"
{balance}
[limit]
type = "number"
mutability = "immutable"
no_record = [-9, 77]
[used]
type = "number"
mutability = "{used}"
ratio_of = ["balance", "limit"]
ratio_factor = 100
{ratio}
""",
        NAMES,
    )


def found(rules: FeatureRules, *rows: list[float]) -> tuple[UntrueRatio, ...]:
    return untrue_ratios(np.array(rows), rules)


def untrue(differ: int, known: int) -> tuple[UntrueRatio, ...]:
    return (UntrueRatio(feature="used", driver="balance", differ=differ, known=known),)


@pytest.mark.parametrize("used", [33.3, 33.4])
def test_however_a_ratio_was_rounded_to_its_step_it_is_true(used: float) -> None:
    """Given a third in percent and a step of 0.1, then the step below and the one above are what its parts give."""
    assert found(card("step = 0.1"), [100.0, 300.0, used]) == ()


@pytest.mark.parametrize(("used", "differ"), [(33.2, 1), (33.5, 1), (0.333, 1), (math.nan, 0)])
def test_a_step_or_more_away_is_told(used: float, differ: int) -> None:
    """Given other values, a share instead of percent among them, then the row is counted; a ratio that is not known is not."""
    rows = [100.0, 300.0, used], [150.0, 300.0, 50.0]
    assert found(card("step = 0.1"), *rows) == (untrue(1, 2) if differ else ())


def test_a_whole_step_beside_an_exact_ratio_is_told() -> None:
    """Given a ratio that is exactly on its step, then one step beside it is no rounding, on either side and in decimals too."""
    assert found(card("step = 1"), [100.0, 200.0, 49.0], [100.0, 200.0, 51.0], [100.0, 200.0, 50.0]) == untrue(2, 3)
    assert found(card("step = 0.1"), [4.0, 10.0, 40.1], [3.0, 1000.0, 0.2]) == untrue(2, 2)


def test_without_a_step_a_ratio_is_true_as_far_as_float32_tells() -> None:
    """Given no step, then a ratio in float32 of parts in float32 is what they give, and one of six digits is not."""
    parts = np.array([12_345.67, 33_333.33], np.float32)
    single = float(np.float32(100) * parts[0] / parts[1])
    assert found(card(), [12_345.67, 33_333.33, single]) == ()
    assert found(card(), [12_345.67, 33_333.33, 37.0371]) == untrue(1, 1)


@pytest.mark.parametrize("limit", [0.0, -300.0, math.nan, -9.0, 77.0])
def test_what_is_divided_by_must_be_known_and_above_zero(limit: float) -> None:
    """Given a limit of which no ratio is made, then its row counts neither as true nor as untrue."""
    assert found(card("step = 0.1"), [100.0, limit, 12.0]) == ()
    assert found(card("step = 0.1"), [100.0, limit, 12.0], [100.0, 300.0, 12.0]) == untrue(1, 1)


def test_a_ratio_that_nobody_can_move_is_not_asked() -> None:
    """Given an immutable ratio, then nothing moves it, and nothing is told."""
    assert found(card("step = 0.1", used="immutable"), [100.0, 300.0, 12.0]) == ()


def test_the_driver_may_be_below() -> None:
    """Given a ratio of which what is divided by moves, then it is the driver that is named, and the parts keep their places."""
    text = """
[balance]
type = "number"
mutability = "immutable"
[limit]
type = "number"
mutability = "mutable"
[used]
type = "number"
mutability = "mutable"
step = 0.01
ratio_of = ["balance", "limit"]
"""
    rules = read_features(text, NAMES)
    assert found(rules, [100.0, 400.0, 0.25]) == ()
    assert found(rules, [100.0, 400.0, 4.0]) == (UntrueRatio(feature="used", driver="limit", differ=1, known=1),)


@settings(max_examples=examples(200))
@given(
    balance=st.integers(-1_000, 1_000),  # beyond, float32 does not tell the steps apart
    limit=st.integers(1, 10_000),
    step=st.sampled_from(["0.1", "1", "5", "0.25"]),
    steps_beside=st.integers(-3, 3),
)
def test_a_row_is_told_where_its_ratio_is_a_step_or_more_away(
    balance: int, limit: int, step: str, steps_beside: int
) -> None:
    """Given any parts and a value on the grid near their ratio, then it is told if, in fractions, it is a step or more away."""
    exact, each = Fraction(100 * balance, limit), Fraction(step)
    value = (exact // each + steps_beside) * each
    differs = abs(value - exact) >= each
    told = found(card(f"step = {step}"), [float(balance), float(limit), float(value)])
    assert told == (untrue(1, 1) if differs else ())


def test_the_command_tells_where_a_ratio_is_not_what_its_parts_give(tmp_path: Path) -> None:
    """Given a pool in which a ratio is off in one row of ten, then the build succeeds, and text and JSON say of which feature and in how many rows; where it holds, nothing is said."""
    given = inputs(tmp_path)
    driver, part, ratio, other = USUAL.names
    (tmp_path / "features.toml").write_text(
        "".join(f'[{name}]\ntype = "number"\nmutability = "mutable"\n' for name in (driver, part, other))
        + f'[{ratio}]\ntype = "number"\nmutability = "mutable"\nstep = 0.5\n'
        f'ratio_of = ["{driver}", "{part}"]\nmoves = "{driver}"\n'
    )
    rows, target = given.rows.copy(), np.arange(len(given.rows)) % 2
    rows[:, 0], rows[:, 1] = np.arange(len(rows)) % 50, 1 + np.arange(len(rows)) % 7
    rows[:, 2] = np.round(2 * rows[:, 0] / rows[:, 1]) / 2
    write_pool(tmp_path / "pool.csv", rows, target)
    assert "ratio?" not in command(tmp_path, "--out", tmp_path / "true").stdout
    rows[::10, 2] += 2
    write_pool(tmp_path / "pool.csv", rows, target)
    done = command(tmp_path)
    assert done.exit_code == 0
    assert (
        f"  ratio?        {ratio} is not what its parts give in 40 of 400 rows (10.0%) of the pool that have all three,\n"
        in done.stdout
    )
    assert f"or a tiny move of {driver} seems to do a lot\n" in done.stdout
    told = json.loads(command(tmp_path, "--json", "--out", tmp_path / "again").stdout)
    assert told["untrue_ratios"] == [{"feature": ratio, "driver": driver, "differ": 40, "known": 400}]
