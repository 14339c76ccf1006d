"""The publish gate: our leaves, margins and predictions against the owner library's, bit for bit.

Compared on the whole pool, on pool rows moved to every value where the model may change, on a row at each split of each
tree, and on tables: of integers and, where the model file holds the training categories, of their words. Then each tree is
compared alone, on a row for each of its leaves: the sum of all trees would round a leaf's last bits away. One differing
bit refuses the bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from stream.bundle.gate.kept_probes import KeptProbes, ProbeSampler
from stream.bundle.gate.node_rows import Int64s, NodeRows
from stream.bundle.gate.owner import Owner, OwnerPredictions, Rows, first_difference, owner_of
from stream.bundle.gate.probe_nodes import evenly
from stream.bundle.gate.probe_rows import BATCH_ROWS, ProbeBatch, ProbeKind, ProbeRows
from stream.errors import ProbeMismatch
from stream.forest.cutoffs import Link
from stream.forest.trees import INSIDE, Bools, Forest, Int32s
from stream.forest.walk import decisive_nodes, leaf_ids, leaf_slots, margins

LEAVES_OF_TREE_MAX: Final = 4_096
WORDED_POOL_ROWS: Final = 4_096  # of the pool, compared in words too
INTEGER_POOL_ROWS: Final = 4_096
INTEGERS: Final = tuple(
    sign * number for number in (2**24 - 1, 2**24 + 1, 2**24 + 3, 2**31, 2**31 + 129, 2**53 - 1) for sign in (1, -1)
)  # what float32 does not hold, and what int32 does not
WHOLE_MAX: Final = 2.0**53  # in size, up to which float64 holds every whole number


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """What was compared, all of it equal. `kept` goes into the bundle."""

    counts: dict[ProbeKind, int]  # rows of each kind
    word_rows: int  # as a table of words; none where the model file holds no training categories
    integer_rows: int  # as a table with columns of int64; none where no feature of the pool is whole
    leaf_rows: int  # for one tree alone
    splits: int
    splits_unreachable: int  # no row at all reaches them
    splits_left_out: int  # of the others, beyond the gate's bound
    codes_left_out: int  # of the splits on categories, beyond the gate's bound
    leaves_unreachable: int
    leaves_left_out: int
    library: str
    library_version: str  # of the library, on this machine
    kept: KeptProbes

    @property
    def rows(self) -> int:
        """How many rows of all kinds were compared with the owner library."""
        return sum(self.counts.values()) + self.word_rows + self.integer_rows + self.leaf_rows


@dataclass(frozen=True, slots=True, eq=False)
class ProbeTable:
    """Rows compared as a table. Shapes: rows (n, features), pool_rows and feature (n,).

    feature: the one that was set to a value, INSIDE for the pool's own rows. integers: the features whose columns are
    int64; none in a table of words.
    """

    rows: Rows
    pool_rows: Int64s
    feature: Int64s
    integers: tuple[int, ...] = ()


def probe(
    forest: Forest,
    link: Link,
    model: bytes,
    pool: Rows,
    *,
    declared: Sequence[int] = (),
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> ProbeReport:
    """Compare the forest and its link with the owner library.

    Shapes: pool (n, features) float64; `model` is the content of the model file; `declared` is how many categories each
    feature has by features.toml or the model file, none where empty; `progress` gets the rows done, and rows in all.
    Raises: ProbeMismatch that names the row, and the tree and node or the value that differs.
    """
    owner, node_rows = owner_of(forest, model), NodeRows(forest, pool)
    probes, reachable = ProbeRows(forest, pool, declared, node_rows), node_rows.reachable[forest.leaf_node]
    leaves = _compared_leaves(forest, reachable)
    worded, whole = in_words(forest, pool), in_integers(forest, pool)
    counts = probes.counts
    sampler, done, leaf_rows = ProbeSampler(counts), 0, sum(map(len, leaves))
    total = sum(counts.values()) + len(worded.rows) + len(whole.rows) + leaf_rows

    def advance(rows: int) -> None:
        nonlocal done
        done += rows
        progress(done, total)

    for batch in probes.batches():
        results = owner.predict(batch.rows)
        _compare(forest, link, batch.rows, results, partial(_of_probe, forest, batch))
        sampler.add(batch, results)
        advance(len(batch.rows))
    for table in (worded, whole):
        for start in range(0, len(table.rows), BATCH_ROWS):
            rows = table.rows[start : start + BATCH_ROWS]
            results = owner.predict_table(rows, table.integers)
            _compare(forest, link, rows, results, partial(_of_table, forest, table, start))
            advance(len(rows))
    _compare_leaves(forest, owner, leaves, node_rows, advance)
    return ProbeReport(
        counts=counts,
        word_rows=len(worded.rows),
        integer_rows=len(whole.rows),
        leaf_rows=leaf_rows,
        splits=probes.nodes.splits,
        splits_unreachable=probes.nodes.unreachable,
        splits_left_out=probes.nodes.left_out,
        codes_left_out=probes.nodes.codes_left_out,
        leaves_unreachable=int((~reachable).sum()),
        leaves_left_out=int(reachable.sum()) - leaf_rows,
        library=forest.library,
        library_version=owner.version(),
        kept=sampler.finish(),
    )


def _compared_leaves(forest: Forest, reachable: Bools) -> list[Int64s]:
    """The slots of the leaves to compare, tree by tree: those that rows reach, up to a bound for each tree."""
    leaves = []
    for tree in range(forest.trees):
        first, last = forest.first_leaf[tree : tree + 2].tolist()
        slots = first + np.flatnonzero(reachable[first:last])
        leaves.append(slots[evenly(len(slots), LEAVES_OF_TREE_MAX, tree)])
    return leaves


def _compare_leaves(
    forest: Forest, owner: Owner, leaves: list[Int64s], node_rows: NodeRows, advance: Callable[[int], None]
) -> None:
    """Compare each leaf with the library's margin of its tree alone, from zero."""
    zero, done = forest.dtype.type(0), 0
    for tree, slots in enumerate(leaves):
        nodes = forest.leaf_node[slots].astype(np.int64)
        ours, theirs = zero + forest.weight[slots], owner.tree_margins(tree, node_rows.rows(nodes))
        if (wrong := first_difference(ours, theirs)) is not None:
            pool_row = int(node_rows.pool_rows(nodes[wrong : wrong + 1])[0])
            where = f"leaf probe {done + wrong}, which is row {pool_row} of the pool (from 0), or made from it"
            leaf = f"leaf {forest.leaf_id[slots[wrong]]} of tree {tree} alone"
            _refuse(forest, where, f"{leaf} is {ours[wrong]!s} here and {theirs[wrong]!s} there")
        done += len(slots)
        advance(len(slots))


def _compare(forest: Forest, link: Link, rows: Rows, theirs: OwnerPredictions, where: Callable[[int], str]) -> None:
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
        if (wrong := first_difference(here, there)) is not None:
            of_margin = "" if what == "margin" else f" of margin {scored[wrong]!s}"
            text = f"all trees reach the same leaves, but the {what}{of_margin} is {here[wrong]!s} here and {there[wrong]!s} there"
            _refuse(forest, where(wrong), text)


def _parted(forest: Forest, slots: Int32s, tree: int, their_leaf: int) -> str:
    """Describe where two paths in one tree part: ours to the leaf in `slots`, theirs to the leaf of that id."""
    first, last = forest.first_leaf[tree : tree + 2].tolist()
    paths = f"reaches leaf {forest.leaf_id[slots[tree]]} here and leaf {their_leaf} there"
    found = np.flatnonzero(forest.leaf_id[first:last] == their_leaf)
    if len(found) == 0:
        return f"{paths}, which our reading of the file does not have"
    other = slots.copy()
    other[tree] = first + found[0]
    node = int(decisive_nodes(forest, slots, other)[tree])
    return f"parts at node {forest.node_id[node]} (on {forest.features[forest.split_feature[node]]!r}): it {paths}"


def _of_probe(forest: Forest, batch: ProbeBatch, row: int) -> str:
    number, pool_row = batch.start + row, int(batch.pool_rows[row])
    put = ", ".join(f"{forest.features[j]!r} put to {float(batch.rows[row, j])!r}" for j in batch.placed(row))
    changed = f" with {put}" if put else ""
    return f"{batch.kind} probe {number}, which is row {pool_row} of the pool (from 0){changed}"


def _of_table(forest: Forest, table: ProbeTable, start: int, row: int) -> str:
    number = start + row
    j = int(table.feature[number])
    what = "" if table.integers else "training category "
    put = "" if j == INSIDE else f" with {forest.features[j]!r} put to {what}{table.rows[number, j]:.17g}"
    kind, said = ("integer", "integers") if table.integers else ("word", "words")
    return f"{kind} probe {number}, which is row {table.pool_rows[number]} of the pool (from 0) in {said}{put}"


def _refuse(forest: Forest, where: str, what: str) -> None:
    message = (
        f"the model is refused: on {where}, {what}; what {forest.library} computes is not "
        "reproduced exactly, so please report the model file"
    )
    raise ProbeMismatch(message)


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
