"""A leaf matrix read from stored arrays and checked against its model, because compiled code trusts its indices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream.errors import CorruptionError
from stream.forest.cells import Cells
from stream.forest.trees import Forest
from stream.forest.walk import margins
from stream.recourse.comparators.leaf_matrix import REFERENCE_BYTES, LeafMatrix, code_type
from stream.recourse.rules.features import FeatureRules

SAMPLE = 512  # rows, evenly over the pool, whose values are looked up in the cells
ROWS_AT_ONCE = 4_096  # whose margins are added up again: bounds the memory that this takes


def stored_matrix(
    arrays: Mapping[str, NDArray[Any]], forest: Forest, cells: Cells, rules: FeatureRules, *, sign: int, where: str
) -> LeafMatrix:
    """Put a leaf matrix together from the stored arrays of `LeafMatrix`, by name. `where` is what messages call its place.

    Every margin is added up again from the codes; that values lie in their cells is looked at in some rows.
    Raises: CorruptionError where an array is absent, or is not one of this model's pool.
    """
    if absent := [f.name for f in fields(LeafMatrix) if f.name not in arrays]:
        raise _refused(where, absent[0], "is absent")
    matrix = LeafMatrix(**{f.name: arrays[f.name] for f in fields(LeafMatrix)})
    for name, (shape, dtype) in _form(matrix, forest).items():
        array = arrays[name]
        if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
            raise _refused(where, name, "is of another shape or type than this model's")
    # One after the other: each takes for granted that those before it found nothing.
    for name, what in chain(_ranges(matrix, forest, cells), _order(matrix, forest, sign), _categories(matrix, rules)):
        raise _refused(where, name, what)
    return matrix


def _form(matrix: LeafMatrix, forest: Forest) -> dict[str, tuple[tuple[int, ...], Any]]:
    """The shape and the type of each array, where there are as many rows as margins and as many codes as counts."""
    rows, features, seen = matrix.margins.size, len(forest.features), matrix.category_codes.size
    return {
        "codes": ((rows, forest.trees), code_type(forest)),
        "cells": ((rows, features), np.int32),
        "rows": ((rows, features), np.float64),
        "margins": ((rows,), forest.dtype),
        "references": ((rows, REFERENCE_BYTES), np.uint8),
        "scales": ((features,), np.float64),
        "medians": ((features,), np.float64),
        "category_start": ((features + 1,), np.int64),
        "category_codes": ((seen,), np.float64),
        "category_counts": ((seen,), np.int64),
    }


def _ranges(matrix: LeafMatrix, forest: Forest, cells: Cells) -> Iterator[tuple[str, str]]:
    """Check what others are indexed by, and what is divided by or compared with."""
    if len(matrix) == 0:
        yield "margins", "holds nobody"
        return
    if (matrix.codes.max(axis=0) >= np.diff(forest.first_leaf)).any():
        yield "codes", "names a leaf that its tree does not have"
    counts = np.array([cells.count(j) for j in range(len(forest.features))])
    if matrix.cells.min(initial=0) < 0 or (matrix.cells.max(axis=0) >= counts).any():
        yield "cells", "names a cell that its feature does not have"
    some = np.unique(np.linspace(0, len(matrix) - 1, SAMPLE).astype(np.int64))
    known = ~np.isnan(matrix.rows[some])  # what counts as no record is NaN here, and not in a cell of its own
    if (cells.of(matrix.rows[some]) != matrix.cells[some])[known].any():
        yield "cells", "is not that of `rows`"
    if np.isinf(matrix.rows).any():
        yield "rows", "holds inf, which no pool may"
    if not (np.isfinite(matrix.scales) & (matrix.scales > 0)).all():
        yield "scales", "holds one that is no finite number above 0"
    if np.isnan(matrix.medians).any():
        yield "medians", "holds one that is no number"


def _order(matrix: LeafMatrix, forest: Forest, sign: int) -> Iterator[tuple[str, str]]:
    """Check that margins are those of the codes, bit for bit, and ascend by what the model says; codes are in range."""
    if not np.isfinite(matrix.margins).all() or (np.diff(sign * matrix.margins) < 0).any():
        yield "margins", "does not ascend by what the model says"
    for start in range(0, len(matrix), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        added = margins(forest, forest.first_leaf[:-1] + matrix.codes[part].astype(np.int32))
        if added.tobytes() != matrix.margins[part].tobytes():
            yield "margins", "is not what the leaves of `codes` add up to"
            return


def _categories(matrix: LeafMatrix, rules: FeatureRules) -> Iterator[tuple[str, str]]:
    """Check that the codes seen are those of category features alone, ascend, and are as many as the rows that have one."""
    start, codes, counts = matrix.category_start, matrix.category_codes, matrix.category_counts
    if start[0] != 0 or start[-1] != len(codes) or (np.diff(start) < 0).any():
        yield "category_start", "does not part the codes among the features"
        return
    if not np.isfinite(codes).all() or (counts < 1).any():
        yield "category_codes", "holds a code that is no finite number, or that nobody has"
        return
    known = np.count_nonzero(~np.isnan(matrix.rows), axis=0).tolist()
    for j, rule in enumerate(rules.rules):
        seen, often = matrix.categories_of(j)
        if (np.diff(seen) <= 0).any():
            yield "category_codes", "does not ascend within a feature"
        if sum(often.tolist()) != (known[j] if rule.type == "category" else 0):
            yield "category_counts", "does not add up to the rows that have a category"


def _refused(where: str, name: str, what: str) -> CorruptionError:
    return CorruptionError(f"{where}: the leaf matrix's array {name!r} {what}; build or fetch the bundle again")
