"""Says in Redis what this worker serves, from a thread of its own, for `coach model list`.

No answer depends on it, so Redis being away is only noted in the log, once an outage.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

import redis

from stream.errors import RedisUnavailable
from stream.models.serving import Serving, announce, withdraw
from stream.runtime.kafka.dead_letters import SOFTWARE_VERSION
from stream.times import rfc3339

log = logging.getLogger(__name__)

EVERY_S: Final = 5.0
HOLDS_S: Final = 20  # a worker that was killed is listed no longer than this
STOP_MAX_S: Final = 2.0


class Announcer:
    """Announces until it is stopped. `epoch`, `opened` and `partitions` are asked from its thread."""

    def __init__(
        self,
        client: redis.Redis,
        group: str,
        *,
        epoch: Callable[[], int],
        opened: Callable[[], list[str]],
        partitions: Callable[[], list[int]],
    ) -> None:
        self._client = client
        self._group = group
        self._epoch = epoch
        self._opened = opened
        self._partitions = partitions
        self._worker = f"{socket.gethostname()}-{os.getpid()}"
        self._since = rfc3339(time.time_ns() // 1_000_000)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="coach-announcer", daemon=True)

    def start(self) -> None:
        """Begin to announce, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Withdraw what was said, within a bound, and end."""
        self._stop.set()
        self._thread.join(STOP_MAX_S)

    def _run(self) -> None:
        away = False
        while True:
            try:
                serving: Serving = {
                    "worker": self._worker,
                    "software_version": SOFTWARE_VERSION,
                    "since": self._since,
                    "models_epoch": self._epoch(),
                    "open_bundles": self._opened(),
                    "partitions": self._partitions(),
                }
                announce(self._client, self._group, serving, ttl_s=HOLDS_S)
                away = False
            except RedisUnavailable as error:
                if not away:
                    log.warning("announcer.redis_away", extra={"why": str(error)})
                away = True
            if self._stop.wait(EVERY_S):
                break
        try:
            withdraw(self._client, self._group, self._worker)
        except RedisUnavailable as error:
            log.warning("announcer.redis_away", extra={"why": str(error)})
