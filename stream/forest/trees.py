"""A trained ensemble as flat arrays: what every other room knows of a model.

Nodes of all trees lie in one array, each tree's in preorder, so that a child always comes after its parent. Leaves
have a second numbering, the *slot*: trees one after the other, inside a tree by the library's own leaf id. A row's
leaves are then one integer per tree, and anything per leaf is one array look-up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from stream.errors import ModelRefused

Library: TypeAlias = Literal["xgboost", "lightgbm"]
Operator: TypeAlias = Literal["<", "<="]
TreesUsed: TypeAlias = Literal["best", "all"]
Int32s: TypeAlias = npt.NDArray[np.int32]
Bools: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[Any]  # float32 or float64, as the forest's dtype says

INSIDE = -1  # marks what a node does not have: a leaf's feature and children, a split's slot, a root's parent


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedNode:
    """One node as its library numbers it. A leaf has no children; `left` and `right` point into the same tree's list."""

    number: int  # of the split (XGBoost: node id, LightGBM: split index) or of the leaf (`pred_leaf`)
    feature: int = INSIDE
    value: float  # the threshold of a split, the weight of a leaf
    left: int = INSIDE
    right: int = INSIDE
    default_left: bool = False

    @property
    def is_leaf(self) -> bool:
        """Whether a row's path ends here."""
        return self.left == INSIDE


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forest:
    """A binary classifier of boosted trees. All arrays are read-only; `weight` and `threshold` are in `dtype`.

    A row goes left where `row[split_feature] operator threshold`, and where it is NaN and `default_left`.
    Shapes: first_node, first_leaf (trees + 1,); split_feature .. depth (nodes,); leaf_id, leaf_node, weight (slots,).
    """

    library: Library
    library_version: str  # of the writer, as far as the file says; "" where it does not
    objective: str
    features: tuple[str, ...]
    operator: Operator
    dtype: np.dtype[Any]  # float32 for XGBoost, float64 for LightGBM: rows are cast to it before they are compared
    base_margin: np.floating[Any]  # added before the first tree
    sigmoid: float  # scale of the margin inside the logistic link; 1.0 but for some LightGBM models
    first_node: Int32s
    split_feature: Int32s  # -1 at a leaf
    threshold: Floats
    left: Int32s  # absolute node, -1 at a leaf
    right: Int32s
    default_left: Bools
    node_id: Int32s  # the library's number of the split, -1 at a leaf
    leaf_slot: Int32s  # -1 at a split
    parent: Int32s  # -1 at a root
    depth: Int32s  # 0 at a root
    first_leaf: Int32s
    leaf_id: Int32s  # the library's number of the leaf, what its `pred_leaf` gives
    leaf_node: Int32s
    weight: Floats
    digest: str = field(init=False)  # sha256 over all of the above

    def __post_init__(self) -> None:
        for name in _ARRAYS:
            getattr(self, name).setflags(write=False)
        object.__setattr__(self, "digest", _digest(self))

    @property
    def trees(self) -> int:
        """Number of trees that are summed."""
        return len(self.first_node) - 1

    def thresholds(self, feature: int) -> Floats:
        """Sorted distinct thresholds of one feature (by its position), in the forest's dtype; empty if never split on.

        The largest double among them, in a LightGBM forest, parts missing from all values: nothing lies beyond it.
        """
        return np.unique(self.threshold[self.split_feature == feature])


_ARRAYS = (
    "first_node",
    "split_feature",
    "threshold",
    "left",
    "right",
    "default_left",
    "node_id",
    "leaf_slot",
    "parent",
    "depth",
    "first_leaf",
    "leaf_id",
    "leaf_node",
    "weight",
)


def _digest(forest: Forest) -> str:
    text = (forest.library, forest.library_version, forest.objective, forest.features, forest.operator)
    numbers = (forest.dtype.name, float(forest.base_margin).hex(), forest.sigmoid.hex())
    digest = hashlib.sha256(repr((text, numbers)).encode())
    for name in _ARRAYS:
        array: npt.NDArray[Any] = getattr(forest, name)
        little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(f"{name} {little_endian.dtype.str} {len(array)}\n".encode())
        digest.update(little_endian.tobytes())
    return digest.hexdigest()


def plant(
    saved: Sequence[Sequence[SavedNode]],
    *,
    library: Library,
    library_version: str,
    objective: str,
    features: tuple[str, ...],
    base_margin: float,
    sigmoid: float,
) -> Forest:
    """Lay out trees, each a list of nodes with its root first, as one Forest. Nodes that no path reaches are dropped.

    Raises: ModelRefused where the links of a tree form none, or it splits on a feature that does not exist.
    """
    dtype: np.dtype[Any] = np.dtype(np.float32 if library == "xgboost" else np.float64)
    rows: list[tuple[SavedNode, int, int, int, int]] = []  # node, left, right, parent, depth
    first_node = [0]
    for tree in saved:
        rows += _preorder(tree, first_node[-1])
        first_node.append(len(rows))
    nodes = [row[0] for row in rows]
    if any(node.feature >= len(features) for node in nodes):
        message = f"model refused: a tree splits on a feature beyond the {len(features)} that have names; name them all"
        raise ModelRefused(message)
    is_leaf = np.array([node.is_leaf for node in nodes], np.bool_)
    number = np.array([node.number for node in nodes], np.int32)
    value = np.array([node.value for node in nodes], np.float64).astype(dtype)
    tree_of = np.repeat(np.arange(len(saved)), np.diff(first_node))
    leaves = np.flatnonzero(is_leaf)
    leaf_node = leaves[np.lexsort((number[leaves], tree_of[leaves]))]
    leaf_slot = np.full(len(nodes), INSIDE, np.int32)
    leaf_slot[leaf_node] = np.arange(len(leaf_node))
    leaves_per_tree = np.bincount(tree_of[leaves], minlength=len(saved))
    return Forest(
        library=library,
        library_version=library_version,
        objective=objective,
        features=features,
        operator="<" if library == "xgboost" else "<=",
        dtype=dtype,
        base_margin=dtype.type(base_margin),
        sigmoid=sigmoid,
        first_node=np.array(first_node, np.int32),
        split_feature=np.array([node.feature for node in nodes], np.int32),
        threshold=np.where(is_leaf, dtype.type(0), value),
        left=np.array([row[1] for row in rows], np.int32),
        right=np.array([row[2] for row in rows], np.int32),
        default_left=np.array([node.default_left for node in nodes], np.bool_),
        node_id=np.where(is_leaf, np.int32(INSIDE), number),
        leaf_slot=leaf_slot,
        parent=np.array([row[3] for row in rows], np.int32),
        depth=np.array([row[4] for row in rows], np.int32),
        first_leaf=np.concatenate([[0], np.cumsum(leaves_per_tree)]).astype(np.int32),
        leaf_id=number[leaf_node],
        leaf_node=leaf_node.astype(np.int32),
        weight=value[leaf_node],
    )


def _preorder(tree: Sequence[SavedNode], offset: int) -> list[tuple[SavedNode, int, int, int, int]]:
    """The reachable nodes of one tree in preorder, with absolute links, from `offset` on.

    Raises: ModelRefused where the links form no tree.
    """
    order: list[int] = []
    parent: dict[int, int] = {0: INSIDE}
    depth: dict[int, int] = {0: 0}
    stack = [0]
    while stack:
        here = stack.pop()
        order.append(here)
        node = tree[here]
        if not node.is_leaf:
            for child in (node.right, node.left):
                if child in parent or not 0 <= child < len(tree):
                    message = (
                        f"model refused: the file is damaged at split {node.number}; give it as its library saved it"
                    )
                    raise ModelRefused(message)
                parent[child], depth[child] = here, depth[here] + 1
                stack.append(child)
    place = {here: offset + i for i, here in enumerate(order)} | {INSIDE: INSIDE}
    return [(tree[i], place[tree[i].left], place[tree[i].right], place[parent[i]], depth[i]) for i in order]
