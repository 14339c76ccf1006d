"""The paper's ranking of every eligible comparator: lambda * w / (1 + beta * d).

Source: Luzio 2026, eq. 3 (leverage) and eq. 4 (feasible share), section COACH.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from stream.forest.trees import Forest
from stream.recourse.features import FeatureRules, Mutability
from stream.recourse.leaf_matrix import LeafMatrix

FARTHEST = 1e300  # of one move, in scales: sums of such stay finite, whatever an applicant's numbers are

_INCREASE_ONLY = int(Mutability.INCREASE_ONLY)
_DECREASE_ONLY = int(Mutability.DECREASE_ONLY)
_IMMUTABLE = int(Mutability.IMMUTABLE)


def scores(
    forest: Forest,
    matrix: LeafMatrix,
    rules: FeatureRules,
    *,
    query_slots: NDArray[np.int32],
    query_row: NDArray[np.float64],
    mutability: NDArray[np.int8],
    first: int,
    beta: float,
) -> NDArray[np.float64]:
    """Score the comparators matrix[first:] for one query; higher is better.

    Shapes: query_slots (trees,) global leaf slots; query_row (features,), `no_record` values as NaN;
    mutability (features,) -> (n - first,) float64. The distance d is the mean over features of the move in scales;
    another category, or a move from or to missing, counts as one scale.
    """
    weight = forest.weight.astype(np.float64)
    tree_of_slot = np.repeat(np.arange(forest.trees), np.diff(forest.first_leaf))
    distance_to = np.abs(weight - weight[query_slots][tree_of_slot])
    total = float(np.cumsum(np.abs(weight[query_slots]))[-1])
    nominal = np.array([rule.type == "category" for rule in rules.rules])
    out = np.empty(len(matrix) - first)
    _score(
        matrix.codes[first:], matrix.rows[first:], query_slots - forest.first_leaf[:-1], forest.first_leaf[:-1],
        distance_to, total if total > 0 else math.inf, query_row, matrix.scales, nominal, mutability, beta, out,
    )  # fmt: skip
    return out


@numba.njit(cache=True, nogil=True)
def _score(  # noqa: PLR0913, PLR0917  (a kernel: arrays, no objects)
    codes: NDArray[Any],
    rows: NDArray[np.float64],
    query_codes: NDArray[np.int32],
    first_leaf: NDArray[np.int32],
    distance_to: NDArray[np.float64],
    total: float,
    query_row: NDArray[np.float64],
    scales: NDArray[np.float64],
    nominal: NDArray[np.bool_],
    mutability: NDArray[np.int8],
    beta: float,
    out: NDArray[np.float64],
) -> None:
    trees, features = codes.shape[1], rows.shape[1]
    for i in range(codes.shape[0]):
        differing, moved = 0, 0.0
        for t in range(trees):
            code = codes[i, t]
            differing += code != query_codes[t]
            moved += distance_to[first_leaf[t] + code]
        way, permitted = 0.0, 0.0
        for j in range(features):
            a, b = query_row[j], rows[i, j]
            known = not (math.isnan(a) or math.isnan(b))
            if (known and a == b) or (math.isnan(a) and math.isnan(b)):
                continue
            step = 1.0 if nominal[j] or not known else min(abs(b - a) / scales[j], FARTHEST)
            way += step
            label = mutability[j]
            if math.isnan(b) or label == _IMMUTABLE:
                continue
            if (label == _INCREASE_ONLY and not b > a) or (label == _DECREASE_ONLY and not b < a):
                continue
            permitted += step
        leverage = (1.0 - differing / trees) * moved / total
        share = permitted / way if way > 0.0 else 0.0
        out[i] = leverage * share / (1.0 + beta * way / features)
