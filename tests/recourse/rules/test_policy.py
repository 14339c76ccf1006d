from __future__ import annotations

from dataclasses import asdict, fields

import pytest

from stream.errors import ConfigurationError
from stream.recourse.rules.policy import BAND_SIZE_MAX, DAYS_MAX, Policy, read_policy

OF_TIERS = [field.name for field in fields(Policy) if field.name.startswith(("mid_", "far_"))]
WRONG: dict[str, str] = {  # the text -> the key that the message must name
    "colour = 1": "colour",
    'approve = "up"': "approve",
    "approve = true": "approve",
    'approve = ["above"]': "approve",
    "epsilon = -1": "epsilon",
    "epsilon = inf": "epsilon",
    "epsilon = nan": "epsilon",
    'epsilon = "0"': "epsilon",
    "epsilon = true": "epsilon",
    f"epsilon = 1{'0' * 400}": "epsilon",
    "action_cost = -0.01": "action_cost",
    "action_cost = inf": "action_cost",
    "action_cost = false": "action_cost",
    "beta = -0.1": "beta",
    "beta = inf": "beta",
    "beta = [1]": "beta",
    'scale = "robust"': "scale",
    "scale = 1": "scale",
    'scale = ["guarded"]': "scale",
    "band_size = 0": "band_size",
    "band_size = 256.0": "band_size",
    "band_size = true": "band_size",
    f"band_size = {BAND_SIZE_MAX + 1}": "band_size",
    "expiry_days = -1": "expiry_days",
    "expiry_days = 1.5": "expiry_days",
    f"expiry_days = {DAYS_MAX + 1}": "expiry_days",
    "notice_days = false": "notice_days",
    f"notice_days = {DAYS_MAX + 1}": "notice_days",
    "reference_key_id = 1": "reference_key_id",
    "approve = ": "not valid TOML",
    **{f"{key} = {value}": key for key in OF_TIERS for value in ("-0.5", "inf", "nan", "true", "'1'", "1" + "0" * 400)},
}


@pytest.mark.parametrize(("text", "key"), WRONG.items(), ids=[text[:30] for text in WRONG])
def test_a_wrong_key_is_refused_by_name(text: str, key: str) -> None:
    """Given one wrong key, when read, then a ConfigurationError names the file and the key."""
    with pytest.raises(ConfigurationError) as refused:
        read_policy(text)
    assert "policy.toml" in str(refused.value)
    assert key in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = " + "[" * 50_000, "nested too deeply"),
        ("a = " + "{a = " * 50_000, "nested too deeply"),
        ("epsilon = " + "9" * 5_000, "too many digits"),
        ("epsilon = ", "not valid TOML"),
    ],
    ids=["lists", "tables", "digits", "nothing"],
)
def test_a_bomb_is_one_line(text: str, said: str) -> None:
    """Given TOML that is made to break its reader, when read, then one bounded line says what is wrong."""
    with pytest.raises(ConfigurationError, match=said) as refused:
        read_policy(text)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


def test_a_key_is_repeated_short_and_printable() -> None:
    """Given an unknown key that is long and holds control characters, when refused, then the message holds neither."""
    with pytest.raises(ConfigurationError) as refused:
        read_policy(f'"\\u001b{"x" * 10_000}" = 1')
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


def test_an_unknown_key_is_told_what_is_like_it() -> None:
    """Given a key with a letter too many, when refused, then the message holds the key that was meant."""
    for key in [field.name for field in fields(Policy)]:
        with pytest.raises(ConfigurationError, match=f"not a known key.*[ ,]{key}(,|$)"):
            read_policy(f"{key}s = 1")


def test_a_price_may_be_nothing_or_large() -> None:
    """Given 0 or a million for what mid and far are worth, in whole numbers or not, when read, then it is taken."""
    assert len(OF_TIERS) >= 5
    for key in OF_TIERS:
        for value in (0, 0.0, 1_000_000, 2.5):
            assert getattr(read_policy(f"{key} = {value}"), key) == value


def test_everything_is_optional() -> None:
    """Given an empty file, when read, then the paper's settings hold: no surplus, beta 1, and a band of 256 rows; an action costs 0.12 scales, and a scale is guarded against wild values."""
    policy = read_policy("")
    assert policy == Policy()
    assert (policy.action_cost, policy.scale) == (0.12, "guarded")
    assert (policy.approve, policy.epsilon, policy.beta, policy.band_size) == ("above", 0, 1, 256)


def test_every_key_is_read() -> None:
    """Given a file that sets each key to something else, when read, then each one is as it says."""
    settings = {
        "approve": "below", "epsilon": 0.5, "beta": 0, "action_cost": 0, "scale": "deviation", "band_size": 7, "expiry_days": 1, "notice_days": 2,
        "reference_key_id": "2026", **{key: 10.25 + k for k, key in enumerate(OF_TIERS)},
    }  # fmt: skip
    text = "\n".join(f"{key} = {value!r}".replace("'", '"') for key, value in settings.items())
    assert asdict(read_policy(text)) == settings


@pytest.mark.parametrize(("approve", "sign"), [("above", 1), ("below", -1)])
def test_the_side_of_the_threshold_is_a_sign(approve: str, sign: int) -> None:
    """Given the side that is approved, sign * margin grows with what is better for the applicant."""
    assert read_policy(f'approve = "{approve}"').sign == sign
