"""The reasons ledger by brute force: every row of the band against the query, one pair of leaves at a time."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tests.oracles.trees import Tree


def shortfall(trees: Sequence[Tree], query: Sequence[int], band: Sequence[Sequence[int]]) -> dict[int, Fraction]:
    """Feature -> sum over the band of what each tree gives more there than here, at the split where the ways part."""
    exact: dict[int, Fraction] = {}
    for row in band:
        for tree, own, other in zip(trees, query, row, strict=True):
            if own != other:
                feature = tree.decisive(own, other)[1]
                exact[feature] = exact.get(feature, Fraction(0)) + tree.value[other] - tree.value[own]
    return exact
