"""The topics: one record each of what is on it, and of what it must be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from stream.runtime.settings import Settings
from stream.wire.schema_files import RecordName

DAY_MS: Final = 24 * 60 * 60 * 1_000
# US Regulation B, 12 CFR 1002.12(b): records are kept for 25 months after the notice; 31 days a month, and a week.
AUDIT_RETENTION_MS: Final = (25 * 31 + 7) * DAY_MS
DEFAULT_RETENTION_MS: Final = 7 * DAY_MS
DEAD_LETTER_RETENTION_MS: Final = 90 * DAY_MS
PARTITIONS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """One topic. `configuration`: what the brokers must have; `exact_partitions`: no other count will do, else more is as good."""

    name: str
    record: RecordName
    partitions: int
    configuration: Mapping[str, str]
    exact_partitions: bool = False


def topic_specs(settings: Settings, *, partitions: int = PARTITIONS) -> list[TopicSpec]:
    """Give every topic as the settings name and bound it."""

    def plain(name: str, record: RecordName, bytes_max: int, retention_ms: int) -> TopicSpec:
        configuration = {
            "cleanup.policy": "delete",
            "max.message.bytes": str(bytes_max),
            "retention.ms": str(retention_ms),
        }
        return TopicSpec(name=name, record=record, partitions=partitions, configuration=configuration)

    s = settings
    return [
        plain(s.topic_decisions, "Decision", s.decision_bytes_max, DEFAULT_RETENTION_MS),
        TopicSpec(
            name=s.topic_models,
            record="ModelPublished",
            partitions=1,
            exact_partitions=True,
            configuration={"cleanup.policy": "compact", "max.message.bytes": str(s.decision_bytes_max)},
        ),
        plain(s.topic_recommendations, "Recommendation", s.recommendation_bytes_max, DEFAULT_RETENTION_MS),
        plain(s.topic_audit, "AuditRecord", s.audit_bytes_max, AUDIT_RETENTION_MS),
        plain(s.topic_dlq, "DeadLetter", s.dead_letter_bytes_max, DEAD_LETTER_RETENTION_MS),
        plain(s.topic_notices, "Notice", s.recommendation_bytes_max, AUDIT_RETENTION_MS),
    ]
