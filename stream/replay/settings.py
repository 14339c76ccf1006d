"""The replay's own settings: `COACH_REPLAY_*`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from stream.runtime.settings_reader import About, read_settings_class, refuse

PART: Final = "REPLAY_"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """Settings of a replay besides its flags."""

    replay_state_dir: Annotated[Path, About("where runs keep their state; each has a folder of its run id in it")] = (
        Path("~/.local/state/coach-stream/replay")
    )
    replay_chunk_records: Annotated[
        int,
        About("records after which what is done is written down, so that a restart goes on there", low=1, high=5_000),
    ] = 250
    replay_retention_days: Annotated[
        int, About("how long the topics of a replay keep their records", low=1, high=3_650)
    ] = 90
    replay_partitions: Annotated[int, About("partitions of the topics of a replay", low=1, high=1_000)] = 6


def read_replay_settings(environment: Mapping[str, str] | None = None, **flags: object) -> ReplaySettings:
    """Read the settings of a replay, as `read_settings_class` does.

    Raises: ConfigurationError that names every wrong setting, what is wrong, and what it takes.
    """
    settings, wrong = read_settings_class(ReplaySettings, environment, flags, part=PART)
    refuse(wrong)
    return settings
