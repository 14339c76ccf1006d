"""policy.toml: how a lender wants its declines answered. Every key is optional."""

from __future__ import annotations

from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Literal

from stream.errors import ConfigurationError, shown
from stream.recourse.rules.scale import SCALES, Scale
from stream.recourse.rules.toml_files import read_toml

BAND_SIZE_MAX = 65_536  # a band is a reference near the cutoff; more rows than this are the whole pool
DAYS_MAX = 3_650  # days, ten years: a longer deadline is a typing error; by judgement
NUMBERS = (
    "epsilon", "beta", "action_cost", "mid_surplus", "mid_surplus_price", "far_surplus",
    "far_surplus_price", "far_reserve", "far_reserve_price", "far_distance_price",
)  # fmt: skip
NEAREST_KEYS = 3  # suggestions for an unknown key
KEY_COMPARED_MAX = 64  # characters of it that are compared; a longer key is no typing error
DOUBLE_BELOW = 2.0**1023  # TOML holds integers that no double does


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The settings of one revision of a published model.

    Units and effects: docs/recourse.md, "policy.toml". `make evaluation` measures what the defaults of the tiers buy, and
    tests/evaluation/sweep.py what mid_surplus, far_surplus with far_reserve, and far_distance_price buy at other values.
    """

    approve: Literal["above", "below"] = "above"  # which side of the threshold is approved; PD models approve below
    epsilon: float = 0.0  # surplus in margin that a comparator must have past the cutoff (paper, Eligibility)
    beta: float = 1.0  # per scale: weight of the feature distance in the ranking (paper, Ranking)
    action_cost: float = 0.12  # scales: price of each action beside its effort; keeps lists short
    # How far past the cutoff a target should be, in deviations between models, with each shadow (without shadows, with
    # the model itself); and the price, in scales per deviation, of falling short of that on average.
    mid_surplus: float = 2.5
    mid_surplus_price: float = 3.0
    far_surplus: float = 1.3
    far_surplus_price: float = 3.5
    far_reserve: float = 7.0  # deviations; wanted on top where robustness is cheap
    far_reserve_price: float = 1.8  # scales per deviation, divided by the cost of mid's target
    far_distance_price: float = 3.4  # scales per scale of distance to accepted people, where these lie one apart
    scale: Scale = "guarded"  # what counts as one in efforts and the ranking; the paper's is "deviation"
    band_size: int = 256  # rows of the cutoff band that reasons are measured against
    expiry_days: int = 90  # days after event_time: until when a recommendation may be acted on
    notice_days: int = 30  # days after event_time: when notice is due (12 CFR 1002.9(a)(1))
    reference_key_id: str = "bundle"  # names the key behind the opaque comparator references

    @property
    def sign(self) -> int:
        """+1 where a higher margin is better for the applicant, -1 where a lower one is."""
        return 1 if self.approve == "above" else -1


def read_policy(text: str) -> Policy:
    """Read policy.toml. Raises: ConfigurationError that names the key."""
    table = read_toml("policy.toml", text)
    known = [f.name for f in fields(Policy)]
    if unknown := sorted(set(table) - set(known)):
        nearest = get_close_matches(unknown[0][:KEY_COMPARED_MAX], known, NEAREST_KEYS, cutoff=0.0)
        message = (
            f"policy.toml: {shown(unknown[0])} is not a known key; the nearest that are known: {', '.join(nearest)}"
        )
        raise ConfigurationError(message)
    policy = Policy(**table)
    for key, good, what in (
        ("approve", policy.approve in ("above", "below"), 'must be "above" or "below"'),
        *((key, _number(getattr(policy, key)), "must be a finite number, 0 or more") for key in NUMBERS),
        ("scale", policy.scale in SCALES, 'must be "guarded", "deviation" or "percentile"'),
        ("band_size", _whole(policy.band_size, 1, BAND_SIZE_MAX), f"must be whole, 1 to {BAND_SIZE_MAX}"),
        ("expiry_days", _whole(policy.expiry_days, 0, DAYS_MAX), f"must be whole, 0 to {DAYS_MAX}"),
        ("notice_days", _whole(policy.notice_days, 0, DAYS_MAX), f"must be whole, 0 to {DAYS_MAX}"),
        ("reference_key_id", isinstance(policy.reference_key_id, str), "must be a text"),
    ):
        if not good:
            message = f"policy.toml: {key} {what}"
            raise ConfigurationError(message)
    return policy


def _number(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value < DOUBLE_BELOW


def _whole(value: object, low: int, high: int) -> bool:
    return not isinstance(value, bool) and isinstance(value, int) and low <= value <= high
