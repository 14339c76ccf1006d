"""policy.toml: how a lender wants its declines answered. Every key is optional."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from stream.errors import ConfigurationError, shown
from stream.recourse.toml_files import read_toml

BAND_SIZE_MAX = 65_536  # a band is a reference near the cutoff; more rows than this are the whole pool
DAYS_MAX = 3_650
DOUBLE_BELOW = 2.0**1023  # TOML holds integers that no double does


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The settings of one revision of a published model."""

    approve: Literal["above", "below"] = "above"  # which side of the threshold is approved; PD models approve below
    epsilon: float = 0.0  # surplus in margin that a comparator must have past the cutoff (paper, Eligibility)
    beta: float = 1.0  # weight of the feature distance in the ranking (paper, Ranking)
    action_cost: float = 0.12  # price of each action beside its effort, in scales: keeps lists short
    band_size: int = 256  # rows of the cutoff band that reasons are measured against
    expiry_days: int = 90  # event_time + this: until when a recommendation may be acted on
    notice_days: int = 30  # event_time + this: when notice is due (12 CFR 1002.9(a)(1))
    reference_key_id: str = "bundle"  # names the key behind the opaque comparator references

    @property
    def sign(self) -> int:
        """+1 where a higher margin is better for the applicant, -1 where a lower one is."""
        return 1 if self.approve == "above" else -1


def read_policy(text: str) -> Policy:
    """Read policy.toml.

    Raises: ConfigurationError that names the key.
    """
    table = read_toml("policy.toml", text)
    known = [f.name for f in fields(Policy)]
    if unknown := sorted(set(table) - set(known)):
        msg = f"policy.toml: {shown(unknown[0])} is not a known key; known are {', '.join(known)}"
        raise ConfigurationError(msg)
    policy = Policy(**table)
    for key, good, what in (
        ("approve", policy.approve in ("above", "below"), 'must be "above" or "below"'),
        ("epsilon", _number(policy.epsilon), "must be a finite number, 0 or more"),
        ("beta", _number(policy.beta), "must be a finite number, 0 or more"),
        ("action_cost", _number(policy.action_cost), "must be a finite number, 0 or more"),
        ("band_size", _whole(policy.band_size, 1, BAND_SIZE_MAX), f"must be whole, 1 to {BAND_SIZE_MAX}"),
        ("expiry_days", _whole(policy.expiry_days, 0, DAYS_MAX), f"must be whole, 0 to {DAYS_MAX}"),
        ("notice_days", _whole(policy.notice_days, 0, DAYS_MAX), f"must be whole, 0 to {DAYS_MAX}"),
        ("reference_key_id", isinstance(policy.reference_key_id, str), "must be a text"),
    ):
        if not good:
            msg = f"policy.toml: {key} {what}"
            raise ConfigurationError(msg)
    return policy


def _number(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value < DOUBLE_BELOW


def _whole(value: object, low: int, high: int) -> bool:
    return not isinstance(value, bool) and isinstance(value, int) and low <= value <= high
