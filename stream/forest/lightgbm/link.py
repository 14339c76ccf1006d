"""LightGBM's own links: from a margin to what its `predict` gives, in float64."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix  # type: ignore[import-untyped]

from stream.errors import CorruptionError
from stream.events import ThresholdScale
from stream.forest.cutoffs import Approve, Cutoffs, LinkRange
from stream.forest.lightgbm.library import lightgbm
from stream.forest.trees import ZERO_REACH, Floats

LINKS_KEPT = 16

# Pattern of the objective's line, name of its link, and its range.
_KINDS: tuple[tuple[str, str, LinkRange], ...] = (
    (r"binary sigmoid:[-+.e0-9]+", "logistic", "unit"),
    (r"cross_entropy", "logistic", "unit"),
    (r"cross_entropy_lambda", "log1p_exp", "positive"),
    (r"(poisson|gamma|tweedie)", "exp", "positive"),
    (r"(regression|regression_l1|huber|fair|quantile|mape)?", "identity", "any"),  # without a line as well
    (r"(regression|regression_l1|fair|quantile|mape) sqrt", "sqrt", "any"),
)

# One linear tree whose two leaves return the only feature: a row is its own margin.
_IDENTITY_TREE = """Tree=0
num_leaves=2
num_cat=0
split_feature=0
split_gain=1
threshold=0
decision_type=2
left_child=-1
right_child=-2
leaf_value=0 0
leaf_weight=1 1
leaf_count=1 1
internal_value=0
internal_weight=2
internal_count=2
is_linear=1
leaf_const=0 0
num_features=1 1
leaf_features=0  0\x20
leaf_coeff=1  1\x20
shrinkage=1


"""
# Trees that add nothing, so that the mean runs over as many as the model has.
_ZERO_TREE = """Tree={number}
num_leaves=1
num_cat=0
leaf_value=0
shrinkage=1


"""
_IDENTITY_MODEL = """tree
version=v4
num_class=1
num_tree_per_iteration=1
label_index=0
max_feature_idx=0
{lines}feature_names=margin
feature_infos=[-1:1]
tree_sizes={sizes}

{trees}end of trees
"""


class LightgbmLink:
    """A link of LightGBM's in float64, by a model that LightGBM itself evaluates (about 80 us a call)."""

    def __init__(self, line: str, trees_averaged: int) -> None:
        """`line`: of the objective, known to `kind_of_link`; `trees_averaged`: 1 unless the margin is averaged over trees."""
        kind = kind_of_link(line)
        if kind is None:
            message = "a forest holds an objective of LightGBM's whose link is not known; read its model file anew"
            raise CorruptionError(message)
        self.name, link_range = kind
        self._booster = lightgbm().Booster(model_str=_identity_model(line, trees_averaged))
        self._cutoffs = Cutoffs(self.probabilities, np.float64, link_range)
        margins = np.array(
            [-745.5, -1.0, -0.1, -1e-34, -1e-36, 0.0, 5e-324, 1e-36, 1e-34, 1e-9, 0.1, 3.0, 745.5, 1e300]
        )
        returned = np.asarray(self._booster.predict(_as_rows(margins), raw_score=True, num_threads=1))
        if returned.tobytes() != margins.tobytes():
            message = f"LightGBM {lightgbm().__version__} does not give back the margins it is asked to link"
            raise CorruptionError(message)

    def probabilities(self, margins: Floats) -> Floats:
        """As `Link` says."""
        if not len(margins):
            return np.empty(0, np.float64)
        return np.asarray(self._booster.predict(_as_rows(margins), num_threads=1))

    def cutoff(self, threshold: float, scale: ThresholdScale, approve: Approve) -> float:
        """As `Link` says."""
        return self._cutoffs.find(threshold, scale, approve)


def kind_of_link(line: str) -> tuple[str, LinkRange] | None:
    """Name and range of the link for an objective's line; None for an unknown line."""
    return next(((name, given) for pattern, name, given in _KINDS if re.fullmatch(pattern, line)), None)


@lru_cache(maxsize=LINKS_KEPT)
def lightgbm_link(line: str, trees_averaged: int = 1) -> LightgbmLink:
    """The link of an objective's line, after the mean over `trees_averaged` trees (rf). Shared by all forests."""
    return LightgbmLink(line, trees_averaged)


def _identity_model(line: str, trees_averaged: int) -> str:
    trees = [_IDENTITY_TREE, *(_ZERO_TREE.format(number=i) for i in range(1, trees_averaged))]
    lines = (f"objective={line}\n" if line else "") + ("average_output\n" if trees_averaged > 1 else "")
    return _IDENTITY_MODEL.format(lines=lines, sizes=" ".join(str(len(tree)) for tree in trees), trees="".join(trees))


def _as_rows(margins: Floats) -> Any:  # noqa: ANN401 - scipy has no types
    """One row per margin. LightGBM rounds tiny values to zero in dense rows, but not in sparse ones."""
    rows = margins[:, None]
    tiny = (np.abs(margins) <= ZERO_REACH) & (margins != 0.0)
    return csr_matrix(rows) if tiny.any() else rows
