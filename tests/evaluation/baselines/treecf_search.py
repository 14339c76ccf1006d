"""treecf 0.3.2, the strongest rival: a genetic search (fast) or a branch and bound (exact) on the trees themselves.

It is given all that it can take: the labels as constraints, whole numbers as its integer policy, the scales of effort
as its normalizers (so that it minimises what is measured), and a surplus of margin where the answer should last. It
knows no codes without an order in a model of numbers. Each search runs on one thread. Fast says the same again for the
same seed; exact stops by the clock, so that a busy machine can change what it finds.
"""

from __future__ import annotations

import time
import warnings
from typing import Final

import numpy as np
from treecf import AllowMissing, Counterfactual, Explainer, Freeze, Monotone, Target, TreecfWarning
from treecf.constraints.objects import Constraint
from treecf.ir.parsers import parse_model

from tests.evaluation.baselines.interface import Label, Rows, Setting

EXACT_SECONDS_MAX: Final = 2.0
FROM_MISSING: Final = 1.0  # what the judge counts for it
NEVER: Final = 1e6  # the price of a move to missing, which is no advice


class Treecf:
    """treecf on one setting. With `fills_missing` it may give a missing value a number, which it may not by default.

    By default, because the bars were measured so: HELOC's people without some record then have no answer more often.
    """

    def __init__(
        self, setting: Setting, *, exact: bool = False, surplus: float = 0.0, fills_missing: bool = False
    ) -> None:
        words = ("treecf", "exact" if exact else "fast", f"surplus {surplus:g}" if surplus else "")
        self.name: Final = " ".join(filter(None, (*words, "fills missing" if fills_missing else "")))
        self._exact = exact
        self._seed = setting.seed
        self._accepts = setting.accepts
        goal = setting.sign * (setting.cutoff + surplus)
        self._goal = Target.raw(op=">=" if setting.sign > 0 else "<=", value=goal)
        model = parse_model(setting.booster)
        names = model.feature_names  # what the library made of ours
        labels = zip(names, setting.labels, strict=True)
        self._explainer = Explainer(
            model,
            normalizers=setting.deviation,
            constraints=[c for name, label in labels for c in _constraints(name, label, fills_missing=fills_missing)],
            value_policy={name: "integer" for name, whole in zip(names, setting.whole, strict=True) if whole},
        )

    def answer(self, row: Rows) -> Rows | None:
        """Search from one row; None where nothing is found, or nothing that the library itself accepts."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TreecfWarning)  # an exact search that ran out of time says so
            if self._exact:
                found = self._explainer.explain(
                    row, self._goal, backend="exact", time_budget_s=EXACT_SECONDS_MAX, seed=self._seed
                )
            else:
                found = self._explainer.explain(row, self._goal, seed=self._seed)
        if not isinstance(found, Counterfactual):
            return None
        target: Rows = np.asarray(found.x_cf, np.float64)
        return target if self._accepts(target[None])[0] else None


def _constraints(name: str, label: Label, *, fills_missing: bool) -> list[Constraint]:
    if label == "immutable":
        return [Freeze(name)]
    moves: list[Constraint] = [AllowMissing(name, NEVER, FROM_MISSING)] if fills_missing else []
    if label != "mutable":
        moves.append(Monotone(name, label.removesuffix("_only")))
    return moves


def treecf_fast_seconds(setting: Setting, rows: Rows) -> Rows:
    """Time treecf's fast mode row by row, after one search that does not count. Shape: (n, features) -> (n,) seconds.

    One search is one thread; set OMP_NUM_THREADS=1 before the process starts, so that nothing else takes a core.
    """
    method = Treecf(setting)
    method.answer(rows[0])
    elapsed = np.empty(len(rows))
    for i, row in enumerate(rows):
        began = time.perf_counter()
        method.answer(row)
        elapsed[i] = time.perf_counter() - began
    return elapsed
