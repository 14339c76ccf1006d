"""Decisive splits -> one row per feature: the exact ledger between the query's leaves and others.

Each tree whose leaves differ goes to the feature of its decisive split, the node where the two paths part; the
contributions of one feature are summed (paper, "From coordinates to features"). All in integers, so the rows sum to
the gap exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise, repeat
from typing import NamedTuple, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from stream.events import Category, Ledger, LedgerFeature, Other, Splits, Value
from stream.forest.ledger import LeafUnits
from stream.forest.trees import CATEGORY, ZERO_IS_MISSING, Forest
from stream.forest.walk import decisive_nodes
from stream.recourse.rules.features import FeatureRules


class Amounts(NamedTuple):
    """Amounts at decisive nodes, in parallel: tree, node (amounts,), ascending together, and Python integers."""

    tree: NDArray[np.int64]
    node: NDArray[np.int32]
    amount: list[int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contrast:
    """Two leaf vectors compared. Parallel over the trees that differ: tree, slots, decisive node, contribution.

    `contribution` holds Python integers in units of the model's margin: other minus query.
    """

    tree: NDArray[np.int64]
    query_slot: NDArray[np.int32]
    other_slot: NDArray[np.int32]
    node: NDArray[np.int32]
    contribution: list[int]

    def decisive(self) -> Amounts:
        """Give tree, decisive node and contribution per tree that differs."""
        return Amounts(self.tree, self.node, self.contribution)

    @property
    def gap(self) -> int:
        """The exact margin of the other minus that of the query."""
        return sum(self.contribution)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureShare:
    """What one feature carries: the exact sum, in how many trees, and the node that adds most to that sum's side."""

    contribution: int
    trees: int
    binding_node: int


def contrast(forest: Forest, units: LeafUnits, query: NDArray[np.int32], other: NDArray[np.int32]) -> Contrast:
    """Compare two leaf vectors. Shapes: query, other (trees,) global leaf slots."""
    tree = np.flatnonzero(query != other)
    a, b = query[tree], other[tree]
    return Contrast(
        tree=tree,
        query_slot=a,
        other_slot=b,
        node=decisive_nodes(forest, query, other)[tree],
        # As Python integers, for the difference of two int64 leaves may need a 65th bit.
        contribution=[y - x for x, y in zip(units.leaf[a].tolist(), units.leaf[b].tolist(), strict=True)],
    )


def by_feature(forest: Forest, found: Amounts) -> dict[int, FeatureShare]:
    """Sum amounts by the feature of their node; keys ascend in the model's feature order."""
    feature = forest.split_feature[found.node]
    order = np.argsort(feature, kind="stable")  # so that the nodes of a feature still ascend
    tree, node = found.tree[order].tolist(), found.node[order].tolist()
    amount = [found.amount[i] for i in order.tolist()]
    features, starts = np.unique(feature[order], return_index=True)
    parts = pairwise([*starts.tolist(), len(node)])
    return {j: _share(tree[a:b], node[a:b], amount[a:b]) for j, (a, b) in zip(features.tolist(), parts, strict=True)}


def _share(tree: list[int], node: list[int], amount: list[int]) -> FeatureShare:
    total = sum(amount)
    most = max(amount) if total >= 0 else min(amount)
    return FeatureShare(contribution=total, trees=len(set(tree)), binding_node=node[amount.index(most)])


class DecisiveSplit(NamedTuple):
    """What a decisive split asks, as records say it: a number has a threshold, a category what the split lists."""

    feature: int
    threshold: float | None
    default_left: bool
    categories: tuple[Category, ...] | None
    zero_is_missing: bool


def split_of(forest: Forest, rules: FeatureRules, node: int) -> DecisiveSplit:
    """Say a split in the words of the rules; codes without a word, which no decision can hold, are left out."""
    j, kind, default_left = int(forest.split_feature[node]), forest.kind[node], bool(forest.default_left[node])
    if kind != CATEGORY:
        return DecisiveSplit(j, float(forest.threshold[node]), default_left, None, bool(kind == ZERO_IS_MISSING))
    rule = rules.rules[j]
    codes = [code for code in map(float, forest.listed(node)) if rule.has_word(code)]
    listed = codes if rule.categories is None else [rule.categories[int(code)] for code in codes]
    return DecisiveSplit(j, None, default_left, tuple(listed), zero_is_missing=False)


class Binding(TypedDict):
    """What a feature's row says of the split that adds most to it."""

    binding_threshold: float | None
    binding_categories: NotRequired[list[Category] | None]


def binding_of(forest: Forest, rules: FeatureRules, node: int) -> Binding:
    """Say what binds: the threshold, or what a split on a category lists."""
    split = split_of(forest, rules, node)
    if split.categories is None:
        return {"binding_threshold": split.threshold}
    return {"binding_threshold": None, "binding_categories": list(split.categories)}


@dataclass(slots=True)
class SplitRows:
    """The body's table of decisive splits; ledgers refer to its rows, so that each split is written once."""

    forest: Forest
    rules: FeatureRules
    rows: dict[DecisiveSplit, int] = field(default_factory=dict)
    on_category: dict[int, DecisiveSplit] = field(default_factory=dict)  # per node; these take long to say

    def rows_of(self, nodes: NDArray[np.int32]) -> list[int]:
        """Give the row of each node's split, adding what is new. Shape: nodes (n,) -> n rows."""
        forest, rows = self.forest, self.rows
        kind = forest.kind[nodes]
        splits = list(
            map(
                DecisiveSplit,
                forest.split_feature[nodes].tolist(),
                forest.threshold[nodes].tolist(),
                forest.default_left[nodes].tolist(),
                repeat(None),
                (kind == ZERO_IS_MISSING).tolist(),
            )
        )
        for i in np.flatnonzero(kind == CATEGORY).tolist():
            splits[i] = self._on_category(int(nodes[i]))
        return [rows.setdefault(split, len(rows)) for split in splits]

    def _on_category(self, node: int) -> DecisiveSplit:
        known = self.on_category.get(node)
        if known is None:
            known = self.on_category[node] = split_of(self.forest, self.rules, node)
        return known

    def table(self) -> Splits:
        """Write the table as parallel lists; those that would say nothing of any row are absent."""
        names, of_number = self.forest.features, self.forest.operator
        of_category = "in" if of_number == "<=" else "not in"  # the test that sends a category to the left
        table: Splits = {
            "feature": [names[split.feature] for split in self.rows],
            "operator": [of_number if split.categories is None else of_category for split in self.rows],
            "threshold": [split.threshold for split in self.rows],
            "default_left": [split.default_left for split in self.rows],
        }
        if any(split.categories is not None for split in self.rows):
            table["categories"] = [None if s.categories is None else list(s.categories) for s in self.rows]
        if any(split.zero_is_missing for split in self.rows):
            table["zero_is_missing"] = [split.zero_is_missing for split in self.rows]
        return table


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSides:
    """What a ledger says of one feature besides the arithmetic."""

    query_value: Value
    other: Other
    why_not: str | None
    solo_shift: int


def ledger(
    forest: Forest,
    rules: FeatureRules,
    found: Contrast,
    shares: dict[int, FeatureShare],
    sides: dict[int, RowSides],
    splits: SplitRows | None,
) -> Ledger:
    """Write a contrast as the published ledger; without `splits` the per-tree detail is left out."""
    rows: list[LedgerFeature] = [
        {
            "feature": forest.features[j],
            "query_value": sides[j].query_value,
            "other": sides[j].other,
            **binding_of(forest, rules, share.binding_node),
            "trees": share.trees,
            "contribution": str(share.contribution),
            "feasible": sides[j].why_not is None,
            "why_not": sides[j].why_not,
            "solo_shift": str(sides[j].solo_shift),
        }
        for j, share in shares.items()
    ]
    return {
        "margin_gap": str(found.gap),
        "features": rows,
        "trees": None
        if splits is None
        else {
            "tree": found.tree.tolist(),
            "query_leaf": forest.leaf_id[found.query_slot].tolist(),
            "other_leaf": forest.leaf_id[found.other_slot].tolist(),
            "contribution": list(map(str, found.contribution)),
            "node": forest.node_id[found.node].tolist(),
            "split": splits.rows_of(found.node),
        },
    }
