"""A trained ensemble as flat arrays: what every other room knows of a model.

Nodes of all trees lie in one array, each tree's in preorder, so that a child always comes after its parent. Leaves
have a second numbering, the *slot*: trees one after the other, inside a tree by the library's own leaf id. A row's
leaves are then one integer per tree, and anything per leaf is one array look-up.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from stream.errors import ModelRefused

Library: TypeAlias = Literal["xgboost", "lightgbm"]  # each has its record in `forest/libraries.py`
Word: TypeAlias = str | float  # a category in the training data
Operator: TypeAlias = Literal["<", "<="]
TreesUsed: TypeAlias = Literal["best", "all"]
Int32s: TypeAlias = npt.NDArray[np.int32]
Int8s: TypeAlias = npt.NDArray[np.int8]
Uint32s: TypeAlias = npt.NDArray[np.uint32]
Bools: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[Any]  # float32 or float64, as the forest's dtype says

NUMBER, ZERO_IS_MISSING, CATEGORY = 0, 1, 2  # kinds of split; a leaf is a NUMBER
ZERO_REACH = float(np.float32(1e-35))  # LightGBM's kZeroThreshold, a float32: values within it count as zero
ENDS_OF_ZERO = (math.nextafter(-ZERO_REACH, -math.inf), ZERO_REACH)  # each the greatest value of its cell
BITS = 32  # of a word of `category_bits`
# The dtype in which each library adds and compares, and the comparison that sends a number to the left.
ARITHMETIC: Final[dict[Library, tuple[np.dtype[Any], Operator]]] = {
    "xgboost": (np.dtype(np.float32), "<"),
    "lightgbm": (np.dtype(np.float64), "<="),
}
CODES_MAX = 1 << 24  # of one feature: float32, in which XGBoost holds codes, counts no further
INSIDE = -1  # for what a node lacks: a leaf's feature and children, a split's slot, a root's parent


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedNode:
    """One node as its library numbers it. A leaf has no children; `left` and `right` point into the same tree's list."""

    number: int  # of the split (XGBoost: node id, LightGBM: split index) or of the leaf (`pred_leaf`)
    feature: int = INSIDE
    value: float  # the threshold of a split, the weight of a leaf
    left: int = INSIDE
    right: int = INSIDE
    default_left: bool = False
    zero_is_missing: bool = False  # LightGBM's zero_as_missing: zero goes where a missing value goes
    categories: frozenset[int] | None = None  # the codes that a split on a category lists

    @property
    def is_leaf(self) -> bool:
        """Whether a row's path ends here."""
        return self.left == INSIDE


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forest:
    """A boosted ensemble of one output. All arrays are read-only; `weight` and `threshold` are in `dtype`.

    A row goes left where `row[split_feature] operator threshold`, and where it is missing and `default_left`. Missing
    is NaN, the sentinel `missing`, and at a ZERO_IS_MISSING split what lies within ZERO_REACH of zero. A CATEGORY split
    lists codes in `category_bits[category_start[node]:category_start[node + 1]]`, bit c % 32 of word c // 32 for code
    c: LightGBM sends them to the left and all other numbers to the right, XGBoost the other way round.
    Shapes: first_node, first_leaf (trees + 1,); split_feature .. depth, kind (nodes,); category_start (nodes + 1,);
    category_bits (words,) uint32; leaf_id, leaf_node, weight (slots,).
    """

    library: Library
    library_version: str  # of the writer; "" where the file does not say
    objective: str
    features: tuple[str, ...]
    operator: Operator
    dtype: np.dtype[Any]  # float32 for XGBoost, float64 for LightGBM: rows are cast to it before they are compared
    base_margin: np.floating[Any]  # added before the first tree
    link_line: str  # the library's source of the link: LightGBM's line of the objective, XGBoost's name
    averages: bool  # LightGBM's rf: its link takes the margin divided by the number of trees
    missing: float | None  # the number that the decider passes to XGBoost as missing, besides NaN
    is_category: tuple[bool, ...]  # per feature: whether it holds codes of categories
    words: tuple[tuple[Word, ...] | None, ...]  # per feature: the training categories by code; None: not in the file
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
    kind: Int8s
    category_start: Int32s
    category_bits: Uint32s
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
        """How many trees the forest has."""
        return len(self.first_node) - 1

    def thresholds(self, feature: int) -> Floats:
        """Sorted distinct thresholds of one feature (by its position), in the forest's dtype; empty if never split on.

        Both ends of what a ZERO_IS_MISSING split takes for zero are among them. So may be the largest double, in a
        LightGBM forest, which parts missing from all values: nothing lies beyond it.
        """
        here = (self.split_feature == feature) & (self.kind != CATEGORY)
        ends = ENDS_OF_ZERO if (self.kind[here] == ZERO_IS_MISSING).any() else ()
        return np.unique(np.concatenate([self.threshold[here], np.array(ends, self.dtype)]))

    def listed(self, node: int) -> tuple[int, ...]:
        """The codes that a CATEGORY split lists, ascending."""
        bits = self.category_bits[self.category_start[node] : self.category_start[node + 1]]
        held = np.unpackbits(bits.astype("<u4").view(np.uint8), bitorder="little")
        return tuple(np.flatnonzero(held).tolist())


_ARRAYS = (
    *("first_node", "split_feature", "threshold", "left", "right", "default_left"),
    *("node_id", "leaf_slot", "parent", "depth", "kind", "category_start"),
    *("category_bits", "first_leaf", "leaf_id", "leaf_node", "weight"),
)


def _digest(forest: Forest) -> str:
    text = (
        forest.library,
        forest.library_version,
        forest.objective,
        forest.link_line,
        forest.features,
        forest.operator,
    )
    categories = (forest.is_category, forest.words)
    missing = None if forest.missing is None else forest.missing.hex()
    numbers = (forest.dtype.name, float(forest.base_margin).hex(), forest.averages, missing)
    digest = hashlib.sha256(repr((text, categories, numbers)).encode())
    for name in _ARRAYS:
        array: npt.NDArray[Any] = getattr(forest, name)
        little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(f"{name} {little_endian.dtype.str} {len(array)}\n".encode())
        digest.update(little_endian.tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The content of a model file besides its trees; fields as in `Forest`."""

    library: Library
    library_version: str
    objective: str
    link_line: str
    features: tuple[str, ...]
    is_category: tuple[bool, ...]
    words: tuple[tuple[Word, ...] | None, ...]
    base_margin: float
    averages: bool = False
    missing: float | None = None


def build_forest(saved: Sequence[Sequence[SavedNode]], kind: Kind) -> Forest:
    """Build a Forest from trees, each a list of nodes with its root first. Nodes that no path reaches are dropped.

    Raises: ModelRefused where the links of a tree form none, where it splits on a feature that does not exist or on
    one feature both as a number and as a category, and where a threshold or a leaf is not finite.
    """
    dtype, operator = ARITHMETIC[kind.library]
    rows: list[tuple[SavedNode, int, int, int, int]] = []  # node, left, right, parent, depth
    first_node = [0]
    for tree in saved:
        rows += _preorder(tree, first_node[-1])
        first_node.append(len(rows))
    nodes = [row[0] for row in rows]
    _check_splits(nodes, kind)
    is_leaf = np.array([node.is_leaf for node in nodes], np.bool_)
    number = np.array([node.number for node in nodes], np.int32)
    value = np.array([node.value for node in nodes], np.float64).astype(dtype)
    tree_of = np.repeat(np.arange(len(saved)), np.diff(first_node))
    leaves = np.flatnonzero(is_leaf)
    leaf_node = leaves[np.lexsort((number[leaves], tree_of[leaves]))]
    leaf_slot = np.full(len(nodes), INSIDE, np.int32)
    leaf_slot[leaf_node] = np.arange(len(leaf_node))
    leaves_per_tree = np.bincount(tree_of[leaves], minlength=len(saved))
    bits = [_bits(node.categories) for node in nodes]
    return Forest(
        library=kind.library,
        library_version=kind.library_version,
        objective=kind.objective,
        link_line=kind.link_line,
        averages=kind.averages,
        missing=None if kind.missing is None else float(dtype.type(kind.missing)),
        features=kind.features,
        is_category=kind.is_category,
        words=kind.words,
        operator=operator,
        dtype=dtype,
        base_margin=dtype.type(kind.base_margin),
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
        kind=np.array([_kind(node) for node in nodes], np.int8),
        category_start=np.cumsum([0, *map(len, bits)]).astype(np.int32),
        category_bits=np.concatenate([np.empty(0, np.uint32), *(b for b in bits if len(b))]),
        first_leaf=np.concatenate([[0], np.cumsum(leaves_per_tree)]).astype(np.int32),
        leaf_id=number[leaf_node],
        leaf_node=leaf_node.astype(np.int32),
        weight=value[leaf_node],
    )


def _kind(node: SavedNode) -> int:
    if node.categories is not None:
        return CATEGORY
    return ZERO_IS_MISSING if node.zero_is_missing else NUMBER


def _bits(codes: frozenset[int] | None) -> Uint32s:
    if not codes:
        return np.empty(0, np.uint32)
    held = np.zeros((max(codes) // BITS + 1) * BITS, np.uint8)
    held[list(codes)] = 1
    return np.packbits(held, bitorder="little").view("<u4").astype(np.uint32)


def _check_splits(nodes: Sequence[SavedNode], kind: Kind) -> None:
    def refuse(node: SavedNode, what: str, remedy: str) -> NoReturn:
        on = "" if node.is_leaf else f" on feature {kind.features[node.feature]!r}"
        message = f"model refused: {'leaf' if node.is_leaf else 'split'} {node.number}{on} {what}; {remedy}"
        raise ModelRefused(message)

    for node in nodes:
        if node.feature >= len(kind.features):
            message = f"model refused: a tree splits on a feature beyond the {len(kind.features)} that have names; name them all"
            raise ModelRefused(message)
        if not math.isfinite(node.value):
            remedy = "remove infinite and missing targets and values from the training data"
            refuse(node, f"holds {node.value}, which no margin survives", remedy)
        if not node.is_leaf and kind.is_category[node.feature] != (node.categories is not None):
            refuse(node, "takes a number for a category, or the other way round", "train anew, with one type for it")
        if node.categories and not 0 <= min(node.categories) <= max(node.categories) < CODES_MAX:
            refuse(node, f"lists a category code outside 0 .. {CODES_MAX - 1}", "train on codes 0, 1, 2, ...")


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
    slot_of = {here: offset + i for i, here in enumerate(order)} | {INSIDE: INSIDE}
    return [(tree[i], slot_of[tree[i].left], slot_of[tree[i].right], slot_of[parent[i]], depth[i]) for i in order]
