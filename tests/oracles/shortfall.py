"""The reasons ledger by brute force: every row of the band against the query, one pair of leaves at a time."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tests.oracles.trees import Tree


def shortfall(
    trees: Sequence[Tree], query: Sequence[int], band: Sequence[Sequence[int]]
) -> dict[tuple[int, int, int], Fraction]:
    """(tree, split where the ways part, its feature) -> sum over the band of what the tree gives more there than here."""
    exact: dict[tuple[int, int, int], Fraction] = {}
    for row in band:
        for t, (tree, own, other) in enumerate(zip(trees, query, row, strict=True)):
            if own != other:
                node, feature, *_ = tree.decisive(own, other)
                gained = exact.get((t, node, feature), Fraction(0)) + tree.value[other] - tree.value[own]
                exact[t, node, feature] = gained
    return exact
