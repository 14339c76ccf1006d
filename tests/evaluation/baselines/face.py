"""FACE: the accepted person at the end of the shortest way through people that exist.

Poyiadzi et al. 2020, on the graph of nearest neighbours: nodes are the distinct training rows, each joined to its
nearest ones, an edge as long as they are apart in standard deviations; the graph itself keeps to where people are many.
The one asked for joins it as one more node. As in Luzio 2026, what the labels forbid is undone afterwards: a graph of
permitted moves alone would be all but empty, for few neighbours agree in every feature that is immutable.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from scipy.sparse.csgraph import dijkstra  # type: ignore[import-untyped]
from sklearn.neighbors import NearestNeighbors

from tests.evaluation.baselines.interface import Rows, Setting

NEIGHBOURS: Final = 20  # with 5 or 50, validity on HELOC and Taiwan is the same within two of 100 people


class Face:
    """FACE with a graph of nearest neighbours. The way from every node to the accepted is found once, beforehand."""

    name: Final = "FACE"

    def __init__(self, setting: Setting, *, neighbours: int = NEIGHBOURS) -> None:
        self._middle = np.nan_to_num(np.nanmedian(setting.x, axis=0))
        self._deviation = setting.deviation
        # a crowd of equal rows would have no neighbours but itself: HELOC has 588 people without any record
        told = np.hstack([np.nan_to_num(setting.x), np.isnan(setting.x)])
        distinct = np.unique(told, axis=0, return_index=True)[1]
        self._x = setting.x[distinct]
        placed = self._place(self._x)
        self._neighbours = NearestNeighbors(n_neighbors=min(neighbours, len(placed) - 1), n_jobs=1).fit(placed)
        self._to_accepted, self._accepted_at = self._ways(np.flatnonzero(setting.accepted[distinct]))

    def answer(self, row: Rows) -> Rows | None:
        """Give the accepted row that is nearest along the graph; None where no way leads to one."""
        steps, nodes = self._neighbours.kneighbors(self._place(row[None]))
        ways = steps[0] + self._to_accepted[nodes[0]]
        nearest = int(ways.argmin())
        if not np.isfinite(ways[nearest]):
            return None
        target: Rows = self._x[self._accepted_at[nodes[0][nearest]]].copy()
        return target

    def _place(self, rows: Rows) -> Rows:
        """Where rows lie: in standard deviations, the missing at the median, as realism is measured too."""
        placed: Rows = np.where(np.isnan(rows), self._middle, rows) / self._deviation
        return placed

    def _ways(self, accepted: Any) -> tuple[Any, Any]:
        """How far each node is from the accepted one that is nearest along the graph, and which one that is."""
        if not len(accepted):
            return np.full(len(self._x), np.inf), np.zeros(len(self._x), np.int64)
        graph = self._neighbours.kneighbors_graph(mode="distance")
        lengths, _, nearest = dijkstra(graph, directed=False, indices=accepted, min_only=True, return_predecessors=True)
        return lengths, nearest
