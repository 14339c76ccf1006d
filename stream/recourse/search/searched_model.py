"""The parts of a published model that the search reads."""

from __future__ import annotations

from dataclasses import dataclass

from stream.forest.cells import Cells
from stream.forest.trees import Forest
from stream.recourse.comparators.leaf_matrix import LeafMatrix
from stream.recourse.rules.policy import Policy
from stream.recourse.search.robust_space import RobustSpace
from stream.recourse.search.shadows import NO_SHADOWS, Shadows
from stream.recourse.space.margin_profiles import CellTrees


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchedModel:
    """What `recourse.model.PublishedModel` begins with."""

    forest: Forest
    cells: Cells  # of the model alone
    trees: CellTrees  # in these cells; the near tier is searched for in them
    robust: RobustSpace | None  # in which mid and far are; None for trees too deep to search
    policy: Policy
    matrix: LeafMatrix
    shadows: Shadows = NO_SHADOWS
