"""The schemas of the topics in a schema registry: what `coach topics apply` finds, and does about it."""

from __future__ import annotations

from stream.errors import ConfigurationError
from stream.runtime.connections import connect_registry, once_registry_answers, topic_records
from stream.runtime.kafka.topics import Finding
from stream.runtime.settings import Settings
from stream.wire.schema_files import RecordName


def schema_findings(settings: Settings, *, dry_run: bool, asked: bool) -> list[Finding]:
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
        once_registry_answers(lambda: _finding(settings, topic, record, apply=apply), settings)  # noqa: B023 - called at once
        for topic, record in topic_records(settings).items()
    ]


def _finding(settings: Settings, topic: str, record: RecordName, *, apply: bool) -> Finding:
    from stream.wire.registry.subjects import LEVEL, ensure_registered, read_subject  # noqa: PLC0415 - takes half a second to import

    registry = connect_registry(settings)
    found = read_subject(registry, topic, record)
    others = found.input and bool(found.versions)  # the producers' own, which we only have to read
    if found.unreadable and found.ours is None:
        return Finding(topic=found.name, verdict="unmendable", detail=f"our {record} cannot read {found.unreadable[0]}")
    if found.ours is None and not others:
        if not apply:
            return Finding(topic=found.name, verdict="missing", detail=f"{record} would be registered")
        try:
            schema_id = ensure_registered(registry, topic, record, register=True)
        except ConfigurationError as refused:
            return Finding(topic=found.name, verdict="unmendable", detail=str(refused))
        return Finding(topic=found.name, verdict="created", detail=f"{record} is schema {schema_id}")
    if not found.level_is_good and not others:
        told = f"its compatibility is {found.level} and must be {LEVEL}"
        if apply:
            registry.set_level(found.name, LEVEL)
        return Finding(topic=found.name, verdict="changed" if apply else "different", detail=told)
    told = f"{record} is schema {found.ours.schema_id}" if found.ours else f"our {record} reads all its versions"
    return Finding(topic=found.name, verdict="ok", detail=told)
