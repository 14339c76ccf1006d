"""A model and its shadows in common cells, which separate whatever any of them separates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.forest.cells import Cells
from stream.forest.trees import INSIDE, Forest
from stream.recourse.space.margin_profiles import CellTrees, cell_trees


class JointTrees(NamedTuple):
    """The trees of several models, the model itself first, as one argument for numba.

    Shapes: first (models + 1,): those of model m are trees.root[first[m]:first[m + 1]]; by_rank (models, features): as of
    `CellTrees`, for each model; base (models,): base margins, times the policy's sign. What `trees` says of features and
    units is the first model's.
    """

    trees: CellTrees
    first: NDArray[np.int64]
    by_rank: NDArray[np.bool_]
    base: NDArray[np.float64]


def joint_trees(forests: Sequence[Forest], cells: Cells, sign: int) -> JointTrees:
    """Express all forests in the same cells, which are at least as fine as each one's own."""
    parts = [cell_trees(forest, cells, sign) for forest in forests]
    nodes = np.cumsum([0, *(len(part.left) for part in parts)])
    sides = np.cumsum([0, *(len(part.sides) for part in parts)])
    trees = np.cumsum([0, *(len(part.root) for part in parts)]).astype(np.int64)
    moved = [
        part._replace(
            root=part.root + nodes[m],
            left=np.where(part.left == INSIDE, INSIDE, part.left + nodes[m]),
            right=np.where(part.right == INSIDE, INSIDE, part.right + nodes[m]),
            side=np.where(part.side < 0, part.side, part.side + sides[m]),
        )
        for m, part in enumerate(parts)
    ]
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in moved])
        for name in ("feature", "rank", "default_left", "side", "sides", "weight")
    }
    return JointTrees(
        trees=parts[0]._replace(
            root=np.concatenate([part.root for part in moved]).astype(np.int32),
            left=np.concatenate([part.left for part in moved]).astype(np.int32),
            right=np.concatenate([part.right for part in moved]).astype(np.int32),
            **joined,
        ),
        first=trees,
        by_rank=np.array([part.by_rank for part in parts]),
        base=np.array([sign * float(forest.base_margin) for forest in forests]),
    )
