"""Creates and checks the topics and their schemas: the one place that does."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package leaves its re-exports undeclared
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from stream.errors import ConfigurationError, KafkaUnavailable
from stream.runtime.connections import connect_registry, once_answered
from stream.runtime.settings import Settings
from stream.runtime.topic_specs import TopicSpec, topic_specs

REFUSALS: Final = {  # what no waiting mends, and the settings to look at
    KafkaError._AUTHENTICATION: (  # noqa: SLF001 - librdkafka's name
        "they do not accept this user: check COACH_KAFKA_SASL_USERNAME, COACH_KAFKA_SASL_PASSWORD and COACH_KAFKA_SASL_MECHANISM"
    ),
    KafkaError._SSL: (  # noqa: SLF001 - as above
        "TLS does not come about: check COACH_KAFKA_CA_FILE (the authority behind the brokers' certificates), the name in their "
        "certificates, and COACH_KAFKA_CERTIFICATE_FILE if they ask for one"
    ),
}

TopicVerdict: TypeAlias = Literal["ok", "created", "changed", "missing", "different", "unmendable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFinding:
    """What is the matter with one topic, and whether anything was done about it."""

    topic: str
    verdict: TopicVerdict
    detail: str = ""


class TopicKeeper:
    """Creates topics that are missing, mends settings that differ, and says what it cannot mend."""

    def __init__(self, properties: Mapping[str, Any], *, timeout_s: float) -> None:
        """`properties` are those of a confluent-kafka client."""
        self._refusals: deque[KafkaError] = deque(maxlen=1)
        configuration: dict[str, Any] = {**properties, "error_cb": self._hear}
        self._admin = AdminClient(configuration)
        self._timeout_s = timeout_s
        self._address = str(properties.get("bootstrap.servers", ""))
        self._protocol = str(properties.get("security.protocol", "PLAINTEXT"))

    def apply(self, specs: Iterable[TopicSpec], *, replication: int | None, dry_run: bool) -> list[TopicFinding]:
        """Create and mend topics; `dry_run`: only say what differs. Raises: KafkaUnavailable, ConfigurationError."""
        wanted = list(specs)
        present = self.partitions()
        findings = [
            self._create(spec, replication=replication, dry_run=dry_run) for spec in wanted if spec.name not in present
        ]
        configurations = self.configurations([spec.name for spec in wanted if spec.name in present])
        for spec in wanted:
            if spec.name in present:
                findings += self._mend(spec, present[spec.name], configurations[spec.name], dry_run=dry_run)
        order = {spec.name: index for index, spec in enumerate(wanted)}
        return sorted(findings, key=lambda one: order[one.topic])

    def partitions(self) -> dict[str, int]:
        """How many partitions each topic of the cluster has. Raises: KafkaUnavailable."""
        topics = self._metadata().topics
        return {name: len(topic.partitions) for name, topic in topics.items() if topic.error is None}

    def configurations(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Ask the brokers for topics' settings. Raises: KafkaUnavailable; ConfigurationError when they refuse."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        self._check_controller()
        found = {}
        for resource, future in self._admin.describe_configs(resources, request_timeout=self._timeout_s).items():
            entries = self._result(future, f"the settings of topic {resource.name}")
            found[resource.name] = {name: str(entry.value) for name, entry in entries.items()}
        return found

    def _hear(self, error: KafkaError) -> None:
        if error.code() in REFUSALS:
            self._refusals.append(error)

    def _metadata(self) -> Any:  # noqa: ANN401 - confluent-kafka's ClusterMetadata, which has no types
        try:
            return self._admin.list_topics(timeout=self._timeout_s)
        except KafkaException as error:
            self._admin.poll(0)  # which is when it says what it heard
            if self._refusals:
                refusal = self._refusals[-1]
                message = f"the brokers at {self._address}: {refusal.str()}; {REFUSALS[refusal.code()]}"
                raise KafkaUnavailable(message) from error
            message = (
                f"no Kafka broker answered within {self._timeout_s:g} s at {self._address}: {error.args[0].str()}; is "
                f"one there, and does it speak {self._protocol} (COACH_KAFKA_SECURITY_PROTOCOL)?"
            )
            raise KafkaUnavailable(message) from error

    def _check_controller(self) -> None:
        """Without a controller each administrative request would wait until it times out."""
        metadata = self._metadata()
        if metadata.controller_id not in metadata.brokers:
            message = "the brokers name no controller, so topics can neither be made nor read (an embedded Kafka?)"
            raise ConfigurationError(message)

    def _create(self, spec: TopicSpec, *, replication: int | None, dry_run: bool) -> TopicFinding:
        if dry_run:
            return TopicFinding(topic=spec.name, verdict="missing", detail="would be created")
        self._check_controller()
        topic = NewTopic(
            spec.name,
            num_partitions=spec.partitions,
            replication_factor=-1 if replication is None else replication,
            config=dict(spec.configuration),
        )
        for future in self._admin.create_topics([topic], request_timeout=self._timeout_s).values():
            try:
                self._result(future, f"creating topic {spec.name}")
            except _AlreadyThere:
                return TopicFinding(topic=spec.name, verdict="ok", detail="another process created it")
        return TopicFinding(topic=spec.name, verdict="created", detail=f"{spec.partitions} partitions")

    def _mend(
        self, spec: TopicSpec, partitions: int, configuration: Mapping[str, str], *, dry_run: bool
    ) -> list[TopicFinding]:
        findings = []
        if spec.exact_partitions and partitions != spec.partitions:
            detail = f"has {partitions} partitions and must have {spec.partitions}: make it anew under another name"
            findings.append(TopicFinding(topic=spec.name, verdict="unmendable", detail=detail))
        different = {
            name: value
            for name, value in spec.configuration.items()
            if not _good_enough(name, configuration.get(name), value)
        }
        detail = ", ".join(
            f"{name} is {configuration.get(name)} and must be {value}" for name, value in different.items()
        )
        if different and dry_run:
            findings.append(TopicFinding(topic=spec.name, verdict="different", detail=detail))
        elif different:
            entries = [
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in different.items()
            ]
            resource = ConfigResource(ResourceType.TOPIC, spec.name, incremental_configs=entries)
            futures = self._admin.incremental_alter_configs([resource], request_timeout=self._timeout_s)
            for future in futures.values():
                self._result(future, f"changing topic {spec.name}")
            findings.append(TopicFinding(topic=spec.name, verdict="changed", detail=detail))
        return findings or [TopicFinding(topic=spec.name, verdict="ok", detail=f"{partitions} partitions")]

    def _result(self, future: Any, doing: str) -> Any:  # noqa: ANN401 - confluent-kafka's futures are of any kind
        try:
            return future.result(timeout=self._timeout_s + 1)
        except KafkaException as error:
            why = error.args[0]
            if why.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                raise _AlreadyThere from error
            message = f"{doing}: {why.str()}"
            if why.retriable() or why.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):  # noqa: SLF001 - librdkafka's names
                raise KafkaUnavailable(message) from error
            raise ConfigurationError(message) from error


class _AlreadyThere(Exception):
    """Another process was quicker."""


def _good_enough(name: str, present: str | None, wanted: str) -> bool:
    """Sizes and retention may be larger than asked, and no limit at all is larger still; the rest must be equal."""
    if present is None:
        return False
    if name == "retention.ms":
        return int(present) == -1 or int(present) >= int(wanted)
    if name == "max.message.bytes":
        return int(present) >= int(wanted)
    return present == wanted


def schema_findings(settings: Settings, *, dry_run: bool, asked: bool) -> list[TopicFinding]:
    """Bring each topic's subject to what it must be, or only say what differs; nothing without a registry.

    `asked`: that there is no registry is then a mistake.
    Raises: RegistryUnavailable after `start_wait_s`, ConfigurationError.
    """
    if not settings.schema_registry_url:
        if asked:
            message = "there is no schema registry to apply to: set COACH_SCHEMA_REGISTRY_URL"
            raise ConfigurationError(message)
        return []
    apply = settings.schema_registry_register == "auto" and not dry_run
    return [
        once_answered(lambda: _schema_finding(settings, spec, apply=apply), settings)  # noqa: B023 - called at once
        for spec in topic_specs(settings)
    ]


def _schema_finding(settings: Settings, spec: TopicSpec, *, apply: bool) -> TopicFinding:
    from stream.wire.registry.subjects import LEVEL, WRITTEN_BY_OTHERS, ensure_registered, read_subject  # noqa: PLC0415 - takes half a second to import

    registry, record = connect_registry(settings), spec.record
    found = read_subject(registry, spec.name, record)
    others = record in WRITTEN_BY_OTHERS and bool(found.versions)  # the producers' own, which we only have to read
    if found.unreadable and found.ours is None:
        return TopicFinding(
            topic=found.name, verdict="unmendable", detail=f"our {record} cannot read {found.unreadable[0]}"
        )
    if found.ours is None and not others:
        if not apply:
            return TopicFinding(topic=found.name, verdict="missing", detail=f"{record} would be registered")
        try:
            schema_id = ensure_registered(registry, spec.name, record, register=True)
        except ConfigurationError as refused:
            return TopicFinding(topic=found.name, verdict="unmendable", detail=str(refused))
        return TopicFinding(topic=found.name, verdict="created", detail=f"{record} is schema {schema_id}")
    if not found.level_is_good and not others:
        detail = f"its compatibility is {found.level} and must be {LEVEL}"
        if apply:
            registry.set_level(found.name, LEVEL)
        return TopicFinding(topic=found.name, verdict="changed" if apply else "different", detail=detail)
    detail = f"{record} is schema {found.ours.schema_id}" if found.ours else f"our {record} reads all its versions"
    return TopicFinding(topic=found.name, verdict="ok", detail=detail)
