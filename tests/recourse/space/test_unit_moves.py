from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.recourse.rules.feature_rule import Mutability
from stream.recourse.rules.units import Ratio, Unit
from stream.recourse.space.grouped_features import COMBINATIONS_MAX
from stream.recourse.space.person_reach import PersonReach
from tests.examples import examples
from tests.recourse.unit_people import WINDOW, Person, people

SEEDS = st.integers(0, 2**32 - 1)


def same_bits(a: float, b: float) -> bool:
    return np.float64(a).tobytes() == np.float64(b).tobytes()


def moved(person: Person, unit: Unit, values: npt.NDArray[np.float64]) -> list[int]:
    """The members that change."""
    return [j for j, x in zip(unit.members, values.tolist(), strict=True) if not same_bits(x, float(person.row[j]))]


@settings(max_examples=examples(60))
@given(person=people())
def test_the_first_alternative_is_to_stay(person: Person) -> None:
    """Given any rules, each unit's members are its features, and its first alternative is the person's own state, bit for bit, at price 0."""
    found = person.reach().alternatives
    assert [tuple(found.members[a:b]) for a, b in zip(found.member_start, found.member_start[1:], strict=False)] == [
        unit.members for unit in person.units
    ]
    for u, unit in enumerate(person.units):
        cells, values = found.of(u)
        at = int(found.unit_start[u])
        assert values[0].tobytes() == person.row[list(unit.members)].tobytes()
        assert tuple(cells[0]) == person.cell_row(unit.members, values[0])
        assert (found.price[at], found.moved[at]) == (0.0, 0)


@settings(max_examples=examples(60))
@given(person=people())
def test_every_alternative_keeps_the_rules(person: Person) -> None:
    """Given any rules, overrides and person, each alternative lies in its cells, differs from all others, costs its efforts, and moves each member as permitted: labels, range, step, no sentinel."""
    reach = person.reach()
    found = reach.alternatives
    for u, unit in enumerate(person.units):
        cells, values = found.of(u)
        assert len(cells) == found.unit_start[u + 1] - found.unit_start[u]
        assert len({tuple(row) for row in cells.tolist()}) == len(cells)
        prices = found.price[found.unit_start[u] : found.unit_start[u + 1]]
        assert (np.diff(prices) >= 0).all()
        for k in range(1, len(cells)):
            assert tuple(cells[k]) == person.cell_row(unit.members, values[k])
            changed = moved(person, unit, values[k])
            assert all(person.permits(j, float(values[k][unit.members.index(j)])) for j in changed)
            effort = sum(reach.effort(j, float(values[k][unit.members.index(j)])) for j in changed)
            assert (prices[k], found.moved[found.unit_start[u] + k]) == (effort, len(changed))


@settings(max_examples=examples(60))
@given(person=people())
def test_one_immutable_member_holds_its_unit(person: Person) -> None:
    """Given a member that nobody may change, by features.toml or by this decision's override, the whole unit stays; and a missing number is moved in no direction."""
    found = person.reach().alternatives
    for u, unit in enumerate(person.units):
        values = found.of(u)[1]
        if any(person.labels[j] == Mutability.IMMUTABLE for j in unit.members):
            assert len(values) == 1
        for k, j in enumerate(unit.members):
            if person.rules.rules[j].is_unrecorded(float(person.row[j])) and person.labels[j] != Mutability.MUTABLE:
                assert all(same_bits(x, float(person.row[j])) for x in values[:, k].tolist())


@settings(max_examples=examples(60))
@given(person=people())
def test_links_and_ratios_hold_exactly(person: Person) -> None:
    """Given a line, in each alternative each dependent is what its formula gives for the driver in decimal fractions, rounded to its step, and the other part of a ratio has stayed."""
    found = person.reach().alternatives
    for u, unit in enumerate(person.units):
        if unit.driver is None:
            continue
        for values in found.of(u)[1][1:]:
            to = dict(zip(unit.members, values.tolist(), strict=True))
            assert to[unit.driver] != person.row[unit.driver]
            for one in unit.dependents:
                assert to[one.j] == person.depends(unit.driver, one, to[unit.driver])
            assert not set(unit.stays) & set(unit.members)


@settings(max_examples=examples(40))
@given(person=people(stepped=True))
def test_a_line_misses_nothing_on_its_grid(person: Person) -> None:
    """Given a driver with a step, when every point of its grid is tried, then each combination of cells that is reached is an alternative, at the driver's value next to the person's own."""
    found = person.reach().alternatives
    for u, unit in enumerate(person.units):
        if unit.driver is None or any(person.labels[j] == Mutability.IMMUTABLE for j in unit.members):
            continue
        needed = {unit.driver, *unit.stays, *(one.j for one in unit.dependents if not isinstance(one, Ratio))}
        if any(person.rules.rules[j].is_unrecorded(float(person.row[j])) for j in needed):
            assert len(found.of(u)[1]) == 1
            continue
        below = [one.other if one.driver_above else unit.driver for one in unit.dependents if isinstance(one, Ratio)]
        if any(not person.row[j] > 0 for j in below):
            assert len(found.of(u)[1]) == 1
            continue
        nearest: dict[tuple[int, ...], float] = {}
        for values in person.along(unit):
            nearest.setdefault(person.cell_row(unit.members, values), float(values[unit.members.index(unit.driver)]))
        nearest.pop(tuple(found.of(u)[0][0]), None)
        ours = {
            tuple(cells): float(values[unit.members.index(unit.driver)])
            for cells, values in zip(found.of(u)[0][1:].tolist(), found.of(u)[1][1:], strict=True)
        }
        assert {key: x for key, x in ours.items() if abs(x) <= WINDOW} == nearest


@settings(max_examples=examples(60))
@given(person=people())
def test_a_group_takes_each_combination_that_two_people_have_and_no_other(person: Person) -> None:
    """Given a group, each alternative is a combination that two of the pool have; and each such one that every member may reach is there, or a cheaper one in its cells."""
    reach = person.reach()
    found = reach.alternatives
    for u, unit in enumerate(person.units):
        if unit.driver is not None:
            continue
        seen = person.combinations(unit)
        cells, values = found.of(u)
        assert all(person.key(unit, row) in seen for row in values[1:])
        assert len(values) <= 1 + COMBINATIONS_MAX
        price = dict(zip(map(tuple, cells.tolist()), found.price[found.unit_start[u] :].tolist(), strict=False))
        if any(person.labels[j] == Mutability.IMMUTABLE for j in unit.members):
            continue
        for combination in seen:
            to = [_value(person, reach, j, x) for j, x in zip(unit.members, combination, strict=True)]
            if all(x is not None for x in to):
                row = np.array(to, np.float64)
                changed = moved(person, unit, row)
                effort = sum(reach.effort(j, float(row[unit.members.index(j)])) for j in changed)
                assert price[person.cell_row(unit.members, row)] <= effort


def _value(person: Person, reach: PersonReach, j: int, said: float) -> float | None:
    """The value a member of a group takes in a combination; None where it is not permitted."""
    own = float(person.row[j])
    if person.rules.rules[j].type != "number":
        return said if said == own or person.permits(j, said) else None
    if said == reach.cells[j]:
        return own
    target_value = float(reach.target_value[reach.cell_targets.start[j] + int(said)])
    return None if math.isnan(target_value) else target_value


@settings(max_examples=examples(40))
@given(person=people(), seed=SEEDS)
def test_units_go_by_the_cells_that_moves_are_made_in(person: Person, seed: int) -> None:
    """Given a pool whose cells are those of a model with fewer thresholds, alternatives are those of the finer cells, bit for bit."""
    rng = np.random.default_rng(seed)
    fewer = tuple(t[rng.random(len(t)) < 0.5] for t in person.cells.thresholds)
    coarse = person.reach(dataclasses.replace(person.cells, thresholds=fewer)).alternatives
    fine = person.reach().alternatives
    for name in fine._fields:
        assert getattr(coarse, name).tobytes() == getattr(fine, name).tobytes()


@settings(max_examples=examples(60))
@given(person=people(), seed=SEEDS)
def test_a_projection_moves_units_by_alternatives_alone(person: Person, seed: int) -> None:
    """Given comparators, each unit ends in one of its alternatives: that of the comparator's cells, else for a line the cheapest in the guide's cell, else its own; what a ratio is computed with stays."""
    reach = person.reach()
    found = reach.alternatives
    rng = np.random.default_rng(seed)
    others = np.array(
        [[rng.integers(person.cells.count(j)) for j in range(len(person.row))] for _ in range(6)], np.int32
    )
    others[:2] = reach.matrix.cells[:2]
    for u, unit in enumerate(person.units):
        if len(found.of(u)[0]) > 1:
            others[2 + u % 4, list(unit.members)] = found.of(u)[0][-1]
    for target, other in zip(reach.project(others), others, strict=True):
        for u, unit in enumerate(person.units):
            cells, values = found.of(u)
            wanted = other[list(unit.members)]
            k = next((k for k, row in enumerate(cells) if (row == wanted).all()), None)
            if k is None:
                guide = reach.cell_targets.units[u].guide
                same = [] if guide is None else np.flatnonzero(cells[:, guide] == wanted[guide]).tolist()
                k = same[0] if same else 0
            assert target[list(unit.members)].tobytes() == values[k].tobytes()
            assert all(same_bits(target[j], person.row[j]) for j in unit.stays)


@settings(max_examples=examples(60))
@given(person=people(), seed=SEEDS)
def test_what_stays_has_a_reason_and_what_moves_has_none(person: Person, seed: int) -> None:
    """Given any comparator, why_not() gives a reason for each feature that differs and stayed, and for no other."""
    reach = person.reach()
    rng = np.random.default_rng(seed)
    others = np.array(
        [[rng.integers(person.cells.count(j)) for j in range(len(person.row))] for _ in range(3)], np.int32
    )
    for target, other in zip(reach.project(others), others, strict=True):
        for j in range(len(person.row)):
            stayed = same_bits(float(target[j]), float(person.row[j]))
            assert (reach.why_not(j, other) is not None) == (stayed and other[j] != reach.cells[j])


@settings(max_examples=examples(60))
@given(person=people())
def test_what_moves_together_has_no_price_alone(person: Person) -> None:
    """Given units, prices() is finite for a member, and for the part of a ratio that stays, in its own cell alone."""
    reach = person.reach()
    together = {j for unit in person.units for j in (*unit.members, *unit.stays)}
    prices = reach.prices()
    for j in range(len(person.row)):
        start, end = reach.cell_targets.start[j : j + 2]
        others = np.delete(prices[start:end], reach.cells[j])
        assert prices[start + reach.cells[j]] == 0.0
        if j in together:
            assert np.isinf(others).all()
        else:
            assert (
                np.isfinite(others).tolist()
                == (~np.isnan(np.delete(reach.target_value[start:end], reach.cells[j]))).tolist()
            )
