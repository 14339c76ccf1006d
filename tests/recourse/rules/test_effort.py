"""Effort: what a move is worth asking, one move at a time, of a state, and of whole rows, held against fractions."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.recourse.rules.effort import EFFORT_MAX, efforts
from stream.recourse.rules.features import FeatureRules
from stream.recourse.space.moves import moves_of, price_of, target_of
from stream.recourse.space.person_reach import PersonReach
from tests.examples import examples
from tests.recourse.space.test_moves import a_state
from tests.recourse.space.test_unit_cases import SCHOOL, WORK, person_of
from tests.recourse.unit_people import Person, people

COSTS = st.sampled_from([1.0, 0.3, 2.0, 7.25])
SEEDS = st.integers(0, 2**32 - 1)
ACTIONS = st.sampled_from([0.0, 0.12, 3.0])
# Of terms that are all positive, each operation adds one rounding; of one effort there are three, and a sum of each.
ROUNDINGS = 6
KINDS = WORK + SCHOOL + "".join(
    f'[{name}]\ntype = "{kind}"\nmutability = "mutable"\ncost = {cost}\n{more}'
    for name, kind, cost, more in (
        ("colour", "category", 5, ""),
        ("age", "integer", 0.5, ""),
        ("unknown", "number", 3, ""),
        ("never", "number", 7, "no_record = [-9]\n"),
    )
)  # fmt: skip
OWN = [2000.0, 400.0, 0.0, 4.0, 1.0, 30.0, math.nan, -9.0]


def oracle(rules: FeatureRules, scales: list[float], row: list[float], target: list[float], action: float) -> Fraction:
    """What a target costs, in fractions, from the rules of docs/recourse.md: one scale where there is no distance."""
    cost = Fraction(0)
    for rule, scale, own, to in zip(rules.rules, scales, row, target, strict=True):
        if to == own or (math.isnan(own) and math.isnan(to)):
            continue
        nothing = math.isnan(own) or own in rule.no_record or (rule.missing is not None and own == rule.missing)
        scaled = (
            Fraction(1) if nothing or rule.type == "category" else abs(Fraction(to) - Fraction(own)) / Fraction(scale)
        )
        cost += Fraction(rule.cost) * scaled + Fraction(action)
    return cost


def is_rounded(found: float, exact: Fraction, terms: int) -> bool:
    """Whether a sum of so many positive terms is as near as doubles get."""
    return abs(Fraction(found) - exact) <= exact * (ROUNDINGS + 2 * terms) / 2**53


@settings(max_examples=examples(100), deadline=None)
@given(person=people(), seed=SEEDS, action=ACTIONS, costs=st.lists(COSTS, min_size=20, max_size=20))
def test_a_price_is_the_sum_of_the_efforts_of_what_moves(
    person: Person, seed: int, action: float, costs: list[float]
) -> None:
    """Given anyone with categories, missing values and units of each kind, the price of a state, the cost of its row and the sum of its single efforts are what fractions give, to what rounding leaves."""
    dear = tuple(dataclasses.replace(r, cost=c) for r, c in zip(person.rules.rules, costs, strict=False))
    reach = dataclasses.replace(person, rules=dataclasses.replace(person.rules, rules=dear)).reach()
    moves, features = moves_of(reach, action), len(reach.row)
    states = [moves.own, *(a_state(np.random.default_rng(seed + k), reach, moves) for k in range(4))]
    targets = np.array([target_of(reach, state) for state in states])
    whole_rows = reach.costs(targets, action)
    for state, target, whole_row in zip(states, targets.tolist(), whole_rows.tolist(), strict=True):
        exact = oracle(reach.rules, reach.matrix.scales.tolist(), reach.row.tolist(), target, action)
        singly = math.fsum(reach.effort(j, target[j]) for j in range(features))
        free = oracle(reach.rules, reach.matrix.scales.tolist(), reach.row.tolist(), target, 0.0)
        assert is_rounded(price_of(moves, state), exact, features)
        assert is_rounded(whole_row, exact, features)
        assert is_rounded(singly, free, features)


def a_reach() -> PersonReach:
    """Somebody with a link, a group, a category, a number, and two numbers of which nothing is known."""
    names = ("income", "tax", "education", "years", "colour", "age", "unknown", "never")
    thresholds = [[2050.0], [], [1.5], [8.0], [1.5], [40.0], [5.0], [5.0]]
    pool = np.array([[0, 0, 2, 13, 2, 50, 9, 9]] * 2 + [[0, 0, 0, 4, 1, 30, 2, 2]] * 2, np.float64)
    return person_of(KINDS, names, OWN, thresholds, pool).reach()


@pytest.mark.parametrize(
    ("moved", "effort"),
    [
        ({"age": 40.0}, 0.5 * 10 / 2.5),
        ({"colour": 2.0}, 5.0),
        ({"unknown": 77.0}, 3.0),
        ({"never": 77.0}, 7.0),
        ({"income": 2100.0, "tax": 431.0}, 100 / 0.5 + 31 / 1.5),
        ({"education": 2.0, "years": 13.0}, 1.0 + 9 / 0.5),
        ({"colour": 2.0, "age": 20.0, "unknown": 1.0}, 5.0 + 0.5 * 10 / 2.5 + 3.0),
        ({}, 0.0),
    ],
)
def test_each_kind_of_move_has_its_effort(moved: dict[str, float], effort: float) -> None:
    """Given a category, a first value, a number, or a unit, the effort of the move is its cost times the scales moved, one where there is no distance; a row adds the price of each action."""
    reach = a_reach()
    target = reach.row.copy()
    for name, to in moved.items():
        target[reach.rules.index[name]] = to
    assert reach.costs(target[None], 0.0).tolist() == [effort]
    assert reach.costs(target[None], 0.25).tolist() == [effort + 0.25 * len(moved)]
    assert math.fsum(reach.effort(j, to) for j, to in enumerate(target.tolist())) == effort


def test_an_effort_has_a_bound() -> None:
    """Given numbers at the ends of doubles, an effort is at most EFFORT_MAX and nothing warns, so that a sum stays finite."""
    far: npt.NDArray[np.float64] = np.array([1.7e308, -1.7e308, 1.0])
    found = efforts(far, -1.7e308, cost=1e200, scale=1e-300, unordered=False)
    assert found.tolist() == [EFFORT_MAX, 0.0, EFFORT_MAX]
    assert efforts(far, 1.0, cost=1e308, scale=1.0, unordered=True).tolist() == [EFFORT_MAX, EFFORT_MAX, 0.0]


def test_an_own_value_that_is_missing_asks_nothing() -> None:
    """Given somebody without a value, to stay so has no effort and any value one cost."""
    found = efforts(np.array([math.nan, 3.0]), math.nan, cost=2.0, scale=1.0, unordered=True)
    assert found.tolist() == [0.0, 2.0]
