"""Rows that the gate compares as a table: in words of the training categories, and with columns of integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from stream.bundle.gate.node_rows import Places, Rows
from stream.forest.trees import INSIDE, Forest

WORDED_POOL_ROWS: Final = 4_096  # of the pool, compared in words too
INTEGER_POOL_ROWS: Final = 4_096
INTEGERS: Final = tuple(
    sign * number for number in (2**24 - 1, 2**24 + 1, 2**24 + 3, 2**31, 2**31 + 129, 2**53 - 1) for sign in (1, -1)
)  # what float32 does not hold, and what int32 does not
WHOLE_MAX: Final = 2.0**53  # in size, up to which float64 holds every whole number


@dataclass(frozen=True, slots=True, eq=False)
class ProbeTable:
    """Rows compared as a table. Shapes: rows (n, features), pool_rows and feature (n,).

    feature: the one that was set to a value, INSIDE for the pool's own rows. integers: the features whose columns are
    int64; none in a table of words.
    """

    rows: Rows
    pool_rows: Places
    feature: Places
    integers: tuple[int, ...] = ()


def in_words(forest: Forest, pool: Rows) -> ProbeTable:
    """Some rows of the pool, and rows that hold each training category, or none, of each feature that has words."""
    if not any(forest.words) or not _expressible(forest):
        return _none(pool)
    values = [
        np.empty(0) if words is None else np.append(np.arange(len(words), dtype=np.float64), np.nan)
        for words in forest.words
    ]
    worded = _placed(pool, values, WORDED_POOL_ROWS)
    _blank_codes_without_word(forest, worded.rows)
    return worded


def in_integers(forest: Forest, pool: Rows) -> ProbeTable:
    """Some rows of the pool, and rows with large numbers, for the features that are whole in the pool.

    What is missing in them is the sentinel where there is one and it is whole, else zero: int64 holds no NaN.
    """
    in_range = (np.abs(pool) <= WHOLE_MAX) | np.isnan(pool)
    whole = (in_range & ((np.trunc(pool) == pool) | np.isnan(pool))).all(axis=0) & ~np.isnan(pool).all(axis=0)
    integers = [j for j in np.flatnonzero(whole).tolist() if forest.words[j] is None]
    if not integers or not _expressible(forest):
        return _none(pool)
    large = np.array(INTEGERS, np.float64)
    values = [large if j in integers and not category else np.empty(0) for j, category in enumerate(forest.is_category)]
    table = _placed(pool, values, INTEGER_POOL_ROWS)
    sentinel = forest.missing if forest.missing is not None and forest.missing.is_integer() else 0.0
    for j in integers:
        table.rows[np.isnan(table.rows[:, j]), j] = sentinel
    _blank_codes_without_word(forest, table.rows)
    return ProbeTable(table.rows, table.pool_rows, table.feature, tuple(integers))


def _expressible(forest: Forest) -> bool:
    """A table cannot give one category as a word and another as a code."""
    of_categories = [words for words, category in zip(forest.words, forest.is_category, strict=True) if category]
    return None not in of_categories or not any(of_categories)


def _none(pool: Rows) -> ProbeTable:
    return ProbeTable(pool[:0], np.empty(0, np.int64), np.empty(0, np.int64))


def _placed(pool: Rows, values: list[Rows], most: int) -> ProbeTable:
    """At most `most` rows of the pool, then a row for each value of each feature."""
    some = min(most, len(pool))
    pool_rows, feature = [np.arange(some) * len(pool) // some], [np.full(some, INSIDE)]
    for j, of_feature in enumerate(values):
        pool_rows.append(np.arange(len(of_feature)) % len(pool))
        feature.append(np.full(len(of_feature), j))
    table = ProbeTable(pool[np.concatenate(pool_rows)], np.concatenate(pool_rows), np.concatenate(feature))
    put = np.flatnonzero(table.feature != INSIDE)
    table.rows[put, table.feature[put]] = np.concatenate(values)
    return table


def _blank_codes_without_word(forest: Forest, rows: Rows) -> None:
    for j, words in enumerate(forest.words):
        if words is not None:
            column = rows[:, j]
            column[~np.isin(column, np.arange(len(words)))] = np.nan
