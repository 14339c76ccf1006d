"""A notifier without Kafka: topics are lists, `trouble` makes transports and brokers fail, time is a number."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stream.events import Recommendation
from stream.notify.contacts.contact import Contact, Contacts
from stream.notify.delivery_steps import DeliverySteps
from stream.notify.letters.letter_writer import LetterWriter
from stream.notify.letters.templates import Templates, read_templates
from stream.notify.metrics import METERS
from stream.notify.notices.notice_index import NoticeIndex
from stream.notify.notifier import Notifier
from stream.notify.settings import CHANNELS, Channel, NotifySettings
from stream.notify.transports.transport import Package
from stream.runtime.counters import Counters
from stream.runtime.kafka.delivery import Output, Undeliverable
from stream.runtime.kafka.inbound import Inbound
from stream.runtime.retry import Abandoned, Retry
from stream.runtime.settings import Settings
from stream.wire.avro_records import decode, encode
from stream.wire.framing import SINGLE_OBJECT
from tests.notify.answers import NOW_MS

TEMPLATES: list[Templates] = []


class Crash(BaseException):
    """The process ends here."""


@dataclass(kw_only=True)
class World:
    """What outlives a notifier. `trouble` is called with the name of each step, and raises the error that happens there."""

    folder: Path
    people: dict[str, Contact] = field(default_factory=dict)
    trouble: Callable[[str], None] = lambda _step: None
    time_s: float = 1_000.0
    recommendations: list[bytes] = field(default_factory=list)
    notices: list[dict[str, Any]] = field(default_factory=list)
    dead: list[dict[str, Any]] = field(default_factory=list)
    letters: list[tuple[Channel, Package]] = field(default_factory=list)
    settled: set[int] = field(default_factory=set)
    settings: dict[str, Any] = field(default_factory=dict)
    owned: bool = True
    states: int = 0
    refused_topics: set[str] = field(default_factory=set)

    def put(self, *recommendations: Recommendation) -> None:
        """Write recommendations to their topic."""
        self.recommendations += [encode("Recommendation", one) for one in recommendations]

    def notices_with(self, *statuses: str) -> list[dict[str, Any]]:
        """The notices of some statuses."""
        return [one for one in self.notices if one["status"] in statuses]

    def start(self) -> Started:
        """Start a notifier with an index of its own, built from the topic."""
        return Started(self)

    def run(self, started: Started | None = None, *, rounds: int = 400) -> Started:
        """Let a notifier work until all is settled."""
        started = started or self.start()
        started.read_all()
        for _ in range(rounds):
            if self.settled >= set(range(len(self.recommendations))):
                break
            self.time_s += max(0.01, started.notifier.take_due())
        return started


class Started:
    """One notifier's life."""

    def __init__(self, world: World) -> None:
        if not TEMPLATES:
            TEMPLATES.append(read_templates("", "en"))
        world.states += 1
        usual: dict[str, Any] = {
            "notify_lender_name": "Bank", "notify_lender_contact": "call us", "notify_smtp_host": "x",
            "notify_smtp_from": "a@b.example",
        }  # fmt: skip
        settings = NotifySettings(**(usual | world.settings))
        self.world = world
        self.counters = Counters(METERS, part="notify")
        self.index = NoticeIndex(world.folder / f"state-{world.states}.sqlite", topic="t")
        self.index.add(world.notices)
        delivery_steps = DeliverySteps(
            Settings(),
            letter_writer=LetterWriter(settings, contacts=FakeContacts(world), templates=TEMPLATES[0]),
            transports={channel: FakeTransport(channel, world) for channel in CHANNELS},
            index=self.index,
            delivery=FakeBrokers(world),
            framing=SINGLE_OBJECT,
            prove=lambda _partition: world.trouble("prove"),
            now_ms=self._now_ms,
        )
        self.notifier = Notifier(
            settings,
            delivery_steps=delivery_steps,
            index=self.index,
            framing=SINGLE_OBJECT,
            counters=self.counters,
            settled=lambda record: world.settled.add(record.offset),
            retry=self._retry,
            now_ms=self._now_ms,
            clock=lambda: world.time_s,
            chance=random.Random(1),  # noqa: S311 - no secret
        )

    def read_all(self) -> None:
        """Read from the first record that is not settled, as a consumer does after a start."""
        offsets = range(len(self.world.recommendations))
        start = min((offset for offset in offsets if offset not in self.world.settled), default=len(offsets))
        for offset in range(start, len(offsets)):
            self.notifier.take(self.record(offset))

    def record(self, offset: int, **changes: Any) -> Inbound:
        """A record as it is read."""
        fields: dict[str, Any] = {
            "key": b"k", "value": self.world.recommendations[offset], "topic": "recommendations", "partition": 0,
            "offset": offset, "timestamp_ms": NOW_MS, "first_seen_ms": NOW_MS,
        }  # fmt: skip
        return Inbound(**(fields | changes))

    def _now_ms(self) -> int:
        return NOW_MS + int(self.world.time_s * 1000)

    def _retry(self, _partition: int) -> Retry:
        def sleep(seconds: float) -> None:
            self.world.time_s += seconds
            self.world.trouble("pause")

        return Retry(
            total_s=300,
            pause_max_s=5,
            abandoned=lambda: not self.world.owned,
            clock=lambda: self.world.time_s,
            sleep=sleep,
        )


class FakeContacts(Contacts):
    """The people of the world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def find(self, subject_ref: str) -> Contact | None:
        """Look one up."""
        self._world.trouble("contacts")
        return self._world.people.get(subject_ref)

    def check(self) -> str:
        """Nothing to say."""
        return ""

    def close(self) -> None:
        """Nothing is held."""


class FakeTransport:
    """Keeps the letters of one channel."""

    def __init__(self, channel: Channel, world: World) -> None:
        self.channel: Channel = channel
        self._world = world

    def send(self, package: Package) -> str:
        """Take a letter, unless there is trouble."""
        self._world.trouble(f"send {self.channel}")
        self._world.letters.append((self.channel, package))
        self._world.trouble("sent")
        return "taken"

    def close(self) -> None:
        """Nothing is held."""


class FakeBrokers:
    """Keeps notices and dead letters."""

    def __init__(self, world: World) -> None:
        self._world = world

    def deliver(self, outputs: Sequence[Output], retry: Retry) -> list[Undeliverable]:  # noqa: ARG002 - the protocol's
        """Write to the lists, unless there is trouble."""
        if not self._world.owned:
            raise Abandoned
        for output in outputs:
            if output.topic in self._world.refused_topics:
                return [Undeliverable(output, "too large")]
            name, record = decode(output.value)
            self._world.trouble(f"write {record.get('status', name)}")
            (self._world.notices if name == "Notice" else self._world.dead).append(record)
            self._world.trouble(f"written {record.get('status', name)}")
        return []
