"""What the search asks of a published model, so that it need not know the rest of one."""

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
    """The parts of `model.PublishedModel` that a search reads."""

    @property
    def forest(self) -> Forest:
        """The model itself."""

    @property
    def cells(self) -> Cells:
        """The cells of the model alone."""

    @property
    def trees(self) -> CellTrees:
        """Its trees in those cells, in which near is searched for."""

    @property
    def robust(self) -> RobustSpace | None:
        """Where mid and far are searched for; None for trees too deep to search."""

    @property
    def policy(self) -> Policy:
        """How the lender wants its declines answered."""

    @property
    def matrix(self) -> LeafMatrix:
        """The pool."""

    @property
    def shadows(self) -> Shadows:
        """What the model might have been."""
