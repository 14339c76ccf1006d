"""The sink's own settings, beside those of the service (Kafka, topics, retry, log)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from stream.runtime.settings import topic_name
from stream.runtime.settings_reader import About, read_settings_class, refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """All that `coach audit sink` can be told of its own."""

    sink_to: Annotated[
        str, About("where the archive lies: a folder, or a URI such as s3://bucket/audit", address=True)
    ] = ""
    sink_group: Annotated[str, About("consumer group of the sinks that fill one archive", check=topic_name)] = (
        "coach-audit-sink"
    )
    sink_instance: Annotated[
        str,
        About(
            "a name that this sink alone keeps over restarts, so that its partitions wait for it (static membership)",
            check=topic_name,
        ),
    ] = ""
    sink_range_offsets: Annotated[
        int,
        About("offsets in one range of a new archive; 0: as the archive has it, 5000 in a new one", low=0, high=10**6),
    ] = 0
    sink_tail_s: Annotated[
        float,
        About(
            "how long a record waits at most before the archive shows it; 0: until its range is full",
            low=0,
            high=86_400,
        ),
    ] = 60.0
    sink_metrics_port: Annotated[int, About("port of the sink's /metrics and /health; 0: none", low=0, high=65_535)] = 0


def read_sink_settings(environment: Mapping[str, str] | None = None, **flags: object) -> SinkSettings:
    """Read them, as `read_settings_class` does. Raises: ConfigurationError that names every wrong setting."""
    settings, wrong = read_settings_class(SinkSettings, environment, flags, part="SINK_")
    if not settings.sink_to:
        wrong.append(
            "COACH_SINK_TO: say where the archive lies, here or with --to: a folder, or a URI such as s3://bucket/audit"
        )
    refuse(wrong)
    return settings
