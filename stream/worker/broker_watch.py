"""Pings the brokers every few seconds, so that an outage is reported even while nothing is being written."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Final

from stream.errors import ConfigurationError, DependencyError, KafkaUnavailable

log = logging.getLogger(__name__)

ASK_EVERY_S: Final = 2.0
LOG_EVERY_S: Final = 30.0
STOP_WAIT_S: Final = 5.0


class BrokerWatch:
    """Asks from a thread of its own. What is waited for, and for how long, stays the pipeline's to decide."""

    def __init__(self, ask: Callable[[], object], *, every_s: float = ASK_EVERY_S) -> None:
        """`ask` raises KafkaUnavailable when no broker answers."""
        self._ask = ask
        self._every_s = every_s
        self._stopping = threading.Event()
        self._away_since_s: float | None = None
        self._logged_at_s = 0.0
        self._thread = threading.Thread(target=self._run, name="coach-brokers", daemon=True)

    @property
    def away(self) -> bool:
        """Whether no broker answered when they were asked last."""
        return self._away_since_s is not None

    def start(self) -> None:
        """Start the thread that asks the brokers every `every_s`."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; waits up to STOP_WAIT_S for a question under way."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_WAIT_S)

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                self._ask()
            except KafkaUnavailable as away:
                self._log_away(away)
            except (DependencyError, ConfigurationError):  # they answered
                self._log_back()
            else:
                self._log_back()

    def _log_away(self, why: KafkaUnavailable) -> None:
        now_s = time.monotonic()
        if self._away_since_s is None:
            self._away_since_s, self._logged_at_s = now_s, -math.inf
        if now_s - self._logged_at_s >= LOG_EVERY_S:
            waited_s = round(now_s - self._away_since_s, 3)
            log.warning("outage.waiting", extra={"why": str(why), "waited_s": waited_s})
            self._logged_at_s = now_s

    def _log_back(self) -> None:
        if self._away_since_s is not None:
            log.info("outage.over", extra={"waited_s": round(time.monotonic() - self._away_since_s, 3)})
            self._away_since_s = None
