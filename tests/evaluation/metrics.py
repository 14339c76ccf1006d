"""The measures of the paper and of the judge, per query, of what any method answered.

A target is measured after every move that the labels forbid is undone, the same for all methods; unconstrained figures
are of the target as it was given. Source: Luzio 2026, Experimental Setup; the judge of the shared folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from tests.evaluation.baselines.interface import Rows, Setting
from tests.evaluation.training import Margins

NEIGHBOURS: Final = 5
GENUINE_MAX: Final = 500  # accepted people whose own distance is the reference
Figures: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Yardstick:
    """What targets are measured with: one setting, and models retrained on bootstraps that nobody has seen."""

    setting: Setting
    retrained: Sequence[Margins]
    middle: Rows  # (features,): the median, which stands for what is missing
    neighbours: Any  # of the accepted people of the training set

    def place(self, rows: Rows) -> Rows:
        """Rows in standard deviations, the median where a value is missing. Shape: (n, features) -> same."""
        return place(rows, self.middle, self.setting.deviation)

    def moves(self, rows: Rows, targets: Rows) -> Figures:
        """How far each feature moves, in standard deviations; a category, or from or to missing, counts 1.

        Shapes: (n, features), (n, features) -> (n, features).
        """
        gap = np.isnan(targets) != np.isnan(rows)
        move = np.where(gap, 1.0, np.abs(np.nan_to_num(targets - rows)) / self.setting.deviation)
        counted: Figures = np.where(self.setting.nominal & (move > 0), 1.0, move)
        return counted

    def manifold(self, targets: Rows) -> Figures:
        """Mean distance to the five nearest accepted people of the training set. Shape: (n, features) -> (n,)."""
        found: Figures = self.neighbours.kneighbors(self.place(targets), NEIGHBOURS)[0].mean(axis=1)
        return found

    def genuine(self) -> float:
        """The same distance of accepted people, each from its own neighbours."""
        some = self.setting.x[self.setting.accepted][:GENUINE_MAX]
        return float(self.neighbours.kneighbors(self.place(some), NEIGHBOURS + 1)[0][:, 1:].mean())

    def lasting(self, targets: Rows) -> Figures:
        """Which share of the retrained models accepts each target. Shape: (n, features) -> (n,)."""
        if not self.retrained:
            return np.full(len(targets), np.nan)
        accepts = [margins(targets) >= self.setting.cutoff for margins in self.retrained]
        shares: Figures = np.mean(accepts, axis=0)
        return shares


def place(rows: Rows, middle: Rows, deviation: Rows) -> Rows:
    """Rows in units of deviation, `middle` where a value is missing. Shapes: (n, features), (features,), (features,)."""
    placed: Rows = np.where(np.isnan(rows), middle, rows) / deviation
    return placed


def yardstick(setting: Setting, retrained: Sequence[Margins]) -> Yardstick:
    """Make the yardstick of a setting."""
    middle = np.nanmedian(setting.x, axis=0)
    accepted = place(setting.x[setting.accepted], middle, setting.deviation)
    neighbours = NearestNeighbors(n_neighbors=NEIGHBOURS).fit(accepted)
    return Yardstick(setting=setting, retrained=retrained, middle=middle, neighbours=neighbours)


def measured(yard: Yardstick, rows: Rows, targets: Sequence[Rows | None], *, undo: bool) -> dict[str, list[Any]]:
    """Measure one method's answers. Shapes: rows (n, features); targets n rows or None.

    Returns per query: answered, valid (the model accepts), lasting (share of the retrained models; 0 without an
    answer), and of those answered effort, changed (features) and manifold, else None. `undo` takes forbidden moves back.
    """
    setting = yard.setting
    answered = [i for i, target in enumerate(targets) if target is not None]
    found: dict[str, list[Any]] = {
        "answered": [0] * len(rows),
        "valid": [0] * len(rows),
        "lasting": [0.0] * len(rows),
        "effort": [None] * len(rows),
        "changed": [None] * len(rows),
        "manifold": [None] * len(rows),
    }
    if not answered:
        return found
    queries = rows[answered]
    reached = np.array([targets[i] for i in answered], np.float64)
    if undo:
        reached = np.array([setting.permitted(row, target) for row, target in zip(queries, reached, strict=True)])
    moves = yard.moves(queries, reached)
    columns: dict[str, NDArray[Any]] = {
        "answered": np.ones(len(answered), int),
        "valid": setting.accepts(reached).astype(int),
        "lasting": yard.lasting(reached),
        "effort": moves.sum(axis=1),
        "changed": (moves > 0).sum(axis=1),
        "manifold": yard.manifold(reached),
    }
    for name, values in columns.items():
        for i, value in zip(answered, values.tolist(), strict=True):
            found[name][i] = value
    return found


def as_the_judge(found: dict[str, list[Any]]) -> dict[str, float | None]:
    """Sum measures per query up as the judge does."""

    def mean(name: str) -> float | None:
        values = [v for v, answered in zip(found[name], found["answered"], strict=True) if answered]
        return float(np.mean(values)) if values else None

    return {
        "coverage": float(np.mean(found["answered"])),
        "valid": float(np.mean(found["valid"])),
        "retrain_valid": mean("lasting"),
        "effort": mean("effort"),
        "actions": mean("changed"),
        "manifold": mean("manifold"),
    }
