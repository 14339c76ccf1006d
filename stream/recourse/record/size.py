"""How large an audit record can become: a bound that holds for every decision, known when a bundle is built."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stream.events import TIERS
from stream.forest.ledger import LeafUnits
from stream.forest.trees import CATEGORY, Forest, Word
from stream.recourse.rules.features import FeatureRules

# What a field can take in Avro, in bytes: a union's branch number, a double, a hash as text, a block's two counts.
BRANCH, DOUBLE, LENGTH, BLOCK = 1, 8, 5, 10
FIXED_TEXTS = 4_096  # hashes, names and versions of body and envelope, each of a bounded length
WHY_NOT = 64  # the longest of the fixed sentences, with its length
SPLIT_ROW = LENGTH + len("not in") + BRANCH + DOUBLE + 1 + BRANCH + 1  # without its feature and what it lists
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
    values = sum(max([BRANCH + DOUBLE, *map(_category, rule.categories or ())]) for rule in rules.rules)
    lists, word_sets, binding_sets = _listings(forest, rules)
    node = _varint(int(max(forest.node_id.max(), forest.leaf_id.max(), 1)))
    split_rows = len(forest.first_leaf) - 1 + len(forest.leaf_id)  # a split has two sides, so fewer splits than leaves

    other = 3 * BRANCH + 2 * (BRANCH + DOUBLE) + LENGTH + BRANCH
    binding = features * (2 * BRANCH + DOUBLE) + binding_sets
    feature_rows = names + 2 * values + word_sets + binding + features * (other + LENGTH + 2 * amount + WHY_NOT)
    codes = sum(LENGTH + len(rule.reason.code.encode()) for rule in rules.rules)
    reason_rows = names + values + binding + features * (LENGTH + band_amount) + codes
    tier = feature_rows * LEDGERS_A_TIER + names + values + 8 * (BRANCH + DOUBLE) + 2 * amount + 64
    body = (
        FIXED_TEXTS
        + decision_bytes
        + (BRANCH + DOUBLE)  # missing
        + values  # a number can be shorter in JSON than as a double
        + (names + features * DOUBLE)  # scales
        + 2 * amount
        + reason_rows
        + _reasons(rules, band_amount)
        + len(TIERS) * tier
    )
    tree_rows = trees * (_varint(trees) + 3 * node + _varint(split_rows) + amount) + 6 * BLOCK
    # A query can part at no more splits than lie on the longest path of each tree.
    parted = int(np.maximum.reduceat(forest.depth, forest.first_node[:-1]).sum())
    rows = min(split_rows, len(TIERS) * LEDGERS_A_TIER * trees + parted)
    detail = (
        len(TIERS) * LEDGERS_A_TIER * tree_rows
        + parted * (_varint(trees) + 2 * node + _varint(split_rows) + band_amount) + 5 * BLOCK
        + trees * node + BLOCK  # query_leaves
        + rows * (max(LENGTH + len(rule.name.encode()) for rule in rules.rules) + SPLIT_ROW) + sum(lists[:rows])
    )  # fmt: skip
    return LargestRecord(with_trees=body + detail, without_trees=body)


def _listings(forest: Forest, rules: FeatureRules) -> tuple[list[int], int, int]:
    """Bound the lists of categories: of each split, largest first; of a cell of every feature; of a split of every one."""
    lists, cells, bindings = [], 0, 0
    for j, rule in enumerate(rules.rules):
        nodes = np.flatnonzero((forest.split_feature == j) & (forest.kind == CATEGORY))
        said: dict[int, int] = {} if rule.categories is None else dict(enumerate(map(_category, rule.categories)))
        listed = [forest.listed(node) for node in nodes.tolist()]
        if rule.categories is None:
            said = dict.fromkeys((code for codes in listed for code in codes), BRANCH + DOUBLE)
        lists += [BLOCK + sum(said.get(code, 0) for code in codes) for codes in listed]
        cells += BLOCK + sum(said.values())
        bindings += (BLOCK + sum(said.values())) * bool(len(nodes))
    return sorted(lists, reverse=True), cells, bindings


def _category(word: Word) -> int:
    return BRANCH + (LENGTH + len(word.encode()) if isinstance(word, str) else DOUBLE)


def _varint(largest: int) -> int:
    """Bytes of the largest number in Avro's zigzag coding, seven bits a byte."""
    return (2 * largest).bit_length() // 7 + 1


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
