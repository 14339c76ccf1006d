"""A LightGBM model file -> Forest, or a refusal that says why.

LightGBM reads its own text and dumps the trees: leaf ids are then its leaf indices, the ones `pred_leaf` gives.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn, TypeAlias

import numpy as np

from stream.errors import ModelRefused
from stream.forest.lightgbm_library import lightgbm
from stream.forest.trees import Forest, SavedNode, TreesUsed, plant

Json: TypeAlias = dict[str, Any]
Block: TypeAlias = dict[str, str]

# Before it walks, LightGBM takes every value this near to zero for zero (kZeroThreshold, a float32).
_ZERO_REACH = float(np.float32(1e-35))
# In its dump, not in its text, LightGBM cuts thresholds off here, inf among them (AvoidInf).
_DUMPED_MAX = 1e300
_DOUBLE_MAX = float(np.finfo(np.float64).max)
_LINEAR = "\nis_linear=1"
_INTEGER_COLUMNS = ("left_child", "right_child", "split_feature")
_SPLIT_COLUMNS = (*_INTEGER_COLUMNS, "threshold", "decision_type")


def read_lightgbm(text: str, *, trees: TreesUsed | None) -> Forest:
    """Read a model file of LightGBM's. `trees` changes nothing: the text holds the trees that count and no other.

    Raises: ModelRefused where the margin or the path of some row could not be reproduced bit for bit.
    """
    del trees  # LightGBM writes only the trees up to the best iteration, and forgets which that was
    dumped = _dump(text)
    objective, sigmoid = _objective(dumped)
    features = tuple(dumped["feature_names"])
    if all(name == f"Column_{i}" for i, name in enumerate(features)):
        _refuse("its features have no names (Column_0, Column_1, ...)", "train on a DataFrame, or set feature_name")
    if not dumped["tree_info"]:
        _refuse("it has no trees", "train at least one round")
    return plant(
        [_nodes(tree, block) for tree, block in zip(dumped["tree_info"], _blocks(text)[1:], strict=True)],
        library="lightgbm",
        library_version=_blocks(text)[0].get("version", ""),  # of the format: the text says no other
        objective=objective,
        features=features,
        base_margin=0.0,  # the average is part of the first tree
        sigmoid=sigmoid,
    )


def _refuse(what: str, remedy: str) -> NoReturn:
    message = f"LightGBM model refused: {what}; {remedy}"
    raise ModelRefused(message)


def _dump(text: str) -> Json:
    _check_whole(text)
    lgb = lightgbm()
    try:
        dumped: Json = lgb.Booster(model_str=text).dump_model()
    except (lgb.basic.LightGBMError, ValueError) as error:
        _refuse(f"LightGBM {lgb.__version__} cannot load it ({error})", "check that the file is whole")
    return dumped


def _check_whole(text: str) -> None:
    """LightGBM's own parser ends the process on a damaged tree, so look before it does."""
    settings, *blocks = _blocks(text)
    if not text.startswith("tree\n") or "\nend of trees" not in text or "feature_names" not in settings:
        _refuse("the file is not a whole LightGBM model text", "give the file that save_model('model.txt') wrote")
    if len(settings.get("tree_sizes", "").split()) != len(blocks):
        _refuse("the number of trees is not the one its header states", "check that the file is whole")
    if _LINEAR in text:
        _refuse("it has linear leaves (linear_tree)", "train with linear_tree=false")
    features = len(settings["feature_names"].split())
    for tree, block in enumerate(blocks):
        if not _is_tree(block, features):
            _refuse(f"tree {tree} is damaged", "give the file that save_model('model.txt') wrote")


def _blocks(text: str) -> list[Block]:
    """The lines `name=value` of the header and then of each tree."""
    blocks = text.partition("\nend of trees")[0].split("\nTree=")
    return [dict(line.partition("=")[::2] for line in block.splitlines()) for block in blocks]


def _is_tree(block: Block, features: int) -> bool:
    """Whether each node has all its numbers, each feature exists, and the links make one tree."""
    try:
        leaves = int(block["num_leaves"])
        splits = leaves - 1
        columns = {"leaf_value": leaves, **(dict.fromkeys(_SPLIT_COLUMNS, splits) if splits else {})}
        if any(len(block[name].split()) != length for name, length in columns.items()):
            return False
        left, right, used = ([int(v) for v in block[name].split()] if splits else [] for name in _INTEGER_COLUMNS)
    except (KeyError, ValueError):
        return False
    each_once = sorted([*left, *right]) == [*range(-leaves, 0), *range(1, splits)] if splits else True
    downward = all(link < 0 or link > split for side in (left, right) for split, link in enumerate(side))
    return each_once and downward and all(0 <= feature < features for feature in used)


def _objective(dumped: Json) -> tuple[str, float]:
    """The objective's name and the scale inside its link."""
    if dumped["num_class"] > 1 or dumped["num_tree_per_iteration"] > 1:
        _refuse(f"it has {dumped['num_class']} classes", "train a binary classifier (objective=binary)")
    if dumped["average_output"]:
        _refuse("it averages its trees (boosting=rf)", "train with boosting=gbdt")
    name, *settings = str(dumped.get("objective", "")).split()
    if name != "binary":
        _refuse(f"objective is {name or 'not in the file'}", "train with objective=binary")
    given = dict(setting.partition(":")[::2] for setting in settings)
    return name, float(given.get("sigmoid", "1"))


def _nodes(tree: Json, block: Block) -> list[SavedNode]:
    """One dumped tree, parents before children; `block` is its text."""
    nodes: list[SavedNode] = []
    pending: list[Json] = [tree["tree_structure"]]
    for node in pending:  # grows while it is walked
        if "split_index" not in node:
            nodes.append(SavedNode(number=node.get("leaf_index", 0), value=node["leaf_value"]))
            continue
        where = f"tree {tree['tree_index']} split {node['split_index']}"
        _check_split(node, where)
        threshold = float(node["threshold"])
        if abs(threshold) >= _DUMPED_MAX:
            threshold = float(block["threshold"].split()[node["split_index"]])
        missing_goes_left = threshold >= 0.0 if node["missing_type"] == "None" else bool(node["default_left"])
        left = len(pending)
        pending += [node["left_child"], node["right_child"]]
        nodes.append(
            SavedNode(
                number=node["split_index"],
                feature=node["split_feature"],
                value=_effective(threshold, where),
                left=left,
                right=left + 1,
                default_left=missing_goes_left,
            )
        )
    return nodes


def _effective(threshold: float, where: str) -> float:
    """The finite threshold that parts finite values as they are, where LightGBM compares otherwise.

    All values within reach of zero go where zero goes, so a threshold among them may as well lie at the end of their
    range: then `value <= threshold` needs no look at zero, and the cells between thresholds are what rows fall into.
    A threshold of inf parts missing from all values, and so does the largest double.
    """
    if threshold > _DOUBLE_MAX:
        return _DOUBLE_MAX
    if not threshold >= -_DOUBLE_MAX:
        _refuse(f"{where} has threshold {threshold}", "remove infinite values from the training data")
    if abs(threshold) > _ZERO_REACH:
        return threshold
    return _ZERO_REACH if threshold >= 0.0 else math.nextafter(-_ZERO_REACH, -math.inf)


def _check_split(node: Json, where: str) -> None:
    if node["decision_type"] != "<=":
        _refuse(f"{where} is categorical", "train on the category codes as a number")
    if node["missing_type"] == "Zero":
        _refuse(f"{where} takes zero for missing (zero_as_missing)", "train with zero_as_missing=false")
