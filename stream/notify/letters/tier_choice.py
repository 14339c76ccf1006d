"""Which ways of a recommendation a letter tells: the least effort first, and none that another one outdoes."""

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
    """Give the tiers that offer something of their own, by effort, and whether each next one lies further past the line.

    A tier is left out where another takes no more effort and its score lies at least as far past the line. Where the
    recommendation does not tell on which side of the line the lender approves, all are left in, and nothing is said of it.
    """
    by_effort = sorted(tiers, key=lambda tier: tier["effort"])
    side = side_of_approval(tiers)
    if not side:
        return by_effort, False
    told: list[RecommendedTier] = []
    for tier in sorted(by_effort, key=lambda tier: (tier["effort"], -side * tier["margin"])):
        if not told or side * tier["margin"] > side * told[-1]["margin"]:
            told.append(tier)
    return told, True


def side_of_approval(tiers: Iterable[RecommendedTier]) -> int:
    """Say where the lender approves: 1 above the threshold, -1 below it, 0 where the tiers do not tell.

    Each tier leads from a refusal to an approval, and its contributions add up to the way between the two, exactly.
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
