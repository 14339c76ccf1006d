"""How well a model ranks its pool's outcomes: exposes a wrong pool, or words in another order than the codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stream.errors import shown

GUESSING_BELOW: Final = 0.6  # a model that was trained on these very rows ranks them better than that, one way round
OUTCOMES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeShares:
    """How often one outcome is found among those that the model accepts, and among those that it declines; NaN for none."""

    outcome: str
    accepted: float
    declined: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRank:
    """What was found. `auc` is None, and `why_not` says why, where the target column does not hold two outcomes.

    `auc` is that of the larger of two numbers scoring a high margin; words have no larger one: the better way counts.
    Which outcome is the good one, and so whether the right side is approved, only the lender knows: see `shares`.
    """

    column: str
    auc: float | None
    why_not: str | None = None
    shares: OutcomeShares | None = None

    @property
    def is_guessing(self) -> bool:
        """Whether high margins go with neither outcome, as with no model on the rows it was trained on."""
        return self.auc is not None and 1 - GUESSING_BELOW < self.auc < GUESSING_BELOW


def rank_pool(column: str, target: Any, margins: NDArray[np.floating], accepted: NDArray[np.bool_]) -> PoolRank:  # noqa: ANN401 - pyarrow has no types
    """Compare margins (rows,) and what the model accepts (rows,) with the target column (rows,), a pyarrow array.

    Rows without an outcome do not count. Of two numbers the larger is the outcome that a high margin stands for.
    """
    if pa.types.is_nested(target.type):
        return PoolRank(column=column, auc=None, why_not=f"it is of type {target.type}")
    numbers = _as_numbers(target)
    values = target.to_pylist() if numbers is None else numbers.to_pylist()
    outcomes = sorted({value for value in values if value is not None and value == value})  # noqa: PLR0124 - NaN
    if len(outcomes) != OUTCOMES:
        return PoolRank(column=column, auc=None, why_not=f"it holds {len(outcomes)} different values instead of 2")
    known = np.array([value in outcomes for value in values])
    last = np.array([value == outcomes[1] for value in values])
    auc = area_under_curve(margins[known], last[known])
    name = f"{outcomes[1]:g}" if isinstance(outcomes[1], float) else shown(str(outcomes[1]))
    shares = OutcomeShares(
        outcome=name, accepted=_share(last[known & accepted]), declined=_share(last[known & ~accepted])
    )
    return PoolRank(column=column, auc=auc if numbers is not None else max(auc, 1 - auc), shares=shares)


def _share(found: NDArray[np.bool_]) -> float:
    return float(found.mean()) if len(found) else float("nan")


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
