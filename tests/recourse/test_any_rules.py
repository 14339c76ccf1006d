"""Whole answers under any rules: every action is one that features.toml permits, by a reference that reads the file alone."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from fractions import Fraction
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.audit.verify.body import verify
from stream.recourse.answer import Answer, answer
from stream.recourse.comparators.leaf_matrix import build_leaf_matrix
from stream.recourse.rules.features import rules_for
from stream.recourse.search.shadows import Shadows
from tests.examples import examples
from tests.forest.models import Owner
from tests.oracles.trees import Tree, trees_of
from tests.recourse.lenders import FEATURES, LENDERS, Approve, Lender, Library, Rows, applicants, lender
from tests.recourse.test_shadow_answers import shadowed

Table: TypeAlias = dict[str, Any]
Row: TypeAlias = dict[str, float]

PAIRS = pytest.mark.parametrize(("library", "approve"), LENDERS)
WORDS = ["car", "furniture", "radio", "école", "business"]
TYPES = dict.fromkeys(FEATURES, "number") | dict.fromkeys(("age", "accounts", "debts"), "integer")
TYPES |= dict.fromkeys(("purpose", "region"), "category")
NUMBERS = [name for name in FEATURES if TYPES[name] != "category"]
ROLES = [
    "balance",
    "limit",
    "share",
    "income",
    "debts",
    "age",
    "accounts",
]  # driver, part, ratio; driver, follower; two
LABELS = ["mutable"] * 5 + ["increase_only", "decrease_only", "immutable"]
FILES, PEOPLE = 50, 3  # for each lender; people for each file
PEOPLE_MIN = 2  # with the same combination, for others to be told of it
BETTER = 1e-6  # of mid's objective: less is no gain
HAIR = 1e-5  # of margin past the cutoff: what is accepted by less is left to the slack of the search
POOL = applicants(0, 240)[0]
COLUMNS = {name: np.sort(column[~np.isnan(column)]) for name, column in zip(FEATURES, POOL.T, strict=True)}
SPREAD = {name: float(np.std(column)) for name, column in COLUMNS.items()}


def rough(x: float, digits: int = 1) -> float:
    """A number in so many digits, as somebody writes it into a file."""
    return float(f"{x:.{digits}g}")


@st.composite
def alone(draw: st.DrawFn, name: str) -> Table:
    """The table of a feature that moves alone."""
    kind, column = TYPES[name], COLUMNS[name]
    table: Table = {
        "type": kind,
        "mutability": draw(st.sampled_from(LABELS)),
        "cost": draw(st.sampled_from([0.25, 1, 1, 2, 10])),
    }
    if name == "purpose":
        return table | {"categories": WORDS}
    of_pool = st.sampled_from(column.tolist())
    if draw(st.booleans()):
        table["no_record"] = draw(st.lists(of_pool | of_pool.map(rough) | st.just(-9.0), max_size=3, unique=True))
    if kind == "category":
        return table
    digits = draw(st.integers(1, 3))
    low, high = (rough(column[int(q * (len(column) - 1))], digits) for q in draw(st.sampled_from(
        [(0, 1), (0, 1), (0.05, 0.9), (0.4, 0.6)]
    )))  # fmt: skip
    whole = round if kind == "integer" else float
    table |= {"min": whole(low)} if draw(st.booleans()) else {}
    table |= {"max": whole(high)} if draw(st.booleans()) else {}
    if draw(st.booleans()):
        step = draw(st.sampled_from([1, 2, 5])) if kind == "integer" else rough(SPREAD[name] / draw(st.integers(3, 50)))
        table["step"] = step
    return table


@st.composite
def files(draw: st.DrawFn) -> dict[str, Table]:
    """All tables: perhaps a ratio of which either part moves, a feature that follows another, and a group."""
    tables = {name: draw(alone(name)) for name in FEATURES}
    mover, part, ratio, driver, follower, *others = ROLES if draw(st.booleans()) else draw(st.permutations(NUMBERS))
    is_ratio, is_link = draw(st.booleans()), draw(st.booleans())
    if is_ratio:
        if draw(st.booleans()):
            mover, part = part, mover
        above, below = (mover, part) if draw(st.booleans()) else (part, mover)
        tables[ratio] |= {"ratio_of": [above, below], "ratio_factor": draw(st.sampled_from([1, 100, 0.5]))}
        if tables[mover]["mutability"] == "immutable":
            tables[mover]["mutability"] = "mutable"
        if tables[part]["mutability"] != "immutable" or draw(st.booleans()):
            tables[ratio]["moves"] = mover
        if draw(st.booleans()):
            others, driver = [*others, driver], mover
    else:
        others = [*others, mover, part, ratio]
    if is_link:
        factor = rough(draw(st.sampled_from([1, -0.5, 0.3])) * SPREAD[follower] / SPREAD[driver])
        tables[follower] |= {"follows": driver, "factor": factor}
    if draw(st.booleans()):
        free = [*others, "purpose", "region", *([] if is_link else [follower])]
        for name in draw(st.lists(st.sampled_from(free), min_size=2, max_size=3, unique=True)):
            tables[name]["group"] = "together"
    return tables


@st.composite
def overridden(draw: st.DrawFn, tables: dict[str, Table]) -> dict[str, str]:
    """What a decision tightens."""
    names = draw(st.lists(st.sampled_from(FEATURES), max_size=2, unique=True))
    tighter = {name: ["immutable", tables[name]["mutability"]] for name in names}
    tighter |= {
        n: ["immutable", "increase_only", "decrease_only"] for n in names if tables[n]["mutability"] == "mutable"
    }
    return {name: draw(st.sampled_from(labels)) for name, labels in tighter.items()}


prices = st.fixed_dictionaries(
    {},
    optional={
        "action_cost": st.sampled_from([0.0, 0.5]),
        "mid_surplus": st.sampled_from([0.0, 1.0, 6.0]),
        "mid_surplus_price": st.sampled_from([0.0, 0.5, 12.0]),
        "far_surplus": st.sampled_from([0.0, 4.0]),
        "far_surplus_price": st.sampled_from([0.0, 12.0]),
        "far_reserve_price": st.sampled_from([0.0, 9.0]),
        "far_distance_price": st.sampled_from([0.0, 12.0]),
    },
)
edits = st.dictionaries(
    st.sampled_from(FEATURES), st.sampled_from(["missing", "no_record", "no_record", "zero", "low", "high"]), max_size=4
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """One declined person and the rules as their file has them: the reference, which knows docs/features.md alone."""

    shop: Lender
    tables: dict[str, Table]
    overrides: dict[str, str]
    own: Row

    def label(self, name: str) -> str:
        """The label of this decision."""
        return self.overrides.get(name) or str(self.tables[name]["mutability"])

    def unknown(self, name: str, value: float) -> bool:
        """Whether a value says that there is none, in the floats of the model."""
        read = self.shop.model.forest.dtype.type
        return math.isnan(value) or read(value) in [read(one) for one in self.tables[name].get("no_record", [])]

    def start(self, name: str) -> Fraction:
        """Where steps are counted from."""
        return Fraction(repr(self.tables[name].get("min", 0)))

    def step(self, name: str) -> Fraction | None:
        """How far targets lie apart."""
        step = self.tables[name].get("step", 1 if TYPES[name] == "integer" else None)
        return None if step is None else Fraction(repr(step))

    def is_target(self, name: str, to: float) -> bool:
        """Whether anybody may be told this value."""
        table, step = self.tables[name], self.step(name)
        if self.unknown(name, to) or not table.get("min", -math.inf) <= to <= table.get("max", math.inf):
            return False
        if table["type"] == "category":
            return to in COLUMNS[name]
        return step is None or (Fraction(repr(to)) - self.start(name)) % step == 0

    def may(self, name: str, to: float) -> bool:
        """Whether this person may be told this value, which is not the own one."""
        own, label = self.own[name], self.label(name)
        if label == "mutable":
            return self.is_target(name, to)
        allowed = to > own if label == "increase_only" else to < own
        return label != "immutable" and not self.unknown(name, own) and allowed and self.is_target(name, to)

    def grouped(self) -> list[str]:
        """The features of the group."""
        return [name for name in FEATURES if "group" in self.tables[name]]

    def lines(self) -> dict[str, list[str]]:
        """The features that depend on each driver."""
        found: dict[str, list[str]] = {}
        for name, table in self.tables.items():
            if "follows" in table:
                found.setdefault(table["follows"], []).append(name)
            elif "ratio_of" in table:
                free = [part for part in table["ratio_of"] if self.tables[part]["mutability"] != "immutable"]
                found.setdefault(table.get("moves", free[0]), []).append(name)
        return found

    def units(self) -> list[list[str]]:
        """What is given back as one."""
        together = [self.grouped(), *([driver, *names] for driver, names in self.lines().items())]
        return [*together, *([name] for name in FEATURES if not any(name in unit for unit in together))]

    def key(self, names: list[str], row: Row) -> tuple[float, ...]:
        """A combination of a group: values, and of numbers the model's cells."""
        cells = self.shop.model.cells
        return tuple(float(cells.cell(FEATURES.index(n), row[n])) if TYPES[n] == "number" else row[n] for n in names)

    def combinations(self, names: list[str]) -> set[tuple[float, ...]]:
        """Those that enough people of the pool have."""
        rows = [dict(zip(FEATURES, row, strict=True)) for row in POOL.tolist()]
        seen = Counter(self.key(names, row) for row in rows if not any(self.unknown(n, row[n]) for n in names))
        return {key for key, people in seen.items() if people >= PEOPLE_MIN}

    def depends(self, name: str, after: Row) -> float:
        """What a follower or a ratio is when its driver has moved."""
        table, own, step = self.tables[name], self.own, self.step(name)
        if "follows" in table:
            driver = table["follows"]
            assert not self.unknown(name, own[name])
            assert not self.unknown(driver, own[driver])
            moved = Fraction(repr(after[driver])) - Fraction(repr(own[driver]))
            y = Fraction(repr(own[name])) + Fraction(repr(table["factor"])) * moved
        else:
            above, below = table["ratio_of"]
            assert not any(self.unknown(part, own[part]) for part in (above, below))
            assert after[below] > 0
            y = Fraction(repr(table["ratio_factor"])) * Fraction(repr(after[above])) / Fraction(repr(after[below]))
        if step is None:
            return float(y)
        start = self.start(name)
        return float(start + step * math.floor((y - start) / step + Fraction(1, 2)))

    def hold(self, target: Row) -> int:
        """Hold a tier's target against the rules; the number of units that move."""
        after, moved = self.own | target, 0
        assert target
        assert all(to != self.own[name] and self.may(name, to) for name, to in target.items())
        names = self.grouped()
        if target.keys() & set(names):
            moved += 1
            assert all(self.label(name) != "immutable" for name in names)
            assert all(self.is_target(name, after[name]) for name in names if TYPES[name] != "number")
            assert self.key(names, after) in self.combinations(names)
        for driver, names in self.lines().items():
            parts = {part for name in names for part in self.tables[name].get("ratio_of", ())} - {driver}
            assert not target.keys() & parts
            if target.keys() & {driver, *names}:
                moved += 1
                assert driver in target
                assert all(self.label(name) != "immutable" for name in (driver, *names))
                assert all(after[name] == self.depends(name, after) for name in names)
        return moved

    def cost(self, after: Row, scales: dict[str, float]) -> float:
        """Effort, and the price of the actions."""
        found = 0.0
        for name, to in after.items():
            own = self.own[name]
            if to != own and not math.isnan(to):
                one = TYPES[name] == "category" or self.unknown(name, own)
                found += self.tables[name]["cost"] * (1.0 if one else abs(to - own) / scales[name])
                found += self.shop.model.policy.action_cost
        return found

    def encoded(self, row: Row) -> Rows:
        """A row as models take it."""
        return np.array([row[name] for name in FEATURES])


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Judge:
    """A model, whose margins are its library's leaves, summed up without roundings."""

    owner: Owner
    base: float
    trees: list[Tree]

    def margin(self, row: Rows) -> float:
        """What the model says of a row."""
        leaves = self.owner.leaves(row[None])[0].tolist()
        weights = [tree.value[at] for tree, at in zip(self.trees, leaves, strict=True)]
        return float(sum(weights, Fraction(self.base)))


@cache
def judges(library: Library, approve: Approve) -> tuple[Judge, ...]:
    """The tests' model, then its shadows."""
    others = shadowed(library, approve)
    forests = [others.shop.model.forest, *others.shop.model.shadows.forests]
    return tuple(
        Judge(owner=owner, base=float(forest.base_margin), trees=trees_of(owner.booster))
        for owner, forest in zip((others.shop.owner, *others.owners), forests, strict=True)
    )


def worth_for_mid(asked: Asked, models: list[Judge], after: Row, scales: dict[str, float]) -> float:
    """Mid's objective, as docs/recourse.md has it; `models` are those that are asked."""
    shop, policy, row = asked.shop, asked.shop.model.policy, asked.encoded(after)
    assert shop.model.robust is not None
    unit = shop.model.robust.deviation
    past = [shop.sign * (one.margin(row) - shop.cutoff) / unit for one in models]
    short = [max(0.0, policy.mid_surplus - one) for one in past]
    return asked.cost(after, scales) + policy.mid_surplus_price * sum(short) / len(short)


def given_back(asked: Asked, model: Judge, after: Row) -> list[Row]:
    """Every row with one unit of moves given back that the model accepts."""
    rows = [after | {name: asked.own[name] for name in unit} for unit in asked.units()]
    moved = [row for row in rows if asked.encoded(row).tobytes() != asked.encoded(after).tobytes()]
    shop = asked.shop
    return [row for row in moved if shop.sign * (model.margin(asked.encoded(row)) - shop.cutoff) > HAIR]


def published(
    library: Library, approve: Approve, tables: dict[str, Table], count: int, changes: dict[str, float]
) -> Lender:
    """The tests' lender with other rules, prices and number of shadows."""
    text = "\n".join(
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
        for name, table in tables.items()
    )
    shop, others = lender(library, approve).with_policy(**changes), shadowed(library, approve)
    forest = shop.model.forest
    rules = rules_for(forest, text)
    matrix = build_leaf_matrix(forest, shop.pool, rules, approve, shop.reference_key)
    shadows = Shadows(forests=others.shop.model.shadows.forests[:count])
    return shop.with_model(rules=rules, matrix=matrix, shadows=shadows)


def edited(shop: Lender, tables: dict[str, Table], row: Rows, wild: dict[str, str]) -> Rows:
    """A declined row with some values that are missing or out of the ordinary, if it is still declined."""
    found = row.copy()
    for name, what in wild.items():
        column, sentinels = COLUMNS[name], tables[name].get("no_record") or [math.nan]
        ends = {"low": 2 * column[0] - column[1], "high": 2 * column[-1]} if name in NUMBERS else {}
        values = {"missing": math.nan, "no_record": sentinels[0], "zero": 0.0} | ends
        found[FEATURES.index(name)] = values.get(what, row[FEATURES.index(name)])
    return row if shop.accepts(found[None])[0] else found


def targets_of(answered: Answer) -> list[Row]:
    """Where each tier moves each feature, as codes."""
    tiers = [tier["target"] for tier in answered.body["tiers"]]
    return [{name: float(WORDS.index(to) if isinstance(to, str) else to) for name, to in one.items()} for one in tiers]  # type: ignore[arg-type]


def hold_answer(asked: Asked, row: Rows, judged: tuple[Judge, ...]) -> int:
    """Hold a person's answer against the rules, the owner library, and mid's own objective; the number of units that move."""
    shop, (model, *others) = asked.shop, judged
    answered = answer(shop.decide(row, policy_overrides=asked.overrides), shop.model)
    assert verify(answered.body, answered.body_sha256, answered.recommendation) == []
    targets = targets_of(answered)
    moved = sum(map(asked.hold, targets))
    assert all(shop.accepts(asked.encoded(asked.own | target)[None])[0] for target in targets)
    if not targets:
        return moved
    shadows, scales = shop.model.shadows, answered.body["scales"]
    models = [others[k] for k in shadows.ring(row)[: shadows.searched]] or [model]
    near, mid = (asked.own | target for target in targets[:2])
    worth = worth_for_mid(asked, models, mid, scales)
    assert worth <= worth_for_mid(asked, models, near, scales) + BETTER
    for back in given_back(asked, model, mid):
        assert worth <= worth_for_mid(asked, models, back, scales) + BETTER
    return moved


@PAIRS
def test_no_answer_breaks_any_rules(library: Library, approve: Approve) -> None:
    """Given any rules, prices, overrides, shadows and declined people, every tier's actions are what the rules permit this person, the owner library accepts the target, and mid is worth no less than near by its own measure and keeps no move that the model could do without at a gain; some tiers move a unit."""
    moved = 0

    @settings(max_examples=examples(FILES), deadline=None)
    @given(data=st.data(), tables=files(), count=st.sampled_from([0, 1, 3]), changes=prices)
    def each(data: st.DataObject, tables: dict[str, Table], count: int, changes: dict[str, float]) -> None:
        nonlocal moved
        shop = published(library, approve, tables, count, changes)
        rows = shop.declined(len(shop.pool))
        chosen = st.tuples(st.integers(0, len(rows) - 1), edits, overridden(tables))
        for at, wild, overrides in data.draw(st.lists(chosen, min_size=PEOPLE, max_size=PEOPLE)):
            row = edited(shop, tables, rows[at], wild)
            own = dict(zip(FEATURES, row.tolist(), strict=True))
            asked = Asked(shop=shop, tables=tables, overrides=overrides, own=own)
            moved += hold_answer(asked, row, judges(library, approve))

    each()
    print(f"{moved} units moved")
    assert moved > 0
