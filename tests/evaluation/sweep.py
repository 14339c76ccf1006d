"""What a lender's settings buy: the same rows answered under other prices, for the frontier of effort, what lasts, and realism."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from stream.events import TierName
from stream.recourse.answer import answer
from stream.recourse.model import PublishedModel
from tests.evaluation import ours
from tests.evaluation.baselines.interface import Rows
from tests.evaluation.metrics import Yardstick, as_the_judge, measured

SWEPT: Final[Mapping[str, tuple[str, ...]]] = {  # what is multiplied together, by the name that plots call it
    "mid surplus": ("mid_surplus",),
    "far surplus": ("far_surplus", "far_reserve"),
    "distance price": ("far_distance_price",),
}
FACTORS: Final[Mapping[str, tuple[float, ...]]] = {
    "mid surplus": (0.5, 0.75, 1.0, 1.33, 2.0),
    "far surplus": (0.5, 0.75, 1.0, 1.33, 2.0),
    "distance price": (0.0, 0.5, 1.0, 2.0),
}
TIERS: Final[tuple[TierName, ...]] = ("mid", "far")


def swept(model: PublishedModel, yard: Yardstick, rows: Rows) -> list[dict[str, Any]]:
    """Answer rows (n, features) under every factor of every setting: mid's and far's figures by the judge's measures."""
    default = _figures(model, yard, rows)
    return [
        {
            "setting": name,
            "factor": factor,
            "tiers": default if factor == 1 else _figures(_changed(model, settings, factor), yard, rows),
        }
        for name, settings in SWEPT.items()
        for factor in FACTORS[name]
    ]


def _changed(model: PublishedModel, settings: tuple[str, ...], factor: float) -> PublishedModel:
    changes: dict[str, Any] = {key: getattr(model.policy, key) * factor for key in settings}
    return replace(model, policy=replace(model.policy, **changes))


def _figures(model: PublishedModel, yard: Yardstick, rows: Rows) -> dict[str, dict[str, float | None]]:
    found = [answer(ours.decision_of(model, row), model) for row in rows]
    by_tier = [ours.targets(row, one, yard.setting.columns) for row, one in zip(rows, found, strict=True)]
    return {tier: as_the_judge(measured(yard, rows, [one.get(tier) for one in by_tier], undo=False)) for tier in TIERS}
