"""An XGBoost model file -> Forest, or a refusal that says why.

The reference is `Booster.predict` of a DMatrix. For DART, `inplace_predict`, and so XGBClassifier, adds in another order and
differs in the last bits.
"""

from __future__ import annotations

import json
import math
from typing import Final

import numpy as np
import xgboost as xgb

from stream.errors import shown
from stream.forest.trees import INSIDE, Forest, Kind, SavedNode, TreesUsed, Word, build_forest
from stream.forest.xgboost.categories import Json, are_categories, listed_categories, words_in_file
from stream.forest.xgboost.link import LINK_OF_OBJECTIVE
from stream.forest.xgboost.model_file import (
    check_whole,
    loaded,
    parsed,
    refuse,
    refuse_damaged,
    trees_of,
    xgboost_error_text,
)

NOT_IN_NAMES: Final = frozenset("[]<")
ITERATION_DIGITS_MAX: Final = 9
_ZERO_TREE: Json = {
    **{name: [0.0] for name in ("base_weights", "loss_changes", "sum_hessian")},
    "split_conditions": [-0.0],  # the leaf; what is added to it keeps its bits, those of -0.0 too
    **{name: [0] for name in ("default_left", "split_indices", "split_type")},
    **{name: [] for name in ("categories", "categories_nodes", "categories_segments", "categories_sizes")},
    "id": 0,
    "left_children": [-1],
    "right_children": [-1],
    "parents": [2147483647],  # how XGBoost writes that a root has none
    "tree_param": {"num_deleted": "0", "num_feature": "1", "num_nodes": "1", "size_leaf_vector": "1"},
}


def read_xgboost(raw: bytes, *, ubj: bool, trees: TreesUsed | None, missing: float | None) -> Forest:
    """Read an XGBoost model file (`ubj`: UBJSON, else JSON), with the trees up to the best iteration or all.

    `missing`: the number that the decider passes to XGBoost as missing, besides NaN, which always is; None or NaN where
    it passes none. The file does not hold it.
    Raises: ModelRefused where the margin or the path of some row could not be reproduced bit for bit.
    """
    sentinel = _sentinel(missing)
    as_saved = parsed(raw, ubj=ubj)
    try:
        _check_kind(as_saved["learner"])
        _check_start_and_link(as_saved["learner"])
        check_whole(as_saved["learner"])
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        refuse_damaged(f"{type(error).__name__} on reading its parts")
    model = loaded(raw)
    learner = model["learner"]
    features = tuple(learner["feature_names"])
    if not features:
        refuse("its features have no names", "train on a DataFrame, or set feature_names on the DMatrix")
    if len(set(features)) < len(features):
        refuse("two of its features have one name", "give every feature a name of its own")
    if unfit := [name for name in features if set(name) & NOT_IN_NAMES]:
        refuse(
            f"its feature name {shown(unfit[0])} holds one of {' '.join(sorted(NOT_IN_NAMES))}, which XGBoost takes in no table",
            "give the features other names, and train again",
        )
    in_file = trees_of(learner)["trees"]
    saved = in_file[: _trees_used(learner, trees)]
    weights = learner["gradient_booster"].get("weight_drop", [None] * len(saved))  # only a dart has them
    kind = Kind(
        library="xgboost",
        library_version=".".join(map(str, as_saved.get("version", []))),  # once loaded, XGBoost reports its own
        objective=learner["objective"]["name"],
        link_line=learner["objective"]["name"],
        features=features,
        is_category=are_categories(learner, in_file, len(features)),
        words=_words(trees_of(learner), len(features)),
        base_margin=_base_margin(model),
        missing=sentinel,
    )
    return build_forest([_nodes(tree, i, weights[i]) for i, tree in enumerate(saved)], kind)


def _sentinel(missing: float | None) -> float | None:
    if missing is None or math.isnan(missing):
        return None
    with np.errstate(over="ignore"):
        if not np.isfinite(np.float32(missing)):
            refuse(
                "its missing value is infinite in float32, in which XGBoost compares it",
                "say the number that the decider passes as missing=",
            )
    return float(missing)


def _check_kind(learner: Json) -> None:
    """Refuse boosters without trees and models with several outputs."""
    booster, objective = learner["gradient_booster"]["name"], str(learner["objective"]["name"])
    parameters = learner["learner_model_param"]
    classes, targets = int(parameters.get("num_class", 0)), int(parameters.get("num_target", 1))
    if booster not in ("gbtree", "dart"):
        refuse(f"booster is {shown(str(booster))}, which has no trees", "train with booster='gbtree' or booster='dart'")
    if classes > 1:
        refuse(f"it has {classes} classes ({shown(objective)})", "train a binary classifier (binary:logistic)")
    if targets > 1 and objective == "reg:quantileerror":
        refuse(f"it has {targets} quantile_alpha", "train one model per quantile")
    if targets > 1:
        refuse(f"it has {targets} targets", "train one model per target")
    for index, tree in enumerate(trees_of(learner)["trees"]):
        size = int(tree["tree_param"]["size_leaf_vector"])
        if size < 0:
            refuse_damaged(f"tree {index} has leaves of size {size}")
        if size > 1:
            refuse(f"tree {index} has vector leaves", "train with multi_strategy='one_output_per_tree'")


def _check_start_and_link(learner: Json) -> None:
    """Refuse an objective with an unknown link, and a base score that is not one finite number."""
    objective, base_score = str(learner["objective"]["name"]), learner["learner_model_param"]["base_score"]
    if objective.startswith("rank:"):
        refuse(
            f"objective is {shown(objective)}, whose scores only order the rows of one group",
            "train a model of the decision itself (binary:logistic)",
        )
    if objective not in LINK_OF_OBJECTIVE:
        known = ", ".join(LINK_OF_OBJECTIVE)
        refuse(f"objective is {shown(objective)}, whose link is unknown", f"train with one of {known}")
    if "," in base_score:
        refuse(f"base_score has {base_score.count(',') + 1} values", "train one model per output")
    if not math.isfinite(float(base_score.strip("[]"))):
        refuse(f"base_score is {shown(base_score)}", "train with a finite base_score")


def _trees_used(learner: Json, trees: TreesUsed | None) -> int:
    """How many trees count. Booster.predict uses all of them, XGBClassifier.predict those up to the best iteration."""
    starts: list[int] = trees_of(learner)["iteration_indptr"]  # of the trees of each iteration, and their end
    iterations, in_file = len(starts) - 1, starts[-1]
    if in_file == 0:
        refuse("it has no trees", "train at least one round")
    best = learner["attributes"].get("best_iteration")
    if best is None:
        return in_file
    if not (best.isdecimal() and best.isascii()):
        refuse_damaged("its best_iteration is no number")
    if len(best) > ITERATION_DIGITS_MAX or int(best) + 1 >= iterations:
        return in_file
    if trees is None:
        refuse(
            f"its best iteration is {best} but it has {iterations}, and the two score differently",
            "say --trees best (as XGBClassifier.predict does) or --trees all (as Booster.predict does)",
        )
    return starts[int(best) + 1] if trees == "best" else in_file


def _words(model: Json, count: int) -> tuple[tuple[Word, ...] | None, ...]:
    try:
        return words_in_file(model, count)
    except (OverflowError, ValueError) as error:
        refuse(str(error), "train on strings, or on numbers below 2 ** 53")


def _base_margin(model: Json) -> float:
    """Ask XGBoost what it adds before the first tree, by giving it the model with one tree of one leaf that is zero.

    Its own logarithm is not NumPy's, some versions clamp base_score, and the file writes it in several ways.
    """
    learner = model["learner"]
    score = learner["learner_model_param"]["base_score"]
    in_model = trees_of(learner)
    bare = {
        **in_model,
        "gbtree_model_param": {**in_model["gbtree_model_param"], "num_parallel_tree": "1", "num_trees": "1"},
        "iteration_indptr": [0, 1],
        "tree_info": [0],
        "trees": [_ZERO_TREE],
    }
    bare.pop("cats", None)
    bare_learner = {
        **learner,
        "feature_names": [],
        "feature_types": [],
        "gradient_booster": {"model": bare, "name": "gbtree"},
        "learner_model_param": {**learner["learner_model_param"], "num_feature": "1"},
    }
    row = xgb.DMatrix(np.zeros((1, 1)), nthread=1)
    remedy = f"train with a base_score that {learner['objective']['name']} can start from"
    try:
        booster = xgb.Booster({"nthread": 1})
        booster.load_model(bytearray(json.dumps({**model, "learner": bare_learner}).encode()))
        margin = float(booster.predict(row, output_margin=True, validate_features=False)[0])
    except xgb.core.XGBoostError as error:
        refuse(f"base_score {score} has no margin ({xgboost_error_text(error)})", remedy)
    if not math.isfinite(margin):
        refuse(f"base_score {score} has no finite margin", remedy)
    return margin


def _nodes(tree: Json, index: int, weight: float | None) -> list[SavedNode]:
    """The nodes of one tree; a leaf times the weight that DART gives the tree, as XGBoost multiplies it, in float32."""
    with np.errstate(over="ignore"):
        values = np.array(tree["split_conditions"], np.float32)
        # DART adds each tree to a zero of its own before it weighs it, so a leaf of -0.0 counts as 0.0.
        folded = values if weight is None else (values + np.float32(0)) * np.float32(weight)
    listed = listed_categories(tree)
    columns = ("left_children", "right_children", "split_indices", "default_left")
    nodes = []
    rows = zip(*(tree[column] for column in columns), values.tolist(), folded.tolist(), strict=True)
    for number, (left, right, feature, default_left, threshold, leaf_value) in enumerate(rows):
        leaf = left < 0
        value = leaf_value if leaf else 0.0 if number in listed else threshold
        if not math.isfinite(value):
            refuse(
                f"tree {index} node {number} holds {value}, which no finite value can be compared with exactly",
                "remove infinite or overflowing values from the training data",
            )
        nodes.append(
            SavedNode(
                number=number,
                feature=INSIDE if leaf else feature,
                value=value,
                left=INSIDE if leaf else left,
                right=INSIDE if leaf else right,
                default_left=bool(default_left) and not leaf,
                categories=None if leaf else listed.get(number),
            )
        )
    return nodes
