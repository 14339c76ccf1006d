"""A topic as a source: ranges of offsets that are frozen at the start, read without a consumer group."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final, TypeVar

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from stream.errors import ConfigurationError, KafkaUnavailable
from stream.replay.sources.partition import ProvenReader, asked
from stream.replay.sources.records import Window
from stream.replay.sources.source import Chunk, Ranges, ReadChunk, Snapshot
from stream.runtime.clients import groupless_consumer

ANSWER_MAX_S: Final = 10.0  # for the brokers to say what they hold
CLOCKS_MS: Final = 3_600_000  # a record may be stamped by a clock that goes this much after the one that decided
ONE_RANGE: Final = re.compile(r"(\d{1,9}):(\d{0,19})-(\d{0,19})")
Answer = TypeVar("Answer")


def read_offsets(text: str) -> dict[int, tuple[int | None, int | None]]:
    """Read PARTITION:FIRST-END,...; an absent FIRST or END is the partition's own. Raises: ConfigurationError."""
    found: dict[int, tuple[int | None, int | None]] = {}
    for one in text.split(","):
        match = ONE_RANGE.fullmatch(one.strip())
        if match is None or int(match[1]) in found:
            message = (
                f"--offsets {one.strip()[:40]!r}: must be PARTITION:FIRST-END, each partition once, such as "
                "0:1000-2000,1:500- (END is excluded; without it, all there is)"
            )
            raise ConfigurationError(message)
        found[int(match[1])] = (int(match[2]) if match[2] else None, int(match[3]) if match[3] else None)
    return found


class TopicRecords:
    """The records of a topic, by partition and offset."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        topic: str,
        *,
        window: Window,
        offsets: Mapping[int, tuple[int | None, int | None]] | None = None,
    ) -> None:
        """A `window` narrows what is read as far as the brokers' timestamps can tell; records are held to it later."""
        self._topic = topic
        self._brokers = str(properties.get("bootstrap.servers", ""))
        self._window = window
        self._offsets = offsets
        self._properties = properties

    def snapshot(self) -> Snapshot:
        """See `ReadsRecords`."""
        with self._consumer() as consumer:
            marks = self._marks(consumer)
            ranges = chosen = dict(marks) if self._offsets is None else self._chosen(marks)
            if self._window.from_ms is not None:
                ranges = self._from(consumer, ranges, max(0, self._window.from_ms - CLOCKS_MS))
        records = _offsets_in(ranges)
        says: dict[str, Any] = {"topic": self._topic}
        if left_out := _offsets_in(chosen) - records:
            says["left_out"] = {"records": left_out}
        return Snapshot(kind="kafka", says=says, ranges=ranges, records=records)

    def check(self, kept: Snapshot) -> None:
        """See `ReadsRecords`."""
        with self._consumer() as consumer:
            marks = self._marks(consumer)
        for part, (_, end) in kept.ranges.items():
            _, high = marks.get(part, (0, 0))
            if high < end:
                message = (
                    f"topic {self._topic} partition {part} ends at {high}, but at {end} when this run began: the topic was "
                    "recreated; choose another --run-id"
                )
                raise ConfigurationError(message)

    def read(self, chunks: Sequence[Chunk]) -> Iterator[ReadChunk]:
        """See `ReadsRecords`; each offset of a chunk is a record, or proven to hold none."""
        with self._consumer() as consumer:
            marks = self._marks(consumer)
        for part in sorted({chunk.part for chunk in chunks}):
            its_own = [chunk for chunk in chunks if chunk.part == part]
            low = marks.get(part, (0, 0))[0]
            if low > its_own[0].first:
                message = (
                    f"topic {self._topic} partition {part} begins at {low}, and this run still needs it from "
                    f"{its_own[0].first} on: the topic's retention has deleted those records; choose another --run-id"
                )
                raise ConfigurationError(message)
            with ProvenReader(self._consumer, topic=self._topic, part=part, brokers=self._brokers) as reader:
                for chunk in its_own:
                    yield reader.read(chunk)

    def _from(self, consumer: Consumer, ranges: Ranges, since_ms: int) -> dict[int, tuple[int, int]]:
        asked = [TopicPartition(self._topic, part, since_ms) for part in ranges]
        answers = self._ask(lambda: consumer.offsets_for_times(asked, timeout=ANSWER_MAX_S))
        begins = {one.partition: one.offset for one in answers}
        narrowed = {}
        for part, (first, end) in ranges.items():
            begin = begins.get(part, OFFSET_END)
            narrowed[part] = (min(end, max(first, begin)) if begin >= 0 else end, end)
        return narrowed

    def _chosen(self, marks: Ranges) -> dict[int, tuple[int, int]]:
        chosen = {}
        for part, (first, end) in (self._offsets or {}).items():
            if part not in marks:
                message = f"--offsets: topic {self._topic} has no partition {part}"
                raise ConfigurationError(message)
            low, high = marks[part]
            begin, until = low if first is None else first, high if end is None else end
            if begin < low or until > high or begin > until:
                message = f"--offsets: partition {part} of topic {self._topic} holds {low}-{high}, not {begin}-{until}"
                raise ConfigurationError(message)
            chosen[part] = (begin, until)
        return chosen

    def _marks(self, consumer: Consumer) -> dict[int, tuple[int, int]]:
        metadata = self._ask(lambda: consumer.list_topics(self._topic, timeout=ANSWER_MAX_S)).topics[self._topic]
        if metadata.error is not None:
            message = f"the brokers at {self._brokers} have no topic {self._topic} to replay: {metadata.error.str()}"
            raise ConfigurationError(message)
        marks = {}
        for part in sorted(metadata.partitions):
            marks[part] = self._ask(lambda part=part: self._watermarks(consumer, part))  # type: ignore[misc]
        return marks

    def _watermarks(self, consumer: Consumer, part: int) -> tuple[int, int]:
        marks: tuple[int, int] | None = consumer.get_watermark_offsets(
            TopicPartition(self._topic, part), timeout=ANSWER_MAX_S, cached=False
        )
        if marks is None:
            message = (
                f"the brokers at {self._brokers} did not say within {ANSWER_MAX_S:g} s what topic {self._topic} holds"
            )
            raise KafkaUnavailable(message)
        return marks

    def _consumer(self) -> closing[Consumer]:
        # never "earliest": a consumer that finds its place gone would go on behind it, and say nothing
        its_own = {"enable.partition.eof": True, "auto.offset.reset": "error"}
        return closing(groupless_consumer({**self._properties, **its_own}))

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        return asked(question, f"reading topic {self._topic} from the brokers at {self._brokers}")


def _offsets_in(ranges: Ranges) -> int:
    return sum(max(0, end - first) for first, end in ranges.values())
