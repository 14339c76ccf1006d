"""Feature Tweaking: the cheapest way into one leaf of one tree at which the whole ensemble accepts.

Tolomei et al. 2017. Each leaf of a tree is a path of conditions; a row's *epsilon-satisfactory* copy obeys all of them
and stays epsilon clear of each threshold it had to pass. Of the copies that the ensemble accepts the cheapest is given.
A boosted tree casts no vote, so every leaf that adds more than the row's own leaf of that tree counts as positive; and
what obeys already stays, where the paper of 2017 puts it too at epsilon from its threshold. Both make it stronger here.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.forest.trees import INSIDE, NUMBER, Forest
from stream.forest.walk import leaf_slots
from tests.evaluation.baselines.interface import Rows, Setting

EPSILON: Final = 0.1  # standard deviations beyond a threshold; the value that the paper of 2017 recommends
ASKED_AT_ONCE: Final = 256


class Paths(NamedTuple):
    """The conditions of every leaf, one interval per feature on its path. Shapes: (slots, longest path)."""

    feature: NDArray[np.int64]  # -1 where the path is shorter
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    missing: NDArray[np.bool_]  # whether a missing value keeps to the path


class FeatureTweaking:
    """Feature Tweaking over all trees. Raises: ValueError for a model that splits on categories or on zero."""

    name: Final = "Feature Tweaking"

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._paths = paths_of(setting.forest)
        self._gain = setting.sign * setting.forest.weight.astype(np.float64)
        self._leaves = np.diff(setting.forest.first_leaf)

    def answer(self, row: Rows) -> Rows | None:
        """Give the cheapest tweak that is accepted; None where no leaf's tweak is."""
        targets, costs = self.tweaks(row)
        order = np.argsort(costs, kind="stable")
        for start in range(0, len(order), ASKED_AT_ONCE):
            asked = targets[order[start : start + ASKED_AT_ONCE]]
            accepted = self._setting.accepts(asked)
            if accepted.any():
                cheapest: Rows = asked[accepted.argmax()]
                return cheapest
        return None

    def tweaks(self, row: Rows) -> tuple[Rows, Rows]:
        """Copies of the row in every leaf that adds more than its own, and what each costs, in slot order.

        Shape: (features,) -> (tweaks, features), (tweaks,).
        """
        own = leaf_slots(self._setting.forest, row[None])[0]
        positive = np.flatnonzero(self._gain > np.repeat(self._gain[own], self._leaves))
        feature, low, high, missing = (part[positive] for part in self._paths)
        value = row[feature]
        obeys = self._inside(value, low, high) | (np.isnan(value) & missing) | (feature == INSIDE)
        moved, possible = self._values(feature, value, low, high)
        reached = (obeys | possible).all(axis=1)
        targets = np.tile(row, (len(positive), 1))
        at, step = np.nonzero(~obeys & (feature != INSIDE))
        targets[at, feature[at, step]] = moved[at, step]
        return targets[reached], self._cost(row, targets[reached])

    def _inside(self, value: Any, low: Any, high: Any) -> Any:
        read = value.astype(self._setting.forest.dtype)
        return (low <= read) & (read < high) if self._setting.forest.operator == "<" else (low < read) & (read <= high)

    def _values(self, feature: Any, value: Any, low: Any, high: Any) -> tuple[Any, Any]:
        """Where each value goes, and whether there is such a value: whole numbers stay whole, all in their range."""
        setting, epsilon = self._setting, EPSILON * self._setting.deviation[feature]
        from_above = (value > high) | (value == high) | np.isinf(low)  # missing enters from below if it can
        near = np.where(from_above, high - epsilon, low + epsilon)
        with np.errstate(invalid="ignore"):  # an interval without an end has no middle
            middle = (low + high) / 2
        moved = np.where((near > low) & (near < high), near, middle)
        within = np.clip(moved, setting.low[feature], setting.high[feature])
        moved = np.where((within > low) & (within < high), within, moved)
        away = np.where(from_above, np.floor(moved), np.ceil(moved))
        back = np.where(from_above, np.ceil(moved), np.floor(moved))  # the interval may end before the next whole one
        whole = np.where(self._inside(away, low, high), away, back)
        moved = np.where(setting.whole[feature], whole, moved)
        return moved, self._inside(moved, low, high)

    def _cost(self, row: Rows, targets: Rows) -> Rows:
        """Effort: moves in standard deviations; a code, or from missing, counts 1."""
        apart = np.abs(targets - row) / self._setting.deviation
        jump = np.isnan(row) | self._setting.nominal
        changed = (targets != row) & ~(np.isnan(targets) & np.isnan(row))
        total: Rows = np.where(jump, changed, apart).sum(axis=1)
        return total


def paths_of(forest: Forest) -> Paths:
    """The conditions on the way to every leaf, in slot order. Raises: ValueError for splits that are no thresholds."""
    if (forest.kind != NUMBER).any():
        message = "Feature Tweaking needs a model of numeric splits only: give it categories as whole numbers"
        raise ValueError(message)
    longest = max(1, int(forest.depth.max()))
    shape = (len(forest.leaf_node), longest)
    paths = Paths(np.full(shape, INSIDE), np.full(shape, -np.inf), np.full(shape, np.inf), np.ones(shape, np.bool_))
    for slot, leaf in enumerate(forest.leaf_node.tolist()):
        place: dict[int, int] = {}
        node, above = leaf, int(forest.parent[leaf])
        while above != INSIDE:
            feature, goes_left = int(forest.split_feature[above]), int(forest.left[above]) == node
            at = slot, place.setdefault(feature, len(place))
            paths.feature[at] = feature
            end, tighter = (paths.high, min) if goes_left else (paths.low, max)
            end[at] = tighter(end[at], float(forest.threshold[above]))
            paths.missing[at] &= bool(forest.default_left[above]) == goes_left
            node, above = above, int(forest.parent[above])
    return paths
