from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.events import AuditBody, Ledger
from stream.recourse.answer import answer
from tests.examples import examples
from tests.oracles.trees import Tree
from tests.recourse.lenders import FEATURES, LENDERS, Approve, Lender, Library, Rows, lender

PAIRS = pytest.mark.parametrize(("library", "approve"), LENDERS)


def unit(body: AuditBody) -> Fraction:
    return Fraction(2) ** body["unit_log2"]


def comparator_of(shop: Lender, reference: str) -> Rows:
    """The pool row behind an opaque reference, for whoever holds the key."""
    named = {
        hmac.new(shop.reference_key, b"comparator %d" % i, hashlib.sha256).digest()[:16].hex(): i
        for i in range(len(shop.pool))
    }
    person: Rows = shop.pool[named[reference]]
    return person


def sides(shop: Lender, body: AuditBody) -> list[tuple[Ledger, Rows]]:
    """Each ledger of a body with the row on its other side."""
    found = []
    for tier in body["tiers"]:
        target = shop.model.rules.encode({**body["decision"]["features"], **tier["target"]})
        found.append((tier["ledgers"]["target"], target))
        found.append((tier["ledgers"]["comparator"], comparator_of(shop, tier["comparator"]["reference"])))
    return found


def total(trees: list[Tree], leaves: list[int]) -> Fraction:
    return sum((tree.value[leaf] for tree, leaf in zip(trees, leaves, strict=True)), Fraction(0))


@PAIRS
@settings(max_examples=examples(5))
@given(place=st.integers(0, 100))
def test_every_tree_that_differs_is_there_with_its_exact_difference(
    library: Library, approve: Approve, place: int
) -> None:
    """Given a ledger, it lists just the trees whose leaves the library gives differ, each with the exact difference of the two leaf values."""
    shop = lender(library, approve)
    row = shop.declined(101)[place]
    body = answer(shop.decide(row), shop.model).body
    own = shop.owner.leaves(row[None])[0].tolist()
    assert body["query_leaves"] == own
    for ledger, other in sides(shop, body):
        leaves, trees = shop.owner.leaves(other[None])[0].tolist(), ledger["trees"]
        assert trees is not None
        differ = [t for t in range(len(own)) if own[t] != leaves[t]]
        assert trees["tree"] == differ
        assert trees["query_leaf"] == [own[t] for t in differ]
        assert trees["other_leaf"] == [leaves[t] for t in differ]
        exact = [shop.trees[t].value[leaves[t]] - shop.trees[t].value[own[t]] for t in differ]
        assert [int(c) * unit(body) for c in trees["contribution"]] == exact


@PAIRS
@settings(max_examples=examples(5))
@given(place=st.integers(0, 100))
def test_a_feature_carries_its_decisive_splits(library: Library, approve: Approve, place: int) -> None:
    """Given a ledger, each tree goes to the split where the library's two ways part, a feature's row sums its trees, and the split that adds most binds."""
    shop = lender(library, approve)
    body = answer(shop.decide(shop.declined(101)[place]), shop.model).body
    splits: Any = body["splits"]
    for ledger, _ in sides(shop, body):
        trees: Any = ledger["trees"]
        sums: Counter[str] = Counter()
        count: Counter[str] = Counter()
        for k, t in enumerate(trees["tree"]):
            node, j, threshold, _ = shop.trees[t].decisive(trees["query_leaf"][k], trees["other_leaf"][k])
            assert trees["node"][k] == node
            at = trees["split"][k]
            assert splits["feature"][at] == FEATURES[j]
            assert splits["threshold"][at] == threshold or max(abs(threshold), abs(splits["threshold"][at])) < 2e-35
            assert splits["operator"][at] == ("<" if library == "xgboost" else "<=")
            sums[FEATURES[j]] += int(trees["contribution"][k])
            count[FEATURES[j]] += 1
        assert {f["feature"]: (int(f["contribution"]), f["trees"]) for f in ledger["features"]} == {
            name: (sums[name], count[name]) for name in count
        }
        for f in ledger["features"]:
            toward = 1 if int(f["contribution"]) >= 0 else -1
            carried = [
                (toward * int(amount), splits["threshold"][split])
                for split, amount in zip(trees["split"], trees["contribution"], strict=True)
                if splits["feature"][split] == f["feature"]
            ]
            most = max(amount for amount, _ in carried)
            assert f["binding_threshold"] in [threshold for amount, threshold in carried if amount == most]


@PAIRS
@settings(max_examples=examples(5))
@given(place=st.integers(0, 100))
def test_rows_sum_to_the_gap_exactly(library: Library, approve: Approve, place: int) -> None:
    """Given a ledger, features and trees sum to the gap, which is the exact difference of the two sums of leaf values."""
    shop = lender(library, approve)
    row = shop.declined(101)[place]
    body = answer(shop.decide(row), shop.model).body
    own = total(shop.trees, shop.owner.leaves(row[None])[0].tolist())
    base = Fraction(float(shop.model.forest.base_margin))
    assert int(body["margin_exact"]) * unit(body) == base + own
    native = Fraction(float(shop.owner.ask(row[None], "margin")[0]))
    assert (int(body["margin_exact"]) + int(body["margin_rounding"])) * unit(body) == native
    for ledger, other in sides(shop, body):
        gap = int(ledger["margin_gap"])
        assert sum(int(f["contribution"]) for f in ledger["features"]) == gap
        assert ledger["trees"] is not None
        assert sum(map(int, ledger["trees"]["contribution"])) == gap
        assert gap * unit(body) == total(shop.trees, shop.owner.leaves(other[None])[0].tolist()) - own


@PAIRS
@settings(max_examples=examples(5))
@given(place=st.integers(0, 100))
def test_a_solo_shift_is_what_the_library_gives_for_that_feature_alone(
    library: Library, approve: Approve, place: int
) -> None:
    """Given a ledger row, its solo shift is the exact change of the library's leaves when that feature alone takes the other's value."""
    shop = lender(library, approve)
    row = shop.declined(101)[place]
    body = answer(shop.decide(row), shop.model).body
    own = total(shop.trees, shop.owner.leaves(row[None])[0].tolist())
    for ledger, other in sides(shop, body):
        for f in ledger["features"]:
            alone = row.copy()
            alone[FEATURES.index(f["feature"])] = other[FEATURES.index(f["feature"])]
            shifted = total(shop.trees, shop.owner.leaves(alone[None])[0].tolist())
            assert int(f["solo_shift"]) * unit(body) == shifted - own


@PAIRS
def test_the_other_side_is_a_cell_or_a_target(library: Library, approve: Approve) -> None:
    """Given ledgers, a comparator's side is the cell that holds its value (an interval, words, or missing), a target's is the value itself."""
    shop = lender(library, approve)
    kinds: Counter[str] = Counter()
    for answered in shop.answers(40):
        for tier in answered.body["tiers"]:
            person = comparator_of(shop, tier["comparator"]["reference"])
            for f in tier["ledgers"]["comparator"]["features"]:
                j, cell = FEATURES.index(f["feature"]), f["other"]["cell"]
                value, words = float(person[j]), f["other"]["categories"]
                assert f["other"]["value"] is None
                said = [f["other"]["missing"], words is not None, cell is not None]
                assert sum(said) == 1
                kinds[["missing", "words", "cell"][said.index(True)]] += 1
                if np.isnan(value):
                    assert f["other"]["missing"]
                elif words is not None:
                    assert shop.model.rules.value_of(j, value) in words
                    assert f["feature"] == "purpose"
                else:
                    assert cell is not None
                    x = float(shop.model.forest.dtype.type(value))
                    assert cell["low"] is None or cell["low"] <= x
                    assert cell["high"] is None or x <= cell["high"]
                    assert (x not in (cell["low"], cell["high"])) or x == cell[cell["closed"]]
            for f in tier["ledgers"]["target"]["features"]:
                assert f["other"] == {
                    "cell": None, "categories": None, "value": tier["target"][f["feature"]], "missing": False,
                }  # fmt: skip
    assert min(kinds["missing"], kinds["words"], kinds["cell"]) > 0


@PAIRS
def test_a_contribution_does_not_depend_on_the_side_that_is_approved(library: Library, approve: Approve) -> None:
    """Given approval above or below, contributions are in the model's own margin: a target's gap has the sign of what is approved."""
    shop = lender(library, approve)
    for answered in shop.answers(20):
        for tier in answered.body["tiers"]:
            assert shop.sign * int(tier["ledgers"]["target"]["margin_gap"]) > 0
            assert shop.sign * int(tier["ledgers"]["comparator"]["margin_gap"]) > 0


@PAIRS
def test_without_detail_the_rest_is_the_same(library: Library, approve: Approve) -> None:
    """Given a bundle that drops per-tree detail, the body has no trees, leaves and splits, and is else equal but for nothing."""
    shop = lender(library, approve)
    brief = shop.with_model(audit_trees=False)
    for row in shop.declined(5):
        long, short = (answer(x.decide(row), x.model).body for x in (shop, brief))
        assert short["query_leaves"] is None
        assert short["splits"] is None
        for tier, twin in zip(short["tiers"], long["tiers"], strict=True):
            for ledger, full in ((tier["ledgers"][k], twin["ledgers"][k]) for k in ("comparator", "target")):
                assert ledger["trees"] is None
                assert ledger | {"trees": full["trees"]} == full
            assert {**tier, "ledgers": None} == {**twin, "ledgers": None}
        assert short["reasons"] == long["reasons"]
