"""How large an audit record can become: a bound that holds for every decision, known when a bundle is built."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stream.forest.ledger import LeafUnits
from stream.forest.trees import Forest
from stream.recourse.features import FeatureRules
from stream.recourse.search import TIERS

# What a field can take in Avro, in bytes: a union's branch number, a double, a hash as text, a block's two counts.
BRANCH, DOUBLE, LENGTH, BLOCK = 1, 8, 5, 10
FIXED_TEXTS = 4_096  # hashes, names and versions of body and envelope, each of a bounded length
WHY_NOT = 64  # the longest of the fixed sentences, with its length
LEDGERS_A_TIER = 2


class LargestRecord(NamedTuple):
    """Upper bounds in bytes of an audit record in Avro, with and without per-tree detail."""

    with_trees: int
    without_trees: int


def largest_record(
    forest: Forest, units: LeafUnits, rules: FeatureRules, *, band_size: int, decision_bytes: int
) -> LargestRecord:
    """Bound the audit record of any decision of at most `decision_bytes`.

    Every ledger is taken to name every feature and every tree, and every number to be as long as it can be.
    """
    trees, features = forest.trees, len(rules.rules)
    amount = LENGTH + (units.sum_bits + 1) // 8 + 2
    band_amount = LENGTH + (units.sum_bits + band_size.bit_length() + 1) // 8 + 2
    names = sum(LENGTH + len(rule.name.encode()) for rule in rules.rules)
    words = [max((len(w.encode()) for w in rule.categories or ()), default=0) for rule in rules.rules]
    values = sum(BRANCH + max(DOUBLE, LENGTH + word) for word in words)
    word_sets = sum(BLOCK + sum(LENGTH + len(w.encode()) for w in rule.categories or ()) for rule in rules.rules)
    node = _varint(int(max(forest.node_id.max(), forest.leaf_id.max(), 1)))
    split_rows = len(forest.first_leaf) - 1 + len(forest.leaf_id)  # a split has two sides, so fewer splits than leaves

    other = 3 * BRANCH + 2 * (BRANCH + DOUBLE) + LENGTH + BRANCH
    feature_rows = names + 2 * values + word_sets + features * (other + BRANCH + DOUBLE + LENGTH + 2 * amount + WHY_NOT)
    reason_rows = names + values + features * (BRANCH + DOUBLE + LENGTH + band_amount) + _codes(rules)
    tier = feature_rows * LEDGERS_A_TIER + names + values + 8 * (BRANCH + DOUBLE) + 2 * amount + 64
    body = (
        FIXED_TEXTS
        + decision_bytes
        + values  # a number can be shorter in JSON than as a double
        + (names + features * DOUBLE)  # scales
        + 2 * amount
        + reason_rows
        + _reasons(rules, band_amount)
        + len(TIERS) * tier
    )
    tree_rows = trees * (_varint(trees) + 3 * node + _varint(split_rows) + amount) + 6 * BLOCK
    parted = _nodes_on_a_path(forest)
    detail = (
        len(TIERS) * LEDGERS_A_TIER * tree_rows
        + parted * (_varint(trees) + 2 * node + _varint(split_rows) + band_amount) + 5 * BLOCK
        + trees * node + BLOCK  # query_leaves
        + min(split_rows, len(TIERS) * LEDGERS_A_TIER * trees + parted)
        * (max(LENGTH + len(rule.name.encode()) for rule in rules.rules) + LENGTH + 2 + DOUBLE + 1)
    )  # fmt: skip
    return LargestRecord(with_trees=body + detail, without_trees=body)


def _nodes_on_a_path(forest: Forest) -> int:
    """Count, over all trees, the splits on the longest path from the root to a leaf: a query can part at no more."""
    return int(np.maximum.reduceat(forest.depth, forest.first_node[:-1]).sum())


def _varint(largest: int) -> int:
    """Bytes of the largest number in Avro's zigzag coding, seven bits a byte."""
    return (2 * largest).bit_length() // 7 + 1


def _codes(rules: FeatureRules) -> int:
    return sum(LENGTH + len(rule.reason.code.encode()) for rule in rules.rules)


def _reasons(rules: FeatureRules, amount: int) -> int:
    texts = [
        3 * LENGTH
        + len(rule.reason.code.encode())
        + len(rule.name.encode())
        + max(len(t.encode()) for t in (rule.reason.too_low, rule.reason.too_high, rule.reason.missing))
        + amount
        for rule in rules.rules
    ]
    return sum(sorted(texts)[-4:])
