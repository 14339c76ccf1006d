"""Trees as their owner library writes them down: exact leaf values, and the way to each leaf. Knows no code of ours."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from fractions import Fraction
from math import nan
from typing import Any

import lightgbm as lgb
import numpy as np

Step = tuple[int, int, float, bool]  # node, feature, threshold (of a category: not one), whether the way goes left


@dataclass(slots=True)
class Tree:
    """Per leaf, by the library's own id: its exact value, and the splits on the way from the root."""

    value: dict[int, Fraction] = field(default_factory=dict)
    path: dict[int, tuple[Step, ...]] = field(default_factory=dict)

    def decisive(self, a: int, b: int) -> Step:
        """The split where the ways to two different leaves part: their last common node."""
        nodes = {step[0] for step in self.path[b]}
        return [step for step in self.path[a] if step[0] in nodes][-1]


def trees_of(booster: Any) -> list[Tree]:
    """All trees of a booster, from its own dump."""
    if isinstance(booster, lgb.Booster):
        return [_from_lightgbm(dumped["tree_structure"]) for dumped in booster.dump_model()["tree_info"]]
    saved = json.loads(booster.save_raw("json"))
    return [_from_xgboost(tree) for tree in saved["learner"]["gradient_booster"]["model"]["trees"]]


def _from_lightgbm(root: Any) -> Tree:
    tree = Tree()
    stack: list[tuple[Any, tuple[Step, ...]]] = [(root, ())]
    while stack:
        node, path = stack.pop()
        if "leaf_value" in node:
            leaf = node.get("leaf_index", 0)
            tree.value[leaf], tree.path[leaf] = Fraction(float(node["leaf_value"])), path
            continue
        is_category = node["decision_type"] == "=="  # what it lists stands in place of a threshold
        split = (node["split_index"], node["split_feature"], nan if is_category else float(node["threshold"]))
        stack += [(node["left_child"], (*path, (*split, True))), (node["right_child"], (*path, (*split, False)))]
    return tree


def _from_xgboost(saved: Any) -> Tree:
    tree = Tree()
    stack: list[tuple[int, tuple[Step, ...]]] = [(0, ())]
    while stack:
        node, path = stack.pop()
        number = float(np.float32(saved["split_conditions"][node]))
        if saved["left_children"][node] < 0:
            tree.value[node], tree.path[node] = Fraction(number), path
            continue
        split = (node, saved["split_indices"][node], number)
        stack.append((saved["left_children"][node], (*path, (*split, True))))
        stack.append((saved["right_children"][node], (*path, (*split, False))))
    return tree
