"""Categories, zero that is missing, and the sentinel: answers of real models end to end."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream.audit.record_check import Tally, check
from stream.audit.sources import NO_ENVELOPE, from_jsonl
from stream.audit.verify.body import verify
from stream.canonical import sha256
from stream.errors import UnknownCategory
from stream.forest.trees import CATEGORY, ZERO_IS_MISSING
from stream.recourse.answer import answer
from stream.wire.avro_records import decode, encode
from tests.recourse.category_lenders import FEATURES, PURPOSES, SENTINEL, YEARS, category_lender
from tests.recourse.explain.test_ledgers import comparator_of, sides, total, unit
from tests.recourse.lenders import Approve, Library

LIBRARIES: list[Library] = ["xgboost", "lightgbm"]
LENDERS: list[tuple[Library, Approve]] = [(library, side) for library in LIBRARIES for side in ("above", "below")]
PAIRS = pytest.mark.parametrize(("library", "approve"), LENDERS)


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


def test_zero_that_is_missing_to_the_model_is_no_record() -> None:
    """Given a model that takes zero for missing, zero is never a goal, has no distance, is called missing in reasons, and from it an action provides a value."""
    shop = category_lender("lightgbm")
    numbers = [j for j, rule in enumerate(shop.model.rules.rules) if rule.type != "category"]
    assert all(shop.model.rules.rules[j].no_record == (0.0,) for j in numbers)
    ages = shop.pool[shop.pool[:, 5] != 0, 5]
    assert (shop.model.matrix.scales[5], shop.model.matrix.medians[5]) == (np.std(ages), np.median(ages))
    assert not (shop.model.matrix.rows[:, numbers] == 0).any()
    texts = set()
    for answered in shop.answers(150):
        assert verify(answered.body, answered.body_sha256, answered.recommendation) == []
        said = answered.body["decision"]["features"]
        for tier in answered.recommendation["tiers"]:
            assert all(action["to"] != 0.0 for action in tier["actions"] if action["feature"] == "debts")
        texts |= {
            r["text"]
            for r in answered.recommendation["reasons"]
            if r["feature"] in ("debts", "age") and said[r["feature"]] == 0
        }
    assert texts
    assert all(text.endswith(": no information") for text in texts)


def test_from_a_zero_that_is_missing_an_action_provides_a_value() -> None:
    """Given an applicant with a zero that the model takes for missing, a move of that feature is to provide a value and costs one change."""
    shop = category_lender("lightgbm", "below")
    income = shop.model.rules.rules[0]
    seen = 0
    for row in shop.declined(60):
        features = shop.features_of(row) | {"income": 0.0}
        answered = answer(shop.decide(row, features=features), shop.model)
        assert verify(answered.body, answered.body_sha256, answered.recommendation) == []
        for tier in answered.recommendation["tiers"]:
            actions = {action["feature"]: action for action in tier["actions"]}
            if income.name in actions:
                assert actions[income.name]["direction"] == "provide"
                seen += 1
                if len(actions) == 1:
                    assert tier["effort"] == income.cost
    assert seen


def test_a_forest_of_numbers_has_records_as_before() -> None:
    """Given a model of numbers alone, its body has none of the fields that only categories, zero and a sentinel need."""
    shop = category_lender("xgboost")
    plain = dataclasses.replace(shop.model.forest, missing=None)
    body = answer(shop.decide(shop.declined(1)[0]), shop.with_model(forest=plain).model).body
    assert "missing" not in body
    assert "zero_is_missing" not in (body["splits"] or {})
