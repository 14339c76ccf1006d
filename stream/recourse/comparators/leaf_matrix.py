"""The leaf matrix: the whole training pool as leaf codes and cells, sorted by what the model says of it.

Sorted by score (the margin, turned so that more is better), the eligible comparators of any threshold are a suffix
and their terciles are slices of it (paper, Tiers), and the cutoff band is the suffix's first rows.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream.forest.cells import cells_of
from stream.forest.trees import Forest
from stream.forest.walk import leaf_slots, margins
from stream.recourse.rules.features import FeatureRules
from stream.recourse.rules.scale import Scale, scale_of

REFERENCE_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeafMatrix:
    """The pool, ascending by score; equal scores stay in pool order. Arrays may be read-only memory maps.

    codes (n, trees): the leaf's index within its own tree, in the narrowest unsigned integer that holds it; cells
    (n, features) int32; rows (n, features) float64, what says that there is no value as NaN: only the ranking's distance reads them;
    margins (n,) in the forest's dtype, native; references (n, 16) uint8: opaque keyed hashes; scales, medians
    (features,) float64: of the whole pool; category_codes, category_counts: the codes seen of each category feature,
    those of feature j at category_start[j]:category_start[j + 1], ascending.
    """

    codes: NDArray[Any]
    cells: NDArray[np.int32]
    rows: NDArray[np.float64]
    margins: NDArray[np.floating]
    references: NDArray[np.uint8]
    scales: NDArray[np.float64]
    medians: NDArray[np.float64]
    category_start: NDArray[np.int64]
    category_codes: NDArray[np.float64]
    category_counts: NDArray[np.int64]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Give every array by name, for whoever stores them."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __len__(self) -> int:
        return len(self.margins)

    def first_past(self, cutoff: float, sign: int) -> int:
        """Find where the suffix begins whose score is at or past the cutoff (a native margin, float64)."""
        return int(np.searchsorted(sign * self.margins.astype(np.float64), sign * cutoff, "left"))

    def categories_of(self, j: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Give the codes seen of feature j, ascending, and how often."""
        span = slice(int(self.category_start[j]), int(self.category_start[j + 1]))
        return self.category_codes[span], self.category_counts[span]


def code_type(forest: Forest) -> np.dtype[Any]:
    """The narrowest unsigned integer that holds every leaf's index within its own tree."""
    return np.min_scalar_type(int(np.diff(forest.first_leaf).max()) - 1)


def build_leaf_matrix(
    forest: Forest,
    rows: NDArray[np.float64],
    rules: FeatureRules,
    approve: str,
    reference_key: bytes,
    *,
    scale: Scale = "guarded",
) -> LeafMatrix:
    """Walk the pool and sort it.

    Shapes: rows (n, features) float64, in pool order. `reference_key` turns a pool index into an opaque reference,
    `scale` says how distances are measured (`scale_of`).
    """
    slots = leaf_slots(forest, rows)
    native = margins(forest, slots)
    order = np.argsort(native if approve == "above" else -native, kind="stable")
    recorded = without_no_record(rows, rules)
    seen = [
        np.unique(column[~np.isnan(column)], return_counts=True)
        if rule.type == "category"
        else (np.empty(0), np.empty(0, np.int64))
        for rule, column in zip(rules.rules, recorded.T, strict=True)
    ]
    return LeafMatrix(
        codes=np.ascontiguousarray((slots - forest.first_leaf[:-1])[order].astype(code_type(forest))),
        cells=np.ascontiguousarray(cells_of(forest).of(rows)[order]),
        rows=np.ascontiguousarray(recorded[order]),
        margins=native[order],
        references=_references(order, reference_key),
        scales=np.array([scale_of(column, scale) for column in recorded.T]),
        medians=np.array([np.median(known) if len(known := c[~np.isnan(c)]) else 0.0 for c in recorded.T]),
        category_start=np.cumsum([0, *(len(codes) for codes, _ in seen)]),
        category_codes=np.concatenate([codes for codes, _ in seen]),
        category_counts=np.concatenate([counts for _, counts in seen]).astype(np.int64),
    )


def without_no_record(rows: NDArray[np.float64], rules: FeatureRules) -> NDArray[np.float64]:
    """Copy rows with every `no_record` value and the model's own sentinel as NaN: neither has a distance to a number."""
    rows = rows.copy()
    for j, rule in enumerate(rules.rules):
        for value in rule.no_record:  # few: np.isin takes longer for a single row than all else
            rows[rows[:, j] == value, j] = np.nan
        if rule.missing is not None:
            with np.errstate(over="ignore"):
                rows[rows[:, j].astype(np.float32) == rule.missing, j] = np.nan
    return rows


def _references(order: NDArray[np.int64], key: bytes) -> NDArray[np.uint8]:
    hashes = [hmac.digest(key, b"comparator %d" % i, hashlib.sha256)[:REFERENCE_BYTES] for i in order.tolist()]
    return np.frombuffer(b"".join(hashes), np.uint8).reshape(len(order), REFERENCE_BYTES)
