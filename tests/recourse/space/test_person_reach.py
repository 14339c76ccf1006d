from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.forest.cells import Cells
from stream.recourse.comparators.leaf_matrix import LeafMatrix
from stream.recourse.rules.feature_rule import FeatureRule, Mutability, ReasonTexts
from stream.recourse.rules.features import FeatureRules, rules_together
from stream.recourse.space.person_reach import IMMUTABLE, TO_MISSING, PersonReach, cell_targets_of, person_reach
from tests.examples import examples
from tests.oracles.target_values import cell_of, every_number, nearest, permitted
from tests.strategies import feature_rules, halves

UP, DOWN, FREE, FIXED = (
    Mutability.INCREASE_ONLY,
    Mutability.DECREASE_ONLY,
    Mutability.MUTABLE,
    Mutability.IMMUTABLE,
)


def rule(name: str = "f", **settings: Any) -> FeatureRule:
    usual: dict[str, Any] = {
        "type": "number",
        "mutability": FREE,
        "label": name,
        "reason": ReasonTexts(code=name, too_low="low", too_high="high", missing="missing"),
    }
    return FeatureRule(name=name, **(usual | settings))


def rules_of(*rules: FeatureRule) -> FeatureRules:
    return rules_together(rules)


def pool(columns: Sequence[Sequence[float]]) -> LeafMatrix:
    """A leaf matrix of which only medians, scales and the categories seen matter here."""
    seen = [np.unique([x for x in column if not math.isnan(x)], return_counts=True) for column in columns]
    return LeafMatrix(
        codes=np.empty((0, 1), np.uint8),
        cells=np.empty((0, len(columns)), np.int32),
        rows=np.empty((0, len(columns))),
        margins=np.empty(0, np.float32),
        references=np.empty((0, 16), np.uint8),
        scales=np.full(len(columns), 2.0),
        medians=np.array([np.median(column) if column else 0.0 for column in columns]),
        category_start=np.cumsum([0, *(len(codes) for codes, _ in seen)]),
        category_codes=np.concatenate([codes.astype(np.float64) for codes, _ in seen]),
        category_counts=np.concatenate([counts.astype(np.int64) for _, counts in seen]),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """One feature: its rule, its thresholds, and the arithmetic of the model."""

    rule: FeatureRule
    thresholds: tuple[float, ...]
    operator: str
    dtype: Any

    def cells(self) -> Cells:
        """The code under test on these thresholds."""
        own = np.array(self.thresholds, self.dtype)
        return Cells(thresholds=(own,), threshold_is_low=self.operator == "<", dtype=np.dtype(self.dtype))

    def cell(self, value: float) -> int:
        """The cell that a value is in."""
        return int(self.cell_each(np.array(value)))

    def cell_each(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """The cells that values are in, by the oracle."""
        found: npt.NDArray[np.int64] = cell_of(values, self.thresholds, self.dtype, self.operator)
        return found

    def reach(self, own: float, seen: Sequence[float]) -> PersonReach:
        """The moves of a person with `own`, among a pool in which these values were seen."""
        rules, cells, matrix = rules_of(self.rule), self.cells(), pool([seen])
        row = np.array([own])
        return person_reach(
            rules,
            matrix,
            cell_targets_of(rules, cells, matrix),
            row=row,
            cells=cells.of(row[None])[0],
            mutability=rules.mutabilities({}),
        )

    def targets(self, own: float, median: float = 0.0) -> list[float]:
        """The target values of a person with `own` toward a comparator in each cell of numbers; the own value where it stays."""
        cells = np.arange(len(self.thresholds) + 1, dtype=np.int32)[:, None]
        targets: list[float] = self.reach(own, [median]).project(cells)[:, 0].tolist()
        return targets

    def toward(self, own: float, cell: int) -> float:
        """The target value of a person with `own` toward a comparator in `cell`."""
        return self.targets(own)[cell]


def grid(rule: FeatureRule) -> npt.NDArray[np.float64]:
    """Every point of a rule's grid from -130 to 130, by fractions."""
    step = Fraction(str(rule.step))
    origin = Fraction(str(rule.min)) if math.isfinite(rule.min) else Fraction(0)
    first, last = math.ceil((-130 - origin) / step), math.floor((130 - origin) / step)
    return np.array([float(origin + k * step) for k in range(first, last + 1)])


def expected(place: Place, own: float, cell: int, candidates: npt.NDArray[np.float64], median: float) -> float:
    """The reference: the permitted value in that cell nearest to the person's own, in a permitted direction."""
    r = place.rule
    if cell == place.cell(own) and not math.isnan(own):
        return own
    unrecorded = math.isnan(own) or own in r.no_record
    if r.mutability == FIXED or (unrecorded and r.mutability != FREE):
        return own
    held = candidates[permitted(r, candidates, place.dtype) & (place.cell_each(candidates) == cell)]
    if unrecorded:  # there is no own value to be near to: the pool's median stands in, or the low end of its cell
        low_end = cell > place.cell(median) or (cell == place.cell(median) and cell > 0)
        found = float(np.min(held) if low_end else np.max(held)) if len(held) else math.nan
    else:
        if (r.mutability == UP and cell < place.cell(own)) or (r.mutability == DOWN and cell > place.cell(own)):
            return own
        found = nearest(own, held)
    return own if math.isnan(found) else found


@st.composite
def places(draw: st.DrawFn, *, stepped: bool) -> Place:
    """A number or integer feature with thresholds between -20 and 20, and rules that fit or contradict them."""
    drawn = draw(feature_rules(stepped=stepped))
    operator = draw(st.sampled_from(["<", "<="]))
    dtype = (np.float32 if operator == "<" else np.float64) if stepped else np.float16
    near = st.sampled_from([*drawn.no_record, 0.0, 0.29]) | halves(-20, 20) | st.floats(-20, 20, width=16)
    thresholds = draw(st.lists(near, min_size=1, max_size=6))
    return Place(
        rule=drawn, thresholds=tuple(np.unique(np.array(thresholds, dtype)).tolist()), operator=operator, dtype=dtype
    )


own_values = st.just(math.nan) | halves(-30, 30) | st.floats(-30, 30) | st.sampled_from([-9.0, -8.0, -0.0])


@settings(max_examples=examples(50))
@given(place=places(stepped=True), own=own_values, median=halves(-25, 25))
def test_a_target_value_is_the_nearest_point_of_the_grid(place: Place, own: float, median: float) -> None:
    """Given a step, when moving to any cell, then the target is its permitted grid point nearest to the person's own value."""
    candidates = grid(place.rule)
    for cell, to in enumerate(place.targets(own, median)):
        assert repr(to) == repr(expected(place, own, cell, candidates, median))


@settings(max_examples=examples(60))
@given(place=places(stepped=False), own=own_values, median=halves(-25, 25))
def test_a_target_value_without_a_step_is_the_nearest_number_of_the_model(
    place: Place, own: float, median: float
) -> None:
    """Given no step, when every number of a 16-bit model is tried, then none permitted is nearer than the target."""
    ends = [v for v in (place.rule.min, place.rule.max) if math.isfinite(v)]
    candidates = np.array([*every_number(np.float16), *ends])
    for cell, to in enumerate(place.targets(own, median)):
        reference = expected(place, own, cell, candidates, median)
        assert to == reference or (math.isnan(to) and math.isnan(reference))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_decimal_steps_are_clean(dtype: Any) -> None:
    """Given steps of a cent, when moving to each of them, then a target reads 0.29, and never 0.29000000000000004."""
    cents = [float(Decimal(k) / 100) for k in range(1, 100)]
    between = [float(Decimal(2 * k + 1) / 200) for k in range(100)]
    place = Place(rule=rule(step=0.01, min=0.0), thresholds=tuple(between), operator="<=", dtype=dtype)
    assert place.targets(0.0)[1:100] == cents
    assert place.targets(2.0)[1:100] == cents


def test_a_grid_is_counted_from_min() -> None:
    """Given min 3 and step 5, when moving above 10, then the target is 13 and not 15."""
    place = Place(rule=rule(min=3.0, step=5.0), thresholds=(10.0,), operator="<", dtype=np.float32)
    assert place.toward(4.0, 1) == 13.0


def test_consecutive_sentinels_are_stepped_over() -> None:
    """Given codes 96 to 99 for "no record", when moving above 95, then the target is 100, however many codes there are."""
    codes = (96.0, 97.0, 98.0, 99.0)
    place = Place(
        rule=rule(type="integer", step=1.0, no_record=codes), thresholds=(95.5,), operator="<", dtype=np.float32
    )
    assert place.toward(50.0, 1) == 100.0


@pytest.mark.parametrize(("operator", "dtype"), [("<", np.float32), ("<=", np.float64)])
def test_what_the_model_reads_as_a_sentinel_is_no_target(operator: str, dtype: Any) -> None:
    """Given a cell that begins at the sentinel -9, when entered from below, then the model does not read the target as -9."""
    at = -9.0 if operator == "<" else math.nextafter(-9.0, -math.inf)
    place = Place(rule=rule(no_record=(-9.0,)), thresholds=(at,), operator=operator, dtype=dtype)
    to = place.toward(-20.0, 1)
    assert dtype(to) > dtype(-9.0)
    assert place.cell(to) == 1


def test_a_cell_of_nothing_but_sentinels_is_out_of_reach() -> None:
    """Given a cell that holds -9 alone among whole numbers, when moving there, then the person stays."""
    place = Place(
        rule=rule(type="integer", step=1.0, no_record=(-9.0,)), thresholds=(-9.5, -8.5), operator="<", dtype=np.float32
    )
    assert place.toward(3.0, 1) == 3.0


# --- categories ----------------------------------------------------------------------------------------------------


def category(seen: Sequence[float], thresholds: tuple[float, ...], own: float, cell: int, **settings: Any) -> float:
    place = Place(rule=rule(type="category", **settings), thresholds=thresholds, operator="<", dtype=np.float32)
    return float(place.reach(own, seen).project(np.array([[cell]], np.int32))[0, 0])


def test_a_category_is_entered_at_its_commonest_code() -> None:
    """Given codes without an order, when moving to a cell of several, then the target is the one most of the pool has, the least of equals."""
    seen = [0, 2, 3, 3, 4, 4, 4, 5, 5, 5]
    assert category(seen, (1.5,), own=0, cell=1) == 4
    assert category(seen, (1.5, 3.5), own=0, cell=1) == 3
    assert category(seen, (1.5,), own=math.nan, cell=1) == 4


def test_a_category_nobody_has_is_no_target() -> None:
    """Given a cell none of whose codes the pool holds, when moving there, then the person stays."""
    assert category([0, 5], (1.5, 3.5), own=0, cell=1) == 0


def test_an_ordered_category_is_entered_at_the_nearest_code() -> None:
    """Given a category that may only rise or fall, when moving, then the target is the nearest code seen in the cell."""
    seen = [0, 2, 3, 3, 5]
    assert category(seen, (1.5,), own=0, cell=1, mutability=UP) == 2
    assert category(seen, (3.5,), own=5, cell=0, mutability=DOWN) == 3
    assert category(seen, (3.5,), own=5, cell=0, mutability=UP) == 5


def test_a_code_without_a_word_is_no_target() -> None:
    """Given a pool with a code past the listed words, when moving to its cell, then the target is one that has a word."""
    assert category([0, 3, 3, 9, 9, 9], (1.5,), own=0, cell=1, categories=("a", "b", "c", "d")) == 3
    assert category([0, 9, 9], (1.5,), own=0, cell=1, categories=("a", "b", "c", "d")) == 0


# --- several features at once ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Person:
    """A row, the rules for it, and comparators' cells."""

    rules: FeatureRules
    cells: Cells
    row: npt.NDArray[np.float64]
    others: npt.NDArray[np.int32]
    overrides: dict[str, str]

    def reach(self) -> PersonReach:
        """All moves open to the person."""
        matrix = pool([[0.0, 1.0, 1.0, 4.0]] * len(self.row))
        return person_reach(
            self.rules,
            matrix,
            cell_targets_of(self.rules, self.cells, matrix),
            row=self.row,
            cells=self.cells.of(self.row[None])[0],
            mutability=self.rules.mutabilities(self.overrides),
        )


@st.composite
def people(draw: st.DrawFn) -> Person:
    count = draw(st.integers(1, 5))
    rules = rules_of(*(draw(feature_rules(name=f"f{j}")) for j in range(count)))
    operator = draw(st.sampled_from(["<", "<="]))
    dtype = np.float32 if operator == "<" else np.float64
    columns = [draw(st.lists(halves(-10, 10), max_size=4, unique=True).map(sorted)) for _ in range(count)]
    cells = Cells(
        thresholds=tuple(np.array(c, dtype) for c in columns), threshold_is_low=operator == "<", dtype=np.dtype(dtype)
    )
    row = np.array([draw(own_values) for _ in range(count)])
    others = [[draw(st.integers(0, cells.count(j) - 1)) for j in range(count)] for _ in range(3)]
    allowed = {FREE: ["mutable", "increase_only", "decrease_only", "immutable"], UP: ["immutable"], DOWN: ["immutable"]}
    overrides = {
        r.name: draw(st.sampled_from(allowed.get(r.mutability, ["immutable"])))
        for r in rules.rules
        if draw(st.booleans())
    }
    return Person(rules=rules, cells=cells, row=row, others=np.array(others, np.int32), overrides=overrides)


@settings(max_examples=examples(50))
@given(person=people())
def test_no_move_breaks_its_label(person: Person) -> None:
    """Given any rules and overrides, when projected, then each move is permitted, in range, on the step, finite, in the comparator's cell."""
    reach = person.reach()
    labels = [Mutability(int(m)) for m in person.rules.mutabilities(person.overrides)]
    for target, other in zip(reach.project(person.others), person.others, strict=True):
        for j, (r, own, to) in enumerate(zip(person.rules.rules, person.row.tolist(), target.tolist(), strict=True)):
            if np.float64(own).tobytes() == np.float64(to).tobytes():
                continue
            assert labels[j] != FIXED
            assert math.isfinite(to)
            assert r.min <= to <= r.max
            assert to not in r.no_record
            assert person.cells.cell(j, to) == other[j]
            assert labels[j] == FREE or (to > own if labels[j] == UP else to < own)
            if r.type == "integer":
                assert to == round(to)
            if r.step is not None:
                origin = Decimal(repr(r.min)) if math.isfinite(r.min) else Decimal(0)
                assert (Decimal(repr(to)) - origin) % Decimal(repr(r.step)) == 0


@settings(max_examples=examples(60))
@given(person=people())
def test_an_immutable_feature_keeps_its_bits(person: Person) -> None:
    """Given immutable features, by rule or override, when projected, then they hold the row's own bits, -0.0 and NaN too."""
    fixed = person.rules.mutabilities(person.overrides) == FIXED
    targets = person.reach().project(person.others)
    assert targets[:, fixed].tobytes() == np.repeat(person.row[None, fixed], len(targets), axis=0).tobytes()


@settings(max_examples=examples(50))
@given(person=people())
def test_what_stays_has_a_reason_and_what_moves_has_none(person: Person) -> None:
    """Given any comparator, why_not() gives a reason for each feature that differs and stayed, and for no other."""
    reach = person.reach()
    for target, other in zip(reach.project(person.others), person.others, strict=True):
        for j in range(len(person.row)):
            wanted = other[j] != reach.cells[j]
            stayed = np.float64(target[j]).tobytes() == person.row[j].tobytes()
            assert (reach.why_not(j, other) is not None) == (wanted and stayed)


def test_reasons_for_staying_are_told_apart() -> None:
    """Given an immutable feature and a comparator with a missing value, then each stays for its own reason."""
    rules = rules_of(rule("a", mutability=FIXED), rule("b"))
    person = Person(
        rules=rules,
        cells=Cells(thresholds=(np.array([5.0]),) * 2, threshold_is_low=True, dtype=np.dtype(np.float64)),
        row=np.zeros(2),
        others=np.array([[1, 2]], np.int32),
        overrides={},
    )
    reach = person.reach()
    assert [reach.why_not(j, person.others[0]) for j in range(2)] == [IMMUTABLE, TO_MISSING]
    assert reach.project(person.others).tolist() == [[0.0] * 2]


def test_effort_is_cost_times_scales_moved() -> None:
    """Given a cost, a scale and a move, effort is their product over the scale; a category or a first value counts one scale."""
    rules = rules_of(rule("a", cost=3.0), rule("b", type="category"), rule("c", no_record=(-9.0,)))
    cells = Cells(thresholds=(np.array([5.0]),) * 3, threshold_is_low=True, dtype=np.dtype(np.float64))
    person = Person(
        rules=rules, cells=cells, row=np.array([1.0, 1.0, -9.0]), others=np.empty((0, 3), np.int32), overrides={}
    )
    reach = person.reach()
    assert [reach.effort(j, 7.0) for j in range(3)] == [3.0 * 6.0 / 2.0, 1.0, 1.0]
