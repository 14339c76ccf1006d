"""Features that move together, case by case: what each kind of unit means for one person."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise

import numpy as np
import pytest

from stream.forest.cells import Cells
from stream.recourse.rules.features import FeatureRules, read_features
from stream.recourse.space.grouped_features import COMBINATIONS_MAX
from stream.recourse.space.linked_features import LINE_STOPS_MAX, NO_RATIO, NOT_KNOWN
from stream.recourse.space.person_reach import DEPENDS, GROUP, IMMUTABLE, STAYS, UNKNOWN_DIRECTION, UNSEEN, PersonReach
from tests.recourse.unit_people import Person, Rows

CARD = """
[balance]
type = "number"
mutability = "decrease_only"
min = 0
step = 10
[limit]
type = "number"
mutability = "mutable"
[used]
type = "number"
mutability = "mutable"
step = 0.1
ratio_of = ["balance", "limit"]
ratio_factor = 100
moves = "balance"
"""
WORK = """
[income]
type = "number"
mutability = "increase_only"
step = 100
[tax]
type = "number"
mutability = "mutable"
step = 1
follows = "income"
factor = 0.305
"""
SCHOOL = """
[education]
type = "category"
mutability = "mutable"
categories = ["none", "school", "college", "master"]
group = "education"
[years]
type = "integer"
mutability = "increase_only"
group = "education"
"""
HOUSING = "".join(
    f'[{name}]\ntype = "integer"\nmutability = "mutable"\nmin = 0\nmax = 1\ngroup = "housing"\n'
    for name in ("own", "rent", "free")
)


def person_of(
    text: str,
    names: tuple[str, ...],
    row: list[float],
    thresholds: list[list[float]],
    pool: Rows | None = None,
    overrides: dict[str, str] | None = None,
) -> Person:
    rules: FeatureRules = read_features(text, names)
    cells = Cells(thresholds=tuple(np.array(t) for t in thresholds), threshold_is_low=True, dtype=np.dtype(np.float64))
    held = np.array([row, row]) if pool is None else pool
    return Person(rules=rules, cells=cells, pool=held, row=np.array(row), overrides=overrides or {})


def card(
    row: list[float],
    thresholds: list[list[float]] | None = None,
    text: str = CARD,
    overrides: dict[str, str] | None = None,
) -> Person:
    return person_of(
        text, ("balance", "limit", "used"), row, thresholds or [[300.0], [], [20.0, 50.0]], None, overrides
    )


def ways(person: Person | PersonReach, u: int = 0) -> list[list[float]]:
    """The values of a unit's alternatives, the own one left out."""
    reach = person.reach() if isinstance(person, Person) else person
    found: list[list[float]] = reach.alternatives.of(u)[1][1:].tolist()
    return found


def test_a_balance_moves_with_its_utilisation() -> None:
    """Given a limit of 700 that stays and a balance of 600, when it falls, then utilisation is what the parts give, to its step, at each cell that either enters."""
    assert ways(card([600.0, 700.0, 85.7])) == [[340.0, 48.6], [290.0, 41.4], [130.0, 18.6]]


def test_the_other_part_can_move_instead() -> None:
    """Given moves = "limit", when utilisation falls below 50, then the limit rises to the least step that does it, and the balance stays."""
    text = CARD.replace('moves = "balance"', 'moves = "limit"').replace(
        '[limit]\ntype = "number"', '[limit]\ntype = "number"\nstep = 50'
    )
    assert ways(card([600.0, 700.0, 85.7], [[], [], [50.0]], text)) == [[1250.0, 48.0]]


def test_a_part_that_nobody_can_change_needs_no_word() -> None:
    """Given an immutable limit, the balance is what moves, without `moves`."""
    text = CARD.replace('mutability = "mutable"', 'mutability = "immutable"', 1).replace('moves = "balance"', "")
    assert ways(card([600.0, 700.0, 85.7], None, text)) == ways(card([600.0, 700.0, 85.7]))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([600.0, math.nan, 85.7], NO_RATIO),
        ([600.0, 0.0, 85.7], NO_RATIO),
        ([600.0, -5.0, 85.7], NO_RATIO),
        ([600.0, -9.0, 85.7], NO_RATIO),
        ([math.nan, 700.0, 85.7], NOT_KNOWN),
    ],
)
def test_a_ratio_without_its_parts_stays(row: list[float], reason: str) -> None:
    """Given a limit that is missing, zero, negative or no record, or a balance that is missing, the unit stays and says why."""
    text = CARD.replace("[limit]", "[limit]\nno_record = [-9]")
    reach = card(row, None, text).reach()
    assert ways(reach) == []
    others = np.array([[0, 0, 0]], np.int32)
    assert reach.why_not(2, others[0]) == reason
    assert reach.project(others)[0].tobytes() == np.array(row).tobytes()


def test_a_ratio_that_is_missing_is_computed() -> None:
    """Given a missing utilisation and both parts, when the balance moves, then it is what they give; one that may only fall is refused, for from nothing there is no direction."""
    falling = CARD.replace(
        '[used]\ntype = "number"\nmutability = "mutable"', '[used]\ntype = "number"\nmutability = "decrease_only"'
    )
    assert [10.0, 1.4] not in ways(card([600.0, 700.0, math.nan]))
    assert [130.0, 18.6] in ways(card([600.0, 700.0, math.nan]))
    refused = card([600.0, 700.0, math.nan], None, falling).reach()
    assert ways(refused) == []
    assert refused.why_not(2, np.array([0, 0, 0], np.int32)) == UNKNOWN_DIRECTION
    assert refused.why_not(0, np.array([0, 0, 0], np.int32)) == DEPENDS


def test_a_sentinel_is_stepped_over_by_the_whole_unit() -> None:
    """Given a balance of 130 that says "no record", when utilisation falls below 20, then the balance is 120; given one of 18.6 for utilisation, too."""
    for key in ("[balance]\nno_record = [130]", "[used]\nno_record = [18.6]"):
        text = CARD.replace(key.split("\n")[0], key)
        assert ways(card([600.0, 700.0, 85.7], None, text))[-1] == [120.0, 17.1]


@pytest.mark.parametrize("name", ["balance", "used"])
def test_an_override_of_a_member_holds_the_unit(name: str) -> None:
    """Given "this applicant cannot change X", when X is of a unit, then nothing of it moves, and X says immutable."""
    reach = card([600.0, 700.0, 85.7], overrides={name: "immutable"}).reach()
    assert ways(reach) == []
    reasons = {j: reach.why_not(j, np.array([0, 0, 0], np.int32)) for j in (0, 2)}
    assert reasons == {0: IMMUTABLE if name == "balance" else DEPENDS, 2: IMMUTABLE if name == "used" else DEPENDS}


def test_a_part_that_stays_says_so() -> None:
    """Given a limit that its ratio keeps, it does not move toward a comparator, and its reason is that another feature moves in its place."""
    reach = card([600.0, 700.0, 85.7], [[300.0], [1000.0], [20.0, 50.0]]).reach()
    other = np.array([0, 1, 1], np.int32)
    assert reach.why_not(1, other) == STAYS
    assert reach.project(other[None])[0].tolist() == [290.0, 700.0, 41.4]


def test_a_tax_follows_an_income() -> None:
    """Given factor 0.305 and whole taxes, when income rises by 100, then tax rises by 30.5, which is rounded up to 31."""
    person = person_of(WORK, ("income", "tax"), [2000.0, 400.0], [[2050.0, 2450.0], [460.0]])
    assert ways(person) == [[2100.0, 431.0], [2200.0, 461.0], [2500.0, 553.0]]
    assert ways(dataclasses.replace(person, row=np.array([math.nan, 400.0]))) == []
    assert person.reach().obstacles == (None,)
    assert dataclasses.replace(person, row=np.array([2000.0, math.nan])).reach().obstacles == (NOT_KNOWN,)


def test_a_follower_out_of_range_or_against_its_label_holds_its_driver() -> None:
    """Given a tax of at most 450, or one that may only fall, the income goes no further than the tax may; an override of the income's direction holds too."""

    def at(text: str, overrides: dict[str, str] | None = None) -> list[list[float]]:
        return ways(person_of(text, ("income", "tax"), [2000.0, 400.0], [[2050.0, 2450.0], [460.0]], None, overrides))

    assert at(WORK.replace("step = 1\n", "step = 1\nmax = 450\n")) == [[2100.0, 431.0]]
    assert at(WORK.replace('mutability = "mutable"', 'mutability = "decrease_only"')) == []
    free = WORK.replace("increase_only", "mutable")
    assert len(at(free)) == 3
    assert at(free, {"income": "decrease_only"}) == []
    assert at(free, {"income": "increase_only"}) == at(WORK)


def test_decimals_are_clean() -> None:
    """Given a factor of 0.1 and no step, when a driver moves by 3, then its follower moves by 0.3, and not by 0.30000000000000004."""
    text = WORK.replace("step = 100", "step = 3").replace("step = 1\n", "").replace("0.305", "0.1")
    assert ways(person_of(text, ("income", "tax"), [0.0, 0.0], [[1.0], []])) == [[3.0, 0.3]]


def school(
    own: list[float], thresholds: list[list[float]] | None = None, overrides: dict[str, str] | None = None
) -> Person:
    pool = np.array([[0, 4], [0, 4], [1, 9], [1, 9], [2, 13], [2, 13], [2, 13], [3, 15], [3, 14]], np.float64)
    cuts = thresholds or [[0.5, 1.5, 2.5], [8.5, 14.5]]
    return person_of(SCHOOL, ("education", "years"), own, cuts, pool, overrides)


def test_education_and_its_years_stay_somebodys() -> None:
    """Given a model that cuts years at 8.5 alone, when a person finishes school, then the years are 9, as two people have; what only one person has is no alternative."""
    assert ways(school([0, 4])) == [[1.0, 9.0], [2.0, 13.0]]
    assert ways(school([1, 9])) == [[2.0, 13.0]]
    reach = school([0, 4]).reach()
    assert reach.why_not(0, np.array([3, 2], np.int32)) == UNSEEN
    assert reach.project(np.array([[3, 2], [1, 1]], np.int32)).tolist() == [[0.0, 4.0], [1.0, 9.0]]


def test_a_member_without_splits_keeps_its_combination() -> None:
    """Given years that the model never splits on, they still go with the education, though their cell is the same."""
    assert ways(school([0, 4], [[0.5, 1.5, 2.5], []])) == [[1.0, 9.0], [2.0, 13.0]]


def test_a_missing_member_is_moved_as_its_label_permits() -> None:
    """Given a missing education, which may be any, and years that may only rise, both move; given missing years, nothing does."""
    assert ways(school([math.nan, 4])) == [[0.0, 4.0], [1.0, 9.0], [2.0, 13.0]]
    assert ways(school([0, math.nan])) == []


def test_a_held_group_names_who_holds_it() -> None:
    """Given an override of years, the education says that another feature of its group cannot move."""
    reach = school([0, 4], overrides={"years": "immutable"}).reach()
    assert [reach.why_not(j, np.array([1, 1], np.int32)) for j in (0, 1)] == [GROUP, IMMUTABLE]


def test_a_member_with_no_record_has_no_direction() -> None:
    """Given years of -9, which is no record, or a missing amount, that may only rise, the group stays: any number would seem a rise."""
    text = SCHOOL.replace('"increase_only"', '"increase_only"\nno_record = [-9]')
    pool = np.repeat([[0.0, 4.0], [1.0, 9.0]], 2, axis=0)
    cuts = [[0.5], [8.5]]
    assert ways(person_of(text, ("education", "years"), [0.0, 4.0], cuts, pool)) == [[1.0, 9.0]]
    assert ways(person_of(text, ("education", "years"), [0.0, -9.0], cuts, pool)) == []
    amounts = text.replace("integer", "number")
    assert ways(person_of(amounts, ("education", "years"), [0.0, 4.0], cuts, pool)) == [[1.0, 8.5]]
    for nothing in (-9.0, math.nan):
        assert ways(person_of(amounts, ("education", "years"), [0.0, nothing], [[0.5], [-20.0, 8.5]], pool)) == []


def test_an_immutable_member_holds_those_that_would_leave_it_be() -> None:
    """Given people with 4 years and either education, or a tax in steps of 1000, an override of the years or the tax holds the unit though their values would stay."""
    pool = np.repeat([[0.0, 4.0], [1.0, 4.0]], 2, axis=0)
    names = ("education", "years")
    assert ways(person_of(SCHOOL, names, [0.0, 4.0], [[0.5], []], pool)) == [[1.0, 4.0]]
    assert ways(person_of(SCHOOL, names, [0.0, 4.0], [[0.5], []], pool, {"years": "immutable"})) == []
    coarse, row, cuts = WORK.replace("step = 1\n", "step = 1000\n"), [2000.0, 0.0], [[2050.0], []]
    assert ways(person_of(coarse, ("income", "tax"), row, cuts)) == [[2100.0, 0.0]]
    assert ways(person_of(coarse, ("income", "tax"), row, cuts, None, {"tax": "immutable"})) == []


def test_rounding_takes_no_follower_against_its_label() -> None:
    """Given a tax of 400.4 in whole steps that may only rise, the income goes on until the tax is rounded up to 401."""
    text = WORK.replace("step = 100", "step = 1").replace("0.305", "0.01").replace("mutable", "increase_only")
    assert ways(person_of(text, ("income", "tax"), [2000.0, 400.4], [[2001.0], []])) == [[2010.0, 401.0]]


def test_one_hot_stays_one_hot() -> None:
    """Given one-hot columns, of which the model splits on one alone, each alternative has a single 1, in a column that two people have."""
    pool = np.repeat(np.eye(3), [4, 3, 1], axis=0)
    for cuts in ([[0.5], [0.5], [0.5]], [[0.5], [], []], [[1.0], [1.0], []]):
        assert ways(person_of(HOUSING, ("own", "rent", "free"), [0.0, 1.0, 0.0], cuts, pool)) == [[1.0, 0.0, 0.0]]
        found = ways(person_of(HOUSING, ("own", "rent", "free"), [0.0, 0.0, 1.0], cuts, pool))
        assert found
        assert all(sorted(values) == [0.0, 0.0, 1.0] for values in found)


def test_numbers_go_by_their_cells() -> None:
    """Given two amounts of which no two people have the same, the combination of cells is what counts, and each takes the value at its own end of the cell."""
    text = "".join(f'[{name}]\ntype = "number"\nmutability = "mutable"\nstep = 1\ngroup = "g"\n' for name in "ab")
    pool = np.array([[11.5, 30.25], [12.5, 31.25], [1.0, 2.0], [40.0, 2.5]])
    assert ways(person_of(text, ("a", "b"), [3.0, 3.0], [[10.0, 20.0], [20.0]], pool)) == [[10.0, 20.0]]


@pytest.mark.parametrize("kind", ["group", "line"])
def test_alternatives_are_bounded(kind: str) -> None:
    """Given more combinations than a unit may have, a group keeps the commonest, a line evenly spread ones with both ends."""
    many = 2 * max(COMBINATIONS_MAX, LINE_STOPS_MAX)
    cuts = [k + 0.5 for k in range(many)]
    if kind == "group":
        text = "".join(f'[{name}]\ntype = "integer"\nmutability = "mutable"\ngroup = "g"\n' for name in "ab")
        pool = np.repeat(np.arange(many, dtype=np.float64), 2 + (np.arange(many) >= COMBINATIONS_MAX))
        found = ways(person_of(text, ("a", "b"), [-1.0, -1.0], [cuts, cuts], np.column_stack([pool, pool])))
        assert sorted(found) == [[float(k)] * 2 for k in range(many - COMBINATIONS_MAX, many)]
        return
    text = '[a]\ntype = "integer"\nmutability = "mutable"\n[b]\ntype = "integer"\nmutability = "mutable"\nfollows = "a"\nfactor = 1\n'
    found = ways(person_of(text, ("a", "b"), [0.0, 0.0], [cuts, cuts]))
    assert len(found) == LINE_STOPS_MAX
    assert (found[0], found[-1]) == ([1.0, 1.0], [float(many)] * 2)
    assert {int(b[0] - a[0]) for a, b in pairwise(found)} <= {2, 3}


@pytest.mark.parametrize("far", [1e300, 1e-300, 12345.678901234567])
def test_numbers_beyond_int64_are_exact_too(far: float) -> None:
    """Given values that no whole number of 64 bits says, a follower is still the double nearest to its formula, and what exceeds all doubles is no alternative."""
    text = WORK.replace("step = 100\n", "").replace("step = 1\n", "").replace("0.305", "1e10")
    person = person_of(text, ("income", "tax"), [far, 1.0], [[2 * far], []])
    for values in ways(person):
        one = person.units[0].dependents[0]
        assert values[1] == person.depends(0, one, values[0])
    assert len(ways(person)) == 1 or far == 1e300
