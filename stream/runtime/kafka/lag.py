"""How far a consumer group is behind on a topic, asked of the brokers every few seconds from a thread of its own.

    with LagWatch(kafka_properties(settings), group=..., topic=settings.topic_audit) as lag:
        counters.follow("consumer_lag_records", lag.by_partition)

Every member of a group tells the lag of all partitions, so that one which nobody has shows too: take the maximum over
the members, not the sum. A look costs one request for what is committed, and two to each broker that leads a partition.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any, Final, Self

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package leaves its re-exports undeclared
    AdminClient,
    OffsetSpec,
)

from stream.runtime.counters import Labels, Meter, gauge

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


class LagWatch:
    """Knows the lag as it was at the last look; nothing while the brokers do not tell."""

    def __init__(self, properties: Mapping[str, Any], *, group: str, topic: str, every_s: float = LOOK_EVERY_S) -> None:
        """`properties` are those of a confluent-kafka client. Nothing is asked yet."""
        self._topic = topic
        self._every_s = every_s
        self._lag: dict[Labels, float] = {}
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

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._lag, self._logged_why = self._look(), ""
                except (KafkaException, KeyError, TimeoutError) as unknown:
                    self._lag = {}
                    if str(unknown) != self._logged_why:
                        self._logged_why = str(unknown)
                        log.info("lag.unknown", extra={"topic": self._topic, "why": self._logged_why})
                self._stopping.wait(self._every_s)
        finally:
            self._consumer.close()

    def _look(self) -> dict[Labels, float]:
        partitions = self._consumer.list_topics(self._topic, timeout=ANSWER_MAX_S).topics[self._topic].partitions
        asked = [TopicPartition(self._topic, one) for one in sorted(partitions)[:PARTITIONS_MAX]]
        committed = {one.partition: one.offset for one in self._consumer.committed(asked, timeout=ANSWER_MAX_S)}
        lows, highs = self._ends(asked, EARLIEST), self._ends(asked, LATEST)
        return {
            (self._topic, str(one.partition)): max(
                0, highs[one.partition] - max(committed[one.partition], lows[one.partition])
            )
            for one in asked
        }

    def _ends(self, asked: list[TopicPartition], which: Any) -> dict[int, int]:  # noqa: ANN401 - it has no types
        futures = self._admin.list_offsets(
            dict.fromkeys(asked, which),
            isolation_level=IsolationLevel.READ_COMMITTED,  # what lies beyond an open transaction is for nobody yet
            request_timeout=ANSWER_MAX_S,
        )
        return {one.partition: int(future.result(ANSWER_MAX_S).offset) for one, future in futures.items()}
