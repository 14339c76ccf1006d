"""The notifier's Kafka consumer: the partitions it owns, what may be committed, and proof of ownership before sending."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from stream.errors import ConfigurationError, KafkaUnavailable
from stream.runtime.kafka.inbound import Inbound, headers_of

log = logging.getLogger(__name__)

ANSWER_MAX_S: Final = 10.0  # for the brokers to say what is committed
POLL_INTERVAL_MAX_S: Final = 900.0  # one letter's SMTP steps, each of which may time out
PROVEN_FOR: Final = 0.3  # share of the session timeout after which ownership is proven again
# Errors of a commit that mean the group has rebalanced without this member.
LOST: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID, KafkaError.STALE_MEMBER_EPOCH, KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError._ASSIGNMENT_LOST, KafkaError._STATE,  # noqa: SLF001 - librdkafka's names
    }
)  # fmt: skip
HEALS: Final = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN})  # noqa: SLF001


class PartitionLost(Exception):
    """The partition was or may have been reassigned: its letters are not sent, and its next owner reads from the last commit."""


class OpenOffsets:
    """The records of one partition that were read and are not settled: letters end in another order than they began."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._next: int | None = None

    def read(self, offset: int) -> None:
        """Note a record that was read."""
        self._open.add(offset)
        self._next = offset + 1 if self._next is None else max(self._next, offset + 1)

    def settle(self, offset: int) -> None:
        """Note that a record needs no more work."""
        self._open.discard(offset)

    def reached(self, end: int) -> None:
        """Note the partition's end, which may lie behind markers of transactions that nobody is given."""
        self._next = end if self._next is None else max(self._next, end)

    def __contains__(self, offset: int) -> bool:
        return offset in self._open

    @property
    def safe(self) -> int | None:
        """The offset to commit: everything below it is settled. None before the first record."""
        return min(self._open) if self._open else self._next


class NotifierConsumer:
    """Reads one topic in a consumer group, from one thread. `on_lost` gets the partitions that were revoked or lost."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        group: str,
        topic: str,
        session_timeout_s: float,
        on_lost: Callable[[set[int]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.topic = topic
        self.newly_assigned = False
        self.owned: dict[int, OpenOffsets] = {}
        self._on_lost_partitions = on_lost
        self._clock = clock
        self._lease_s = session_timeout_s * PROVEN_FOR
        self._proven: dict[int, float] = {}
        self._committed: dict[int, int] = {}
        self._backlog: deque[Message] = deque()
        self._paused = False
        self._consumer = Consumer(
            {
                **properties,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",  # `ensure_start_offsets` set the start; an operator decides about the rest
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": int(session_timeout_s * 1000),
                "heartbeat.interval.ms": max(100, int(session_timeout_s * 1000 / 4)),
                "max.poll.interval.ms": int(max(POLL_INTERVAL_MAX_S, session_timeout_s) * 1000),
            }
        )
        self._consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def next(self, timeout_s: float) -> Inbound | None:
        """Return the next record, or None after `timeout_s`.

        Raises: KafkaUnavailable; ConfigurationError where the group's offset is out of range.
        """
        if self._paused:
            self._consumer.resume(self._partitions(self.owned))
            self._paused = False
        message = self._backlog.popleft() if self._backlog else self._poll(timeout_s)
        return None if message is None else self._inbound(message)

    def keep_alive(self, timeout_s: float) -> None:
        """Poll with all partitions paused; a record that arrives regardless is kept for `next`."""
        if not self._paused:
            self._consumer.pause(self._partitions(self.owned))
            self._paused = True
        message = self._poll(timeout_s)
        if message is not None:
            self._backlog.append(message)

    def prove(self, partition: int) -> None:
        """Confirm ownership of the partition by a commit, unless a recent one did.

        Raises: PartitionLost, KafkaUnavailable.
        """
        offsets = self.owned.get(partition)
        if offsets is None:
            raise PartitionLost
        now_s = self._clock()
        if now_s - self._proven.get(partition, -self._lease_s) < self._lease_s or offsets.safe is None:
            return
        self._commit({partition: offsets.safe})  # the broker refuses commits of earlier generations
        self._proven[partition] = now_s

    def is_open(self, record: Inbound) -> bool:
        """Whether the partition is still owned and the record not settled."""
        return record.partition in self.owned and record.offset in self.owned[record.partition]

    def settled(self, record: Inbound) -> None:
        """Mark a record as done."""
        offsets = self.owned.get(record.partition)
        if offsets is not None:
            offsets.settle(record.offset)

    def commit(self) -> None:
        """Commit what was settled since the last commit. Raises: PartitionLost, KafkaUnavailable."""
        new = {
            number: offsets.safe
            for number, offsets in self.owned.items()
            if offsets.safe is not None and offsets.safe != self._committed.get(number)
        }
        if new:
            self._commit(new)

    def close(self) -> None:
        """Leave the group; the revocation commits what is settled."""
        self._consumer.close()

    def _poll(self, timeout_s: float) -> Message | None:
        try:
            message = self._consumer.poll(timeout_s)
        except KafkaException as error:
            raise _error_of(error.args[0], self.topic) from error
        if message is None:
            return None
        fault = message.error()
        if fault is None:
            return message
        if fault.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name
            offsets = self.owned.get(int(message.partition() or 0))
            if offsets is not None and not self._backlog:
                offsets.reached(int(message.offset() or 0))
            return None
        if fault.code() in HEALS or fault.retriable():
            return None
        raise _error_of(fault, self.topic)

    def _inbound(self, message: Message) -> Inbound | None:
        partition, offset = int(message.partition() or 0), int(message.offset() or 0)
        offsets = self.owned.get(partition)
        if offsets is None:
            return None
        offsets.read(offset)
        _, timestamp = message.timestamp()
        return Inbound(
            key=_bytes(message.key()),
            value=_bytes(message.value()),
            headers=headers_of(message),
            topic=self.topic,
            partition=partition,
            offset=offset,
            timestamp_ms=timestamp,
            first_seen_ms=time.time_ns() // 1_000_000,
        )

    def _commit(self, offsets: Mapping[int, int]) -> None:
        asked = [TopicPartition(self.topic, number, offset) for number, offset in offsets.items()]
        try:
            written = self._consumer.commit(offsets=asked, asynchronous=False) or []
            failed: list[KafkaError] = [one.error for one in written if one.error is not None]
        except KafkaException as error:
            failed = [error.args[0]]
        for fault in failed:
            if fault.code() in LOST:
                raise PartitionLost(fault.str())
            message = f"offsets of {self.topic} cannot be committed: {fault.str()}"
            raise KafkaUnavailable(message)
        self._committed |= offsets

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            committed = {
                one.partition: one.offset for one in self._consumer.committed(partitions, timeout=ANSWER_MAX_S)
            }
        except KafkaException as why:  # the client asks for itself; a partition without an offset is then refused
            committed = {}
            log.warning("notify.offsets_unknown", extra={"why": str(why)})
        for one in partitions:
            if committed.get(one.partition, 0) < 0:  # added since the group began: all that lies there is new
                one.offset = OFFSET_BEGINNING
        self._consumer.incremental_assign(partitions)
        for one in partitions:
            self.owned[one.partition] = OpenOffsets()
        self.newly_assigned = self.newly_assigned or bool(partitions)
        if self._paused and partitions:
            self._consumer.pause(partitions)
        log.info("notify.assigned", extra={"partitions": sorted(self.owned)})

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        leaving = {one.partition for one in partitions} & self.owned.keys()
        safe = {number: self.owned[number].safe for number in leaving}
        new = {n: offset for n, offset in safe.items() if offset is not None and offset != self._committed.get(n)}
        if new:
            try:
                self._commit(new)
            except (PartitionLost, KafkaUnavailable) as why:  # the next owner reads it again and skips it by the index
                log.warning("notify.not_committed", extra={"why": str(why)})
        self._forget(leaving)
        self._consumer.incremental_unassign(partitions)

    def _on_lost(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        log.warning("notify.lost", extra={"partitions": sorted(one.partition for one in partitions)})
        self._forget({one.partition for one in partitions})
        self._consumer.incremental_unassign(partitions)

    def _forget(self, lost: set[int]) -> None:
        for number in lost:
            self.owned.pop(number, None)
            self._proven.pop(number, None)
            self._committed.pop(number, None)
        self._backlog = deque(one for one in self._backlog if one.partition() not in lost)
        self._on_lost_partitions(lost)

    def _partitions(self, numbers: Mapping[int, object]) -> list[TopicPartition]:
        return [TopicPartition(self.topic, number) for number in numbers]


def _error_of(error: KafkaError, topic: str) -> Exception:
    if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - librdkafka's name
        return ConfigurationError(
            f"the group's offset on {topic} is outside the topic's range: recommendations were deleted before they were read; "
            "set the group's offsets with kafka-consumer-groups, and find out which applicants got no letter"
        )
    return KafkaUnavailable(f"reading {topic} failed: {error.str()}")


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
