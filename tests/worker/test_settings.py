from __future__ import annotations

from pathlib import Path

import pytest

from stream.errors import ConfigurationError
from stream.worker.settings import DEAD_LETTER_MARGIN_BYTES, MASK, Settings, documentation, masked, read_settings
from stream.worker.start_at import StartAt, read_start_at


def test_a_flag_wins_over_a_variable_and_a_variable_over_the_default() -> None:
    """Given a setting as flag and variable, when read, then the flag holds; without it the variable; empty counts as unset."""
    environment = {"COACH_GROUP": "from-variable", "COACH_TOPIC_AUDIT": ""}
    assert read_settings(environment, group="from-flag").group == "from-flag"
    assert read_settings(environment, group=None).group == "from-variable"
    assert read_settings(environment).topic_audit == "audit"


def test_every_wrong_setting_is_named_at_once() -> None:
    """Given several wrong settings, when read, then one error names each with its value and what it takes."""
    wrong = {
        "COACH_KAFKA_BROKERS": "nowhere",
        "COACH_REDIS_URL": "http://cache",
        "COACH_BATCH_MAX": "many",
        "COACH_MODEL_WAIT_S": "nan",
        "COACH_LOG_LEVEL": "LOUD",
        "COACH_START_AT": "yesterday",
        "COACH_KAFKA_CA_FILE": "/no/such/file",
        "COACH_TOPIC_DLQ": "a topic",
    }
    with pytest.raises(ConfigurationError) as raised:
        read_settings(wrong)
    for name, value in wrong.items():
        assert f"{name}={value!r}: " in str(raised.value)


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"COACH_TOPIC_AUDIT": "decisions"}, "must all be different"),
        ({"COACH_DEAD_LETTER_BYTES_MAX": str(1 << 20)}, "COACH_DEAD_LETTER_BYTES_MAX"),
        ({"COACH_KAFKA_SECURITY_PROTOCOL": "SASL_SSL"}, "COACH_KAFKA_SASL_USERNAME"),
        ({"COACH_KAFKA_KEY_FILE": __file__}, "COACH_KAFKA_CERTIFICATE_FILE"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(environment: dict[str, str], told: str) -> None:
    """Given settings of which each is fine alone, when they contradict each other, then the error names them."""
    with pytest.raises(ConfigurationError, match=told):
        read_settings(environment)


def test_secrets_are_never_shown() -> None:
    """Given passwords, one of them in a URL and one wrongly set, when settings or errors are shown, then they are masked."""
    environment = {
        "COACH_KAFKA_SASL_PASSWORD": "hunter2",
        "COACH_KAFKA_KEY_PASSWORD": "hunter3",
        "COACH_REDIS_URL": "rediss://user:hunter4@cache:6380/1",
    }
    shown = masked(read_settings(environment))
    assert "hunter" not in str(shown)
    assert shown["COACH_KAFKA_SASL_PASSWORD"] == MASK
    assert shown["COACH_REDIS_URL"] == f"rediss://user:{MASK}@cache:6380/1"
    with pytest.raises(ConfigurationError) as raised:
        read_settings({"COACH_REDIS_URL": "https://user:hunter5@cache"})
    assert "hunter5" not in str(raised.value)


def test_every_setting_is_documented_and_has_a_bound() -> None:
    """Given all settings, when their documentation is read, then each has a meaning, and the defaults pass their own check."""
    told = documentation()
    assert all(meaning for _, _, meaning in told)
    defaults = {variable: default for variable, default, _ in told if default}
    assert read_settings(defaults) == Settings()


def test_a_dead_letter_topic_holds_the_largest_decision() -> None:
    """Given the defaults, when compared, then a dead letter has room for a whole decision and its own fields."""
    settings = Settings()
    assert settings.dead_letter_bytes_max >= settings.decision_bytes_max + DEAD_LETTER_MARGIN_BYTES


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("earliest", StartAt("earliest")),
        ("latest", StartAt("latest")),
        ("2026-11-27T10:15:00Z", StartAt("time", 1_795_774_500_000)),
        ("2026-11-27T11:15:00.250+01:00", StartAt("time", 1_795_774_500_250)),
    ],
)
def test_where_to_start_can_be_said_in_three_ways(text: str, read: StartAt) -> None:
    """Given earliest, latest or a time with its zone, when read, then it is understood, and written back it reads the same."""
    assert read_start_at(text) == read
    assert read_start_at(str(read)) == read


@pytest.mark.parametrize("text", ["", "now", "2026-11-27", "2026-11-27T10:15:00", "1795774500"])
def test_a_start_without_zone_or_sense_is_refused(text: str) -> None:
    """Given a time without a zone or another word, when read, then it is refused with what it takes."""
    with pytest.raises(ValueError, match="RFC 3339"):
        read_start_at(text)


def test_paths_are_read(tmp_path: Path) -> None:
    """Given a folder for bundles, when read, then it is a path."""
    assert read_settings({"COACH_BUNDLE_DIR": str(tmp_path)}).bundle_dir == tmp_path
