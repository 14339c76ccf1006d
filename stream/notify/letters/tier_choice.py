"""Chooses the tiers that a letter shows: by effort, without those that another tier dominates."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Final

from stream.events import RecommendedTier

INTEGER: Final = re.compile(
    r"-?[0-9]{1,400}"
)  # as the ledger writes a contribution, in units of the model's smallest step


def choose_tiers(tiers: Sequence[RecommendedTier]) -> tuple[list[RecommendedTier], bool]:
    """Return the tiers to show, by effort, and whether each has a larger margin than the one before.

    A tier is dominated where another takes no more effort and has at least its margin on the approved side of the cutoff.
    Where the approved side is unknown, all tiers are returned, with False.
    """
    by_effort = sorted(tiers, key=lambda tier: tier["effort"])
    side = side_of_approval(tiers)
    if not side:
        return by_effort, False
    chosen: list[RecommendedTier] = []
    for tier in sorted(by_effort, key=lambda tier: (tier["effort"], -side * tier["margin"])):
        if not chosen or side * tier["margin"] > side * chosen[-1]["margin"]:
            chosen.append(tier)
    return chosen, True


def side_of_approval(tiers: Iterable[RecommendedTier]) -> int:
    """The side of the cutoff where the lender approves: 1 above, -1 below, 0 unknown.

    A tier leads from a decline to an approval, and its contributions add up exactly to the difference in margin.
    """
    sides = {_side(tier) for tier in tiers}
    return sides.pop() if len(sides) == 1 else 0


def _side(tier: RecommendedTier) -> int:
    contributions = [action["contribution"] for action in tier["actions"]]
    numbers = (tier["effort"], tier["margin"])
    if not all(INTEGER.fullmatch(one) for one in contributions) or not all(math.isfinite(one) for one in numbers):
        return 0
    gap = sum(int(one) for one in contributions)
    return (gap > 0) - (gap < 0)
