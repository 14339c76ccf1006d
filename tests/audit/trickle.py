"""Audit records that come while sinks die: a thread that writes them bit by bit, and how far an archive has come."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaError, Message, Producer

from stream.audit.archive.layout import DRAFTS
from stream.wire.avro_records import encode
from tests.audit.archive.topic import audit_record
from tests.service.room import Room

AT_ONCE: Final = 4  # records
PAUSE_S: Final = 0.02  # between them: 200 records a second while some are granted
FLUSH_MAX_S: Final = 30.0


def send(
    producer: Producer,
    topic: str,
    number: int,
    *,
    partitions: int = 2,
    on_delivery: Callable[[KafkaError | None, Message], None] | None = None,
) -> None:
    """Give a producer the record of a number: of one of three days and two versions."""
    day = f"2026-11-{26 + number // 40 % 3:02d}T10:15:00.250Z"
    record = audit_record(number, event_time=day, model_version=f"2026-{10 + number % 2}")
    key = str(record["decision_id"]).encode()
    value = encode("AuditRecord", record)
    producer.produce(topic, value, key, partition=number % partitions, on_delivery=on_delivery)
    producer.poll(0)


class Trickle:
    """The thread, from `__enter__` to `__exit__`. It writes what was granted, in small bits, and then waits for more."""

    def __init__(self, here: Room) -> None:
        self._topic = here.settings.topic_audit
        self._producer = Producer({"bootstrap.servers": here.settings.kafka_brokers, "linger.ms": 1})
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._more = threading.Condition()
        self._granted = self._given = self._there = 0
        self._over = False

    def __enter__(self) -> Self:
        """Start it."""
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _raised: BaseException | None, _at: TracebackType | None
    ) -> None:
        """Let it write what was granted, and end."""
        with self._more:
            self._over = True
            self._more.notify()
        self._thread.join(2 * FLUSH_MAX_S)
        assert self._producer.flush(FLUSH_MAX_S) == 0

    def grant(self, count: int) -> None:
        """Let it write so many more records."""
        with self._more:
            self._granted += count
            self._more.notify()

    @property
    def granted(self) -> int:
        """How many it was to write so far."""
        return self._granted

    @property
    def there(self) -> int:
        """How many are on the topic: the brokers said so."""
        self._producer.poll(0)
        return self._there

    def _write(self) -> None:
        while True:
            with self._more:
                self._more.wait_for(lambda: self._over or self._given < self._granted)
                until = min(self._granted, self._given + AT_ONCE)
            if self._given == until:
                return
            for number in range(self._given, until):
                send(self._producer, self._topic, number, on_delivery=self._arrived)
            self._given = until
            self._producer.poll(PAUSE_S)

    def _arrived(self, error: KafkaError | None, _message: Message) -> None:
        assert error is None
        self._there += 1


def kept(folder: Path) -> int:
    """How many offsets an archive holds, by its own range files; it is read as it stands on the disk."""
    found: dict[str, int] = {}
    for path in folder.glob("_ranges/*/*/*.json"):
        if path.name != "begins.json":
            marker = json.loads(path.read_text())
            of = f"{path.parent}/{path.name.partition('.')[0]}"
            found[of] = max(found.get(of, 0), marker["until"] - marker["first"])
    return sum(found.values())


def unnamed(folder: Path) -> set[str]:
    """Files, whole or in the making, that no range file names: their sink died before it could say that a range is there."""
    named = " ".join(path.read_text() for path in folder.glob("_ranges/*/*/*.json"))
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {path for path in found if (path.startswith("day=") and path not in named) or DRAFTS in Path(path).parts}
