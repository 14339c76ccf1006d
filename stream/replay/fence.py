"""The fence around the live topics: a replay can name, and so write to, nothing but topics of its own.

Three walls, each sufficient by itself. A topic to write to is a `ReplayTopic`, whose name cannot be made without
`.replay.<run_id>` at its end. No live topic may have `.replay.` in its name: the settings refuse it, for workers as for
replays. And what is on a topic of a run's name must be records of this very run, or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stream.errors import ConfigurationError, shown
from stream.events import REPLAY_MARK
from stream.runtime.clients import GROUPLESS
from stream.runtime.kafka.delivery import Delivers, Output, Undeliverable
from stream.runtime.retry import Retry
from stream.runtime.settings import Settings
from stream.runtime.settings_reader import PREFIX, settings_of

RUN_ID: Final = re.compile(r"[a-z0-9-]{1,40}")
TOPIC_CHARACTERS_MAX: Final = 249  # Kafka's own
RUN_HEADER: Final = "coach-replay-run-id"  # on every record; a dead letter has no field for it


def check_run_id(run_id: str) -> None:
    """Refuse a run id that cannot be part of a topic's name. Raises: ConfigurationError."""
    if not RUN_ID.fullmatch(run_id):
        message = f"--run-id {shown(run_id)}: must be 1 to 40 small letters, digits or hyphens, such as spring-check"
        raise ConfigurationError(message)


def is_replay(topic: str) -> bool:
    """Whether a topic's name is one of a replay's output."""
    return REPLAY_MARK in topic


@dataclass(frozen=True, slots=True)
class ReplayTopic:
    """A topic that a replay may write to; there is none whose name does not end in `.replay.<run_id>`."""

    live: str
    run_id: str

    def __post_init__(self) -> None:
        check_run_id(self.run_id)
        if not self.live or is_replay(self.live):
            message = (
                f"topic {shown(self.live)} is already a replay's output; a replay of it would have no topic of its own"
            )
            raise ConfigurationError(message)

    @property
    def name(self) -> str:
        """The topic's name on the brokers: <live topic>.replay.<run id>."""
        return f"{self.live}{REPLAY_MARK}{self.run_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTopics:
    """The three topics that a run writes to."""

    audit: ReplayTopic
    recommendations: ReplayTopic
    dlq: ReplayTopic

    @property
    def all(self) -> tuple[ReplayTopic, ReplayTopic, ReplayTopic]:
        """The topics for audit records, recommendations and dead letters, in this order."""
        return self.audit, self.recommendations, self.dlq


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayOutput:
    """One record for a topic of a replay. `eq=False`: two equal outputs are still two."""

    topic: ReplayTopic
    key: bytes | None
    value: bytes


@dataclass(frozen=True, slots=True)
class Refusal:
    """An output that the broker refuses for good, and its reason."""

    output: ReplayOutput
    reason: str


class FencedDelivery:
    """Takes outputs to the brokers; what is not for a `ReplayTopic` of this run never gets there."""

    def __init__(self, delivery: Delivers, topics: ReplayTopics) -> None:
        """`topics` are all that it ever writes to."""
        self._delivery = delivery
        self._allowed = frozenset(topics.all)

    def deliver(self, outputs: Sequence[ReplayOutput], retry: Retry) -> list[Refusal]:
        """Return what can never be delivered, once all else is acknowledged by the brokers.

        Raises: ConfigurationError for an output of another run; as `Delivers.deliver` does.
        """
        for one in outputs:
            if one.topic not in self._allowed:
                message = f"a replay may not write to {one.topic}"
                raise ConfigurationError(message)
        sent = {
            Output(
                topic=one.topic.name, key=one.key, value=one.value, headers=((RUN_HEADER, one.topic.run_id.encode()),)
            ): one
            for one in outputs
        }
        refused: list[Undeliverable] = self._delivery.deliver(list(sent), retry)
        return [Refusal(sent[one.output], one.reason) for one in refused]


def replay_topics(settings: Settings, run_id: str) -> ReplayTopics:
    """Name the topics of a run, and check them against all live topics.

    Raises: ConfigurationError that names the setting.
    """
    check_run_id(run_id)
    live = live_topics(settings)
    for variable, name in live.items():
        if is_replay(name):
            message = (
                f"{variable}={name}: a live topic must not have {REPLAY_MARK!r} in its name, which marks the topics of replays; "
                "give the topic that the workers use"
            )
            raise ConfigurationError(message)
    if settings.group == GROUPLESS:
        message = (
            f"{PREFIX}GROUP={settings.group}: is what a replay reads under, without a group; name the workers' group"
        )
        raise ConfigurationError(message)
    topics = ReplayTopics(
        audit=ReplayTopic(settings.topic_audit, run_id),
        recommendations=ReplayTopic(settings.topic_recommendations, run_id),
        dlq=ReplayTopic(settings.topic_dlq, run_id),
    )
    for topic in topics.all:
        _check_name(topic, live)
    return topics


def live_topics(settings: Settings) -> dict[str, str]:
    """All topics of the service, by the variable that names them."""
    topics = [name for name in settings_of(Settings) if name.startswith("topic_")]
    return {PREFIX + name.upper(): str(getattr(settings, name)) for name in topics}


def check_source(topic: str, flag: str) -> None:
    """Refuse to read a replay's output as if it were live decisions or answers. Raises: ConfigurationError."""
    if is_replay(topic):
        message = f"{flag}={shown(topic)}: is the output of a replay; replay live decisions or answers"
        raise ConfigurationError(message)


def _check_name(topic: ReplayTopic, live: dict[str, str]) -> None:
    variable = next(one for one, name in live.items() if name == topic.live)
    if len(topic.name) > TOPIC_CHARACTERS_MAX:
        message = (
            f"{variable}={shown(topic.live)} with --run-id {topic.run_id} makes a topic of {len(topic.name)} characters, and "
            f"Kafka takes {TOPIC_CHARACTERS_MAX}; choose a shorter run id"
        )
        raise ConfigurationError(message)
    for other, name in live.items():
        if _as_metric(name) == _as_metric(topic.name):  # Kafka itself takes no two topics that differ in . and _ only
            message = f"{other}={name}: is, to Kafka, the name of this run's {topic.name}; choose another --run-id"
            raise ConfigurationError(message)


def _as_metric(name: str) -> str:
    return name.replace(".", "_")
