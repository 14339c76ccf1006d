"""Each tree compared alone, on a row for each of its leaves: the sum of all trees would round a leaf's last bits away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from stream.bundle.gate.node_rows import NodeRows, Places, Rows
from stream.bundle.gate.owner import first_difference
from stream.bundle.gate.probe_nodes import evenly
from stream.forest.trees import Floats, Forest

LEAVES_OF_TREE_MAX: Final = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafFault:
    """A leaf whose weight differs from the library's. `place`: among all leaves compared."""

    tree: int
    leaf: int  # the library's id
    place: int
    pool_row: int
    ours: Any
    theirs: Any


class LeafProbes:
    """The slots to compare, tree by tree. unreachable: leaves that no row reaches; left_out: beyond the bound."""

    rows: int
    unreachable: int
    left_out: int

    def __init__(self, forest: Forest, node_rows: NodeRows) -> None:
        self._forest, self._node_rows = forest, node_rows
        open_to_rows = node_rows.reachable[forest.leaf_node]
        self._slots: list[Places] = []
        for tree in range(forest.trees):
            first, last = forest.first_leaf[tree : tree + 2].tolist()
            slots = first + np.flatnonzero(open_to_rows[first:last])
            self._slots.append(slots[evenly(len(slots), LEAVES_OF_TREE_MAX, tree)])
        self.rows = sum(map(len, self._slots))
        self.unreachable = int((~open_to_rows).sum())
        self.left_out = len(open_to_rows) - self.unreachable - self.rows

    def first_fault(
        self, tree_margins: Callable[[int, Rows], Floats], progress: Callable[[int], None]
    ) -> LeafFault | None:
        """Compare each leaf with the library's margin of its tree alone, from zero. `progress` gets the rows done."""
        zero, done = self._forest.dtype.type(0), 0
        for tree, slots in enumerate(self._slots):
            nodes = self._forest.leaf_node[slots].astype(np.int64)
            ours, theirs = zero + self._forest.weight[slots], tree_margins(tree, self._node_rows.rows(nodes))
            if (wrong := first_difference(ours, theirs)) is not None:
                return LeafFault(
                    tree=tree,
                    leaf=int(self._forest.leaf_id[slots[wrong]]),
                    place=done + wrong,
                    pool_row=int(self._node_rows.pool_rows(nodes[wrong : wrong + 1])[0]),
                    ours=ours[wrong],
                    theirs=theirs[wrong],
                )
            done += len(slots)
            progress(len(slots))
        return None
