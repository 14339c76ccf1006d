"""What a sink says of its work: meters, and a line of progress in the log."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from stream.audit.sink.partition_work import SinkTotals
from stream.runtime.counters import Counters, counter, gauge

log = logging.getLogger(__name__)
LOOK_EVERY_S: Final = 1.0
LAST_LOOK_S: Final = 5.0  # for the brokers to say where a partition ends; the first that is not told ends the look
METERS: Final = (
    counter("sink_records_total", "Audit records read from the topic, those read again included."),
    counter("sink_unreadable_total", "Records on the topic that are not audit records; kept apart, as bytes."),
    counter("sink_hash_differs_total", "Records whose body_sha256 is not the hash of their body; kept as they are."),
    counter("sink_offsets_lost_total", "Offsets that were deleted from the topic unread, which a person accepted."),
    counter(
        "sink_ranges_total",
        "Ranges brought into the archive, as whole or as the tail.",
        "kind",
        known=(("whole",), ("tail",)),
    ),
    gauge("sink_lag", "Offsets between what was read and the end of the topic, by partition.", "partition"),
    gauge("sink_partitions", "Partitions that this sink works on."),
    gauge("sink_outage_seconds", "How long Kafka or the archive has been away."),
)


class SinkMetrics:
    """Metrics of one sink, and its progress log line."""

    def __init__(self, totals: SinkTotals, gauges: Mapping[str, Callable[[], float]]) -> None:
        """`totals` are read as they stand; `gauges` are asked at each scrape."""
        self.counters = Counters(METERS, part="sink")
        self._totals = totals
        self._lags: dict[int, int] = {}
        self._looked_s = self._logged_s = time.monotonic()
        self._logged_records = 0
        for name, read in gauges.items():
            self.counters.follow(name, read)
        self.counters.follow("sink_records_total", lambda: totals.records)
        self.counters.follow("sink_unreadable_total", lambda: totals.unreadable)
        self.counters.follow("sink_hash_differs_total", lambda: totals.suspect)
        self.counters.follow("sink_offsets_lost_total", lambda: totals.lost)
        self.counters.follow("sink_ranges_total", lambda: {("whole",): totals.ranges, ("tail",): totals.tails})
        self.counters.follow("sink_lag", lambda: {(str(number),): lag for number, lag in self._lags.copy().items()})

    def look(self, consumer: Consumer, topic: str, positions: Mapping[int, int], *, every_s: float) -> None:
        """See how far the topic's ends are, and say so every `every_s`, 0: never."""
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = now_s
        lags = {}
        for number, position in positions.items():
            with contextlib.suppress(KafkaException):  # cached: what the last fetch told
                _, high = consumer.get_watermark_offsets(TopicPartition(topic, number), cached=True)
                lags[number] = max(0, high - position)
        self._lags = lags
        if every_s and now_s - self._logged_s >= every_s:
            self.log_totals(positions)

    def look_last(self, consumer: Consumer, topic: str, positions: Mapping[int, int]) -> None:
        """Ask the brokers themselves how far the topic's ends are, for the last line; as it was where they do not answer."""
        lags = {number: lag for number, lag in self._lags.items() if number in positions}
        for number, position in positions.items():
            try:
                _, high = consumer.get_watermark_offsets(
                    TopicPartition(topic, number), timeout=LAST_LOOK_S, cached=False
                )
            except KafkaException as away:
                log.info("sink.lag_unknown", extra={"partition": number, "why": away.args[0].str()})
                break
            lags[number] = max(0, high - position)
        self._lags = lags

    def log_totals(self, positions: Mapping[int, int], *, final: bool = False) -> None:
        """Log the counts, records per second since the last line, and the lag. `final`: as sink.ended, else sink.progress."""
        now_s, totals = time.monotonic(), self._totals
        rate = (totals.records - self._logged_records) / max(now_s - self._logged_s, 1e-3)
        self._logged_s, self._logged_records = now_s, totals.records
        log.info(
            "sink.ended" if final else "sink.progress",
            extra={
                **totals.counts(),
                "records_per_s": round(rate, 1),
                "lag": sum(self._lags.values()),
                "positions": dict(positions),
            },
        )
