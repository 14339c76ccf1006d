"""How well a model ranks its pool's outcomes: exposes a wrong pool, or words in another order than the codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

GUESSING_BELOW: Final = 0.6  # a model that was trained on these very rows ranks them better than that, one way round
OUTCOMES: Final = 2
Approve: TypeAlias = Literal["above", "below"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRank:
    """What was found. `auc` is None, and `why_not` says why, where the target column does not hold two outcomes.

    `auc` is that of the larger of two numbers scoring a high margin; words have no larger one (`is_ordered`).
    """

    column: str
    approve: Approve
    auc: float | None
    is_ordered: bool = True
    why_not: str | None = None

    @property
    def is_guessing(self) -> bool:
        """Whether high margins go with neither outcome, as with no model on the rows it was trained on."""
        return self.auc is not None and 1 - GUESSING_BELOW < self.auc < GUESSING_BELOW

    @property
    def is_doubtful(self) -> bool:
        """Whether this is not how a model ranks its own pool.

        One that approves below may have been trained on the bad outcome: then high margins are right to go with either
        number, as the column names the bad outcome or the good one.
        """
        return self.is_guessing or (self.auc is not None and self.approve == "above" and self.auc < GUESSING_BELOW)

    @property
    def questions(self) -> tuple[str, ...]:
        """Warnings for the lender, one line each."""
        if self.auc is None:
            return ()
        lines = []
        if self.is_ordered and not self.is_guessing and (self.is_doubtful or self.approve == "below"):
            more = "larger" if (self.auc < GUESSING_BELOW) == (self.approve == "below") else "smaller"
            lines += [
                f"the side that is approved ({self.approve}) has the {more} value of {self.column} more often: is that the good outcome,",
                "and is `approve` of policy.toml the side that the lender approves?",
            ]
        if self.is_doubtful:
            lines.append(
                "is this the pool that the model was trained on, and are `categories` in the order of its codes?"
            )
        return tuple(lines)


def rank_pool(column: str, target: Any, margins: NDArray[np.floating], approve: Approve) -> PoolRank:  # noqa: ANN401 - pyarrow has no types
    """Compare margins (rows,) with the target column (rows,), a pyarrow array; rows without an outcome do not count.

    Of two numbers the larger is the outcome that a high margin stands for. Words have no order: the better way counts.
    """
    if pa.types.is_nested(target.type):
        return PoolRank(column=column, approve=approve, auc=None, why_not=f"it is of type {target.type}")
    numbers = _as_numbers(target)
    values = target.to_pylist() if numbers is None else numbers.to_pylist()
    outcomes = sorted({value for value in values if value is not None and value == value})  # noqa: PLR0124 - NaN
    if len(outcomes) != OUTCOMES:
        return PoolRank(
            column=column, approve=approve, auc=None, why_not=f"it holds {len(outcomes)} different values instead of 2"
        )
    known = np.array([value in outcomes for value in values])
    high = np.array([value == outcomes[1] for value in values])
    auc = area_under_curve(margins[known], high[known])
    is_ordered = numbers is not None
    return PoolRank(column=column, approve=approve, auc=auc if is_ordered else max(auc, 1 - auc), is_ordered=is_ordered)


def _as_numbers(target: Any) -> Any:  # noqa: ANN401 - pyarrow has no types
    try:
        return pc.cast(target, pa.float64())
    except pa.ArrowException:
        return None


def area_under_curve(scores: NDArray[np.floating], favourable: NDArray[np.bool_]) -> float:
    """The chance that a favourable case scores above an unfavourable one, ties counting half (Mann and Whitney 1947).

    NaN when one of the two groups is empty.
    """
    good, bad = np.sort(scores[favourable]), scores[~favourable]
    if not len(good) or not len(bad):
        return float("nan")
    above = len(good) - np.searchsorted(good, bad, "right")
    level = np.searchsorted(good, bad, "right") - np.searchsorted(good, bad, "left")
    return float((above + level / 2).sum() / (len(good) * len(bad)))
