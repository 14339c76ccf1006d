"""The publish gate: our leaves, margins and predictions against the owner library's, bit for bit.

Compared on the whole pool, on pool rows moved to every value where the model may change, on a row at each split of each
tree, and on tables: of integers and, where the model file holds the training categories, of their words. Then each tree is
compared alone, at each of its leaves. One differing bit refuses the bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from stream.bundle.gate.kept_probes import KeptProbes, ProbeSampler
from stream.bundle.gate.node_rows import NodeRows
from stream.bundle.gate.owner import Owner, OwnerPredictions, Rows, first_difference, owner_of
from stream.bundle.gate.probe_leaves import LeafProbes
from stream.bundle.gate.probe_rows import BATCH_ROWS, ProbeBatch, ProbeKind, ProbeRows
from stream.bundle.gate.probe_tables import ProbeTable, in_integers, in_words
from stream.errors import ProbeMismatch
from stream.forest.cutoffs import Link
from stream.forest.trees import INSIDE, Forest, Int32s
from stream.forest.walk import decisive_nodes, leaf_ids, leaf_slots, margins

Progress: TypeAlias = Callable[[int, int], None]  # rows done, rows in all


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
        """Total rows."""
        return sum(self.counts.values()) + self.word_rows + self.integer_rows + self.leaf_rows


@dataclass(frozen=True, slots=True)
class _Where:
    """A row, as refusals describe it."""

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
    """Compare the forest and its link with the owner library.

    Shapes: pool (n, features) float64; `model` is the content of the model file; `declared` is how many categories each
    feature has by features.toml or the model file, none where empty.
    Raises: ProbeMismatch that names the row, and the tree and node or the value that differs.
    """
    owner, node_rows = owner_of(forest, model), NodeRows(forest, pool)
    probes, leaves = ProbeRows(forest, pool, declared, node_rows), LeafProbes(forest, node_rows)
    worded, whole = in_words(forest, pool), in_integers(forest, pool)
    counts = probes.counts
    sampler, done = ProbeSampler(counts), 0
    total = sum(counts.values()) + len(worded.rows) + len(whole.rows) + leaves.rows

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
    _compare_leaves(forest, owner, leaves, advance)
    return ProbeReport(
        counts=counts,
        word_rows=len(worded.rows),
        integer_rows=len(whole.rows),
        leaf_rows=leaves.rows,
        splits=probes.nodes.splits,
        splits_unreachable=probes.nodes.unreachable,
        splits_left_out=probes.nodes.left_out,
        codes_left_out=probes.nodes.codes_left_out,
        leaves_unreachable=leaves.unreachable,
        leaves_left_out=leaves.left_out,
        library=forest.library,
        library_version=owner.version(),
        kept=sampler.finish(),
    )


def _compare_leaves(forest: Forest, owner: Owner, leaves: LeafProbes, advance: Callable[[int], None]) -> None:
    fault = leaves.first_fault(owner.tree_margins, advance)
    if fault is not None:
        where = _Where(f"leaf probe {fault.place}", f"row {fault.pool_row} of the pool (from 0), or made from it")
        of_tree = f"leaf {fault.leaf} of tree {fault.tree} alone is {fault.ours!s} here and {fault.theirs!s} there"
        _refuse(forest, where, of_tree)


def _compare(forest: Forest, link: Link, rows: Rows, theirs: OwnerPredictions, where: Callable[[int], _Where]) -> None:
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


def _of_probe(forest: Forest, batch: ProbeBatch, row: int) -> _Where:
    number, pool_row = batch.start + row, int(batch.pool_rows[row])
    put = ", ".join(f"{forest.features[j]!r} put to {float(batch.rows[row, j])!r}" for j in batch.placed(row))
    return _Where(f"{batch.kind} probe {number}", f"row {pool_row} of the pool (from 0){f' with {put}' if put else ''}")


def _of_table(forest: Forest, table: ProbeTable, start: int, row: int) -> _Where:
    number = start + row
    j = int(table.feature[number])
    what = "" if table.integers else "training category "
    put = "" if j == INSIDE else f" with {forest.features[j]!r} put to {what}{table.rows[number, j]:.17g}"
    kind, said = ("integer", "integers") if table.integers else ("word", "words")
    return _Where(f"{kind} probe {number}", f"row {table.pool_rows[number]} of the pool (from 0) in {said}{put}")


def _refuse(forest: Forest, where: _Where, what: str) -> None:
    message = (
        f"the model is refused: on {where.probe}, which is {where.row}, {what}; what {forest.library} computes is not "
        "reproduced exactly, so please report the model file"
    )
    raise ProbeMismatch(message)
