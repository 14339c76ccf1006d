from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.events import AuditRecord
from stream.forest.cells import cells_of
from stream.forest.trees import SavedNode, build_forest
from stream.recourse.answer import Answer, answer
from stream.recourse.comparators.leaf_matrix import build_leaf_matrix
from stream.recourse.model import published_model
from stream.recourse.record.size import largest_record
from stream.recourse.rules.features import read_features, rules_for
from stream.recourse.rules.policy import Policy
from stream.wire.avro_records import encode
from tests.examples import examples
from tests.records import decision_dict
from tests.recourse.category_lenders import RULES as CATEGORY_RULES
from tests.recourse.category_lenders import category_lender
from tests.recourse.lenders import FEATURES, IDENTITY, LENDERS, RULES, Approve, Lender, Library, kind, lender

PAIRS = pytest.mark.parametrize(("library", "approve"), LENDERS)


def record(answered: Answer) -> AuditRecord:
    """An audit record with the longest envelope that Kafka and the trace context permit."""
    return {
        "decision_id": answered.body["decision"]["decision_id"],
        "body": answered.body,
        "body_sha256": answered.body_sha256,
        "envelope": {
            "source": {
                "topic": "d" * 249, "partition": 2**31 - 1, "offset": 2**63 - 1, "timestamp": "9999-12-31T23:59:59.999Z",
            },
            "software_version": "0.1.0+" + "f" * 40,
            "traceparent": "00-" + "f" * 32 + "-" + "f" * 16 + "-01",
            "replay": True,
            "run_id": "r" * 64,
            "seal": "f" * 128,
        },
    }  # fmt: skip


def bound(shop: Lender, decision_bytes: int) -> int:
    model = shop.model
    largest = largest_record(
        model.forest, model.units, model.rules, band_size=model.policy.band_size, decision_bytes=decision_bytes
    )
    return largest.with_trees if model.audit_trees else largest.without_trees


@PAIRS
@settings(max_examples=examples(6))
@given(
    place=st.integers(0, 239),
    identifier=st.text("aé€", min_size=1, max_size=256),
    missing=st.sets(st.sampled_from(FEATURES)),
    notes=st.dictionaries(st.text(max_size=20), st.text(max_size=60), max_size=4),
    audit_trees=st.booleans(),
    plain=st.booleans(),
)
def test_no_record_is_larger_than_the_bound(
    library: Library,
    approve: Approve,
    place: int,
    identifier: str,
    missing: set[str],
    notes: dict[str, str],
    audit_trees: bool,  # noqa: FBT001  (hypothesis gives it by name)
    plain: bool,  # noqa: FBT001
) -> None:
    """Given any decision, its audit record in Avro stays within the bound for a decision of that many bytes, in Avro or as JSON."""
    shop = lender(library, approve)
    shop = shop if audit_trees else shop.with_model(audit_trees=False)
    features = {name: None if name in missing else value for name, value in shop.features_of(shop.pool[place]).items()}
    decision = shop.decide(
        shop.pool[place],
        decision_id=identifier,
        model_id=identifier,
        model_version=identifier,
        features=features,
        disclosures=notes,
    )
    arrived = json.dumps(decision_dict(decision)).encode() if plain else encode("Decision", decision_dict(decision))
    written = encode("AuditRecord", record(answer(decision, shop.model)))
    assert len(written) <= bound(shop, len(arrived))


@PAIRS
@settings(max_examples=examples(6))
@given(place=st.integers(0, 599), long=st.integers(0, 300), audit_trees=st.booleans(), nothing=st.booleans())
def test_no_record_with_categories_is_larger_than_the_bound(
    library: Library,
    approve: Approve,
    place: int,
    long: int,
    audit_trees: bool,  # noqa: FBT001  (hypothesis gives it by name)
    nothing: bool,  # noqa: FBT001
) -> None:
    """Given a model with categories, and words of any length for them, its record stays within the bound, lists of categories included."""
    shop = category_lender(library, approve)
    text = CATEGORY_RULES.replace('"furniture"', f'"{"é" * long}furniture"')
    codes = ", ".join(f'"region {k} {"r" * long}"' for k in range(50))
    text = text.replace('[region]\ntype = "category"', f'[region]\ntype = "category"\ncategories = [{codes}]')
    shop = shop.with_model(
        rules=rules_for(shop.model.forest, text if long else CATEGORY_RULES), audit_trees=audit_trees
    )
    features = shop.features_of(shop.pool[place]) | ({"purpose": None, "year": None} if nothing else {})
    decision = shop.decide(shop.pool[place], features=features)
    written = encode("AuditRecord", record(answer(decision, shop.model)))
    assert len(written) <= bound(shop, len(encode("Decision", decision_dict(decision))))


def test_the_bound_holds_where_every_split_lists_much() -> None:
    """Given a model whose every split lists hundreds of codes, records with each of them fill much of the bound and stay within it."""
    rng = np.random.default_rng(0)
    lists = [frozenset(rng.choice(2000, 900, replace=False).tolist()) for _ in range(60)]
    trees = [
        [
            SavedNode(number=0, feature=0, value=0.0, left=1, right=2, categories=listed),
            SavedNode(number=0, value=-0.1 - t),
            SavedNode(number=1, value=0.1 + t),
        ]
        for t, listed in enumerate(lists)
    ]
    forest = build_forest(trees, kind("xgboost", ("a",), is_category=(True,)))
    rules = rules_for(forest, '[a]\ntype = "category"\nmutability = "mutable"\n')
    pool = np.array([[3000.0]] * 5 + [[float(code)] for code in range(2000)])
    matrix = build_leaf_matrix(forest, pool, rules, "above", b"key")
    model = published_model(
        identity=IDENTITY, forest=forest, cells=cells_of(forest), rules=rules, policy=Policy(), matrix=matrix, threshold=float(matrix.margins[-9]),
        threshold_scale="margin", audit_trees=True,
    )  # fmt: skip
    decision = dataclasses.replace(
        lender("lightgbm").decide(np.zeros(len(FEATURES))), features={"a": 3000.0}, disclosures={}
    )
    largest = largest_record(
        forest,
        model.units,
        rules,
        band_size=model.policy.band_size,
        decision_bytes=len(encode("Decision", decision_dict(decision))),
    )
    size = len(encode("AuditRecord", record(answer(decision, model))))
    assert largest.with_trees / 3 < size <= largest.with_trees


@PAIRS
def test_the_bound_is_not_idle(library: Library, approve: Approve) -> None:
    """Given an ordinary model, the bound is within an order of magnitude of real records, or it would drop detail for nothing."""
    shop = lender(library, approve)
    sizes = [len(encode("AuditRecord", record(answered))) for answered in shop.answers(20)]
    arrived = len(encode("Decision", decision_dict(shop.decide(shop.pool[0]))))
    assert max(sizes) <= bound(shop, arrived) <= 10 * max(sizes)


def test_the_bound_holds_where_every_tree_and_feature_counts() -> None:
    """Given a person who differs from everyone accepted in all of 400 trees and must move everything, the record fills most of the bound."""
    names = tuple(f"feature {j}" for j in range(40))
    digits = np.random.default_rng(0).random(400)  # leaves of 53 bits and splits of their own, as real ones are
    trees = [
        [
            SavedNode(number=0, feature=t % len(names), value=float(digits[t]) - 0.5, left=1, right=2),
            SavedNode(number=0, value=-float(digits[-t])),
            SavedNode(number=1, value=float(digits[t])),
        ]
        for t in range(400)
    ]
    forest = build_forest(trees, kind("lightgbm", names))
    rules = read_features("".join(f'["{n}"]\ntype = "number"\nmutability = "mutable"\n' for n in names), names)
    pool = np.repeat([[-1.0], [1.0]], 30, axis=0) * np.ones(len(names))
    matrix = build_leaf_matrix(forest, pool, rules, "above", b"key")
    model = published_model(
        identity=IDENTITY, forest=forest, cells=cells_of(forest), rules=rules, policy=Policy(), matrix=matrix, threshold=float(matrix.margins[-1]),
        threshold_scale="margin", audit_trees=True,
    )  # fmt: skip
    decision = dataclasses.replace(
        lender("lightgbm").decide(np.zeros(len(FEATURES))), features=dict.fromkeys(names, -1.0), disclosures={}
    )
    answered = answer(decision, model)
    assert [len(tier["target"]) for tier in answered.body["tiers"]] == [len(names)] * 3
    arrived = len(encode("Decision", decision_dict(decision)))
    largest = largest_record(forest, model.units, rules, band_size=model.policy.band_size, decision_bytes=arrived)
    size = len(encode("AuditRecord", record(answered)))
    assert largest.with_trees / 3 < size <= largest.with_trees
    short = dataclasses.replace(model, audit_trees=False)
    size = len(encode("AuditRecord", record(answer(decision, short))))
    assert largest.without_trees / 3 < size <= largest.without_trees


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_long_names_and_words_count(library: Library) -> None:
    """Given long labels, reasons and words, the record grows and stays within the bound."""
    shop = lender(library)
    text = RULES.replace('"école"', f'"{"é" * 300}"').replace('"R3"', f'"{"c" * 200}"').replace("too many", "x" * 999)
    long = shop.with_model(rules=read_features(text, FEATURES))
    for row in shop.declined(10):
        decision = long.decide(row)
        size = len(encode("AuditRecord", record(answer(decision, long.model))))
        assert size <= bound(long, len(encode("Decision", decision_dict(decision))))


@pytest.mark.parametrize("exponent", [-300, 0, 300])
def test_leaves_of_any_size_are_covered(exponent: int) -> None:
    """Given leaf values from tiny to huge, whose integers have hundreds of digits, records stay within the bound."""
    shop = lender("lightgbm")
    forest = shop.model.forest
    weight = forest.weight.copy()
    weight[::2] = np.ldexp(weight[::2], exponent)
    wild = shop.with_model(forest=dataclasses.replace(forest, weight=weight)).with_pool(shop.pool)
    answered = [answer(wild.decide(row), wild.model) for row in shop.pool[:20]]
    arrived = len(encode("Decision", decision_dict(wild.decide(shop.pool[0]))))
    sizes: list[Any] = [len(encode("AuditRecord", record(a))) for a in answered]
    assert max(sizes) <= bound(wild, arrived)
    assert any(a.body["tiers"] for a in answered)
