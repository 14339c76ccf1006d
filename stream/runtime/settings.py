"""The service's settings: how to reach Kafka, Redis and the registry, the topics, and all that the worker can be told.

Everything that waits, grows or retries in the worker has its bound here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import SplitResult, urlsplit

from stream.events import REPLAY_MARK
from stream.runtime.settings_reader import PREFIX, About, read_settings_class, refuse, settings_of
from stream.runtime.start_at import StartAt

SecurityProtocol: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
RegisterSchemas: TypeAlias = Literal["auto", "never"]
LogLevel: TypeAlias = Literal["DEBUG", "INFO", "WARNING", "ERROR"]

KIB: Final = 1024
MIB: Final = 1024 * KIB
# What a dead letter adds to the bytes that it carries: its other fields, with a message of at most 1,000 characters.
DEAD_LETTER_MARGIN_BYTES: Final = 16 * KIB
SESSION_MAX_S: Final = 1_800  # brokers refuse a longer session by default (group.max.session.timeout.ms)
TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
BROKER: Final = re.compile(r"[^\s,:/@]+:\d{1,5}")


def topic_name(text: str) -> None:
    """Refuse what Kafka takes for no topic's name. Raises: ValueError."""
    if not TOPIC_NAME.fullmatch(text):
        message = "must be 1 to 249 letters, digits, dots, hyphens or underscores"
        raise ValueError(message)


def _brokers(text: str) -> None:
    if not all(BROKER.fullmatch(one.strip()) for one in text.split(",")):
        message = "must be host:port or host:port,host:port"
        raise ValueError(message)


def _url_parts(text: str, like: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        _ = parts.port, parts.hostname  # parsed only now
    except ValueError:
        message = f"is no URL (brackets or port?); must be like {like}"
        raise ValueError(message) from None
    return parts


def _redis_url(text: str) -> None:
    parts = _url_parts(text, "redis://host:port/number, rediss:// or unix://")
    if parts.scheme not in ("redis", "rediss", "unix"):
        message = "must begin with redis://, rediss:// or unix://"
        raise ValueError(message)


def _registry_url(text: str) -> None:
    for one in text.split(","):
        parts = _url_parts(one.strip(), "http://host:port or https://host/path")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            message = "must be like http://host:port or https://host/path, with commas between several"
            raise ValueError(message)
        if "@" in one or parts.query or parts.fragment:
            message = (
                f"must hold neither user nor query; {PREFIX}SCHEMA_REGISTRY_USERNAME and "
                f"{PREFIX}SCHEMA_REGISTRY_PASSWORD are for that"
            )
            raise ValueError(message)


def readable_file(text: str) -> None:
    """Refuse a path at which there is no file. Raises: ValueError."""
    if not Path(text).is_file():
        message = "is not a file that can be read"
        raise ValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All that a worker, `coach topics` and `coach model` can be told. Times end in their unit; sizes are bytes."""

    kafka_brokers: Annotated[
        str, About("host:port,host:port of Kafka brokers to ask first", check=_brokers, address=True)
    ] = "127.0.0.1:9092"
    kafka_security_protocol: Annotated[SecurityProtocol, About("how to talk to the brokers")] = "PLAINTEXT"
    kafka_sasl_mechanism: Annotated[SaslMechanism, About("how to log in, where the protocol has SASL in it")] = (
        "SCRAM-SHA-512"
    )
    kafka_sasl_username: Annotated[str, About("user name for SASL")] = ""
    kafka_sasl_password: Annotated[str, About("password for SASL", secret=True)] = ""
    kafka_ca_file: Annotated[
        str,
        About("PEM file of the authorities behind the brokers' certificates; none: the system's", check=readable_file),
    ] = ""
    kafka_certificate_file: Annotated[str, About("PEM file of the client's certificate", check=readable_file)] = ""
    kafka_key_file: Annotated[str, About("PEM file of the client's key", check=readable_file)] = ""
    kafka_key_password: Annotated[str, About("password of that key", secret=True)] = ""
    redis_url: Annotated[str, About("Redis: redis://, rediss:// (TLS) or unix://", check=_redis_url, address=True)] = (
        "redis://127.0.0.1:6379/0"
    )
    redis_ca_file: Annotated[
        str, About("PEM file of the authorities behind Redis' certificate; none: the system's", check=readable_file)
    ] = ""
    redis_timeout_s: Annotated[float, About("longest wait for one answer of Redis", low=0.1, high=60)] = 5.0

    schema_registry_url: Annotated[
        str,
        About(
            "schema registry that all records are framed for; none: single-object encoding",
            check=_registry_url,
            address=True,
        ),
    ] = ""
    schema_registry_username: Annotated[str, About("user name (or API key) at the registry")] = ""
    schema_registry_password: Annotated[str, About("password (or API secret) at the registry", secret=True)] = ""
    schema_registry_ca_file: Annotated[
        str,
        About(
            "PEM file of the authorities behind the registry's certificate; none: the public ones", check=readable_file
        ),
    ] = ""
    schema_registry_timeout_s: Annotated[
        float, About("longest wait for one answer of the registry", low=0.1, high=60)
    ] = 5.0
    schema_registry_register: Annotated[
        RegisterSchemas, About("auto: register our schemas where they are missing; never: only look them up")
    ] = "auto"

    group: Annotated[str, About("consumer group of the workers", check=topic_name)] = "coach-stream"
    topic_decisions: Annotated[str, About("topic of decisions, in", check=topic_name)] = "decisions"
    topic_models: Annotated[str, About("topic of published models, in; compacted, one partition", check=topic_name)] = (
        "models"
    )
    topic_recommendations: Annotated[str, About("topic of recommendations, out", check=topic_name)] = "recommendations"
    topic_audit: Annotated[str, About("topic of audit records, out", check=topic_name)] = "audit"
    topic_dlq: Annotated[str, About("topic of dead letters, out", check=topic_name)] = "decisions.dlq"
    topic_notices: Annotated[str, About("topic of notices sent, out of the notifier", check=topic_name)] = "notices"
    start_at: Annotated[
        StartAt | None,
        About("where to begin on partitions of which the group read nothing: earliest, latest, or an RFC 3339 time"),
    ] = None

    decision_bytes_max: Annotated[
        int, About("largest decision (max.message.bytes of its topic)", low=KIB, high=MIB)
    ] = MIB
    audit_bytes_max: Annotated[
        int, About("largest audit record (max.message.bytes of its topic)", low=KIB, high=64 * MIB)
    ] = 4 * MIB
    recommendation_bytes_max: Annotated[
        int, About("largest recommendation (max.message.bytes of its topic)", low=KIB, high=64 * MIB)
    ] = MIB
    dead_letter_bytes_max: Annotated[
        int,
        About("largest dead letter (max.message.bytes of its topic); holds a whole decision", low=KIB, high=128 * MIB),
    ] = 2 * MIB

    start_wait_s: Annotated[
        float, About("longest wait for Kafka and for Redis at the start, each", low=0, high=3_600)
    ] = 30.0
    model_wait_s: Annotated[
        float, About("how long a decision waits for a model version that nobody published yet", low=0, high=3_600)
    ] = 60.0
    parked_max: Annotated[
        int, About("most decisions that wait so; beyond, the oldest becomes a dead letter", low=1, high=100_000)
    ] = 1_000
    uncommitted_max: Annotated[
        int,
        About(
            "most decisions read and not committed yet, with those answered behind a waiting one", low=100, high=10**6
        ),
    ] = 20_000
    outage_max_s: Annotated[
        float, About("how long an outage is waited out before the process ends with code 3", low=1, high=86_400)
    ] = 300.0
    drain_s: Annotated[
        float,
        About("how long a stop or rebalance waits for an outage before leaving work to be read again", low=0, high=600),
    ] = 10.0
    retry_delay_max_s: Annotated[float, About("longest pause between two tries in an outage", low=0.05, high=60)] = 5.0
    delivery_timeout_s: Annotated[
        float, About("longest wait for the broker's word on an output before it is sent again", low=1, high=600)
    ] = 30.0
    conflict_window_s: Annotated[
        int, About("how long a decision_id is remembered with its content (Redis)", low=1, high=31_536_000)
    ] = 86_400
    session_timeout_s: Annotated[
        float, About("silence after which the brokers give a worker's partitions to others", low=1, high=SESSION_MAX_S)
    ] = 10.0
    commit_interval_s: Annotated[float, About("how often offsets are committed", low=0.05, high=60)] = 1.0

    batch_max: Annotated[int, About("most decisions answered in one go", low=1, high=10_000)] = 256
    batch_s_max: Annotated[
        float,
        About("time after which what is answered of a batch goes out, so that none waits long", low=0.001, high=60),
    ] = 0.2
    models_max: Annotated[int, About("most bundles kept open at once", low=1, high=1_000)] = 4
    bundle_dir: Annotated[Path, About("where bundles are kept on this host; workers on one host share it")] = Path(
        "~/.cache/coach-stream/bundles"
    )
    bundle_sources: Annotated[
        str,
        About(
            "folders and URI prefixes, with commas between, below which bundles may be fetched, besides Redis and the folder above",
            address=True,
        ),
    ] = ""
    bundle_bytes_max: Annotated[
        int, About("largest bundle that is fetched, by its manifest", low=MIB, high=1024 * 1024 * MIB)
    ] = 8 * 1024 * MIB
    redis_chunk_bytes: Annotated[
        int, About("size of the pieces in which a bundle lies in Redis", low=64 * KIB, high=64 * MIB)
    ] = 16 * MIB

    metrics_port: Annotated[int, About("port of /metrics and /health; 0: none", low=0, high=65_535)] = 0
    metrics_address: Annotated[
        str, About("address that the metrics ports of worker, sink and notifier listen on; 0.0.0.0: all of this host")
    ] = "127.0.0.1"
    log_level: Annotated[LogLevel, About("least level that is logged; INFO has a line for each decision")] = "INFO"
    log_totals_every_s: Annotated[float, About("how often the counters are logged; 0: never", low=0, high=86_400)] = (
        60.0
    )


def read_settings(environment: Mapping[str, str] | None = None, **flags: object) -> Settings:
    """Read the service's settings: see `read_settings_class`. Raises: ConfigurationError that names every wrong one."""
    settings, wrong = read_settings_class(Settings, environment, flags)
    refuse([*wrong, *_contradictions(settings)])
    return settings


def _contradictions(settings: Settings) -> list[str]:
    """What no single setting shows."""
    wrong = []
    topics = {name: str(getattr(settings, name)) for name in settings_of(Settings) if name.startswith("topic_")}
    if len(set(topics.values())) < len(topics):
        wrong.append(f"{PREFIX}TOPIC_*: {', '.join(topics.values())} must all be different")
    wrong += [
        f"{PREFIX}{name.upper()}={value}: has {REPLAY_MARK} in it, as replays' own topics have; name a live one"
        for name, value in topics.items()
        if REPLAY_MARK in value
    ]
    needed = settings.decision_bytes_max + DEAD_LETTER_MARGIN_BYTES
    if settings.dead_letter_bytes_max < needed:
        wrong.append(
            f"{PREFIX}DEAD_LETTER_BYTES_MAX={settings.dead_letter_bytes_max}: a dead letter holds a whole decision, so "
            f"it must be at least {PREFIX}DECISION_BYTES_MAX + {DEAD_LETTER_MARGIN_BYTES} = {needed}"
        )
    named = bool(settings.kafka_sasl_username and settings.kafka_sasl_password)
    if "SASL" in settings.kafka_security_protocol and not named:
        wrong.append(
            f"{PREFIX}KAFKA_SECURITY_PROTOCOL={settings.kafka_security_protocol}: needs {PREFIX}KAFKA_SASL_USERNAME "
            f"and {PREFIX}KAFKA_SASL_PASSWORD"
        )
    if bool(settings.kafka_certificate_file) != bool(settings.kafka_key_file):
        wrong.append(f"{PREFIX}KAFKA_CERTIFICATE_FILE and {PREFIX}KAFKA_KEY_FILE: set both or neither")
    if bool(settings.schema_registry_username) != bool(settings.schema_registry_password):
        wrong.append(f"{PREFIX}SCHEMA_REGISTRY_USERNAME and {PREFIX}SCHEMA_REGISTRY_PASSWORD: set both or neither")
    return wrong
