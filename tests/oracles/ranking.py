"""The paper's ranking in plain Python, from METHOD's text: lambda * w / (1 + beta * d), one comparator at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

MUTABLE, INCREASE_ONLY, DECREASE_ONLY, IMMUTABLE = "mutable", "increase_only", "decrease_only", "immutable"


def score(  # noqa: PLR0913, PLR0917  (the columns of one table, in order)
    phi_query: Sequence[float],
    phi_comparator: Sequence[float],
    same_leaf: Sequence[bool],
    query: Sequence[float],
    comparator: Sequence[float],
    scales: Sequence[float],
    nominal: Sequence[bool],
    labels: Sequence[str],
    beta: float,
) -> float:
    """Leverage times the share of the way that the labels permit, discounted by the mean distance."""
    trees = len(phi_query)
    gained = sum(abs(b - a) for a, b, same in zip(phi_query, phi_comparator, same_leaf, strict=True) if not same)
    total = sum(abs(a) for a in phi_query)
    leverage = (1 - same_leaf.count(False) / trees) * gained / total if total else 0.0
    moves = [_move(*pair) for pair in zip(query, comparator, scales, nominal, strict=True)]
    way = sum(moves)
    open_way = sum(
        m for m, a, b, label in zip(moves, query, comparator, labels, strict=True) if _permitted(a, b, label)
    )
    share = open_way / way if way > 0 else 0.0
    return leverage * share / (1 + beta * way / len(query))


def _move(a: float, b: float, scale: float, nominal: bool) -> float:  # noqa: FBT001  (a column of a table)
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    return 1.0 if nominal or math.isnan(a) or math.isnan(b) else abs(b - a) / scale


def _permitted(a: float, b: float, label: str) -> bool:
    if math.isnan(b) or label == IMMUTABLE:
        return False
    return label == MUTABLE or (b > a if label == INCREASE_ONLY else b < a)
