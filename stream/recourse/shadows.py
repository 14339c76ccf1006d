"""Shadow models: what the model might have been, or was. A target that they accept too is likely to outlive the next retrain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from stream.forest.trees import Forest

SEARCHED_SHARE: Final = Fraction(7, 10)  # of all shadows; the others only judge what the search found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shadows:
    """The shadows of a model, of its features and its link. A model may have none of either.

    The search asks those `searched`, so what they accept is no evidence; the share that is published is of those
    `held_out`.
    """

    searched: tuple[Forest, ...] = ()
    held_out: tuple[Forest, ...] = ()


NO_SHADOWS: Final = Shadows()


def parted(forests: Sequence[Forest]) -> Shadows:
    """Say which shadows are searched, the first `SEARCHED_SHARE` of them, rounded down, and which are held out."""
    searched = int(SEARCHED_SHARE * len(forests))
    return Shadows(searched=tuple(forests[:searched]), held_out=tuple(forests[searched:]))
