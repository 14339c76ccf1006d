from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.events import AuditBody
from stream.forest.trees import SavedNode, build_forest
from stream.recourse.answer import answer
from stream.recourse.explain.attribution import Amounts, FeatureShare, by_feature
from stream.recourse.explain.reasons import REASONS_MAX, principal_reasons
from stream.recourse.rules.features import read_features
from tests.examples import examples
from tests.oracles.shortfall import shortfall
from tests.recourse.lenders import FEATURES, LENDERS, RULES, Approve, Lender, Library, Rows, kind, lender

PAIRS = pytest.mark.parametrize(("library", "approve"), LENDERS)
CODES = {"income": "R1", "age": "R2", "debts": "R3", "balance": "R3"}  # of the others, the name


def band_of(shop: Lender, cutoff: float, size: int) -> Rows:
    """The pool rows just past the cutoff by the library's own margins, ties in pool order."""
    score = shop.sign * shop.owner.ask(shop.pool, "margin").astype(np.float64)
    past = [i for i in range(len(score)) if score[i] >= shop.sign * cutoff]
    return shop.pool[sorted(past, key=lambda i: (score[i], i))[:size]]


@PAIRS
@settings(max_examples=examples(6))
@given(
    place=st.integers(0, 100),
    size=st.sampled_from([1, 7, 24, 1000]),
    threshold=st.sampled_from([0.5, 0.4, 0.6]),
    accounts=st.sampled_from([-9, 0, None]),
)
def test_the_ledger_is_the_shortfall_against_the_band(
    library: Library, approve: Approve, place: int, size: int, threshold: float, accounts: float | None
) -> None:
    """Given any band, the reasons ledger is what brute force over its rows and the library's trees gives, with its divisor."""
    shop = lender(library, approve).with_policy(band_size=size)
    row = shop.declined(101)[place].copy()
    row[3] = np.nan if accounts is None else accounts
    body = answer(shop.decide(row, threshold=threshold), shop.model).body
    ledger = body["reasons_ledger"]
    if ledger is None:
        assert body["status"] == "not_model_decline"
        return
    band = band_of(shop, body["cutoff_margin"], size)
    own = shop.owner.leaves(row[None])[0].tolist()
    exact = shortfall(shop.trees, own, shop.owner.leaves(band).tolist())
    unit = Fraction(2) ** body["unit_log2"]
    assert ledger["divisor"] == len(band)
    of_feature = {j: sum(a for (_, _, k), a in exact.items() if k == j) for j in sorted({j for _, _, j in exact})}
    published = {f["feature"]: int(f["contribution"]) * unit for f in ledger["features"]}
    assert published == {FEATURES[j]: amount for j, amount in of_feature.items()}
    assert [f["trees"] for f in ledger["features"]] == [len({t for t, _, k in exact if k == j}) for j in of_feature]
    assert int(ledger["margin_gap"]) * unit == sum(exact.values())
    assert [f["code"] for f in ledger["features"]] == [CODES.get(name, name) for name in published]
    trees: Any = ledger["trees"]
    splits: Any = body["splits"]
    assert trees["tree"] == sorted(trees["tree"])
    assert trees["query_leaf"] == [own[t] for t in trees["tree"]]
    at = [FEATURES.index(splits["feature"][split]) for split in trees["split"]]
    amounts = [int(amount) * unit for amount in trees["contribution"]]
    assert dict(zip(zip(trees["tree"], trees["node"], at, strict=True), amounts, strict=True)) == exact
    assert len(amounts) == len(exact)


@PAIRS
def test_a_pool_short_of_the_cutoff_still_gives_reasons(library: Library, approve: Approve) -> None:
    """Given a threshold that nobody of the pool meets, the rows nearest to it stand for the band, and there are reasons."""
    shop = lender(library, approve)
    score = shop.sign * shop.owner.ask(shop.pool, "margin").astype(np.float64)
    beyond = shop.sign * (float(score.max()) + 1)
    row = shop.declined(1)[0]
    body = answer(shop.decide(row, threshold=beyond, threshold_scale="margin"), shop.model).body
    nearest = sorted(range(len(score)), key=lambda i: (score[i], i))[-24:]
    exact = shortfall(
        shop.trees, shop.owner.leaves(row[None])[0].tolist(), shop.owner.leaves(shop.pool[nearest]).tolist()
    )
    assert body["status"] == "no_feasible_recourse"
    assert body["reasons"]
    assert body["reasons_ledger"] is not None
    assert body["reasons_ledger"]["divisor"] == 24
    assert int(body["reasons_ledger"]["margin_gap"]) * Fraction(2) ** body["unit_log2"] == sum(exact.values())


@PAIRS
def test_the_gap_is_the_bands_margins_less_the_querys(library: Library, approve: Approve) -> None:
    """Given a reasons ledger, its gap is the exact sum of the band's margins minus divisor times the query's."""
    shop = lender(library, approve)
    row = shop.declined(1)[0]
    body = answer(shop.decide(row), shop.model).body
    band = band_of(shop, body["cutoff_margin"], 24)
    exact = [
        sum((tree.value[leaf] for tree, leaf in zip(shop.trees, leaves, strict=True)), Fraction(0))
        for leaves in shop.owner.leaves(np.concatenate([row[None], band])).tolist()
    ]
    assert body["reasons_ledger"] is not None
    gap = int(body["reasons_ledger"]["margin_gap"]) * Fraction(2) ** body["unit_log2"]
    assert gap == sum(exact[1:]) - len(band) * exact[0]


def expected_reasons(body: AuditBody, sign: int) -> list[tuple[str, int]]:
    assert body["reasons_ledger"] is not None
    by_code: Counter[str] = Counter()
    for f in body["reasons_ledger"]["features"]:
        by_code[f["code"]] += sign * int(f["contribution"])
    return sorted(((c, n) for c, n in by_code.items() if n > 0), key=lambda p: (-p[1], p[0]))[:4]


def test_the_split_that_adds_most_to_a_features_side_binds() -> None:
    """Given one feature's shortfalls at several splits, two of one tree, they are summed, its trees counted, and the largest on the sum's side binds, of equals the first."""
    splits = [
        SavedNode(number=0, feature=0, value=1.0, left=1, right=2),
        SavedNode(number=0, value=0.0),
        SavedNode(number=1, feature=0, value=2.0, left=3, right=4),
        SavedNode(number=1, value=0.0),
        SavedNode(number=2, value=1.0),
    ]
    forest = build_forest([splits, splits], kind("lightgbm", ("income",)))
    first, inner, second = 0, 2, 5  # the root of one tree, its other split, and the root of the other tree
    tree, node = np.array([0, 0, 1]), np.array([first, inner, second], np.int32)
    found = by_feature(forest, Amounts(tree, node, [5, -9, -3]))
    assert found == {0: FeatureShare(contribution=-7, trees=2, binding_node=inner)}
    found = by_feature(forest, Amounts(tree, node, [-9, 5, 5]))
    assert found == {0: FeatureShare(contribution=1, trees=2, binding_node=inner)}
    huge = 2**80  # a sum that no int64 holds
    found = by_feature(forest, Amounts(tree, node, [huge, 1, huge]))
    assert found == {0: FeatureShare(contribution=2 * huge + 1, trees=2, binding_node=first)}
    assert by_feature(forest, Amounts(tree[:0], node[:0], [])) == {}


@PAIRS
def test_principal_reasons_are_the_largest_shortfalls(library: Library, approve: Approve) -> None:
    """Given answers, reasons are the codes of largest summed shortfall, at most four, each once, largest first, immutable features included."""
    shop = lender(library, approve)
    seen: Counter[str] = Counter()
    for answered in shop.answers(60):
        body = answered.body
        said = [(r["code"], shop.sign * int(r["contribution"])) for r in body["reasons"]]
        assert said == expected_reasons(body, shop.sign)
        assert 1 <= len(said) <= REASONS_MAX == 4
        assert len({code for code, _ in said}) == len(said)
        assert all(CODES.get(r["feature"], r["feature"]) == r["code"] for r in body["reasons"])
        seen.update(code for code, _ in said)
    assert seen["R2"], "age is immutable, and never was a reason"


def reasons_for(shares: dict[str, int], row: list[float], sign: int = 1) -> list[tuple[str, str]]:
    """Codes and texts for made-up shortfalls, in a forest that asks of each feature whether it is below zero."""
    forest = build_forest(
        [
            [
                SavedNode(number=0, feature=j, value=0.0, left=1, right=2),
                SavedNode(number=1, value=0.0),
                SavedNode(number=2, value=1.0),
            ]
            for j in range(len(FEATURES))
        ],
        kind("xgboost", FEATURES),
    )
    of = {
        FEATURES.index(name): FeatureShare(contribution=amount, trees=1, binding_node=3 * FEATURES.index(name))
        for name, amount in shares.items()
    }
    found = principal_reasons(forest, read_features(RULES, FEATURES), of, np.array(row, np.float64), sign)
    return [(r["code"], r["text"]) for r in found]


LOW, HIGH = [-1e6] * len(FEATURES), [1e6] * len(FEATURES)


def test_a_text_says_which_way_it_is_wrong() -> None:
    """Given a value below, above, missing or a sentinel, the reason's text is the one for that."""
    assert reasons_for({"income": 5}, LOW) == [("R1", "income too low")]
    assert reasons_for({"income": 5}, HIGH) == [("R1", "income too high")]
    assert reasons_for({"income": 5}, [np.nan] * len(FEATURES)) == [("R1", "income not known")]
    assert reasons_for({"accounts": 5}, [-9.0] * len(FEATURES)) == [("accounts", "accounts: no information")]


def test_one_code_of_two_features_counts_once_with_the_larger_ones_text() -> None:
    """Given two features of one code, the code's shortfall is their sum and its text that of the larger; what helps is taken off."""
    both = {"debts": 3, "balance": 4, "income": 5}
    assert reasons_for(both, HIGH) == [("R3", "balance: too high"), ("R1", "income too high")]
    assert reasons_for({"debts": 9, "balance": -5, "income": 5}, HIGH)[0] == ("R1", "income too high")
    assert reasons_for({"debts": 9, "balance": -9}, HIGH) == []


def test_what_helped_is_no_reason() -> None:
    """Given features that add to the score, none is named; approval below turns the sign; more than four are cut."""
    assert reasons_for({"income": -5, "age": 0}, LOW) == []
    assert reasons_for({"income": -5, "age": 5}, LOW, sign=-1) == [("R1", "income too low")]
    many = dict.fromkeys(["limit", "share", "income", "age", "region", "purpose"], 1)
    assert [code for code, _ in reasons_for(many, LOW)] == ["R1", "R2", "limit", "purpose"]


@PAIRS
def test_what_is_remembered_changes_nothing(library: Library, approve: Approve) -> None:
    """Given thresholds asked in any order, more than are remembered, each answer has the ledger of a fresh model."""
    shop = lender(library, approve)
    row = shop.declined(1)[0]
    asked = [0.5 + (1 if approve == "above" else -1) * 0.02 * k for k in range(18)]
    warm = shop.with_policy()
    first = {t: answer(warm.decide(row, threshold=t), warm.model).body for t in asked}
    for t in [*asked[::-1], asked[3]]:
        cold = shop.with_policy()
        again = answer(warm.decide(row, threshold=t), warm.model).body
        assert again == first[t] == answer(cold.decide(row, threshold=t), cold.model).body
    assert len(warm.model.bands) < len(asked)
