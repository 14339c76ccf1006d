"""How far a consumer group is behind on a topic, asked of the brokers every few seconds from a thread of its own.

    with LagWatch(kafka_properties(settings), group=..., topic=settings.topic_audit) as lag:
        lag.follow(counters)

Every member of a group tells the lag of all partitions, so that one which nobody has shows too: take the maximum over
the members, not the sum. A look costs one request for what is committed, and two to each broker that leads a partition.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package leaves its re-exports undeclared
    AdminClient,
    OffsetSpec,
)

from stream.runtime.counters import Counters, Labels, Meter, gauge

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 5.0
ANSWER_MAX_S: Final = 5.0
STOP_WAIT_S: Final = 2 * ANSWER_MAX_S
EARLIEST: Final[Any] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: Final[Any] = OffsetSpec.latest()  # type: ignore[no-untyped-call]
PARTITIONS_MAX: Final = 1_000  # beyond, the rest is not told

CONSUMER_LAG: Final[Meter] = gauge(
    "consumer_lag_records",
    "Records of the topic, up to its first open transaction, that the group has not committed; each member tells all.",
    "topic",
    "partition",
    series_max=PARTITIONS_MAX,
)


STALLED: Final[Meter] = gauge(
    "partition_stalled_seconds",
    "How long the partition has had records that wait, and the group committed none of it; the same from each member.",
    "topic",
    "partition",
    series_max=PARTITIONS_MAX,
)
GROUP_METERS: Final = (CONSUMER_LAG, STALLED)


class GroupProgress:
    """Since when each partition has had lag without its committed offset moving."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._committed: dict[int, int] = {}
        self._since_s: dict[int, float] = {}

    def look(self, committed: Mapping[int, int], lag: Mapping[int, int]) -> dict[int, float]:
        """Take in the group's offsets and lags by partition. Returns: seconds without progress, 0 where nothing waits."""
        now_s = self._clock()
        for partition, offset in committed.items():
            if not lag[partition] or self._committed.get(partition) != offset:
                self._since_s[partition] = now_s
        self._committed = dict(committed)
        return {partition: now_s - self._since_s[partition] for partition in committed}


class LagWatch:
    """Knows the lag as it was at the last look; nothing while the brokers do not tell."""

    def __init__(self, properties: Mapping[str, Any], *, group: str, topic: str, every_s: float = LOOK_EVERY_S) -> None:
        """`properties` are those of a confluent-kafka client. Nothing is asked yet."""
        self._topic = topic
        self._every_s = every_s
        self._lag: dict[Labels, float] = {}
        self._progress = GroupProgress()
        self._stalled_s: dict[int, float] | None = None
        self._logged_why = ""
        self._stopping = threading.Event()
        # It joins no group: it never subscribes. `group.id` says whose offsets it asks for.
        self._consumer = Consumer({**properties, "group.id": group, "enable.auto.commit": False})
        self._admin = AdminClient(dict(properties))
        self._thread = threading.Thread(target=self._run, name="coach-lag", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_how: object) -> None:
        """End; what a broker does not answer in time is left behind."""
        self._stopping.set()
        self._thread.join(STOP_WAIT_S)

    def by_partition(self) -> dict[Labels, float]:
        """The lag by (topic, partition)."""
        return self._lag

    def stalled_s(self) -> dict[int, float] | None:
        """Seconds for which each partition has had lag and made no progress; None while the brokers do not tell."""
        return self._stalled_s

    def follow(self, counters: Counters) -> None:
        """Let both meters be read from here."""
        counters.follow(CONSUMER_LAG.name, self.by_partition)
        counters.follow(
            STALLED.name, lambda: {(self._topic, str(one)): s for one, s in (self._stalled_s or {}).items()}
        )

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._look()
                    self._logged_why = ""
                except (KafkaException, KeyError, TimeoutError) as unknown:
                    self._lag, self._stalled_s = {}, None
                    if str(unknown) != self._logged_why:
                        self._logged_why = str(unknown)
                        log.info("lag.unknown", extra={"topic": self._topic, "why": self._logged_why})
                self._stopping.wait(self._every_s)
        finally:
            self._consumer.close()

    def _look(self) -> None:
        partitions = self._consumer.list_topics(self._topic, timeout=ANSWER_MAX_S).topics[self._topic].partitions
        asked = [TopicPartition(self._topic, one) for one in sorted(partitions)[:PARTITIONS_MAX]]
        if not asked:  # the topic is gone
            self._lag, self._stalled_s = {}, {}
            return
        committed = {one.partition: one.offset for one in self._consumer.committed(asked, timeout=ANSWER_MAX_S)}
        lows, highs = self._ends(asked, EARLIEST), self._ends(asked, LATEST)
        lag = {one: max(0, highs[one] - max(offset, lows[one])) for one, offset in committed.items()}
        self._lag = {(self._topic, str(partition)): records for partition, records in lag.items()}
        self._stalled_s = self._progress.look(committed, lag)

    def _ends(self, asked: list[TopicPartition], which: Any) -> dict[int, int]:  # noqa: ANN401 - it has no types
        futures = self._admin.list_offsets(
            dict.fromkeys(asked, which),
            isolation_level=IsolationLevel.READ_COMMITTED,  # what lies beyond an open transaction is for nobody yet
            request_timeout=ANSWER_MAX_S,
        )
        return {one.partition: int(future.result(ANSWER_MAX_S).offset) for one, future in futures.items()}
