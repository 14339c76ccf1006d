"""The parts of a published model that the search reads."""

from __future__ import annotations

from typing import Protocol

from stream.forest.cells import Cells
from stream.forest.trees import Forest
from stream.recourse.comparators.leaf_matrix import LeafMatrix
from stream.recourse.rules.policy import Policy
from stream.recourse.search.robust_space import RobustSpace
from stream.recourse.search.shadows import Shadows
from stream.recourse.space.margin_profiles import CellTrees


class SearchedModel(Protocol):
    """A view of `model.PublishedModel`, which the layers keep out of this room."""

    @property
    def forest(self) -> Forest:
        """The model itself."""

    @property
    def cells(self) -> Cells:
        """The cells of the model alone."""

    @property
    def trees(self) -> CellTrees:
        """Its trees in those cells, for the search of near."""

    @property
    def robust(self) -> RobustSpace | None:
        """The space of mid and far; None for trees too deep to search."""

    @property
    def policy(self) -> Policy:
        """How the lender wants its declines answered."""

    @property
    def matrix(self) -> LeafMatrix:
        """The pool."""

    @property
    def shadows(self) -> Shadows:
        """Its shadow models."""
