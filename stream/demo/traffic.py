"""Produces decisions and consumes answers at the same time: a lender's systems on both sides of the worker.

The embedded broker keeps 5 MiB a partition and drops the oldest beyond that without a word. So the publisher never runs
further ahead of the reader than fits there, whatever partition the records fall into, and afterwards the low watermarks
must show that nothing was dropped unread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from stream.demo.embedded.embedded_kafka import lost_records
from stream.errors import CorruptionError, KafkaUnavailable
from stream.runtime.settings import Settings

PARTITION_KEEPS_BYTES: Final = 5 * 1024 * 1024
HEADROOM: Final = 0.5  # of a partition; the rest is for record overhead and for what comes twice
SILENCE_MAX_S: Final = 120.0  # compiling the method on a first run takes some 20 s on a small machine
POLL_S: Final = 0.005
COMMITTED_POLL_S: Final = 0.1
REQUEST_TIMEOUT_S: Final = 10.0
FETCH_MAX: Final = 500
QUIET: Final = {"log_level": 2}  # what goes wrong is raised; librdkafka need not print it as well


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """One decision as it goes onto the topic; `declined` ones get an answer."""

    decision_id: str
    value: bytes
    declined: bool


@dataclass(slots=True, kw_only=True)
class Heard:
    """What came back, by decision_id, and how long each took from `produce` to being read here."""

    recommendations: dict[str, bytes] = field(default_factory=dict)
    audits: dict[str, bytes] = field(default_factory=dict)
    dead_letters: dict[str, bytes] = field(default_factory=dict)
    answered_after_s: dict[str, float] = field(default_factory=dict)
    duplicates: int = 0

    def settled(self, decision_id: str) -> bool:
        """Whether a declined decision has its records or a dead letter."""
        return decision_id in self.dead_letters or (decision_id in self.recommendations and decision_id in self.audits)


class Exchange:
    """One run of decisions against a worker: a producer, and a reader of the three output topics from their beginning.

    `partitions`: of each topic. `check_alive` raises when the worker is gone; `on_step` hears of progress.
    """

    def __init__(
        self,
        settings: Settings,
        partitions: Mapping[str, int],
        *,
        check_alive: Callable[[], None],
        on_step: Callable[[int], None],
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._check_alive = check_alive
        self._on_step = on_step
        self._producer = Producer({**QUIET, "bootstrap.servers": settings.kafka_brokers, "linger.ms": 1, "acks": "all"})
        self._reader = Consumer(
            {
                **QUIET,
                "bootstrap.servers": settings.kafka_brokers,
                "group.id": "coach-demo-reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",  # a dropped head must not go unnoticed
                "fetch.wait.max.ms": 10,
            }
        )
        self._reader.assign(self._all_of(settings.topic_recommendations, settings.topic_audit, settings.topic_dlq))
        self._heard = Heard()
        self._posted_at: dict[str, float] = {}
        self._waiting: set[str] = set()
        self._last_sign_of_life = time.monotonic()

    def run(self, posts: Sequence[Post], *, per_second: float, answer_bytes_max: int) -> Heard:
        """Post each decision when its time has come and the window is open; return when all are settled and committed.

        The window is how many unanswered declines can be out: so many that, each at `answer_bytes_max`, they fit into
        half of what one partition keeps.
        Raises: KafkaUnavailable, WorkerFailed (by `check_alive`), CorruptionError when a record was lost unread.
        """
        window = max(1, int(HEADROOM * PARTITION_KEEPS_BYTES / max(1, answer_bytes_max)))
        began = time.monotonic()
        unread_bytes = 0
        for i, post in enumerate(posts):
            while len(self._waiting) >= window or time.monotonic() < began + i / per_second:
                self._listen()
            if unread_bytes + len(post.value) > HEADROOM * PARTITION_KEEPS_BYTES:
                self._wait_for_commit(i)
                unread_bytes = 0
            unread_bytes += len(post.value)
            self._post(post)
        while self._waiting:
            self._listen()
        self._wait_for_commit(len(posts))
        self._nothing_lost()
        return self._heard

    def close(self) -> None:
        """Drop what was not sent, and close the producer and the reader."""
        self._producer.purge()
        self._reader.close()

    def _all_of(self, *topics: str) -> list[TopicPartition]:
        return [TopicPartition(topic, p, 0) for topic in topics for p in range(self._partitions[topic])]

    def _post(self, post: Post) -> None:
        if post.declined:
            self._waiting.add(post.decision_id)
        self._posted_at[post.decision_id] = time.monotonic()
        self._producer.produce(
            self._settings.topic_decisions, key=post.decision_id, value=post.value, on_delivery=self._delivered
        )
        self._producer.poll(0)
        self._on_step(1)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            message = f"the embedded Kafka did not take a decision: {error.str()}"
            raise KafkaUnavailable(message)

    def _listen(self) -> None:
        self._check_alive()
        self._producer.poll(0)
        for record in self._reader.consume(FETCH_MAX, POLL_S):
            error = record.error()
            if error is not None:
                message = f"cannot read on from {record.topic()} of the embedded broker: {error.str()}"
                raise KafkaUnavailable(message)
            self._hear(record)
        if time.monotonic() > self._last_sign_of_life + SILENCE_MAX_S and self._waiting:
            message = f"no answer for {SILENCE_MAX_S:.0f} s while {len(self._waiting)} declined decisions wait for one"
            raise KafkaUnavailable(message)

    def _hear(self, message: Message) -> None:
        now = self._last_sign_of_life = time.monotonic()
        topic, decision_id = message.topic() or "", (message.key() or b"").decode()
        heard = {
            self._settings.topic_recommendations: self._heard.recommendations,
            self._settings.topic_audit: self._heard.audits,
            self._settings.topic_dlq: self._heard.dead_letters,
        }[topic]
        if decision_id in heard:
            self._heard.duplicates += 1
        heard.setdefault(decision_id, message.value() or b"")
        if topic == self._settings.topic_recommendations and decision_id in self._posted_at:
            self._heard.answered_after_s.setdefault(decision_id, now - self._posted_at[decision_id])
        if self._heard.settled(decision_id):
            self._waiting.discard(decision_id)

    def _wait_for_commit(self, posted: int) -> None:
        """Wait until the worker's group has committed all `posted` decisions, the approved ones too."""
        self._producer.flush(REQUEST_TIMEOUT_S)
        settings = self._settings
        group = Consumer({**QUIET, "bootstrap.servers": settings.kafka_brokers, "group.id": settings.group})
        deadline = time.monotonic() + SILENCE_MAX_S
        try:
            while self._committed(group) < posted:
                if time.monotonic() > deadline:
                    message = f"the worker did not commit {posted} decisions within {SILENCE_MAX_S:.0f} s"
                    raise KafkaUnavailable(message)
                until = time.monotonic() + COMMITTED_POLL_S
                while time.monotonic() < until:
                    self._listen()
        finally:
            group.close()

    def _committed(self, group: Consumer) -> int:
        try:
            partitions = group.committed(self._all_of(self._settings.topic_decisions), timeout=REQUEST_TIMEOUT_S)
        except KafkaException:
            return 0  # the group is rebalancing or not there yet: ask again
        return sum(max(0, partition.offset) for partition in partitions)

    def _nothing_lost(self) -> None:
        positions = self._reader.position(self._reader.assignment())
        read_up_to = {(p.topic, p.partition): max(0, p.offset) for p in positions}
        lost = lost_records(self._settings.kafka_brokers, read_up_to)
        if lost:
            where = ", ".join(f"{count} of {topic}[{partition}]" for (topic, partition), count in lost.items())
            message = f"the embedded broker dropped records before they were read: {where}"
            raise CorruptionError(message)
