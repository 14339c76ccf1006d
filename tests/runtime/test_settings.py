from __future__ import annotations

from pathlib import Path

import pytest

from stream.bundle.uris import MASK
from stream.errors import ConfigurationError
from stream.runtime.settings import DEAD_LETTER_MARGIN_BYTES, Settings, read_settings
from stream.runtime.settings_reader import documentation, masked
from stream.runtime.start_at import StartAt, read_start_at


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
        shown = MASK if name in ("COACH_KAFKA_BROKERS", "COACH_REDIS_URL") else repr(value)
        assert f"{name}={shown}: " in str(raised.value)


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
    assert shown["COACH_REDIS_URL"] == f"rediss://{MASK}@cache:6380/1"
    for name, wrong in (
        ("COACH_REDIS_URL", "https://user:hunter5@cache"),
        ("COACH_REDIS_URL", "user:hunter5@cache:6379"),
        ("COACH_REDIS_URL", "redis://user:hunter5@[::1"),
        ("COACH_REDIS_URL", "redis://:hunter5@cache:port"),
        ("COACH_KAFKA_BROKERS", "hunter5@kafka:9092"),
        ("COACH_BATCH_MAX", "redis://hunter5@cache"),
    ):
        with pytest.raises(ConfigurationError, match=name) as raised:
            read_settings({name: wrong})
        assert "hunter5" not in str(raised.value)
    for url in ("redis://hunter6@cache:6379/0", "redis://cache:6379/0?password=hunter6"):
        assert "hunter" not in masked(read_settings({"COACH_REDIS_URL": url}))["COACH_REDIS_URL"]


def test_a_misspelt_setting_is_refused_and_other_variables_are_left_alone() -> None:
    """Given a variable whose name is nearly a setting's, when read, then the error names what was meant; variables of other parts and of Kubernetes are left alone."""
    for name, meant in (("COACH_KAFKA_BROKER", "COACH_KAFKA_BROKERS"), ("COACH_MODEL_WAIT", "COACH_MODEL_WAIT_S")):
        with pytest.raises(ConfigurationError, match=f"{name}: .*did you mean {meant}"):
            read_settings({name: "1"})
    others = {
        "COACH_DATA": "x",
        "COACH_DEBUG": "1",
        "COACH_REDIS_PORT": "tcp://10.0.0.1:6379",
        "COACH_METRICS_SERVICE_PORT": "80",
        "COACH_KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1",
        "COACH_TOPIC_NOTICES": "notices",
        "COACH_KAFKA_BROKER": "",
    }
    assert read_settings(others) == Settings()


def test_every_setting_is_documented_and_has_a_bound() -> None:
    """Given all settings, when their documentation is read, then each has a meaning, and the defaults pass their own check."""
    told = documentation(Settings)
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


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-11-27",
        "2026-11-27T10:15:00",
        "1795774500",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-12:00",
        "1969-12-31T23:59:59Z",
    ],
)
def test_a_start_without_zone_or_sense_is_refused(text: str) -> None:
    """Given a time without a zone or another word, when read, then it is refused with what it takes."""
    with pytest.raises(ValueError, match="RFC 3339"):
        read_start_at(text)


def test_paths_are_read(tmp_path: Path) -> None:
    """Given a folder for bundles, when read, then it is a path."""
    assert read_settings({"COACH_BUNDLE_DIR": str(tmp_path)}).bundle_dir == tmp_path


@pytest.mark.parametrize(
    "url",
    [
        "registry:8081",
        "ftp://registry",
        "http://",
        "http://user:hunter2@registry:8081",
        "http://one:8081,http://user:hunter2@two:8081",
        "https://registry?token=hunter2",
        "http://[registry",
        "http://registry:port",
    ],
)
def test_the_registrys_address_holds_no_user(url: str) -> None:
    """Given an address that is none, or has a user or query in it, then it is refused, and nothing of it is repeated."""
    with pytest.raises(ConfigurationError, match="COACH_SCHEMA_REGISTRY_URL=") as refused:
        read_settings({"COACH_SCHEMA_REGISTRY_URL": url})
    assert "hunter2" not in str(refused.value)


def test_the_registrys_user_comes_with_a_password_that_is_never_shown() -> None:
    """Given a user and password for the registry, then the password is masked; given one of the two, it is refused."""
    user = {"COACH_SCHEMA_REGISTRY_USERNAME": "coach"}
    settings = read_settings(
        {
            **user,
            "COACH_SCHEMA_REGISTRY_URL": "https://a:8081/x, https://b",
            "COACH_SCHEMA_REGISTRY_PASSWORD": "hunter2",
        }
    )
    assert settings.schema_registry_password == "hunter2"  # noqa: S105 - a test's
    assert "hunter2" not in str(masked(settings))
    with pytest.raises(ConfigurationError, match="COACH_SCHEMA_REGISTRY_PASSWORD: set both or neither"):
        read_settings(user)
