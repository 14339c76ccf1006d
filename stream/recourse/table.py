"""Decisive splits -> one row per feature: the exact ledger between the query's leaves and others.

Each tree whose leaves differ goes to the feature of its decisive split, the node where the two paths part; the
contributions of one feature are summed (paper, "From coordinates to features"). All in integers, so the rows sum to
the gap exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stream.events import Ledger, LedgerFeature, Other, Splits, Value
from stream.forest.ledger import LeafUnits
from stream.forest.trees import Forest
from stream.forest.walk import decisive_nodes


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

    def decisive(self) -> Iterator[tuple[int, int, int]]:
        """Give (tree, decisive node, contribution) per tree that differs."""
        return zip(self.tree.tolist(), self.node.tolist(), self.contribution, strict=True)

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


def by_feature(forest: Forest, found: Iterable[tuple[int, int, int]]) -> dict[int, FeatureShare]:
    """Sum (tree, decisive node, amount) by the feature of the node; keys ascend in the model's feature order."""
    amounts: dict[int, dict[int, int]] = {}
    trees: dict[int, set[int]] = {}
    pairs = list(found)
    features = forest.split_feature[np.array([node for _, node, _ in pairs], np.int64)].tolist()
    for j, (tree, node, amount) in zip(features, pairs, strict=True):
        amounts.setdefault(j, {})[node] = amount  # a node belongs to one tree, so no two amounts meet on it
        trees.setdefault(j, set()).add(tree)
    return {j: _share(amounts[j], len(trees[j])) for j in sorted(amounts)}


def _share(amount_of: dict[int, int], trees: int) -> FeatureShare:
    total = sum(amount_of.values())
    toward = 1 if total >= 0 else -1
    binding = min(amount_of, key=lambda node: (-toward * amount_of[node], node))
    return FeatureShare(contribution=total, trees=trees, binding_node=binding)


@dataclass(slots=True)
class SplitRows:
    """The body's table of decisive splits; ledgers refer to its rows, so that each split is written once."""

    forest: Forest
    rows: dict[tuple[int, float, bool], int] = field(default_factory=dict)
    of_node: dict[int, int] = field(default_factory=dict)

    def row(self, node: int) -> int:
        """Give the row of a node's split, adding it when it is new."""
        known = self.of_node.get(node)
        if known is None:
            forest = self.forest
            split = (int(forest.split_feature[node]), float(forest.threshold[node]), bool(forest.default_left[node]))
            known = self.of_node[node] = self.rows.setdefault(split, len(self.rows))
        return known

    def table(self) -> Splits:
        """Write the table as parallel lists."""
        names = self.forest.features
        return {
            "feature": [names[j] for j, _, _ in self.rows],
            "operator": [self.forest.operator] * len(self.rows),
            "threshold": [threshold for _, threshold, _ in self.rows],
            "default_left": [left for _, _, left in self.rows],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSides:
    """What a ledger says of one feature besides the arithmetic."""

    query_value: Value
    other: Other
    why_not: str | None
    solo_shift: int


def ledger(
    forest: Forest,
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
            "binding_threshold": float(forest.threshold[share.binding_node]),
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
            "contribution": [str(c) for c in found.contribution],
            "node": forest.node_id[found.node].tolist(),
            "split": [splits.row(node) for node in found.node.tolist()],
        },
    }
