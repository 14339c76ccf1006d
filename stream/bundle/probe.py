"""The publish gate: our leaves, margins and predictions against the owner library's, bit for bit.

Asked on the whole pool, on pool rows put onto every place where the model may turn, and, where the model file holds the
training categories, on a table of their words. One bit of difference anywhere and the bundle is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stream.bundle.kept_probes import Keeper, KeptProbes
from stream.bundle.owner import Answers, Rows, owner_of
from stream.bundle.probe_rows import BATCH_ROWS, Asked, ProbeKind, ProbeRows
from stream.errors import ProbeMismatch
from stream.forest.link import Link
from stream.forest.trees import INSIDE, Forest, Int32s
from stream.forest.walk import decisive_nodes, leaf_ids, leaf_slots, margins

Progress: TypeAlias = Callable[[int, int], None]  # rows done, rows in all

WORDED_POOL_ROWS: Final = 4_096  # of the pool, asked as words as well


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """What was compared, all of it equal. `kept` goes into the bundle."""

    counts: dict[ProbeKind, int]  # rows of each kind
    word_rows: int  # asked as a table of words; none where the model file holds no training categories
    library: str
    library_version: str  # of the library that was asked, on this machine
    kept: KeptProbes

    @property
    def rows(self) -> int:
        """Rows in all."""
        return sum(self.counts.values()) + self.word_rows


@dataclass(frozen=True, slots=True)
class _Where:
    """What a refusal says of a row."""

    probe: str
    row: str


def probe(
    forest: Forest,
    link: Link,
    model: bytes,
    pool: Rows,
    *,
    declared: Sequence[int] = (),
    progress: Progress = lambda _done, _total: None,
) -> ProbeReport:
    """Hold the forest and its link against the owner library.

    Shapes: pool (n, features) float64; `model` is the content of the model file; `declared` is how many categories each
    feature has by features.toml or the model file, none where empty.
    Raises: ProbeMismatch that names the row, and the tree and node or the value that differs.
    """
    owner, asking = owner_of(forest, model), ProbeRows(forest, pool, declared)
    worded = _worded(forest, pool)
    keeper, done, total = Keeper(asking.counts), 0, sum(asking.counts.values()) + len(worded.rows)
    for asked in asking.batches():
        answers = owner.ask(asked.rows)
        _compare(forest, link, asked.rows, answers, partial(_of_probe, forest, asked))
        keeper.offer(asked, answers)
        done += len(asked.rows)
        progress(done, total)
    for start in range(0, len(worded.rows), BATCH_ROWS):
        rows = worded.rows[start : start + BATCH_ROWS]
        _compare(forest, link, rows, owner.ask_in_words(rows), partial(_of_words, forest, worded, start))
        done += len(rows)
        progress(done, total)
    return ProbeReport(
        counts=asking.counts,
        word_rows=len(worded.rows),
        library=forest.library,
        library_version=owner.version,
        kept=keeper.finish(),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Worded:
    """Rows that are asked as a table of words. Shapes: rows (n, features), pool_rows and feature (n,).

    feature: the one that was put onto a training category or missing, INSIDE for the pool's own rows.
    """

    rows: Rows
    pool_rows: npt.NDArray[np.int64]
    feature: npt.NDArray[np.int64]


def _worded(forest: Forest, pool: Rows) -> _Worded:
    """Some rows of the pool, and rows that hold each training category, or none, of each feature that has words."""
    of_categories = [words for words, category in zip(forest.words, forest.is_category, strict=True) if category]
    if (
        not of_categories or None in of_categories
    ):  # a table cannot say one category by its word and another by its code
        return _Worded(pool[:0], np.empty(0, np.int64), np.empty(0, np.int64))
    some = min(WORDED_POOL_ROWS, len(pool))
    pool_rows, feature, codes = [np.arange(some) * len(pool) // some], [np.full(some, INSIDE)], [np.zeros(some)]
    for j, words in enumerate(forest.words):
        if words is not None:
            codes.append(np.append(np.arange(len(words), dtype=np.float64), np.nan))
            pool_rows.append(np.arange(len(words) + 1) % len(pool))
            feature.append(np.full(len(words) + 1, j))
    worded = _Worded(pool[np.concatenate(pool_rows)], np.concatenate(pool_rows), np.concatenate(feature))
    put = np.flatnonzero(worded.feature != INSIDE)
    worded.rows[put, worded.feature[put]] = np.concatenate(codes)[put]
    for j, words in enumerate(forest.words):
        if words is not None:  # what has no word cannot be said in one
            column = worded.rows[:, j]
            column[~np.isin(column, np.arange(len(words)))] = np.nan
    return worded


def _compare(forest: Forest, link: Link, rows: Rows, theirs: Answers, where: Callable[[int], _Where]) -> None:
    slots = leaf_slots(forest, rows)
    ours = leaf_ids(forest, slots)
    scored = margins(forest, slots)
    if ours.shape != theirs.leaves.shape:
        _refuse(forest, where(0), f"the library walks {theirs.leaves.shape[1]} trees and we {forest.trees}")
    differs = ours != theirs.leaves
    if differs.any():
        row, tree = np.argwhere(differs)[0].tolist()
        parted = _parted(forest, slots[row], tree, int(theirs.leaves[row, tree]))
        margin = f"the margin is {scored[row]!s} here and {theirs.margins[row]!s} there"
        _refuse(forest, where(row), f"tree {tree} {parted}, so {margin}")
    for what, here, there in (
        ("margin", scored, theirs.margins),
        ("prediction", link.probabilities(scored), theirs.predictions),
    ):
        if (wrong := _first_difference(here, there)) is not None:
            of_margin = "" if what == "margin" else f" of margin {scored[wrong]!s}"
            told = f"all trees reach the same leaves, but the {what}{of_margin} is {here[wrong]!s} here and {there[wrong]!s} there"
            _refuse(forest, where(wrong), told)


def _first_difference(here: npt.NDArray[Any], there: npt.NDArray[Any]) -> int | None:
    if here.dtype == there.dtype and here.tobytes() == there.tobytes():
        return None
    return next((i for i in range(len(here)) if here[i].tobytes() != there[i].tobytes()), 0)


def _parted(forest: Forest, slots: Int32s, tree: int, their_leaf: int) -> str:
    """Say where two paths in one tree part: ours to the leaf in `slots`, theirs to the leaf of that id."""
    first, last = forest.first_leaf[tree : tree + 2].tolist()
    told = f"reaches leaf {forest.leaf_id[slots[tree]]} here and leaf {their_leaf} there"
    found = np.flatnonzero(forest.leaf_id[first:last] == their_leaf)
    if len(found) == 0:
        return f"{told}, which our reading of the file does not have"
    other = slots.copy()
    other[tree] = first + found[0]
    node = int(decisive_nodes(forest, slots, other)[tree])
    return f"parts at node {forest.node_id[node]} (on {forest.features[forest.split_feature[node]]!r}): it {told}"


def _of_probe(forest: Forest, asked: Asked, row: int) -> _Where:
    number, pool_row = asked.start + row, int(asked.pool_rows[row])
    put = ", ".join(f"{forest.features[j]!r} put to {float(asked.rows[row, j])!r}" for j in asked.placed(row))
    return _Where(f"{asked.kind} probe {number}", f"row {pool_row} of the pool (from 0){f' with {put}' if put else ''}")


def _of_words(forest: Forest, worded: _Worded, start: int, row: int) -> _Where:
    number = start + row
    j = int(worded.feature[number])
    put = "" if j == INSIDE else f" with {forest.features[j]!r} put to training category {worded.rows[number, j]:g}"
    return _Where(f"word probe {number}", f"row {worded.pool_rows[number]} of the pool (from 0) in words{put}")


def _refuse(forest: Forest, where: _Where, what: str) -> None:
    message = (
        f"the model is refused: on {where.probe}, which is {where.row}, {what}; what {forest.library} computes is not "
        "reproduced exactly, so please report the model file"
    )
    raise ProbeMismatch(message)
