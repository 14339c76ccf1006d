"""The paper's ranking of every eligible comparator: lambda * w / (1 + beta * d).

Source: Luzio 2026, eq. 3 (leverage) and eq. 4 (feasible share), section COACH.

Whoever wants the best alone need not sum everyone's leaves: a comparator whose leaves could not make up for its distance
is passed over. No two weights lie farther apart than their magnitudes' sum, so that how many leaves differ, and what the
comparator's weights amount to, bound its leverage. Each operation of the score rounds monotonically and no operand is negative:
the same operations on a larger leverage never give a smaller score. Only a sum in another order needs a margin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from stream.forest.trees import Forest
from stream.recourse.comparators.leaf_matrix import LeafMatrix
from stream.recourse.rules.feature_rule import Mutability
from stream.recourse.rules.features import FeatureRules

FARTHEST = 1e300  # of one move, in scales: sums of such stay finite, whatever an applicant's numbers are
BLOCK = 256  # rows whose distances are summed side by side
TOGETHER = 8  # comparators whose leaves are summed side by side: each sum waits for itself alone, eight wait at once

_INCREASE_ONLY = int(Mutability.INCREASE_ONLY)
_DECREASE_ONLY = int(Mutability.DECREASE_ONLY)
_IMMUTABLE = int(Mutability.IMMUTABLE)


class _Leaves(NamedTuple):
    """What the query's leaves are to all others. `most`: no comparator's leaves lie farther in all, rounding included."""

    codes: NDArray[Any]
    first_leaf: NDArray[np.int64]
    distance_to: NDArray[np.float64]
    total: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranking:
    """How the comparators matrix[first:] rank for one query; nothing is computed until it is asked for."""

    codes: NDArray[Any]
    rows: NDArray[np.float64]
    magnitudes: NDArray[np.float64] | None
    leaves: _Leaves
    query_row: NDArray[np.float64]
    scales: NDArray[np.float64]
    nominal: NDArray[np.bool_]
    mutability: NDArray[np.int8]
    beta: float

    def __len__(self) -> int:
        return len(self.codes)

    def scores(self) -> NDArray[np.float64]:
        """Score everyone; higher is better. Shape: (n - first,)."""
        return self._scores(0, len(self))

    def best(self, low: int, high: int) -> int:
        """Find the best of scores[low:high], of equal ones the first, counted from `first` as the scores are.

        Raises: ValueError if there is nobody.
        """
        if not 0 <= low < high <= len(self):
            message = f"nobody is in [{low}, {high}) of {len(self)}"
            raise ValueError(message)
        if self.magnitudes is None or not self._bounded:
            return low + int(self._scores(low, high).argmax())
        share, divisor = self._near(low, high)
        leaves, trees = self.leaves, self.codes.shape[1]
        own = leaves.total if math.isfinite(leaves.total) else 0.0
        moved_most = (self.magnitudes[low:high] + own) * _margin_of(trees)
        return low + int(
            _best(
                self.codes[low:high], leaves.codes, leaves.first_leaf, leaves.distance_to, leaves.total, moved_most,
                share, divisor,
            )
        )  # fmt: skip

    @property
    def _bounded(self) -> bool:
        """Whether every leverage is finite and no score is negative, as the short cuts presume."""
        return math.isfinite(self.leaves.most / self.leaves.total) and 0 <= self.beta < math.inf

    def _near(self, low: int, high: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        share, divisor = np.empty(high - low), np.empty(high - low)
        _share(
            self.rows[low:high], self.query_row, self.scales, self.nominal, self.mutability, self.beta, share, divisor
        )
        return share, divisor

    def _scores(self, low: int, high: int) -> NDArray[np.float64]:
        share, divisor = self._near(low, high)
        out = np.zeros(high - low)
        asked = np.flatnonzero(share) if self._bounded else np.arange(high - low)  # without a share the score is 0
        codes, first_leaf, distance_to, total, _ = self.leaves
        _score(self.codes[low:high], codes, first_leaf, distance_to, total, share, divisor, asked, out)
        return out


def magnitudes_of(forest: Forest, matrix: LeafMatrix) -> NDArray[np.float64]:
    """Sum the magnitudes of each row's weights, once a model. Shape: (n,) float64."""
    found = np.zeros(len(matrix))
    magnitude = np.abs(forest.weight.astype(np.float64))
    for t, start in enumerate(forest.first_leaf[:-1].tolist()):
        found += magnitude[start:][matrix.codes[:, t]]
    return found


def _margin_of(trees: int) -> float:
    """What covers the rounding of two sums over all trees, in two orders, twice over."""
    return 1.0 + 4.0 * trees * float(np.finfo(np.float64).eps)


def ranking(  # noqa: PLR0913  (all of it is the query)
    forest: Forest,
    matrix: LeafMatrix,
    rules: FeatureRules,
    *,
    query_slots: NDArray[np.int32],
    query_row: NDArray[np.float64],
    mutability: NDArray[np.int8],
    first: int,
    beta: float,
    magnitudes: NDArray[np.float64] | None = None,
) -> Ranking:
    """Rank the comparators matrix[first:] for one query.

    Shapes: query_slots (trees,) global leaf slots; query_row (features,), `no_record` values as NaN;
    mutability (features,). The distance d is the mean over features of the move in scales;
    another category, or a move from or to missing, counts as one scale. `magnitudes` are `magnitudes_of` the whole
    matrix: without them, whoever is best is found by scoring everyone.
    """
    weight = forest.weight.astype(np.float64)
    tree_of_slot = np.repeat(np.arange(forest.trees), np.diff(forest.first_leaf))
    distance_to = np.abs(weight - weight[query_slots][tree_of_slot])
    total = float(np.cumsum(np.abs(weight[query_slots]))[-1])
    farthest = np.maximum.reduceat(distance_to, forest.first_leaf[:-1])
    return Ranking(
        codes=matrix.codes[first:],
        rows=matrix.rows[first:],
        magnitudes=None if magnitudes is None else magnitudes[first:],
        leaves=_Leaves(
            codes=(query_slots - forest.first_leaf[:-1]).astype(matrix.codes.dtype),
            first_leaf=forest.first_leaf[:-1].astype(np.int64),
            distance_to=distance_to,
            total=total if total > 0 else math.inf,
            most=float(np.cumsum(farthest)[-1]) * _margin_of(forest.trees),
        ),
        query_row=query_row,
        scales=matrix.scales,
        nominal=np.array([rule.type == "category" for rule in rules.rules], np.bool_),
        mutability=mutability,
        beta=beta,
    )


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _share(
    rows: NDArray[np.float64],
    query_row: NDArray[np.float64],
    scales: NDArray[np.float64],
    nominal: NDArray[np.bool_],
    mutability: NDArray[np.int8],
    beta: float,
    share: NDArray[np.float64],
    divisor: NDArray[np.float64],
) -> None:
    """Of each row, fill in the feasible share w, and 1 + beta * d.

    Many rows at once, feature by feature and without a branch on a row's value: what does not count adds 0.
    """
    features = rows.shape[1]
    way, permitted = np.empty(BLOCK), np.empty(BLOCK)
    for start in range(0, rows.shape[0], BLOCK):
        size = min(BLOCK, rows.shape[0] - start)
        way[:] = 0.0
        permitted[:] = 0.0
        for j in range(features):
            a, scale, unordered, label = query_row[j], scales[j], nominal[j], mutability[j]
            unknown = math.isnan(a)
            whole = unordered or unknown
            free = label not in (_IMMUTABLE, _INCREASE_ONLY, _DECREASE_ONLY)
            up, down = label == _INCREASE_ONLY, label == _DECREASE_ONLY
            for k in range(size):
                b = rows[start + k, j]
                known = b == b  # noqa: PLR0124  (not NaN)
                scaled = abs(b - a) / scale
                scaled = min(scaled, FARTHEST)
                step = 1.0 if whole | (not known) else scaled
                step = step if (known if unknown else b != a) else 0.0
                way[k] += step
                permitted[k] += step if known & (free | (up & (b > a)) | (down & (b < a))) else 0.0
        for k in range(size):
            share[start + k] = permitted[k] / way[k] if way[k] > 0.0 else 0.0
            divisor[start + k] = 1.0 + beta * way[k] / features


@numba.njit(cache=True, nogil=True, inline="always")
def _scored(differing: int, trees: int, moved: float, total: float, share: float, divisor: float) -> float:
    leverage = (1.0 - differing / trees) * moved / total
    return leverage * share / divisor


@numba.njit(cache=True, nogil=True)
def _score(  # noqa: PLR0913, PLR0917  (a kernel: arrays, no objects)
    codes: NDArray[Any],
    query_codes: NDArray[Any],
    first_leaf: NDArray[np.int64],
    distance_to: NDArray[np.float64],
    total: float,
    share: NDArray[np.float64],
    divisor: NDArray[np.float64],
    asked: NDArray[np.int64],
    out: NDArray[np.float64],
) -> None:
    """Score those asked for. Each one's leaves are summed in the trees' order."""
    trees = codes.shape[1]
    last = asked.shape[0] - 1
    for start in range(0, asked.shape[0], TOGETHER):
        # Past the end the last one is summed again: eight names, for eight sums to be in registers.
        i0, i1 = asked[start], asked[min(start + 1, last)]
        i2, i3 = asked[min(start + 2, last)], asked[min(start + 3, last)]
        i4, i5 = asked[min(start + 4, last)], asked[min(start + 5, last)]
        i6, i7 = asked[min(start + 6, last)], asked[min(start + 7, last)]
        m0, m1, m2, m3, m4, m5, m6, m7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for t in range(trees):
            leaf = first_leaf[t]
            m0 += distance_to[leaf + np.int64(codes[i0, t])]
            m1 += distance_to[leaf + np.int64(codes[i1, t])]
            m2 += distance_to[leaf + np.int64(codes[i2, t])]
            m3 += distance_to[leaf + np.int64(codes[i3, t])]
            m4 += distance_to[leaf + np.int64(codes[i4, t])]
            m5 += distance_to[leaf + np.int64(codes[i5, t])]
            m6 += distance_to[leaf + np.int64(codes[i6, t])]
            m7 += distance_to[leaf + np.int64(codes[i7, t])]
        moved = (m0, m1, m2, m3, m4, m5, m6, m7)
        for k in range(min(TOGETHER, asked.shape[0] - start)):
            i = asked[start + k]
            out[i] = _scored(_differing(codes, i, query_codes), trees, moved[k], total, share[i], divisor[i])


@numba.njit(cache=True, nogil=True, inline="always")
def _differing(codes: NDArray[Any], i: int, query_codes: NDArray[Any]) -> int:
    differing = np.int32(0)
    for t in range(codes.shape[1]):
        differing = np.int32(differing + np.int32(codes[i, t] != query_codes[t]))
    return int(differing)


@numba.njit(cache=True, nogil=True)
def _best(
    codes: NDArray[Any],
    query_codes: NDArray[Any],
    first_leaf: NDArray[np.int64],
    distance_to: NDArray[np.float64],
    total: float,
    moved_most: NDArray[np.float64],
    share: NDArray[np.float64],
    divisor: NDArray[np.float64],
) -> int:
    """Find whose score is the highest, of equal ones the first, without scoring everyone."""
    trees = codes.shape[1]
    bounds, differing = np.empty(codes.shape[0]), np.empty(codes.shape[0], np.int64)
    likely = 0
    for i in range(codes.shape[0]):
        differing[i] = _differing(codes, i, query_codes)
        bounds[i] = _scored(differing[i], trees, moved_most[i], total, share[i], divisor[i])
        if bounds[i] > bounds[likely]:
            likely = i
    best, least = 0, 0.0  # nobody's score is less than 0: were all of them 0, the first would be the best
    for k in range(-1, codes.shape[0]):
        i = likely if k < 0 else k  # who is likely comes first, so that the others have something to beat
        if bounds[i] < least or (bounds[i] == least and i >= best):
            continue
        moved = 0.0
        for t in range(trees):
            moved += distance_to[first_leaf[t] + np.int64(codes[i, t])]
        score = _scored(differing[i], trees, moved, total, share[i], divisor[i])
        if score > least or (score == least and i < best):
            best, least = i, score
    return best
