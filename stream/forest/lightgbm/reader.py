"""A LightGBM model file -> Forest, or a refusal that says why. Leaf ids are its leaf indices, what `pred_leaf` gives."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

from stream.errors import shown
from stream.forest.lightgbm.categories import categories_of
from stream.forest.lightgbm.library import lightgbm
from stream.forest.lightgbm.link import kind_of_link
from stream.forest.lightgbm.model_text import (
    CATEGORY_BIT,
    DEFAULT_LEFT_BIT,
    MISSING_NONE,
    MISSING_SHIFT,
    MISSING_ZERO,
    ModelText,
    TreeText,
    read_text,
    refuse,
)
from stream.forest.trees import ZERO_REACH, Forest, Kind, SavedNode, TreesUsed, build_forest

Remedies: TypeAlias = dict[str, str]

CUSTOM = "custom"  # a file without an objective: training used a custom function
_DOUBLE_MAX = float(np.finfo(np.float64).max)
_ONE_OUTPUT = "train one model of one output for each decision (objective=binary)"
_REMEDIES: Remedies = {
    "multiclass": _ONE_OUTPUT,
    "multiclassova": _ONE_OUTPUT,
    "lambdarank": "a rank among others decides on nobody alone; train with objective=binary",
    "rank_xendcg": "a rank among others decides on nobody alone; train with objective=binary",
}


def read_lightgbm(text: str, *, trees: TreesUsed | None) -> Forest:
    """Read all trees of a LightGBM model file; the text does not name the best iteration.

    Raises: ModelRefused where the margin or the path of some row could not be reproduced bit for bit, or where `trees`
    is "best", which the file does not tell.
    """
    if trees == "best":
        refuse(
            "its text names no best iteration, so --trees best cannot be told from all",
            "LightGBM saves the trees up to the best by default: save with "
            "save_model(num_iteration=booster.best_iteration), and leave --trees out",
        )
    model = read_text(text)
    line = model.header.get("objective", "")
    objective = _objective(model, line)
    if all(name == f"Column_{i}" for i, name in enumerate(model.features)):
        refuse("its features have no names (Column_0, Column_1, ...)", "train on a DataFrame, or set feature_name")
    if not model.trees:
        refuse("it has no trees", "train at least one round")
    is_category, words = categories_of(model)
    kind = Kind(
        library="lightgbm",
        library_version=model.header.get("version", ""),  # of the format: the text says no other
        objective=objective,
        link_line=line,
        features=model.features,
        is_category=is_category,
        words=words,
        base_margin=0.0,  # the average is part of the first tree
        averages="average_output" in model.header,
    )
    forest = build_forest([_nodes(tree, number) for number, tree in enumerate(model.trees)], kind)
    _check_with_owner(text)
    return forest


def _check_with_owner(text: str) -> None:
    lgb = lightgbm()
    try:
        lgb.Booster(model_str=text)
    except (lgb.basic.LightGBMError, ValueError) as error:
        refuse(f"LightGBM {lgb.__version__} cannot load it ({shown(str(error))})", "check that the file is whole")


def _objective(model: ModelText, line: str) -> str:
    name = line.partition(" ")[0]
    if name in _REMEDIES:
        refuse(f"objective is {name}", _REMEDIES[name])
    for count in ("num_class", "num_tree_per_iteration"):
        outputs = model.header.get(count, "")
        if outputs != "1":
            refuse(f"it has {shown(outputs)} outputs ({count})", _ONE_OUTPUT)
    stated = "objective" in model.header  # LightGBM breaks down on a line that states nothing
    if (stated and not line) or kind_of_link(line) is None:
        refuse(f"objective is {shown(line) or 'empty'}, which is not known here", "train with objective=binary")
    return name or CUSTOM


def _nodes(tree: TreeText, number: int) -> list[SavedNode]:
    """One tree, its root first: the splits by their numbers, then the leaves by theirs."""
    splits = [_split(tree, i, f"tree {number} split {i}") for i in range(len(tree.feature))]
    return splits + [SavedNode(number=i, value=value) for i, value in enumerate(tree.leaf_value)]


def _split(tree: TreeText, i: int, where: str) -> SavedNode:
    left, right = (child if child >= 0 else len(tree.feature) + ~child for child in (tree.left[i], tree.right[i]))
    decision, threshold = tree.decision[i], tree.threshold[i]
    if decision & CATEGORY_BIT:  # a missing code goes where one that is not listed goes
        listed = tree.listed[int(threshold)]
        return SavedNode(number=i, feature=tree.feature[i], value=0.0, left=left, right=right, categories=listed)
    missing = decision >> MISSING_SHIFT
    return SavedNode(
        number=i,
        feature=tree.feature[i],
        value=_effective(threshold, where),
        left=left,
        right=right,
        # Without a type of missing, it counts as zero.
        default_left=threshold >= 0.0 if missing == MISSING_NONE else bool(decision & DEFAULT_LEFT_BIT),
        zero_is_missing=missing == MISSING_ZERO,
    )


def _effective(threshold: float, where: str) -> float:
    """A finite threshold that parts finite values as LightGBM does with the one in the file.

    All values within reach of zero go where zero goes, so a threshold among them may as well lie at the end of their
    range: then `value <= threshold` needs no look at zero, and the cells between thresholds are what rows fall into.
    A threshold of inf parts missing from all values, and so does the largest double.
    """
    if threshold > _DOUBLE_MAX:
        return _DOUBLE_MAX
    if not threshold >= -_DOUBLE_MAX:
        refuse(f"{where} has threshold {threshold}", "remove infinite values from the training data")
    if abs(threshold) > ZERO_REACH:
        return threshold
    return ZERO_REACH if threshold >= 0.0 else math.nextafter(-ZERO_REACH, -math.inf)
