"""What one person can reach: for a feature and a cell, the nearest value that the rules permit.

Targets are made from cells, never from a comparator's values: the nearest value to the person's own that lies in the
cell, is whole, on the step and in range where features.toml says so, moves the way its label permits, and is no
"no record" value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

import numpy as np
from numpy.typing import NDArray

from stream.recourse.cells import Cells
from stream.recourse.features import FeatureRule, FeatureRules, Mutability
from stream.recourse.leaf_matrix import LeafMatrix

STEPS_TRIED_MAX = 3  # grid points looked at next to a cell's end, before it counts as holding none

IMMUTABLE = "immutable"
WRONG_DIRECTION = "against the permitted direction"
TO_MISSING = "a missing value is never a target"
NO_PERMITTED_VALUE = "no permitted value in the cell"
UNKNOWN_DIRECTION = "from a missing value the direction is not known"
GROUP = "another feature of its group cannot move"


@dataclass(frozen=True, slots=True)
class Move:
    """Where one feature goes: the target value, or why it stays (`why_not`); its effort in weighted scale units."""

    to: float
    effort: float
    why_not: str | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Reach:
    """All moves open to one person, found on demand and remembered for the length of one answer.

    row (features,) float64 as the model takes it; cells (features,) int32; mutability (features,) int8.
    """

    rules: FeatureRules
    matrix: LeafMatrix
    cells_of_model: Cells
    row: NDArray[np.float64]
    cells: NDArray[np.int32]
    mutability: NDArray[np.int8]
    moves: dict[tuple[int, int], Move] = field(default_factory=dict)

    def move(self, j: int, cell: int) -> Move:
        """Find the way of feature j into a cell that is not its own."""
        known = self.moves.get((j, cell))
        if known is None:
            known = self.moves[j, cell] = self._find(j, cell)
        return known

    def project(self, cells: NDArray[np.int32]) -> NDArray[np.float64]:
        """Move a person toward each comparator as far as the rules permit.

        Shapes: cells (k, features) int32, the comparators' -> (k, features) float64. A group moves whole or not.
        """
        targets = np.broadcast_to(self.row, cells.shape).copy()
        stays = np.zeros(cells.shape, bool)
        for j in range(cells.shape[1]):
            wanted = cells[:, j]
            for cell in np.unique(wanted[wanted != self.cells[j]]).tolist():
                move, here = self.move(j, cell), wanted == cell
                if move.why_not is None:
                    targets[here, j] = move.to
                else:
                    stays[here, j] = True
        for members in groups(self.rules):
            held = stays[:, members].any(axis=1)
            targets[np.ix_(held, members)] = self.row[members]
        return targets

    def why_not(self, j: int, cells: NDArray[np.int32]) -> str | None:
        """Say why feature j stays when a person moves toward a comparator with these cells; None if it moves."""
        own = self.move(j, int(cells[j])).why_not if cells[j] != self.cells[j] else None
        if own is not None or self.rules.rules[j].group is None:
            return own
        members = next(m for m in groups(self.rules) if j in m)
        held = any(cells[m] != self.cells[m] and self.move(m, int(cells[m])).why_not for m in members)
        return GROUP if held else None

    def effort(self, j: int, to: float) -> float:
        """Price a move of feature j: its cost times |move| in scales; a category, or from missing, counts one scale."""
        rule, own = self.rules.rules[j], float(self.row[j])
        unordered = rule.type == "category" or _unrecorded(rule, own)
        return rule.cost * (1.0 if unordered else abs(to - own) / float(self.matrix.scales[j]))

    def _find(self, j: int, cell: int) -> Move:
        rule, own = self.rules.rules[j], float(self.row[j])
        label = Mutability(int(self.mutability[j]))
        if label == Mutability.IMMUTABLE:
            return Move(own, 0.0, IMMUTABLE)
        if self.cells_of_model.is_missing(j, cell):
            return Move(own, 0.0, TO_MISSING)
        if _unrecorded(rule, own) and label != Mutability.MUTABLE:
            return Move(own, 0.0, UNKNOWN_DIRECTION)
        if rule.type == "category":
            to = self._nearest_category(j, cell, own, label)
        else:
            upward = self._upward(j, cell, own)
            if (label == Mutability.INCREASE_ONLY and not upward) or (label == Mutability.DECREASE_ONLY and upward):
                return Move(own, 0.0, WRONG_DIRECTION)
            to = self._nearest_number(j, cell, upward=upward)
        if to is None:
            return Move(own, 0.0, NO_PERMITTED_VALUE)
        return Move(to, self.effort(j, to))

    def _upward(self, j: int, cell: int, own: float) -> bool:
        """Whether the cell lies above the person's value; from no value, above the pool's median."""
        if _unrecorded(self.rules.rules[j], own):
            # Enter at the end nearest to the median; a cell that holds it is entered from below where it has an end.
            return cell > 0 and cell >= self._median_cell(j)
        return cell > int(self.cells[j])

    def _median_cell(self, j: int) -> int:
        median = self.matrix.medians[j : j + 1]
        thresholds = self.cells_of_model.thresholds[j]
        side = "right" if self.cells_of_model.threshold_is_low else "left"
        return int(np.searchsorted(thresholds, median.astype(thresholds.dtype), side)[0])

    def _nearest_number(self, j: int, cell: int, *, upward: bool) -> float | None:
        rule, cells = self.rules.rules[j], self.cells_of_model
        low, high = max(rule.min, cells.smallest(j, cell)), min(rule.max, cells.largest(j, cell))
        start = low if upward else high
        if not math.isfinite(start) or low > high:
            return None
        if rule.step is None:
            tried = [start, float(np.nextafter(start, math.inf if upward else -math.inf))]
        else:
            tried = _grid(start, rule, upward=upward)
        for value in tried:
            if low <= value <= high and value not in rule.no_record and cells.holds(j, cell, value):
                return value
        return None

    def _nearest_category(self, j: int, cell: int, own: float, label: Mutability) -> float | None:
        """Pick the code of the cell: with a directional label the nearest, else the commonest of the pool."""
        rule, (codes, counts) = self.rules.rules[j], self.matrix.categories_of(j)
        best: tuple[float, float] | None = None
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
            if not rule.min <= code <= rule.max or not self.cells_of_model.holds(j, cell, code):
                continue
            if (label == Mutability.INCREASE_ONLY and code <= own) or (
                label == Mutability.DECREASE_ONLY and code >= own
            ):
                continue
            key = (float(-count) if label == Mutability.MUTABLE else abs(code - own), code)
            best = key if best is None else min(best, key)
        return None if best is None else best[1]


def groups(rules: FeatureRules) -> list[list[int]]:
    """List the feature indices of each group, in the order in which features.toml's groups appear."""
    found: dict[str, list[int]] = {}
    for j, rule in enumerate(rules.rules):
        if rule.group is not None:
            found.setdefault(rule.group, []).append(j)
    return list(found.values())


def _unrecorded(rule: FeatureRule, value: float) -> bool:
    return math.isnan(value) or value in rule.no_record


def _grid(start: float, rule: FeatureRule, *, upward: bool) -> list[float]:
    """List the first few grid points from `start` on, in decimal so that 0.29 is 0.29."""
    origin = Decimal(repr(rule.min)) if math.isfinite(rule.min) else Decimal(0)
    step = Decimal(repr(rule.step))
    count = (Decimal(repr(start)) - origin) / step
    first = count.to_integral_value(ROUND_CEILING if upward else ROUND_FLOOR)
    return [float(origin + (first + (k if upward else -k)) * step) for k in range(STEPS_TRIED_MAX)]
