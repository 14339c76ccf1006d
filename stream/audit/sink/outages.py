"""What a sink depends on and may be away: the brokers, and the store that its archive lies in. Each wait has its bound."""

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
QUIET_S: Final = 5.0  # without a message, after which they are asked: librdkafka says once that they are gone, or never
GRACE_S: Final = (
    120.0  # past an outage: how long writing a range may take before the group or Kubernetes gives up on us
)


class Outages:
    """Waits them out, up to COACH_OUTAGE_MAX_S, and knows how long they have lasted."""

    def __init__(self, settings: Settings, vitals: Vitals, stopped: Callable[[], bool]) -> None:
        """`stopped` says whether the sink was told to end."""
        self._settings, self._vitals, self._stopped = settings, vitals, stopped
        self._brokers_gone_s: float | None = None
        self._waiting_since_s: float | None = None
        self._probed_s = time.monotonic()

    def patiently(self, doing: Callable[[], Result]) -> Result:
        """Run something until what it depends on is there. Raises: Abandoned, DependencyError past the outage bound."""
        settings = self._settings
        retry = Retry(
            total_s=settings.outage_max_s,
            pause_max_s=settings.retry_delay_max_s,
            abandoned=StopRequested(self._stopped, settings.drain_s),
            on_wait=_told,
        )
        while True:
            self.expect_soon()
            try:
                result = doing()
            except DependencyError as away:
                self._waiting_since_s = self._waiting_since_s or time.monotonic()
                retry.pause(away)
            else:
                self._waiting_since_s = None
                return result

    def expect_soon(self) -> None:
        """The sink gives a sign of life."""
        self._vitals.expect("reading", self._settings.outage_max_s + GRACE_S)

    def brokers_gone(self) -> None:
        """No broker can be reached."""
        self._brokers_gone_s = self._brokers_gone_s or time.monotonic()

    def brokers_heard(self) -> None:
        """One was reached."""
        self._brokers_gone_s = None
        self._probed_s = time.monotonic()

    def watch(self, consumer: Consumer, topic: str) -> None:
        """Ask the brokers for a sign of life when they are gone or quiet, now and then.

        Raises: KafkaUnavailable when none was reached for the outage bound.
        """
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
        """For how long something has been away; 0 when all is there."""
        since = [one for one in (self._brokers_gone_s, self._waiting_since_s) if one is not None]
        return time.monotonic() - min(since) if since else 0.0


def _told(error: DependencyError, waited_s: float) -> None:
    log.warning("sink.waits", extra={"why": str(error), "waited_s": round(waited_s, 1)})
