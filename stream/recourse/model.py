"""A published model as the method sees it: forest, rules, policy and pool, with what one answer can reuse of another."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stream.errors import ConfigurationError, InvalidDecision
from stream.events import BundleIdentity, Decision, ThresholdScale
from stream.forest.cells import Cells
from stream.forest.cutoffs import Link
from stream.forest.ledger import LeafUnits, leaf_units
from stream.forest.link import link_of
from stream.forest.trees import Forest
from stream.recourse.comparators.leaf_matrix import LeafMatrix
from stream.recourse.comparators.ranking import magnitudes_of
from stream.recourse.explain.reasons import CutoffBand, cutoff_band
from stream.recourse.rules.features import FeatureRules
from stream.recourse.rules.policy import Policy
from stream.recourse.search import proof
from stream.recourse.search.least_effort import least_effort
from stream.recourse.search.robust_space import RobustSpace, robust_space
from stream.recourse.search.searched_model import SearchedModel
from stream.recourse.search.shadows import NO_SHADOWS, Shadows
from stream.recourse.space.margin_profiles import CellTrees, cell_trees, is_searchable
from stream.recourse.space.moves import no_moves
from stream.recourse.space.person_reach import CellTargets, cell_targets_of

BANDS_KEPT_MAX = 16  # cutoffs whose bands are remembered; lenders use a handful of thresholds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublishedModel(SearchedModel):
    """Everything that an answer depends on besides the decision. `bands` only remembers; it changes no answer."""

    identity: BundleIdentity
    units: LeafUnits
    cell_targets: CellTargets
    link: Link
    rules: FeatureRules
    magnitudes: NDArray[np.float64]  # of each row's weights: what bounds its rank
    threshold: float
    threshold_scale: ThresholdScale
    audit_trees: bool  # whether audit records carry per-tree detail; the bundle's size rule decides
    bands: OrderedDict[float, CutoffBand] = field(default_factory=OrderedDict)

    def threshold_for(self, decision: Decision) -> tuple[float, ThresholdScale, float]:
        """Give the threshold that holds for a decision, its scale and the cutoff margin; the event's own wins.

        Raises: InvalidDecision for a threshold that no margin can meet.
        """
        threshold = self.threshold if decision.threshold is None else decision.threshold
        scale = decision.threshold_scale if decision.threshold is not None else None
        scale = self.threshold_scale if scale is None else scale
        try:
            return threshold, scale, self.link.cutoff(threshold, scale, self.policy.approve)
        except ConfigurationError as error:
            raise InvalidDecision(str(error)) from error

    def band(self, cutoff: float) -> CutoffBand:
        """Give the cutoff band of a cutoff margin, remembered for the next decision with the same.

        Where the whole pool lies short of the cutoff, the rows nearest to it stand for the band: a model decline has
        its reasons at any threshold.
        """
        band = self.bands.get(cutoff)
        if band is None:
            first = self.matrix.first_past(cutoff, self.policy.sign)
            if first == len(self.matrix):
                first = max(0, len(self.matrix) - self.policy.band_size)
            band = cutoff_band(self.forest, self.units, self.matrix, first, self.policy.band_size)
            self.bands[cutoff] = band
            while len(self.bands) > BANDS_KEPT_MAX:
                self.bands.popitem(last=False)
        return band


def published_model(  # noqa: PLR0913 - each is a part of a bundle
    *,
    identity: BundleIdentity,
    forest: Forest,
    cells: Cells,
    rules: FeatureRules,
    policy: Policy,
    matrix: LeafMatrix,
    threshold: float,
    threshold_scale: ThresholdScale,
    audit_trees: bool,
    shadows: Shadows = NO_SHADOWS,
) -> PublishedModel:
    """Put a published model together; what can be derived is derived here, once."""
    link = link_of(forest)
    trees = cell_trees(forest, cells, policy.sign, [list(unit.members) for unit in rules.units])
    asked = (forest, *shadows.forests)
    robust = None
    if all(is_searchable(one) for one in asked):
        cutoff = link.cutoff(threshold, threshold_scale, policy.approve)
        robust = robust_space(asked, cells, rules, matrix, link=link, policy=policy, cutoff=cutoff)
        warm_up(forest, trees, robust)
    return PublishedModel(
        identity=identity,
        forest=forest,
        units=leaf_units(forest),
        cells=cells,
        trees=trees,
        cell_targets=cell_targets_of(rules, cells, matrix),
        link=link,
        robust=robust,
        rules=rules,
        policy=policy,
        matrix=matrix,
        magnitudes=magnitudes_of(forest, matrix),
        threshold=threshold,
        threshold_scale=threshold_scale,
        audit_trees=audit_trees,
        shadows=shadows,
    )


def warm_up(forest: Forest, trees: CellTrees, robust: RobustSpace) -> None:
    """Search once where nothing is permitted: the first person asked for need not wait seconds for the compiler."""
    least_effort(trees, no_moves(trees), 1.0)
    proof.warm_up(forest, trees)
    robust.warm_up()
