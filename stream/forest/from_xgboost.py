"""An XGBoost model file -> Forest, or a refusal that says why.

The file is read by XGBoost itself and written again as JSON by it, so that every version since 1.0, in JSON or UBJSON,
arrives in one form.
"""

from __future__ import annotations

import json
import math
import struct
import warnings
from typing import Any, NoReturn, TypeAlias

import numpy as np
import xgboost as xgb

from stream.errors import ModelRefused
from stream.forest.trees import INSIDE, Forest, SavedNode, TreesUsed, plant

Json: TypeAlias = dict[str, Any]

OBJECTIVES = ("binary:logistic",)
_ZERO_TREE: Json = {
    **{name: [0.0] for name in ("base_weights", "loss_changes", "sum_hessian")},
    "split_conditions": [-0.0],  # the leaf; what is added to it keeps its bits, those of -0.0 too
    **{name: [0] for name in ("default_left", "split_indices", "split_type")},
    **{name: [] for name in ("categories", "categories_nodes", "categories_segments", "categories_sizes")},
    "id": 0,
    "left_children": [-1],
    "right_children": [-1],
    "parents": [2147483647],  # how XGBoost writes that a root has none
    "tree_param": {"num_deleted": "0", "num_nodes": "1", "size_leaf_vector": "1"},
}


def read_xgboost(raw: bytes, *, ubj: bool, trees: TreesUsed | None) -> Forest:
    """Read a model file of XGBoost's (`ubj`: UBJSON, else JSON), keeping the trees up to the best iteration or all.

    Raises: ModelRefused where the margin or the path of some row could not be reproduced bit for bit.
    """
    model = _model(raw, ubj=ubj)
    learner = model["learner"]
    _check_kind(learner)
    features = tuple(learner["feature_names"])
    if not features:
        _refuse("its features have no names", "train on a DataFrame, or set feature_names on the DMatrix")
    _check_feature_types(learner)
    in_file = learner["gradient_booster"]["model"]["trees"]
    saved = in_file[: _trees_used(learner, len(in_file), trees)]
    return plant(
        [_nodes(tree, i) for i, tree in enumerate(saved)],
        library="xgboost",
        library_version=_writer_version(raw, ubj=ubj),
        objective=learner["objective"]["name"],
        features=features,
        base_margin=_base_margin(model),
        sigmoid=1.0,
    )


def _base_margin(model: Json) -> float:
    """Ask XGBoost what it adds before the first tree, by giving it the model with one tree of one leaf that is zero.

    Its own logarithm is not NumPy's, some versions clamp base_score, and the file writes it in several ways.
    """
    learner = model["learner"]
    score = learner["learner_model_param"]["base_score"]
    if "," in score:
        _refuse(f"base_score has {score.count(',') + 1} values", "train one model per output")
    booster_model = learner["gradient_booster"]["model"]
    bare = {
        **booster_model,
        "gbtree_model_param": {**booster_model["gbtree_model_param"], "num_trees": "1"},
        "iteration_indptr": [0, 1],
        "tree_info": [0],
        "trees": [_ZERO_TREE | {"tree_param": {**_ZERO_TREE["tree_param"], "num_feature": _feature_count(learner)}}],
    }
    bare_learner = {**learner, "gradient_booster": {**learner["gradient_booster"], "model": bare}}
    row = xgb.DMatrix(np.zeros((1, len(learner["feature_names"]))), nthread=1)
    try:
        booster = xgb.Booster({"nthread": 1})
        booster.load_model(bytearray(json.dumps({**model, "learner": bare_learner}).encode()))
        margin = float(booster.predict(row, output_margin=True, validate_features=False)[0])
    except xgb.core.XGBoostError as error:
        _refuse(f"base_score {score} has no margin ({_what(error)})", "train with base_score between 0 and 1")
    if not math.isfinite(margin):
        _refuse(f"base_score {score} has no finite margin", "train with base_score between 0 and 1")
    return margin


def _feature_count(learner: Json) -> str:
    return str(learner["learner_model_param"]["num_feature"])


def _refuse(what: str, remedy: str) -> NoReturn:
    message = f"XGBoost model refused: {what}; {remedy}"
    raise ModelRefused(message)


def _model(raw: bytes, *, ubj: bool) -> Json:
    if not raw.startswith(b"{"):
        _refuse(
            "the file is neither JSON nor UBJSON (perhaps the old binary format, or another file)",
            "load it with the version that wrote it and save it with save_model('model.json')",
        )
    if not ubj:
        try:
            json.loads(raw)
        except ValueError as error:
            _refuse(f"the file is not JSON ({error})", "give the file that save_model('model.json') wrote")
    try:
        booster = xgb.Booster({"nthread": 1})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the file is old: what matters is that our margins equal its own
            booster.load_model(bytearray(raw))
        model: Json = json.loads(booster.save_raw("json"))
    except (xgb.core.XGBoostError, ValueError) as error:
        _refuse(f"XGBoost {xgb.__version__} cannot load it ({_what(error)})", "check that the file is whole")
    return model


def _what(error: Exception) -> str:
    """The first line of an error of XGBoost's, without the clock and the build machine's folders."""
    first_line = str(error).strip().partition("\n")[0]
    return first_line.rpartition("/src/")[2] or first_line


def _check_kind(learner: Json) -> None:
    booster, objective = learner["gradient_booster"]["name"], learner["objective"]["name"]
    parameters = learner["learner_model_param"]
    if booster == "dart":
        _refuse("booster is dart (weighted trees)", "train with booster='gbtree'")
    if booster != "gbtree":
        _refuse(f"booster is {booster}, which has no trees", "train with booster='gbtree'")
    if int(parameters["num_class"]) > 1:
        _refuse(f"it has {parameters['num_class']} classes", "train a binary classifier (binary:logistic)")
    if int(parameters["num_target"]) > 1:
        _refuse(f"it has {parameters['num_target']} targets", "train one model per target")
    if objective not in OBJECTIVES:
        _refuse(f"objective is {objective}", f"train with {' or '.join(OBJECTIVES)}")
    parallel = learner["gradient_booster"]["model"]["gbtree_model_param"]["num_parallel_tree"]
    if int(parallel) > 1:
        _refuse(f"num_parallel_tree is {parallel} (a boosted random forest)", "train with num_parallel_tree=1")


def _check_feature_types(learner: Json) -> None:
    for name, kind in zip(learner["feature_names"], learner["feature_types"], strict=False):
        if kind == "c":
            _refuse(f"feature {name!r} is categorical", "train on the category codes as a number")


def _trees_used(learner: Json, in_file: int, trees: TreesUsed | None) -> int:
    """How many trees count. Booster.predict uses all of them, XGBClassifier.predict those up to the best iteration."""
    if in_file == 0:
        _refuse("it has no trees", "train at least one round")
    best = learner["attributes"].get("best_iteration")
    if best is None:
        return in_file
    through_best = int(best) + 1
    if through_best >= in_file:
        return in_file
    if trees is None:
        _refuse(
            f"its best iteration is {best} but it has {in_file} trees, and the two score differently",
            "say --trees best (as XGBClassifier.predict does) or --trees all (as Booster.predict does)",
        )
    return through_best if trees == "best" else in_file


def _nodes(tree: Json, index: int) -> list[SavedNode]:
    if int(tree["tree_param"]["size_leaf_vector"]) > 1:
        _refuse(f"tree {index} has vector leaves", "train with multi_strategy='one_output_per_tree'")
    if any(tree["split_type"]):
        _refuse(f"tree {index} splits on categories", "train on the category codes as a number")
    columns = ("left_children", "right_children", "split_indices", "split_conditions", "default_left")
    nodes = []
    rows = zip(*(tree[column] for column in columns), strict=True)
    for number, (left, right, feature, condition, default_left) in enumerate(rows):
        if not math.isfinite(condition):
            _refuse(
                f"tree {index} node {number} holds {condition}, which no finite value can be compared with exactly",
                "remove infinite or overflowing values from the training data",
            )
        leaf = left < 0
        nodes.append(
            SavedNode(
                number=number,
                feature=INSIDE if leaf else feature,
                value=condition,
                left=INSIDE if leaf else left,
                right=INSIDE if leaf else right,
                default_left=bool(default_left) and not leaf,
            )
        )
    return nodes


def _writer_version(raw: bytes, *, ubj: bool) -> str:
    """The version in the file itself: once loaded, XGBoost only tells its own."""
    if not ubj:
        return ".".join(map(str, json.loads(raw).get("version", [])))
    numbers = raw.rpartition(b"\x07version[#L\x00\x00\x00\x00\x00\x00\x00\x03")[2]
    sizes = {b"i": ">b", b"U": ">B", b"I": ">h", b"l": ">i", b"L": ">q"}  # UBJSON's integer markers
    parts: list[str] = []
    while len(parts) < len(("major", "minor", "patch")) and numbers[:1] in sizes:
        layout = sizes[numbers[:1]]
        parts.append(str(struct.unpack_from(layout, numbers, 1)[0]))
        numbers = numbers[1 + struct.calcsize(layout) :]
    return ".".join(parts)
