"""What a rival method is given, and what it gives back. The protocol judges all of them, and ours, alike.

A method is constructed from a `Setting` (one model, one training set) and then asked one declined row after the other.
It may propose what the labels forbid: the protocol undoes such moves for every method, as the paper does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stream.forest.trees import Forest, Library

Label: TypeAlias = Literal["mutable", "increase_only", "decrease_only", "immutable"]
Rows: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Setting:
    """One model on one training set, the same for every method.

    Shapes: x (rows, features) float64, NaN where missing; y, accepted (rows,); nominal, whole, low, high and deviation
    (features,); `margins` (n, features) -> (n,) float64. A margin is turned so that more is better for the applicant:
    a row is accepted where `margins(row) >= cutoff`.
    """

    booster: Any  # of the owner library: xgboost.Booster or lightgbm.Booster
    library: Library
    forest: Forest  # the same model as our arrays, with the library's own sign
    columns: tuple[str, ...]
    x: Rows
    y: NDArray[np.int64]  # 1 is the favourable outcome
    accepted: NDArray[np.bool_]  # which rows of x the model accepts
    margins: Callable[[Rows], NDArray[np.float64]]  # by the owner library
    cutoff: float  # in the turned margin
    sign: int  # 1 where the library's margin is the applicant's; -1 where the model predicts the unfavourable outcome
    nominal: NDArray[np.bool_]  # whole-number codes without an order
    whole: NDArray[np.bool_]  # only whole numbers in training, the nominal ones among them
    low: NDArray[np.float64]  # least and greatest value in training
    high: NDArray[np.float64]
    labels: tuple[Label, ...]
    deviation: NDArray[np.float64]  # standard deviation in training without the missing; 1 where it is 0
    seed: int

    def accepts(self, rows: Rows) -> NDArray[np.bool_]:
        """Which rows the owner library accepts. Shape: (n, features) -> (n,)."""
        return self.margins(rows) >= self.cutoff

    def permitted(self, row: Rows, target: Rows) -> Rows:
        """The target with every move undone that the labels forbid; from or to missing counts as either direction.

        Shapes: (features,), (features,) -> (features,).
        """
        label = np.array(self.labels)
        forbidden = (label == "immutable") | ((label == "increase_only") & (target < row))
        forbidden |= (label == "decrease_only") & (target > row)
        return np.where(forbidden, row, target)


class Method(Protocol):
    """A rival: built from a Setting, then asked row by row. Same rows, same setting: same answers, bit for bit."""

    @property
    def name(self) -> str:
        """What tables call it."""
        ...

    def answer(self, row: Rows) -> Rows | None:
        """A target for one declined row, or None where the method finds none. Shape: (features,) -> (features,)."""
        ...
