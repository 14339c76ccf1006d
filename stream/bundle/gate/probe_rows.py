"""The rows that the gate compares: the pool, and pool rows moved to values where a model may change.

Each placed row is a row of the pool with one feature on a threshold or one ulp beside it, on a code of a category, or on
a number that trips code up; a combination has several features on such values at once. A row of a node reaches one split
of one tree, with the split's feature on a value that decides there. Same inputs, same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from stream.bundle.gate.node_rows import ENDS_OF_ZERO, Int64s, NodeRows, Rows
from stream.bundle.gate.probe_nodes import NodeProbes
from stream.forest.trees import CATEGORY, CODES_MAX, Forest

ProbeKind: TypeAlias = Literal["pool", "threshold", "category", "tripping", "combination", "node"]
BATCH_ROWS: Final = 8_192
COMBINATIONS: Final = 2_048
TOGETHER_MAX: Final = 8  # features of one combination
SEED: Final = 20
TRIPPING: Final = (
    *(np.nan, 0.0, -0.0, 1e-36, -1e-36, *ENDS_OF_ZERO[1:], 5e-324, 0.1),
    *(2.0**24 + 1, -(2.0**24) - 1, 2.0**31, 2.0**53, 1e30, -1e30),
)  # 2**24 + 1 is the first whole number that float32 does not hold
STRANGE_CODES: Final = (-1.0, -0.5, 3.7, np.nan, 2.0**24, 2.0**24 + 1, 2.0**31)  # none that training lists
CODES_IN_A_ROW: Final = 256  # compared for a category whether or not anything lists them


@dataclass(frozen=True, slots=True, eq=False)
class ProbeBatch:
    """A batch of rows of one kind. Shapes: rows (n, features), pool_rows (n,): the pool row that each was made from."""

    kind: ProbeKind
    start: int  # index of the first among all of its kind
    rows: Rows
    pool_rows: Int64s
    placed: Callable[[int], tuple[int, ...]]  # row of the batch -> the features that were set


@dataclass(frozen=True, slots=True, eq=False)
class _Placements:
    """Values put into rows of one kind: value[i] into feature[i] of row[i], rows ascending. Shapes: (placements,)."""

    rows: int
    row: Int64s
    feature: Int64s
    value: Rows


class ProbeRows:
    """All rows for a forest. `nodes` counts the splits that they reach."""

    def __init__(
        self, forest: Forest, pool: Rows, declared: Sequence[int] = (), node_rows: NodeRows | None = None
    ) -> None:
        """Shapes: pool (n, features) float64; `declared` is how many categories each feature has, none where empty.

        `node_rows`: of this forest and pool, if already computed.
        """
        self._pool = pool
        features = range(len(forest.features))
        known = tuple(declared) or (0,) * len(forest.features)
        thresholds = [_with_neighbours(forest.thresholds(j)) for j in features]
        codes = [_codes(forest, j, known[j]) for j in features]
        sentinel = np.array([] if forest.missing is None else [forest.missing], forest.dtype)
        tripping = [np.concatenate([np.array(TRIPPING), _with_neighbours(sentinel)])] * len(features)
        self._of: dict[ProbeKind, _Placements] = {
            "pool": _Placements(len(pool), *_nothing()),
            "threshold": _one_each(thresholds),
            "category": _one_each(codes),
            "tripping": _one_each(tripping),
            "combination": _combined(
                [np.concatenate(lists) for lists in zip(thresholds, codes, tripping, strict=True)]
            ),
        }
        known_codes = [_known(forest, j, known[j], pool[:, j]) for j in features]
        self.nodes = NodeProbes(forest, node_rows or NodeRows(forest, pool), known_codes)

    @property
    def counts(self) -> dict[ProbeKind, int]:
        """How many rows there are of each kind."""
        return {kind: placements.rows for kind, placements in self._of.items()} | {"node": len(self.nodes)}

    def batches(self) -> Iterator[ProbeBatch]:
        """Every row, in batches of at most BATCH_ROWS of one kind, in the order of `counts`."""
        for kind, placements in self._of.items():
            for start in range(0, placements.rows, BATCH_ROWS):
                yield self._batch(kind, placements, start)
        for start in range(0, len(self.nodes), BATCH_ROWS):
            yield self._at_nodes(start)

    def _at_nodes(self, start: int) -> ProbeBatch:
        rows, pool_rows, feature = self.nodes.rows(start, start + BATCH_ROWS)

        def placed(of_row: int) -> tuple[int, ...]:
            row, before = rows[of_row], self._pool[pool_rows[of_row]]
            changed = (row != before) & ~(np.isnan(row) & np.isnan(before))
            return tuple(sorted({int(feature[of_row]), *np.flatnonzero(changed).tolist()}))

        return ProbeBatch("node", start, rows, pool_rows, placed)

    def _batch(self, kind: ProbeKind, placements: _Placements, start: int) -> ProbeBatch:
        stop = min(start + BATCH_ROWS, placements.rows)
        pool_rows = np.arange(start, stop) % len(self._pool)
        rows = np.take(self._pool, pool_rows, axis=0)
        first, last = np.searchsorted(placements.row, [start, stop])
        row, feature = placements.row[first:last] - start, placements.feature[first:last]
        rows[row, feature] = placements.value[first:last]

        def placed(of_row: int) -> tuple[int, ...]:
            return tuple(sorted(set(feature[row == of_row].tolist())))

        return ProbeBatch(kind, start, rows, pool_rows, placed)


def _nothing() -> tuple[Int64s, Int64s, Rows]:
    return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)


def _one_each(values: Sequence[Rows]) -> _Placements:
    lengths = [len(of_feature) for of_feature in values]
    rows = sum(lengths)
    return _Placements(rows, np.arange(rows), np.repeat(np.arange(len(values)), lengths), np.concatenate(values))


def _combined(values: Sequence[Rows]) -> _Placements:
    """Rows with two to TOGETHER_MAX features on values of theirs at once; none for a model of one feature."""
    together_max = min(TOGETHER_MAX, len(values))
    if together_max < 2:  # noqa: PLR2004 - two make a combination
        return _Placements(0, *_nothing())
    raw = np.random.PCG64(SEED).random_raw(
        (COMBINATIONS, 1 + 2 * TOGETHER_MAX)
    )  # the stream that NumPy promises to keep
    together = 2 + raw[:, 0] % np.uint64(together_max - 1)
    row, nth = np.nonzero(np.arange(TOGETHER_MAX) < together[:, None])
    feature = (raw[row, 1 + nth] % np.uint64(len(values))).astype(np.int64)
    lengths = np.array([len(of_feature) for of_feature in values], np.uint64)
    begin = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    which = (raw[row, 1 + TOGETHER_MAX + nth] % lengths[feature]).astype(np.int64)
    return _Placements(COMBINATIONS, row, feature, np.concatenate(values)[begin[feature] + which])


def _with_neighbours(on: npt.NDArray[np.floating]) -> Rows:
    """Numbers and their neighbours, in their own dtype and as doubles; finite ones."""
    as_double = on.astype(np.float64)
    with np.errstate(over="ignore"):  # past the largest float lies inf, which no decision holds
        around = [np.nextafter(a, a.dtype.type(end)) for a in (on, as_double) for end in (-np.inf, np.inf)]
    values: Rows = np.unique(np.concatenate([as_double, *(a.astype(np.float64) for a in around)]))
    return values[np.isfinite(values)]


def _codes(forest: Forest, feature: int, declared: int) -> Rows:
    """Every code that a split lists or that is declared, the one past the last, and what is no code at all."""
    if not forest.is_category[feature] and not declared:
        return np.empty(0)
    codes = _listed(forest, feature).union(range(declared))
    past = max(codes, default=-1) + 1
    return np.array([*sorted(codes | {past}), *STRANGE_CODES], np.float64)


def _known(forest: Forest, feature: int, declared: int, of_pool: Rows) -> Rows:
    """The codes that a split of the feature may list: listed by any, declared, a person's, or among the first few."""
    listed = _listed(forest, feature)
    if not listed:
        return np.empty(0)
    whole = np.trunc(of_pool[(of_pool >= 0) & (of_pool < CODES_MAX)])
    named = max(declared, len(forest.words[feature] or ()))
    past = max(named, int(whole.max(initial=-1)) + 1, max(listed) + 1)
    upto = max(named, min(past + 1, CODES_IN_A_ROW))
    return np.unique(np.concatenate([whole, np.arange(upto, dtype=np.float64), np.array(sorted(listed), np.float64)]))


def _listed(forest: Forest, feature: int) -> set[int]:
    nodes = np.flatnonzero((forest.split_feature == feature) & (forest.kind == CATEGORY)).tolist()
    return set[int]().union(*map(forest.listed, nodes))
