"""The bytes of an XGBoost model file -> its content in the one form that XGBoost writes today.

XGBoost itself loads the file and saves it again, so that files of every version since 1.0, JSON or UBJSON, look alike. A
damaged file can crash or hang the process, so XGBoost only gets files that were validated here.
"""

from __future__ import annotations

import json
import re
import warnings
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import xgboost as xgb

from stream.errors import ModelRefused, shown
from stream.forest.trees import INSIDE
from stream.forest.xgboost.categories import Json, check_listed, check_words
from stream.forest.xgboost.ubjson import read_ubjson
from stream.strict_json import unique_keys

NODES_MAX = 1 << 31  # XGBoost numbers nodes and features in 31 bits
_WHOLE_COLUMNS = ("left_children", "right_children", "parents", "split_indices", "default_left")
_REAL_COLUMNS = ("split_conditions", "base_weights", "loss_changes", "sum_hessian")


def refuse(what: str, remedy: str) -> NoReturn:
    """Raise ModelRefused with what is refused and what to do."""
    message = f"XGBoost model refused: {what}; {remedy}"
    raise ModelRefused(message)


def refuse_damaged(where: str) -> NoReturn:
    """Raise ModelRefused for a file that XGBoost cannot have written."""
    refuse(f"the file is damaged ({where})", "give it as save_model('model.json') wrote it")


def parsed(raw: bytes, *, ubj: bool) -> Json:
    """Parse the file: JSON, or UBJSON where `ubj`. Raises: ModelRefused where it is neither."""
    if not raw.startswith(b"{"):
        refuse(
            "the file is neither JSON nor UBJSON (perhaps the old binary format, or another file)",
            "load it with the version that wrote it and save it with save_model('model.json')",
        )
    form, remedy = "JSON", "give the file that save_model('model.json') wrote"
    if ubj:  # which XGBoost 3.2.0 writes wrongly where categories are unsigned numbers
        form, remedy = "UBJSON", "give the file whole, or save it with save_model('model.json')"
    try:
        model = read_ubjson(raw) if ubj else json.loads(raw, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        refuse(f"the file is not {form} ({shown(str(error))})", remedy)
    if not isinstance(model, dict) or not isinstance(model.get("learner"), dict):
        refuse(f"the file is {form} without a learner", remedy)
    return model


def trees_of(learner: Json) -> Json:
    """The part of a learner that holds its trees; DART keeps it one level deeper, beside its weights."""
    booster = learner["gradient_booster"]
    model: Json = booster["gbtree"]["model"] if booster["name"] == "dart" else booster["model"]
    return model


def check_whole(learner: Json) -> None:
    """Refuse links that would lead XGBoost out of an array or in a circle.

    Raises: ModelRefused with the tree. Missing parts raise KeyError, parts of a wrong type TypeError or ValueError.
    """
    model = trees_of(learner)
    trees = model["trees"]
    features = int(learner["learner_model_param"]["num_feature"])
    if not 0 < features < NODES_MAX or len(learner.get("feature_names", [])) not in (0, features):
        refuse_damaged(f"it has {features} features and {len(learner['feature_names'])} names")
    if len(learner.get("feature_types", [])) not in (0, features):
        refuse_damaged(f"it has {features} features and {len(learner['feature_types'])} types")
    if not len(trees) == len(model["tree_info"]) == int(model["gbtree_model_param"]["num_trees"]):
        refuse_damaged("it does not hold as many trees as it says")
    if any(model["tree_info"]):
        refuse_damaged("a tree belongs to another class than 0")
    weights = learner["gradient_booster"].get("weight_drop")
    if weights is not None and (len(weights) != len(trees) or not _is_number(weights)):
        refuse_damaged("it does not hold as many weights of trees as trees")
    starts = model.get("iteration_indptr")
    if starts is not None and (starts != sorted(starts) or starts[:1] != [0] or starts[-1] != len(trees)):
        refuse_damaged("its iterations do not end where its trees do")
    for index, tree in enumerate(trees):
        if not _is_whole(tree, features):
            refuse_damaged(f"tree {index}")
    if "cats" in model and not check_words(model["cats"], features):
        refuse_damaged("the training categories")


def _is_whole(tree: Json, features: int) -> bool:
    """Whether a tree's columns have a place for every node, and its links lead from node 0 to each child once."""
    nodes = int(tree["tree_param"]["num_nodes"])
    names = _WHOLE_COLUMNS + _REAL_COLUMNS + (("split_type",) if "split_type" in tree else ())
    columns = {name: np.asarray(tree[name]) for name in names}
    if not nodes or any(column.shape != (nodes,) for column in columns.values()):
        return False
    kinds = {name: "iuf" if name in _REAL_COLUMNS else "biu" for name in columns}
    if any(column.dtype.kind not in kinds[name] for name, column in columns.items()):
        return False
    left, right, split_on = columns["left_children"], columns["right_children"], columns["split_indices"]
    splits = np.flatnonzero(left >= 0)
    children = np.concatenate([left[splits], right[splits]])
    return bool(
        (left >= INSIDE).all()
        and ((children > 0) & (children < nodes)).all()
        and len(np.unique(children)) == len(children)
        and (columns["parents"][children] == np.tile(splits, 2)).all()
        and ((split_on[splits] >= 0) & (split_on[splits] < features)).all()
        # the earliest files have no categories
        and ("categories" not in tree or check_listed(tree, nodes))
    )


def _is_number(values: list[Any]) -> bool:
    array: npt.NDArray[Any] = np.asarray(values)
    return array.ndim == 1 and (not len(array) or array.dtype.kind in "iuf")


def loaded(raw: bytes) -> Json:
    """The model as XGBoost saves it after loading it. Raises: ModelRefused where it cannot load it."""
    try:
        booster = xgb.Booster({"nthread": 1})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the file is old; the gate compares margins anyway
            booster.load_model(bytearray(raw))
        model: Json = json.loads(booster.save_raw("json"))
    except (xgb.core.XGBoostError, ValueError) as error:
        refuse(
            f"XGBoost {xgb.__version__} cannot load it ({xgboost_error_text(error)})", "check that the file is whole"
        )
    return model


def xgboost_error_text(error: Exception) -> str:
    """The first line of an XGBoost error, without the time and the build machine's paths."""
    first_line = str(error).strip().partition("\n")[0]
    return shown(re.sub(r"^\[[0-9:]+\] |/\S*/(src|include/xgboost)/", "", first_line), 200)
