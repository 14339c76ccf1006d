"""Times each stage of one decision."""

from __future__ import annotations

import time
from typing import Final

# In the order in which a decision passes them; those of what it does not need (an approved one: most) are left out.
STAGES: Final = ("decode", "resolve", "answer", "encode", "remember", "deliver")


class StageTimer:
    """Seconds by stage; starts when it is made. Of a stage that a batch passes at once, each decision waits for all."""

    __slots__ = ("_since_s", "stages_s")

    def __init__(self) -> None:
        self.stages_s: dict[str, float] = {}
        self._since_s = time.perf_counter()

    def record_stage(self, stage: str) -> None:
        """Record the time since the previous stage ended as `stage`."""
        now_s = time.perf_counter()
        self.stages_s[stage] = now_s - self._since_s
        self._since_s = now_s

    def in_us(self) -> dict[str, int]:
        """For the log: `decode_us` and so on, in whole microseconds."""
        return {f"{stage}_us": int(elapsed_s * 1e6) for stage, elapsed_s in self.stages_s.items()}
