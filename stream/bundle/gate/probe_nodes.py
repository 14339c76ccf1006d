"""The probes of each split: values of its feature around the decision, each on a row that reaches the split.

A number: its threshold, one ulp to each side in float32 and in float64, and missing; the ends of zero where zero is
missing. A category: the codes that it lists and others that are known, a code that is listed nowhere, a code with a
fraction, a negative one, and missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from stream.bundle.gate.node_rows import ENDS_OF_ZERO, Int64s, NodeRows, Rows
from stream.forest.trees import CATEGORY, INSIDE, ZERO_IS_MISSING, Forest

NODES_PROBED_MAX: Final = 20_000
CODE_ROWS_MAX: Final = 200_000  # over all splits on categories
CODES_OF_NODE_MAX: Final = 256  # listed or not
CODES_OF_NODE_MIN: Final = 8  # of each split, however many there are
FRACTION: Final = 0.7  # of a code; both libraries cut it off


class NodeProbes:
    """Which value is set in the feature of which split. Shapes: node and value (rows,); `codes`: the known ones of each feature.

    splits: how many the forest has; unreachable: of them, those that no row reaches; left_out: the reachable ones
    beyond NODES_PROBED_MAX; codes_left_out: known codes, summed over splits, beyond their bounds.
    """

    def __init__(self, forest: Forest, node_rows: NodeRows, codes: Sequence[Rows]) -> None:
        self._forest, self._node_rows = forest, node_rows
        splits = np.flatnonzero(forest.left != INSIDE)
        open_to_rows = splits[node_rows.reachable[splits]]
        chosen = _chosen(forest, open_to_rows)
        self.splits, self.unreachable = len(splits), len(splits) - len(open_to_rows)
        self.left_out, self.codes_left_out = len(open_to_rows) - len(chosen), 0
        numbers = chosen[forest.kind[chosen] != CATEGORY]
        zeros = numbers[forest.kind[numbers] == ZERO_IS_MISSING]
        parts = [_around(forest, numbers), _flat(zeros, [np.full(len(zeros), end) for end in ENDS_OF_ZERO])]
        of_category = chosen[forest.kind[chosen] == CATEGORY]
        most = int(np.clip(CODE_ROWS_MAX // max(len(of_category), 1), CODES_OF_NODE_MIN, CODES_OF_NODE_MAX))
        for turn, node in enumerate(of_category.tolist()):
            values, left_out = _of_category(forest, node, codes[forest.split_feature[node]], most, turn)
            parts.append((np.full(len(values), node), values))
            self.codes_left_out += left_out
        node = np.concatenate([nodes for nodes, _ in parts])
        order = np.argsort(node, kind="stable")
        self.node, self.value = node[order], np.concatenate([values for _, values in parts])[order]

    def __len__(self) -> int:
        return len(self.node)

    def rows(self, start: int, stop: int) -> tuple[Rows, Int64s, Int64s]:
        """The rows of a batch, the pool row that each was made from, and the feature of its split."""
        node = self.node[start:stop]
        feature = self._forest.split_feature[node].astype(np.int64)
        rows = self._node_rows.rows(node)
        rows[np.arange(len(rows)), feature] = self.value[start:stop]
        return rows, self._node_rows.pool_rows(node), feature


def evenly(count: int, most: int, turn: int = 0) -> Int64s:
    """At most `most` indices of 0 .. count - 1, spread evenly; another `turn` begins at another one. Ascending."""
    if count <= most:
        return np.arange(count)
    return np.sort((np.arange(most) * count // most + turn) % count)


def _chosen(forest: Forest, nodes: Int64s) -> Int64s:
    """At most NODES_PROBED_MAX nodes: one of each distinct feature and threshold, then others, both spread evenly."""
    if len(nodes) <= NODES_PROBED_MAX:
        return nodes
    numbers = nodes[forest.kind[nodes] != CATEGORY]
    decision = np.column_stack([forest.split_feature[numbers], forest.threshold[numbers]])
    distinct = numbers[np.unique(decision, axis=0, return_index=True)[1]]
    first = np.sort(np.concatenate([distinct, nodes[forest.kind[nodes] == CATEGORY]]))
    first = first[evenly(len(first), NODES_PROBED_MAX)]
    others = np.setdiff1d(nodes, first)
    return np.sort(np.concatenate([first, others[evenly(len(others), NODES_PROBED_MAX - len(first))]]))


def _around(forest: Forest, nodes: Int64s) -> tuple[Int64s, Rows]:
    """The threshold of each node, its neighbours in both floats, and missing."""
    on = forest.threshold[nodes].astype(np.float64)
    values = [on, np.full(len(nodes), np.nan)]
    with np.errstate(over="ignore"):  # past the largest float lies inf, which no decision holds
        for dtype in (np.float32, np.float64):
            near = on.astype(dtype)
            values += [np.nextafter(near, dtype(end)).astype(np.float64) for end in (-np.inf, np.inf)]
    return _flat(nodes, values)


def _flat(nodes: Int64s, values: Sequence[npt.NDArray[np.float64]]) -> tuple[Int64s, Rows]:
    node, value = np.tile(nodes, len(values)), np.concatenate(values)
    held = ~np.isinf(value)
    return node[held], value[held]


def _of_category(forest: Forest, node: int, known: Rows, most: int, turn: int) -> tuple[Rows, int]:
    """Listed codes and other known ones, `most` in all, and what is no whole code; and how many codes are left out."""
    listed = np.array(forest.listed(node), np.float64)
    others = np.setdiff1d(known, listed)
    of_others = min(len(others), max(most - len(listed), most // 2))
    picked = listed[evenly(len(listed), most - of_others, turn)]
    beside = others[evenly(len(others), of_others, turn)]
    strange = np.array([known.max(initial=-1.0) + 1, np.nan, -1.0])
    values = np.concatenate([picked, beside, picked[:1] + FRACTION, strange])
    return values, len(listed) + len(others) - len(picked) - len(beside)
