"""One subject of a schema registry: whether it holds our schema, whether ours reads the others, and how to make it so.

The subject of a topic is `<topic>-value`. What counts is what a schema means: one that was registered by somebody else,
reformatted by the registry or documented otherwise is ours all the same, and nothing is registered twice.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stream.errors import ConfigurationError
from stream.wire.registry.client import HoldsSchemas, RefusedSchemaError, Registered
from stream.wire.registry.schema_differences import differences, same_meaning
from stream.wire.schema_files import RecordName, current_schemas

log = logging.getLogger(__name__)

REPLAY_MARK: Final = ".replay."  # CONTRACTS: <topic>.replay.<run_id>
LEVEL: Final = "BACKWARD_TRANSITIVE"  # a new version must read what every earlier one wrote
LEVELS_AS_GOOD: Final = frozenset({LEVEL, "FULL_TRANSITIVE"})
WRITTEN_BY_OTHERS: Final[frozenset[RecordName]] = frozenset({"Decision"})  # whose subjects are theirs to govern
DIFFERENCES_SHOWN_MAX: Final = 5
APPLY: Final = "COACH_SCHEMA_REGISTRY_REGISTER=auto coach topics apply --only schemas"


def subject_of(topic: str) -> str:
    """Name the subject of a topic's values, as Confluent's TopicNameStrategy does.

    A replay's topics have the records, and so the subjects, of the live ones: none is made for each run.
    """
    return f"{topic.partition(REPLAY_MARK)[0]}-value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a registry holds under one name, beside our present schema of a record. `level` is None when it is not told."""

    name: str
    record: RecordName
    versions: Sequence[Registered]
    level: str | None

    @property
    def ours(self) -> Registered | None:
        """The last version that means what our schema means."""
        present = current_schemas()[self.record].document
        alike = (one for one in reversed(self.versions) if one.document is not None and _same(one.document, present))
        return next(alike, None)

    @property
    def unreadable(self) -> list[str]:
        """Say, for each version that our schema cannot read, which it is and why."""
        found = []
        for one in self.versions:
            why = why_unreadable(one, self.record)
            if why:
                found.append(f"version {one.version} (id {one.schema_id}): {why}")
        return found

    @property
    def input(self) -> bool:
        """Whether others write the record: then all that counts is that ours can read it."""
        return self.record in WRITTEN_BY_OTHERS

    @property
    def level_is_good(self) -> bool:
        """Whether the registry keeps away what would break reading; a level that is not told is let pass."""
        return self.level is None or self.level in LEVELS_AS_GOOD


def look_at(registry: HoldsSchemas, topic: str, record: RecordName) -> Subject:
    """Ask a registry about a topic's subject.

    Raises: RegistryUnavailable, ConfigurationError.
    """
    name = subject_of(topic)
    versions = registry.versions(name)
    return Subject(name=name, record=record, versions=versions, level=_level(registry, name) if versions else None)


def why_unreadable(one: Registered, record: RecordName) -> str | None:
    """Say why our schema of a record cannot read what a registered one wrote; None when it can."""
    if one.document is None:
        return f"it is {one.kind}, not Avro"
    try:
        found = differences(current_schemas()[record].document, one.document)
    except (KeyError, TypeError, AttributeError):
        return "it is no Avro schema"
    more = f" and {len(found) - DIFFERENCES_SHOWN_MAX} more" if len(found) > DIFFERENCES_SHOWN_MAX else ""
    return "; ".join(found[:DIFFERENCES_SHOWN_MAX]) + more if found else None


def settle(registry: HoldsSchemas, topic: str, record: RecordName, *, register: bool) -> int:
    """Make sure that a topic's subject holds our schema of the record that is written to it; return the schema's id.

    `register`: whether what is missing may be registered, and the level set; else it is only looked up.
    Raises: ConfigurationError that names the subject, the field and what to do; RegistryUnavailable.
    """
    found = look_at(registry, topic, record)
    check_readable(found, registry.url)
    ours = found.ours
    if ours is None and not register:
        reason = (
            f"subject {found.name} of the schema registry at {registry.url} does not hold our schema of {record} "
            f"({current_schemas()[record].where}), and COACH_SCHEMA_REGISTRY_REGISTER=never: register it with `{APPLY}`"
        )
        raise ConfigurationError(reason)
    schema_id = ours.schema_id if ours is not None else _register(registry, topic, record)
    level = found.level if ours is not None else _level(registry, found.name)
    if level is not None and level not in LEVELS_AS_GOOD:
        _raise_level(registry, found.name, level, register=register)
    return schema_id


def offer(registry: HoldsSchemas, topic: str, record: RecordName, *, register: bool) -> Sequence[Registered]:
    """Make sure that what stands on a topic that others write can be read; return all versions of its subject.

    A subject that is not there is made from our schema, if `register`, so that producers find it.
    Raises: ConfigurationError, RegistryUnavailable, as `settle`.
    """
    found = look_at(registry, topic, record)
    check_readable(found, registry.url)
    if found.versions or not register:
        return found.versions
    settle(registry, topic, record, register=register)
    return registry.versions(found.name)


def check_readable(found: Subject, url: str) -> None:
    """Refuse a subject of which our schema cannot read every version, unless ours is among them already.

    Then it was accepted once, and what came later is for the records to fail by: a start that failed would answer nobody.
    Raises: ConfigurationError.
    """
    unreadable = found.unreadable
    if not unreadable:
        return
    told = (
        f"subject {found.name} of the schema registry at {url} holds what our {found.record} "
        f"({current_schemas()[found.record].where}) cannot read: {' | '.join(unreadable)}"
    )
    if found.ours is not None:
        log.warning("schema.unreadable", extra={"subject": found.name, "why": told})
        return
    reason = f"{told}; take another topic (COACH_TOPIC_*), or delete that version from the registry"
    raise ConfigurationError(reason)


def _register(registry: HoldsSchemas, topic: str, record: RecordName) -> int:
    name, schema = subject_of(topic), current_schemas()[record]
    try:
        schema_id = registry.register(name, schema.document)
    except RefusedSchemaError as refused:
        again = look_at(registry, topic, record).ours  # another process may have been quicker
        if again is not None:
            return again.schema_id
        reason = (
            f"the schema registry at {registry.url} refuses our schema of {record} ({schema.where}) for subject {name}: "
            f"{refused}; take another topic (COACH_TOPIC_*), or mend the subject"
        )
        raise ConfigurationError(reason) from refused
    log.info("schema.registered", extra={"subject": name, "schema_id": schema_id})
    return schema_id


def _raise_level(registry: HoldsSchemas, name: str, level: str, *, register: bool) -> None:
    if not register:
        reason = (
            f"subject {name} of the schema registry at {registry.url} has compatibility {level}, so that it would take what "
            f"nobody could read any more; set {LEVEL} with `{APPLY}`"
        )
        raise ConfigurationError(reason)
    registry.set_level(name, LEVEL)
    log.info("schema.level_set", extra={"subject": name, "level": LEVEL, "before": level})


def _level(registry: HoldsSchemas, name: str) -> str | None:
    """A subject's level; None where we may not ask for it, for then somebody else sees to it."""
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
