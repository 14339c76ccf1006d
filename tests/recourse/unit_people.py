"""Random rules of features that move together, random pools and people; and an oracle of what their units may do."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from stream.forest.cells import Cells
from stream.recourse.comparators.leaf_matrix import LeafMatrix, without_no_record
from stream.recourse.rules.feature_rule import FeatureRule, Mutability
from stream.recourse.rules.features import FeatureRules, rules_together
from stream.recourse.rules.units import Dependent, Follower, Unit
from stream.recourse.space.person_reach import PersonReach, cell_targets_of, person_reach
from tests.strategies import feature_rules, halves

Rows: TypeAlias = npt.NDArray[np.float64]
POOL_ROWS = 40
PEOPLE_MIN = 2
WINDOW = 20  # how far from zero the oracle looks for values of a driver
FACTORS = [1.0, -1.0, 0.3, 0.5, 2.0, -0.25]
RATIO_FACTORS = [1.0, 100.0, 0.5]


def rules_of(*rules: FeatureRule) -> FeatureRules:
    """The rules of a model with these features."""
    return rules_together(rules)


def matrix_of(rules: FeatureRules, cells: Cells, rows: Rows) -> LeafMatrix:
    """A leaf matrix of a pool, of which leaves and margins do not matter."""
    known = without_no_record(rows, rules)
    seen = [
        np.unique(column[~np.isnan(column)], return_counts=True)
        if rule.type == "category"
        else (np.empty(0), np.empty(0, np.int64))
        for rule, column in zip(rules.rules, known.T, strict=True)
    ]
    middle = [float(np.median(column[~np.isnan(column)])) if (~np.isnan(column)).any() else 0.0 for column in known.T]
    return LeafMatrix(
        codes=np.empty((len(rows), 1), np.uint8),
        cells=cells.of(rows),
        rows=known,
        margins=np.zeros(len(rows), np.float32),
        references=np.empty((len(rows), 16), np.uint8),
        scales=np.array([j % 3 + 0.5 for j in range(len(rules.rules))]),
        medians=np.array(middle),
        category_start=np.cumsum([0, *(len(codes) for codes, _ in seen)]),
        category_codes=np.concatenate([codes for codes, _ in seen]),
        category_counts=np.concatenate([counts for _, counts in seen]).astype(np.int64),
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Person:
    """A row, the rules for it, a pool, and the cells of both."""

    rules: FeatureRules
    cells: Cells
    pool: Rows
    row: npt.NDArray[np.float64]
    overrides: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def labels(self) -> list[Mutability]:
        """The labels of this decision."""
        return [Mutability(int(m)) for m in self.rules.mutabilities(self.overrides)]

    @property
    def units(self) -> tuple[Unit, ...]:
        """The units of the rules."""
        return self.rules.units

    def reach(self, cells_of_pool: Cells | None = None) -> PersonReach:
        """All moves open to the person; the pool's cells may be coarser than those that moves are made in."""
        matrix = matrix_of(self.rules, cells_of_pool or self.cells, self.pool)
        return person_reach(
            self.rules,
            matrix,
            cell_targets_of(self.rules, self.cells, matrix),
            row=self.row,
            cells=self.cells.of(self.row[None])[0],
            mutability=self.rules.mutabilities(self.overrides),
        )

    def cell_row(self, members: tuple[int, ...], values: npt.NDArray[np.float64]) -> tuple[int, ...]:
        """The cells of a unit's values."""
        return tuple(self.cells.cell(j, float(x)) for j, x in zip(members, values, strict=True))

    def is_target(self, j: int, to: float) -> bool:
        """Whether a value may be told to somebody: in range, on the step, no sentinel."""
        rule = self.rules.rules[j]
        sentinels = [*rule.no_record, *([] if rule.missing is None else [rule.missing])]
        if not math.isfinite(to) or not rule.min <= to <= rule.max:
            return False
        if self.cells.read(to) in [self.cells.read(s) for s in sentinels]:
            return False
        return rule.step is None or (Fraction(repr(to)) - origin_of(rule)) % Fraction(repr(rule.step)) == 0

    def permits(self, j: int, to: float) -> bool:
        """Whether the rules permit feature j to move to a value that is not its own."""
        rule, own, label = self.rules.rules[j], float(self.row[j]), self.labels[j]
        if label == Mutability.IMMUTABLE or not self.is_target(j, to):
            return False
        if label == Mutability.MUTABLE:
            return True
        return not rule.is_unrecorded(own) and (to > own if label == Mutability.INCREASE_ONLY else to < own)

    def depends(self, driver: int, one: Dependent, at: float) -> float:
        """What a dependent is when its driver is at a value: by fractions of the decimals, the greater of equally near steps."""
        x, rule = Fraction(repr(at)), self.rules.rules[one.j]
        if isinstance(one, Follower):
            own, start = (Fraction(repr(float(self.row[j]))) for j in (one.j, driver))
            y = own + Fraction(repr(one.factor)) * (x - start)
        else:
            other = Fraction(repr(float(self.row[one.other])))
            y = Fraction(repr(one.factor)) * (x / other if one.driver_above else other / x)
        if rule.step is not None:
            step = Fraction(repr(rule.step))
            y = origin_of(rule) + step * math.floor((y - origin_of(rule)) / step + Fraction(1, 2))
        return float(y)

    def combinations(self, unit: Unit) -> set[tuple[float, ...]]:
        """The combinations of a group that two or more of the pool have and that may be told: values, of numbers cells."""
        known = without_no_record(self.pool, self.rules)[:, list(unit.members)]
        keys = [self.key(unit, row) for row in known[~np.isnan(known).any(axis=1)]]
        whole = [k for k, j in enumerate(unit.members) if self.rules.rules[j].type != "number"]
        return {
            key
            for key, people in Counter(keys).items()
            if people >= PEOPLE_MIN and all(self.is_target(unit.members[k], key[k]) for k in whole)
        }

    def key(self, unit: Unit, values: npt.NDArray[np.float64]) -> tuple[float, ...]:
        """The combination that a group's values are."""
        return tuple(
            float(self.cells.cell(j, float(x))) if self.rules.rules[j].type == "number" else float(x)
            for j, x in zip(unit.members, values, strict=True)
        )

    def along(self, unit: Unit) -> Iterator[npt.NDArray[np.float64]]:
        """Every way of a line whose driver has a step, as far as the window goes, from the own value outward."""
        assert unit.driver is not None
        rule, own = self.rules.rules[unit.driver], float(self.row[unit.driver])
        step, start = Fraction(repr(rule.step)), origin_of(rule)
        points = [
            float(start + k * step)
            for k in range(math.ceil((-WINDOW - start) / step), math.floor((WINDOW - start) / step) + 1)
        ]
        for x in sorted(points, key=lambda x: (abs(x - own), x)):
            if x == own or (
                x <= 0 and any(not isinstance(d, Follower) and not d.driver_above for d in unit.dependents)
            ):
                continue
            found = {unit.driver: x} | {d.j: self.depends(unit.driver, d, x) for d in unit.dependents}
            if all(to == self.row[j] or self.permits(j, to) for j, to in found.items()):
                yield np.array([found[j] for j in unit.members])


def origin_of(rule: FeatureRule) -> Fraction:
    """Where a rule's steps are counted from."""
    return Fraction(repr(rule.min)) if math.isfinite(rule.min) else Fraction(0)


often_mutable = st.sampled_from([*[Mutability.MUTABLE] * 9, *Mutability])
values = st.integers(1, 12).map(float) | halves(-10, 10) | st.sampled_from([math.nan, -9.0, 8.0, 0.29, 10.125])


@st.composite
def _member(draw: st.DrawFn, name: str, *, stepped: bool | None = None) -> FeatureRule:
    """A number or an integer that can mostly move."""
    rule = draw(feature_rules(name=name, stepped=stepped))
    wide = draw(st.integers(0, 3)) > 0
    return dataclasses.replace(
        rule,
        mutability=draw(often_mutable),
        min=draw(st.sampled_from([-30.0, 0.0, -math.inf])) if wide else rule.min,
        max=draw(st.sampled_from([30.0, 12.0, math.inf])) if wide else rule.max,
        no_record=draw(st.sampled_from([(), (), (-9.0,), (8.0,), rule.no_record])),
    )


@st.composite
def _group(draw: st.DrawFn, name: str) -> list[FeatureRule]:
    """Two or three features of a group, a category among them perhaps."""
    rules = [dataclasses.replace(draw(_member(f"{name}{k}")), group=name) for k in range(draw(st.integers(2, 3)))]
    return [
        dataclasses.replace(rule, type="category", step=None) if draw(st.integers(0, 2)) == 0 else rule
        for rule in rules
    ]


@st.composite
def _line(draw: st.DrawFn, name: str, *, stepped: bool | None) -> list[FeatureRule]:
    """A driver, one or two features that depend on it, and the other parts of ratios."""
    driver = draw(_member(name, stepped=stepped))
    rules = [driver]
    for k in range(draw(st.sampled_from([1, 1, 2]))):
        rule = draw(_member(f"{name}{k}"))
        if draw(st.booleans()):
            rules.append(dataclasses.replace(rule, follows=name, factor=draw(st.sampled_from(FACTORS))))
            continue
        part = draw(_member(f"{name}{k}part"))
        parts = (name, part.name) if draw(st.booleans()) else (part.name, name)
        factor = draw(st.sampled_from(RATIO_FACTORS))
        if driver.is_immutable:  # which cannot be said to move
            part = dataclasses.replace(part, mutability=Mutability.IMMUTABLE)
            parts = (name, part.name)
        moves = None if part.is_immutable else name
        rules += [part, dataclasses.replace(rule, ratio_of=parts, ratio_factor=factor, moves=moves)]
    return rules


@st.composite
def people(draw: st.DrawFn, *, stepped: bool | None = None) -> Person:
    """Anyone, with units of each kind; `stepped` None leaves open whether drivers have steps."""
    rules = [*draw(_group("g")), *draw(_line("d", stepped=stepped))]
    rules += draw(st.sampled_from([[], draw(_group("h")), draw(_line("e", stepped=stepped))]))
    rules += [draw(feature_rules(name="alone"))]
    missing = draw(st.sampled_from([None, None, -9.0]))
    rules = [dataclasses.replace(rule, missing=missing) for rule in draw(st.permutations(rules))]
    operator = draw(st.sampled_from(["<", "<="]))
    dtype: Any = np.float32 if operator == "<" else np.float64
    columns = [
        draw(st.lists(halves(-10, 12), min_size=draw(st.sampled_from([0, 2, 3])), max_size=5, unique=True).map(sorted))
        for _ in rules
    ]
    cells = Cells(
        thresholds=tuple(np.array(column, dtype) for column in columns),
        threshold_is_low=operator == "<",
        dtype=np.dtype(dtype),
        missing=missing,
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    few = np.array([3.0, 0.0, 1.0, 8.0, -2.0, 5.5, -9.0, np.nan])
    pool = rng.choice(few[: int(rng.integers(2, len(few) + 1))], (POOL_ROWS, len(rules)))
    row = np.array([draw(values) for _ in rules])
    overrides = {
        rule.name: draw(st.sampled_from(["immutable", "immutable", *_tighter(rule)]))
        for rule in rules
        if draw(st.integers(0, 24)) == 0
    }
    return Person(rules=rules_of(*rules), cells=cells, pool=pool, row=row, overrides=overrides)


def _tighter(rule: FeatureRule) -> list[str]:
    return (
        ["increase_only", "decrease_only"] if rule.mutability == Mutability.MUTABLE else [rule.mutability.name.lower()]
    )
