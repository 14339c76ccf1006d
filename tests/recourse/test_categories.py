"""Categories, zero that is missing, and the sentinel: cells of planted forests, and answers of real models end to end."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.archive.sources import NO_ENVELOPE, from_jsonl
from stream.audit_log.check import Tally, check
from stream.errors import UnknownCategory
from stream.forest.trees import CATEGORY, ZERO_IS_MISSING, ZERO_REACH, Forest, SavedNode, plant
from stream.forest.walk import leaf_slots
from stream.recourse.answer import answer
from stream.recourse.audit import verify
from stream.recourse.canonical import sha256
from stream.recourse.cells import cells_of
from stream.recourse.feasible import landings_of
from stream.recourse.features import read_features
from stream.recourse.leaf_matrix import build_leaf_matrix
from stream.wire.avro_records import decode, encode
from tests.recourse.category_lenders import FEATURES, PURPOSES, SENTINEL, YEARS, category_lender
from tests.recourse.lenders import Approve, Library, kind
from tests.recourse.test_ledgers import comparator_of, sides, total, unit

LIBRARIES: list[Library] = ["xgboost", "lightgbm"]
LENDERS: list[tuple[Library, Approve]] = [(library, side) for library in LIBRARIES for side in ("above", "below")]
PAIRS = pytest.mark.parametrize(("library", "approve"), LENDERS)
code_lists = st.frozensets(st.integers(0, 70), max_size=12)


def stump(listed: frozenset[int], *, default_left: bool = False, weight: float = 1.0) -> list[SavedNode]:
    return [
        SavedNode(number=0, feature=0, value=0.0, left=1, right=2, default_left=default_left, categories=listed),
        SavedNode(number=0, value=-weight),
        SavedNode(number=1, value=weight),
    ]


def forest_with(library: Library, lists: list[frozenset[int]], **changes: Any) -> Forest:
    trees = [stump(listed, default_left=k % 2 == 0) for k, listed in enumerate(lists)]
    return plant(trees, kind(library, ("a",), is_category=(True,), **changes))


def code_of(library: Library, value: float) -> int | None:
    """The code that a library reads: XGBoost knows none below zero, LightGBM cuts -0.5 off to 0."""
    if value <= -1 or (library == "xgboost" and value < 0):
        return None
    return int(value)


@pytest.mark.parametrize("library", LIBRARIES)
@settings(max_examples=60)
@given(
    lists=st.lists(code_lists, min_size=1, max_size=6),
    values=st.lists(
        st.integers(0, 75).map(float) | st.sampled_from([3.7, -0.5, -1.0, -7.0, 2.0**31, 1e30]), min_size=2
    ),
)
def test_a_cell_is_what_no_split_tells_apart(
    library: Library, lists: list[frozenset[int]], values: list[float]
) -> None:
    """Given codes of any kind, two are in one cell just where every split lists both or neither, and then all their leaves are equal."""
    forest = forest_with(library, lists)
    cells = cells_of(forest)
    rows = np.array(values)[:, None]
    found, slots = cells.of(rows)[:, 0].tolist(), leaf_slots(forest, rows).tolist()
    member = [tuple(code_of(library, value) in listed for listed in lists) for value in values]
    for i in range(len(values)):
        assert cells.cell(0, values[i]) == found[i]
        for k in range(i):
            assert (found[i] == found[k]) == (member[i] == member[k])
            assert (found[i] == found[k]) == (slots[i] == slots[k])


@pytest.mark.parametrize("library", LIBRARIES)
@settings(max_examples=40)
@given(lists=st.lists(code_lists, min_size=1, max_size=6))
def test_cells_are_numbered_by_their_least_code(library: Library, lists: list[frozenset[int]]) -> None:
    """Given a category, its cells ascend by their least code, then come the codes of no list, then missing; a value inside each is in it."""
    cells = cells_of(forest_with(library, lists))
    others, missing = cells.count(0) - 2, cells.count(0) - 1
    least = [min(cells.listed(0, cell)) for cell in range(others)]
    assert least == sorted(least)
    assert sorted(code for cell in range(others) for code in cells.listed(0, cell)) == sorted(frozenset().union(*lists))
    assert cells.listed(0, others) == cells.listed(0, missing) == []
    assert [cells.cell(0, x) for x in (99.0, math.nan)] == [others, missing]
    assert [cells.cell(0, cells.inside(0, cell)) for cell in range(cells.count(0))] == list(range(cells.count(0)))
    assert [cells.is_missing(0, cell) for cell in range(cells.count(0))] == [False] * missing + [True]


@settings(max_examples=40)
@given(
    thresholds=st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=3, unique=True),
    sentinel=st.integers(-3, 3).map(float),
    values=st.lists(st.integers(-6, 6).map(lambda k: k / 2), min_size=1),
)
def test_the_sentinel_is_in_the_cell_of_missing(thresholds: list[float], sentinel: float, values: list[float]) -> None:
    """Given a number that stands for missing, it and what float32 reads as it share the cell of NaN, wherever thresholds lie."""
    trees = [
        [
            SavedNode(number=0, feature=0, value=t, left=1, right=2),
            SavedNode(number=1, value=-1.0),
            SavedNode(number=2, value=1.0),
        ]
        for t in thresholds
    ]
    cells = cells_of(plant(trees, kind("xgboost", ("a",), missing=sentinel)))
    missing = len(thresholds) + 1
    rows = np.array([[math.nan], [sentinel], [math.nextafter(sentinel, math.inf)], *([v] for v in values)])
    found = cells.of(rows)[:, 0].tolist()
    assert found[:3] == [missing] * 3
    assert found[3:] == [missing if v == sentinel else sum(t <= v for t in thresholds) for v in values]
    assert [cells.cell(0, float(row)) for row in rows[:, 0]] == found
    for cell in range(missing):
        assert cells.cell(0, cells.inside(0, cell)) in (cell, missing)  # a cell can hold the sentinel alone


@settings(max_examples=60)
@given(thresholds=st.lists(st.sampled_from([-2.0, -ZERO_REACH, 0.0, ZERO_REACH, 1e-30, 2.0]), min_size=1, unique=True))
def test_zero_is_a_cell_that_is_told_as_zero(thresholds: list[float]) -> None:
    """Given splits that take zero for missing, all that rounds to zero is one cell, said as 0.0, and what lies beyond is not in it."""
    trees = [
        [
            SavedNode(number=0, feature=0, value=t, left=1, right=2, default_left=k % 2 == 0, zero_is_missing=True),
            SavedNode(number=0, value=-1.0),
            SavedNode(number=1, value=1.0),
        ]
        for k, t in enumerate(thresholds)
    ]
    forest = plant(trees, kind("lightgbm", ("a",)))
    cells = cells_of(forest)
    zero = cells.cell(0, 0.0)
    near = [ZERO_REACH, -ZERO_REACH, 1e-36, -0.0]
    assert {cells.cell(0, x) for x in near} == {zero}
    beyond = [math.nextafter(ZERO_REACH, 1), math.nextafter(-ZERO_REACH, -1), -1.0, 1.0]
    assert zero not in {cells.cell(0, x) for x in beyond}
    assert (cells.smallest(0, zero), cells.largest(0, zero), cells.inside(0, zero)) == (0.0, 0.0, 0.0)
    rows = np.array([[x] for x in (*near, *beyond, 0.0, 3.0, -3.0)])
    seen: dict[int, list[int]] = {}
    for cell, slots in zip(cells.of(rows)[:, 0].tolist(), leaf_slots(forest, rows).tolist(), strict=True):
        assert seen.setdefault(cell, slots) == slots


# --- real models ----------------------------------------------------------------------------------------------------


@PAIRS
def test_answers_of_a_model_with_categories_hold(library: Library, approve: Approve) -> None:
    """Given declines by a real model with categories, answers name words that the pool has, the library accepts each target, and the audit verifies, also after Avro."""
    shop = category_lender(library, approve)
    assert {CATEGORY, *([ZERO_IS_MISSING] if library == "lightgbm" else [])} <= set(shop.model.forest.kind.tolist())
    moved: Counter[str] = Counter()
    cells = shop.model.cells
    said: dict[str, tuple[Any, ...]] = {"purpose": PURPOSES[:-1], "year": YEARS, "region": tuple(map(float, range(40)))}
    for row, answered in zip(shop.declined(60), shop.answers(60), strict=True):
        assert verify(answered.body, answered.body_sha256, answered.recommendation) == []
        for tier in answered.recommendation["tiers"]:
            goals = {action["feature"]: action["to"] for action in tier["actions"]}
            to = shop.model.rules.encode(shop.features_of(row) | goals)
            assert shop.accepts(to[None]).all()
            moved.update(list(goals))
            for action in tier["actions"]:
                if action["feature"] in said:
                    j = FEATURES.index(action["feature"])
                    unlisted = action["feature"] == "region" and cells.cell(j, float(to[j])) == cells.count(j) - 2
                    alike = action["binding_categories"]
                    assert action["to"] in said[action["feature"]]
                    assert action["direction"] == ("provide" if action["from"] is None else "change")
                    assert action["binding_threshold"] is None
                    assert alike == [] if unlisted else alike is not None and action["to"] in alike
        again = decode(encode("Recommendation", answered.recommendation))[1]
        assert json.dumps(again, sort_keys=True) == json.dumps(answered.recommendation, sort_keys=True)
        envelope = {
            "source": None,
            "software_version": "",
            "traceparent": None,
            "replay": False,
            "run_id": None,
            "seal": None,
        }
        record = {"decision_id": "d", "body": answered.body, "body_sha256": answered.body_sha256, "envelope": envelope}
        body = decode(encode("AuditRecord", record))[1]["body"]
        assert verify(body, answered.body_sha256, again) == []
    assert min(moved[name] for name in ("purpose", "region", "year", "income", "debts")) > 0


@PAIRS
def test_the_bundle_gives_the_same_answer_again(library: Library, approve: Approve, tmp_path: Path) -> None:
    """Given answers with categories in a file, when they are verified with their model, each decision is answered again to the same body; a list altered in one, hash and all, is named."""
    shop = category_lender(library, approve)
    lines = [
        {"decision_id": "d-4711", "body": a.body, "body_sha256": a.body_sha256, "envelope": NO_ENVELOPE}
        for a in shop.answers(5)
    ]
    path = tmp_path / "audit.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    tally = Tally()
    assert list(check(from_jsonl(path), tally, shop.model)) == []
    assert (tally.records, tally.answered_again, tally.wrong) == (5, 5, 0)
    body: Any = json.loads(json.dumps(lines[0]["body"]))
    listed = next(k for k, one in enumerate(body["splits"]["categories"]) if one is not None)
    body["splits"]["categories"][listed].append("of nobody")
    path.write_text(json.dumps(lines[0] | {"body": body, "body_sha256": sha256(body)}) + "\n", "utf-8")
    assert list(check(from_jsonl(path), Tally(), shop.model))


@PAIRS
def test_rows_sum_to_the_gap_exactly(library: Library, approve: Approve) -> None:
    """Given ledgers of a model with categories, features and trees sum to the gap, the library's exact difference of leaves, and so does each tree's part."""
    shop = category_lender(library, approve)
    for row, answered in zip(shop.declined(25), shop.answers(25), strict=True):
        body = answered.body
        own = total(shop.trees, shop.owner.leaves(row[None])[0].tolist())
        for ledger, other in sides(shop, body):
            gap = int(ledger["margin_gap"])
            assert sum(int(f["contribution"]) for f in ledger["features"]) == gap
            assert ledger["trees"] is not None
            assert gap * unit(body) == total(shop.trees, shop.owner.leaves(other[None])[0].tolist()) - own
            for f in ledger["features"]:
                alone = row.copy()
                alone[FEATURES.index(f["feature"])] = other[FEATURES.index(f["feature"])]
                shifted = total(shop.trees, shop.owner.leaves(alone[None])[0].tolist())
                assert int(f["solo_shift"]) * unit(body) == Fraction(shifted - own)


@PAIRS
def test_what_a_split_lists_is_what_the_model_lists(library: Library, approve: Approve) -> None:
    """Given decisive splits on categories, what they list goes left in a model read by "in", right by "not in", and no other category does."""
    shop = category_lender(library, approve)
    forest, rules = shop.model.forest, shop.model.rules
    seen = 0
    for answered in shop.answers(10):
        splits: Any = answered.body["splits"]
        for tier in answered.body["tiers"]:
            trees: Any = tier["ledgers"]["target"]["trees"]
            for tree, number, at in zip(trees["tree"], trees["node"], trees["split"], strict=True):
                span = slice(*forest.first_node[tree : tree + 2].tolist())
                node = span.start + int(np.flatnonzero(forest.node_id[span] == number)[0])
                listed = splits["categories"][at]
                assert (listed is not None) == (forest.kind[node] == CATEGORY)
                zero = splits.get("zero_is_missing", [False] * (at + 1))[at]
                assert zero == (forest.kind[node] == ZERO_IS_MISSING)
                if listed is not None:
                    j = int(forest.split_feature[node])
                    assert listed == [rules.value_of(j, float(code)) for code in forest.listed(node)]
                    assert splits["operator"][at] == ("in" if library == "lightgbm" else "not in")
                    assert splits["threshold"][at] is None
                    seen += 1
    assert seen


@PAIRS
def test_a_comparators_category_is_said_as_its_cell(library: Library, approve: Approve) -> None:
    """Given a comparator with another category, the ledger lists the cell that holds it, and never the value alone unless no split tells it from none."""
    shop = category_lender(library, approve)
    cells = shop.model.cells
    said = 0
    for answered in shop.answers(30):
        for tier in answered.body["tiers"]:
            person = comparator_of(shop, tier["comparator"]["reference"])
            for f in tier["ledgers"]["comparator"]["features"]:
                j, listed = FEATURES.index(f["feature"]), f["other"]["categories"]
                if listed is None:
                    assert f["feature"] not in ("purpose", "region", "year") or f["other"]["missing"]
                    continue
                value = shop.model.rules.value_of(j, float(person[j]))
                is_other = f["feature"] == "region" and cells.cell(j, float(person[j])) == cells.count(j) - 2
                assert value in listed or (is_other and listed == [])
                said += 1
    assert said


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_word_that_the_pool_lacks_is_scored_and_never_a_target(library: Library) -> None:
    """Given a declared word that nobody of the pool has, a decision with it is answered and no action leads to it; an undeclared one is refused."""
    shop = category_lender(library)
    row = shop.declined(1)[0]
    features = shop.features_of(row) | {"purpose": "never seen"}
    body = answer(shop.decide(row, features=features), shop.model).body
    assert verify(body, None, None) == ["body_sha256 is missing"]
    for answered in shop.answers(60):
        assert all(tier["target"].get("purpose") != "never seen" for tier in answered.body["tiers"])
    with pytest.raises(UnknownCategory):
        answer(shop.decide(row, features=features | {"purpose": "yacht"}), shop.model)


def test_the_sentinel_stays_the_decisions_own_number() -> None:
    """Given a decision that holds the number for missing, records keep it, actions provide a value, and no target is it."""
    shop = category_lender("xgboost")
    seen = 0
    for row in shop.declined(200):
        if SENTINEL not in (row[0], row[4]):
            continue
        answered = answer(shop.decide(row), shop.model)
        assert answered.body["missing"] == SENTINEL
        assert verify(answered.body, answered.body_sha256, answered.recommendation) == []
        for tier in answered.recommendation["tiers"]:
            for action in tier["actions"]:
                assert action["to"] != SENTINEL
                if action["from"] == SENTINEL:
                    assert action["direction"] == "provide"
                    seen += 1
        for audited in answered.body["tiers"]:
            for f in audited["ledgers"]["target"]["features"]:
                assert f["query_value"] == answered.body["decision"]["features"][f["feature"]]
    assert seen
    matrix = shop.model.matrix
    assert not (matrix.rows == SENTINEL).any()
    recorded = shop.pool[(shop.pool[:, 4] != SENTINEL) & ~np.isnan(shop.pool[:, 4]), 4]
    assert (matrix.scales[4], matrix.medians[4]) == (np.std(recorded), np.median(recorded))


def test_a_move_to_zero_is_told_as_zero() -> None:
    """Given a model that takes zero for missing, an action can lead to zero, and then it says 0, and the audit verifies."""
    shop = category_lender("lightgbm")
    told = [
        action["to"]
        for answered in shop.answers(150)
        for tier in answered.recommendation["tiers"]
        for action in tier["actions"]
        if action["feature"] == "debts"
    ]
    assert 0.0 in told
    assert all(isinstance(to, float) and to.is_integer() for to in told)


CODES = '[a]\ntype = "category"\nmutability = "mutable"\n'


def test_a_cell_is_entered_at_its_commonest_code() -> None:
    """Given a pool, a category's cell is entered at the code that the pool holds most often there, of equal ones the least, and at none that nobody could say."""
    forest = forest_with("lightgbm", [frozenset({1, 2}), frozenset({5})])
    pool = np.array([[1.0]] + [[2.0]] * 2 + [[5.0]] * 3 + [[7.0], [9.0], [-1.0], [-1.0], [7.5], [7.5], [np.nan]])
    bare = read_features(CODES, ("a",), is_category=(True,))
    words = read_features(CODES + f"categories = {json.dumps(list('abcdefgh'))}", ("a",), is_category=(True,))
    for rules, lands in ((bare, [2.0, 5.0, 7.0]), (words, [2.0, 5.0, 7.0])):
        matrix = build_leaf_matrix(forest, pool, rules, "above", b"")
        landings = landings_of(rules, cells_of(forest), matrix)
        assert landings.from_nothing.tolist()[:3] == lands
        assert np.isnan(landings.from_nothing[3])
    few = read_features(CODES + f"categories = {json.dumps(list('abcdef'))}", ("a",), is_category=(True,))
    landings = landings_of(few, cells_of(forest), build_leaf_matrix(forest, pool, few, "above", b""))
    assert np.isnan(landings.from_nothing[2:]).all()  # what lies there has no word


def test_a_forest_of_numbers_has_records_as_before() -> None:
    """Given a model of numbers alone, its body has none of the fields that only categories, zero and a sentinel need."""
    shop = category_lender("xgboost")
    plain = dataclasses.replace(shop.model.forest, missing=None)
    body = answer(shop.decide(shop.declined(1)[0]), shop.with_model(forest=plain).model).body
    assert "missing" not in body
    assert "zero_is_missing" not in (body["splits"] or {})
