"""Small forests at random whose leaves are multiples of an eighth, so that sums in float64 are exact in any order."""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from stream.forest.cells import Cells, cells_of
from stream.forest.ledger import exact_sums, leaf_units
from stream.forest.trees import Forest, Kind, SavedNode, build_forest
from stream.forest.walk import leaf_slots
from stream.recourse.space.margin_profiles import CellTrees, cell_trees
from tests.recourse.lenders import Library, Rows, kind

Sort: TypeAlias = Literal["number", "category", "zero"]  # "zero": a number whose zero is missing, in LightGBM
CellsOfRow: TypeAlias = npt.NDArray[np.int32]
LEAST_CODES = (0, 1, 2, 3, 5, 8, 40)
SENTINEL = -1.0


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Planted:
    """A forest and its cells."""

    forest: Forest
    cells: Cells
    trees: CellTrees
    sign: int

    def rows(self, cells: CellsOfRow) -> Rows:
        """Rows that lie in these cells. Shapes: (n, features) -> (n, features)."""
        inside = [
            np.array([self.cells.inside(j, k) for k in range(self.cells.count(j))]) for j in range(cells.shape[1])
        ]
        rows = np.column_stack([inside[j][cells[:, j]] for j in range(cells.shape[1])])
        assert np.array_equal(self.cells.of(rows), cells)
        return rows

    def sums(self, cells: CellsOfRow) -> Rows:
        """What the leaves of rows in these cells sum to, in integers; more is better. Shapes: (n, features) -> (n,)."""
        units = leaf_units(self.forest)
        exact = exact_sums(units, leaf_slots(self.forest, self.rows(cells)))
        return np.array([self.sign * (total - units.base) * 2.0**units.unit_log2 for total in exact])


def planted(
    rng: np.random.Generator, library: Library, sorts: tuple[Sort, ...], *, trees: int, depth: int, thresholds: int
) -> Planted:
    """Plant a forest at random; each feature has at most so many thresholds."""
    saved = _trees(rng, library, sorts, trees=trees, depth=depth, thresholds=thresholds)
    missing = SENTINEL if library == "xgboost" and rng.random() < 0.5 else None
    forest = build_forest(saved, _kind(library, sorts, missing))
    cells, sign = cells_of(forest), int(rng.choice([1, -1]))
    return Planted(forest=forest, cells=cells, trees=cell_trees(forest, cells, sign), sign=sign)


def planted_family(
    rng: np.random.Generator, library: Library, sorts: tuple[Sort, ...], *, models: int, trees: int, depth: int
) -> tuple[list[Forest], int]:
    """Plant a model and shadows of it, each of up to so many trees and with its own base, and choose the sign of what is better."""
    missing = SENTINEL if library == "xgboost" and rng.random() < 0.5 else None
    saved = [
        _trees(
            rng, library, sorts, trees=int(rng.integers(1, trees + 1)), depth=depth, thresholds=int(rng.integers(1, 4))
        )
        for _ in range(models)
    ]
    kinds = [_kind(library, sorts, missing, base_margin=float(rng.integers(-8, 9)) / 8) for _ in saved]
    return [build_forest(one, own) for one, own in zip(saved, kinds, strict=True)], int(rng.choice([1, -1]))


def _kind(library: Library, sorts: tuple[Sort, ...], missing: float | None, *, base_margin: float = 0.0) -> Kind:
    names = tuple(f"f{j}" for j in range(len(sorts)))
    is_category = tuple(s == "category" for s in sorts)
    return kind(library, names, is_category=is_category, missing=missing, base_margin=base_margin)


def _trees(
    rng: np.random.Generator, library: Library, sorts: tuple[Sort, ...], *, trees: int, depth: int, thresholds: int
) -> list[list[SavedNode]]:
    at = [np.round(rng.normal(0, 2, thresholds) * 2) / 2 for _ in sorts]
    return [_tree(rng, library, sorts, at, depth) for _ in range(trees)]


def _tree(
    rng: np.random.Generator, library: Library, sorts: tuple[Sort, ...], at: list[Rows], depth: int
) -> list[SavedNode]:
    nodes: list[SavedNode] = []

    def grow(level: int) -> int:
        place = len(nodes)
        nodes.append(SavedNode(number=place, value=float(rng.integers(-16, 17)) / 8))
        if level < depth and rng.random() > 0.15:
            j = int(rng.integers(len(sorts)))
            category = sorts[j] == "category"
            split = SavedNode(
                number=place,
                feature=j,
                value=0.0 if category else float(rng.choice(at[j])),
                default_left=bool(rng.random() < 0.5) and not (category and library == "lightgbm"),
                zero_is_missing=sorts[j] == "zero" and library == "lightgbm" and rng.random() < 0.8,
                categories=frozenset(c for c in LEAST_CODES if rng.random() < 0.4) if category else None,
            )
            nodes[place] = dataclasses.replace(split, left=grow(level + 1), right=grow(level + 1))
        return place

    grow(0)
    return nodes
