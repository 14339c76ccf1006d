"""The paper's own method: the best-ranked comparator, whose values are copied on every decisive feature.

Source: Luzio 2026, section COACH. The paper does not say its beta and epsilon, nor which tier its tables take: here beta
is 1, epsilon 0, and the comparator is the best-ranked of all who are eligible.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stream.forest.walk import leaf_slots
from stream.recourse.comparators.ranking import ranking
from stream.recourse.explain.attribution import by_feature, contrast
from stream.recourse.model import PublishedModel
from stream.recourse.rules.feature_rule import LABELS, Mutability
from tests.evaluation.baselines.interface import Rows, Setting

BETA = 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compared:
    """One query and its comparator, (features,) each; the decisive features, the largest contribution first."""

    row: Rows
    comparator: Rows
    decisive: tuple[int, ...]
    agreement: float  # the share of trees in which both reach the same leaf

    def target(self, most: int | None = None) -> Rows:
        """Copy the comparator's values on the first `most` decisive features, or on all of them."""
        target = self.row.copy()
        copied = list(self.decisive[:most])
        target[copied] = self.comparator[copied]
        return target


class PaperCoach:
    """COACH as the paper has it: `aware` folds feasibility into the selection, else it ranks as if all might change."""

    def __init__(self, setting: Setting, model: PublishedModel, *, aware: bool) -> None:
        self.name = "COACH, constraint-aware" if aware else "COACH"
        self._model = model
        self._first = model.matrix.first_past(setting.cutoff, setting.sign)
        labels = [LABELS[label] if aware else Mutability.MUTABLE for label in setting.labels]
        self._mutability = np.array(labels, np.int8)

    def answer(self, row: Rows) -> Rows | None:
        """Copy the comparator's values on every decisive feature; moves that the labels forbid are among them."""
        return self.compared(row).target()

    def compared(self, row: Rows) -> Compared:
        """Choose the comparator of one row. Shape: (features,)."""
        model, forest, matrix = self._model, self._model.forest, self._model.matrix
        slots = leaf_slots(forest, row[None])[0]
        ranked = ranking(
            forest,
            matrix,
            model.rules,
            query_slots=slots,
            query_row=row,
            mutability=self._mutability,
            first=self._first,
            beta=BETA,
        )
        best = self._first + ranked.best(0, len(ranked))
        other = forest.first_leaf[:-1] + matrix.codes[best].astype(np.int32)
        found = contrast(forest, model.units, slots, other)
        shares = by_feature(forest, found.decisive())
        return Compared(
            row=row,
            comparator=matrix.rows[best],
            decisive=tuple(sorted(shares, key=lambda j: -shares[j].contribution)),
            agreement=1 - len(found.tree) / forest.trees,
        )
