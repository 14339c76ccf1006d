"""A room for notifiers: topics of its own, recommendations on them, processes to kill, and what they left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from stream.events import Recommendation
from stream.wire.avro_records import decode, encode
from tests.service.room import REPOSITORY, Room, WorkerProcess, room, wait_until
from tests.service.stack import Stack

LENDER = {
    "COACH_NOTIFY_LENDER_NAME": "Example Savings Bank",
    "COACH_NOTIFY_LENDER_ADDRESS": "100 Market Street, Springfield IL 62701",
    "COACH_NOTIFY_LENDER_CONTACT": "call 1-800-555-0100",
    "COACH_NOTIFY_LENDER_NOTICE": "The federal Equal Credit Opportunity Act prohibits creditors from discriminating.",
}


class NotifierProcess(WorkerProcess):
    """`coach notify` as a process; its log is a file of JSON lines."""

    def __init__(self, environment: dict[str, str], log: Path, *arguments: str) -> None:
        self.log = log
        self._said = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stream.cli.main", "notify", *arguments],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
            stdout=self._said,
            stderr=self._said,
            start_new_session=True,
        )


@dataclass(kw_only=True)
class NotifierRoom:
    """Notifiers of one group in a room."""

    room: Room
    group: str
    environment: dict[str, str]
    notifiers: list[NotifierProcess] = field(default_factory=list)
    _asks: Consumer | None = None

    @property
    def outbox(self) -> Path:
        """Where printed letters are."""
        return self.room.folder / "outbox"

    def send(self, recommendations: Iterable[Recommendation | bytes]) -> None:
        """Put recommendations on their topic, keyed by decision."""
        producer = Producer({"bootstrap.servers": self.room.settings.kafka_brokers, "linger.ms": 5})
        for one in recommendations:
            value = one if isinstance(one, bytes) else encode("Recommendation", one)
            key = b"?" if isinstance(one, bytes) else one["decision_id"].encode()
            producer.produce(self.room.settings.topic_recommendations, key=key, value=value)
            producer.poll(0)
        assert producer.flush(30) == 0

    def notifier(self, *arguments: str, wait: bool = True, state: str = "", **environment: str) -> NotifierProcess:
        """Start one; `state` names its state file."""
        number = len(self.notifiers)
        own = {"COACH_NOTIFY_STATE": str(self.room.folder / f"state-{state or number}.sqlite")}
        log = self.room.folder / f"notifier-{number}.log"
        started = NotifierProcess(self.environment | own | environment, log, *arguments)
        self.notifiers.append(started)
        if wait:
            started.until("notify.caught_up")
        return started

    def notices(self, *statuses: str) -> list[dict[str, Any]]:
        """All notices of some statuses, or of all."""
        found = [decode(value)[1] for value in self.room.values(self.room.settings.topic_notices)]
        return [one for one in found if not statuses or one["status"] in statuses]

    def lag(self) -> int:
        """How many recommendations are not committed."""
        topic = self.room.settings.topic_recommendations
        if self._asks is None:
            self._asks = Consumer({"bootstrap.servers": self.room.settings.kafka_brokers, "group.id": self.group})
        partitions = [TopicPartition(topic, number) for number in range(self.room.partitions)]
        total = 0
        for one in self._asks.committed(partitions, timeout=10):
            _, high = self._asks.get_watermark_offsets(TopicPartition(topic, one.partition), timeout=10, cached=False)
            total += high - max(one.offset, 0)
        return total

    def until_done(self, timeout_s: float = 60.0) -> None:
        """Wait until every recommendation is committed."""

        def done() -> bool:
            with suppress(KafkaException):
                return self.lag() == 0
            return False

        wait_until(done, timeout_s=timeout_s, what=f"lag 0 of {self.group}")

    def logs(self) -> str:
        """All that the notifiers said."""
        return "".join(one.log.read_text(errors="replace") for one in self.notifiers)

    def close(self) -> None:
        """End whatever still runs."""
        for one in self.notifiers:
            if one.alive:
                one.kill()
        if self._asks is not None:
            self._asks.close()


@contextmanager
def notifier_room(
    stack: Stack, folder: Path, more: Mapping[str, str] | None = None, *, partitions: int = 2, **environment: str
) -> Iterator[NotifierRoom]:
    """A notifier_room of its own. `environment` is without the prefix COACH_NOTIFY_, or whole."""
    with room(stack, folder, partitions=partitions) as here:
        own = {
            **here.environment,
            **LENDER,
            **(more or {}),
            "COACH_NOTIFY_GROUP": f"{here.settings.group}-notify",
            "COACH_NOTIFY_OUTBOX": str(folder / "outbox"),
            "COACH_NOTIFY_FILES": str(folder / "files"),
            "COACH_NOTIFY_RETRY_FIRST_S": "0.1",
            "COACH_NOTIFY_RETRY_MAX_S": "1",
        }
        own |= {
            name if name.startswith("COACH_") else f"COACH_NOTIFY_{name.upper()}": v for name, v in environment.items()
        }
        made = NotifierRoom(room=here, group=own["COACH_NOTIFY_GROUP"], environment=own)
        try:
            yield made
        finally:
            made.close()
