"""Every cell of a small forest, by brute force: what any row at all can show of it."""

from __future__ import annotations

import numpy as np

from stream.forest.trees import CATEGORY, INSIDE, ZERO_REACH, Bools, Forest
from stream.forest.walk import leaf_slots
from tests.forest.models import Rows

CELLS_MAX = 1_000_000
CODES = np.arange(-1.0, 33)


def cells(*forests: Forest) -> Rows:
    """Rows that reach every cell that the forests cut: all of the ends of cells of each feature with all of the others."""
    of_each = [_ends(forests, feature) for feature in range(len(forests[0].features))]
    assert np.prod([float(len(ends)) for ends in of_each]) < CELLS_MAX
    return np.stack([axis.ravel() for axis in np.meshgrid(*of_each, indexing="ij")], axis=1)


def _ends(forests: tuple[Forest, ...], feature: int) -> Rows:
    values = [np.array([np.nan])]
    for forest in forests:
        here = forest.split_feature == feature
        if (forest.kind[here] == CATEGORY).any():
            values.append(CODES)
            continue
        on = np.concatenate([forest.threshold[here], np.array([0, ZERO_REACH, -ZERO_REACH], forest.dtype)])
        with np.errstate(over="ignore"):
            beside = [np.nextafter(on, forest.dtype.type(end)) for end in (-np.inf, np.inf)]
        values += [part.astype(np.float64) for part in (on, *beside)]
    distinct: Rows = np.unique(np.concatenate(values))
    return distinct[~np.isinf(distinct)]


def reached(forest: Forest) -> Bools:
    """Which nodes some row comes to."""
    came = np.zeros(len(forest.left), np.bool_)
    came[forest.leaf_node[np.unique(leaf_slots(forest, cells(forest)))]] = True
    for node in range(len(came) - 1, -1, -1):
        if forest.left[node] != INSIDE:
            came[node] = came[forest.left[node]] or came[forest.right[node]]
    return came


def shows(forest: Forest, other: Forest) -> bool:
    """Whether any row reaches another leaf in one forest than in the other."""
    asked = cells(forest, other)
    return bool((leaf_slots(forest, asked) != leaf_slots(other, asked)).any())
