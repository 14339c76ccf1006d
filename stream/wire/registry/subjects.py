"""One subject of a schema registry: does it hold our schema, can ours read the others, and how to get there.

The subject of a topic is `<topic>-value`. Schemas are compared by meaning: one registered by somebody else, reformatted by
the registry or documented differently still counts as ours, and nothing is registered twice.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stream.errors import ConfigurationError
from stream.events import REPLAY_MARK
from stream.wire.registry.client import RefusedSchemaError, Registered, SchemaRegistry
from stream.wire.registry.schema_differences import differences, same_meaning
from stream.wire.schema_files import RecordName, current_schemas

log = logging.getLogger(__name__)

LEVEL: Final = "BACKWARD_TRANSITIVE"  # a new version must read the records of every earlier one
LEVELS_AS_GOOD: Final = frozenset({LEVEL, "FULL_TRANSITIVE"})
WRITTEN_BY_OTHERS: Final[frozenset[RecordName]] = frozenset({"Decision"})  # others govern these subjects
DIFFERENCES_SHOWN_MAX: Final = 5
APPLY: Final = "COACH_SCHEMA_REGISTRY_REGISTER=auto coach topics apply --only schemas"


def subject_of(topic: str) -> str:
    """A topic's subject, by Confluent's TopicNameStrategy. A replay's topics share the subjects of the live ones."""
    return f"{topic.partition(REPLAY_MARK)[0]}-value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a registry holds under one name, next to our current schema of a record. `level` is None where unknown."""

    name: str
    record: RecordName
    versions: Sequence[Registered]
    level: str | None

    @property
    def ours(self) -> Registered | None:
        """The latest version that equals our schema in meaning."""
        present = current_schemas()[self.record].document
        alike = (one for one in reversed(self.versions) if one.document is not None and _same(one.document, present))
        return next(alike, None)

    @property
    def unreadable(self) -> list[str]:
        """Each version that our schema cannot read, and why."""
        found = []
        for one in self.versions:
            why = why_unreadable(one, self.record)
            if why:
                found.append(f"version {one.version} (id {one.schema_id}): {why}")
        return found

    @property
    def level_is_good(self) -> bool:
        """Whether the registry rejects versions that would break reading; an unknown level passes."""
        return self.level is None or self.level in LEVELS_AS_GOOD


def read_subject(registry: SchemaRegistry, topic: str, record: RecordName) -> Subject:
    """Fetch a topic's subject. Raises: RegistryUnavailable, ConfigurationError."""
    name = subject_of(topic)
    versions = registry.versions(name)
    return Subject(name=name, record=record, versions=versions, level=_level(registry, name) if versions else None)


def why_unreadable(one: Registered, record: RecordName) -> str | None:
    """Why our schema of a record cannot read records of a registered one; None when it can."""
    if one.document is None:
        return f"it is {one.kind}, not Avro"
    try:
        found = differences(current_schemas()[record].document, one.document)
    except (KeyError, TypeError, AttributeError):
        return "it is no Avro schema"
    more = f" and {len(found) - DIFFERENCES_SHOWN_MAX} more" if len(found) > DIFFERENCES_SHOWN_MAX else ""
    return "; ".join(found[:DIFFERENCES_SHOWN_MAX]) + more if found else None


def ensure_registered(registry: SchemaRegistry, topic: str, record: RecordName, *, register: bool) -> int:
    """Make sure that a topic's subject holds our schema of the record; return the schema's id.

    `register`: whether a missing schema may be registered and the level set; otherwise they are only checked.
    Raises: ConfigurationError that names the subject, the field and what to do; RegistryUnavailable.
    """
    found = read_subject(registry, topic, record)
    check_readable(found, registry.url)
    ours = found.ours
    if ours is None and not register:
        message = (
            f"subject {found.name} of the schema registry at {registry.url} does not hold our schema of {record} "
            f"({current_schemas()[record].where}), and COACH_SCHEMA_REGISTRY_REGISTER=never: register it with `{APPLY}`"
        )
        raise ConfigurationError(message)
    schema_id = ours.schema_id if ours is not None else _register(registry, topic, record)
    level = found.level if ours is not None else _level(registry, found.name)
    if level is not None and level not in LEVELS_AS_GOOD:
        if not register:
            message = (
                f"subject {found.name} of the schema registry at {registry.url} has compatibility {level}, so that it would "
                f"take what nobody could read any more; set {LEVEL} with `{APPLY}`"
            )
            raise ConfigurationError(message)
        registry.set_level(found.name, LEVEL)
        log.info("schema.level_set", extra={"subject": found.name, "level": LEVEL, "before": level})
    return schema_id


def ensure_readable(
    registry: SchemaRegistry, topic: str, record: RecordName, *, register: bool
) -> Sequence[Registered]:
    """Make sure that a topic written by others can be read; return all versions of its subject.

    With `register`, a missing subject is created from our schema, so that producers find it.
    Raises: ConfigurationError, RegistryUnavailable, as `ensure_registered`.
    """
    found = read_subject(registry, topic, record)
    check_readable(found, registry.url)
    if found.versions or not register:
        return found.versions
    ensure_registered(registry, topic, record, register=register)
    return registry.versions(found.name)


def check_readable(found: Subject, url: str) -> None:
    """Refuse a subject with versions that our schema cannot read, unless our schema is among its versions.

    If it is, the subject was good once: later versions fail record by record, rather than stopping the whole service.
    Raises: ConfigurationError.
    """
    unreadable = found.unreadable
    if not unreadable:
        return
    fault = (
        f"subject {found.name} of the schema registry at {url} holds what our {found.record} "
        f"({current_schemas()[found.record].where}) cannot read: {' | '.join(unreadable)}"
    )
    if found.ours is not None:
        log.warning("schema.unreadable", extra={"subject": found.name, "why": fault})
        return
    message = f"{fault}; take another topic (COACH_TOPIC_*), or delete that version from the registry"
    raise ConfigurationError(message)


def _register(registry: SchemaRegistry, topic: str, record: RecordName) -> int:
    name, schema = subject_of(topic), current_schemas()[record]
    try:
        schema_id = registry.register(name, schema.document)
    except RefusedSchemaError as refused:
        again = read_subject(registry, topic, record).ours  # another process may have registered it meanwhile
        if again is not None:
            return again.schema_id
        message = (
            f"the schema registry at {registry.url} refuses our schema of {record} ({schema.where}) for subject {name}: "
            f"{refused}; take another topic (COACH_TOPIC_*), or mend the subject"
        )
        raise ConfigurationError(message) from refused
    log.info("schema.registered", extra={"subject": name, "schema_id": schema_id})
    return schema_id


def _level(registry: SchemaRegistry, name: str) -> str | None:
    """A subject's level; None where we may not read it, because then somebody else manages it."""
    try:
        return registry.level(name)
    except ConfigurationError as refused:
        log.warning("schema.level_untold", extra={"subject": name, "why": str(refused)})
        return None


def _same(one: object, other: object) -> bool:
    try:
        return same_meaning(one, other)
    except (KeyError, TypeError, AttributeError):
        return False
