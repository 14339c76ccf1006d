"""How a sink waits for its brokers and the store of its archive: by `retry`, until they answer or COACH_OUTAGE_MAX_S ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from confluent_kafka import Consumer, KafkaException

from stream.errors import DependencyError, KafkaUnavailable
from stream.runtime.health import Vitals
from stream.runtime.retry import Retry, StopRequested
from stream.runtime.settings import Settings

log = logging.getLogger(__name__)
Result = TypeVar("Result")
PROBE_EVERY_S: Final = 1.0  # while the brokers are gone
QUIET_S: Final = 5.0  # without a message before the brokers are probed: librdkafka reports their loss once, or never
GRACE_S: Final = 120.0  # past an outage: for writing a range, before the group or Kubernetes gives up on us


class Outages:
    """Waits out outages, up to COACH_OUTAGE_MAX_S, and measures how long they last. `stopped`: the sink is to end."""

    def __init__(self, settings: Settings, vitals: Vitals, stopped: Callable[[], bool]) -> None:
        self._settings, self._vitals, self._stopped = settings, vitals, stopped
        self._brokers_gone_s: float | None = None
        self._waiting_since_s: float | None = None
        self._probed_s = time.monotonic()

    def wait_out(self, doing: Callable[[], Result]) -> Result:
        """Run something, and again while its dependency is away. Raises: Abandoned, DependencyError past the outage bound."""
        retry = Retry(
            total_s=self._settings.outage_max_s,
            pause_max_s=self._settings.retry_delay_max_s,
            abandoned=StopRequested(self._stopped, self._settings.drain_s),
            on_wait=lambda error, waited_s: log.warning(
                "sink.waits", extra={"why": str(error), "waited_s": round(waited_s, 1)}
            ),
        )

        def attempt() -> Result:
            self.expect_soon()
            try:
                return doing()
            except DependencyError:
                self._waiting_since_s = self._waiting_since_s or time.monotonic()
                raise

        result = retry.outlast(attempt)
        self._waiting_since_s = None
        return result

    def expect_soon(self) -> None:
        """Tell the health check to expect progress within the outage bound."""
        self._vitals.expect("reading", self._settings.outage_max_s + GRACE_S)

    def brokers_gone(self) -> None:
        """No broker can be reached."""
        self._brokers_gone_s = self._brokers_gone_s or time.monotonic()

    def brokers_heard(self) -> None:
        """A broker was reached."""
        self._brokers_gone_s = None
        self._probed_s = time.monotonic()

    def watch(self, consumer: Consumer, topic: str) -> None:
        """Probe brokers that are gone or quiet. Raises: KafkaUnavailable when none was reached for the outage bound."""
        every_s = QUIET_S if self._brokers_gone_s is None else PROBE_EVERY_S
        if time.monotonic() - self._probed_s < every_s:
            return
        try:
            consumer.list_topics(topic, timeout=PROBE_EVERY_S)
            self.brokers_heard()
        except KafkaException as error:
            self.brokers_gone()
            away_s, bound_s = self.away_s(), self._settings.outage_max_s
            if away_s >= bound_s:
                message = (
                    f"no broker at {self._settings.kafka_brokers} answers: {error.args[0].str()} (waited {away_s:.0f} s, the "
                    f"bound is COACH_OUTAGE_MAX_S={bound_s:g})"
                )
                raise KafkaUnavailable(message) from error
            self._probed_s = time.monotonic()

    def away_s(self) -> float:
        """Seconds since the oldest outage began; 0 when nothing is away."""
        since = [one for one in (self._brokers_gone_s, self._waiting_since_s) if one is not None]
        return time.monotonic() - min(since) if since else 0.0
