"""A topic in memory, records to put on it, and a sink without Kafka that can be stopped between any two steps."""

from __future__ import annotations

import copy
import hashlib
import itertools
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from stream.audit.archive.layout import DRAFTS
from stream.audit.archive.markers import Identity
from stream.audit.archive.target import Target
from stream.audit.sink.partition_work import PartitionWork, SinkTotals
from stream.audit.sink.topic_identity import open_archive
from stream.audit.sources import NO_ENVELOPE
from stream.canonical import sha256
from stream.recourse.answer import answer
from stream.runtime.kafka.inbound import Inbound
from stream.wire.avro_records import encode
from stream.wire.framing import SingleObject
from stream.wire.schema_files import RecordName
from tests.recourse.lenders import lender

Json = Any
Result = TypeVar("Result")

TOPIC: Final = "audit"
DAY_MS: Final = 86_400_000
TIMESTAMP_MS: Final = 1_795_774_501_000


@cache
def bodies() -> tuple[Json, ...]:
    """Bodies of real answers of a small lender: with tiers, without a feasible one, and not the model's decline."""
    made = lender("xgboost")
    asked = [answer(made.decide(row), made.model).body for row in made.declined(120)]
    found = sorted(asked, key=lambda body: body["cutoff_margin"] - body["margin"])[::10]
    found.append(answer(made.decide(made.declined(1)[0], decline_basis="policy"), made.model).body)
    fixed = dict.fromkeys(made.features_of(made.pool[0]), "immutable")
    found.append(answer(made.decide(made.declined(1)[0], policy_overrides=fixed), made.model).body)
    return tuple(found)


def audit_record(number: int, *, envelope: Json = None, bundle: Json = None, **decision: Any) -> Json:
    """An audit record that verifies, with fields of its decision and bundle exchanged and all hashes made anew."""
    body = copy.deepcopy(bodies()[number % len(bodies())])
    body["decision"] |= {"decision_id": f"d-{number:06d}"} | decision
    model = {name: body["decision"][name] for name in ("model_id", "model_version")}
    body["bundle"] |= model | {"bundle_sha256": sha256(model)} | (bundle or {})
    named = {"bundle_sha256": body["bundle"]["bundle_sha256"], "decision": body["decision"]}
    body["recommendation_id"] = sha256(named | {"engine_version": body["engine_version"]})
    return {
        "decision_id": body["decision"]["decision_id"],
        "body": body,
        "body_sha256": sha256(body),
        "envelope": {**NO_ENVELOPE, "software_version": "0.1.0", **(envelope or {})},
    }


def stored(
    offset: int, value: bytes | Json | None, *, partition: int = 0, key: bytes | None = b"", **more: Any
) -> Inbound:
    """A record as it stood on the topic; without a key, that of the audit record."""
    record = value if isinstance(value, dict) else None
    given: dict[str, Any] = {"topic": TOPIC, "timestamp_ms": TIMESTAMP_MS + offset, "headers": ()} | more
    return Inbound(
        partition=partition,
        offset=offset,
        key=str(record["decision_id"]).encode() if record and key == b"" else key,
        value=encode("AuditRecord", record) if record else value,
        **given,
    )


class Remembering(SingleObject):
    """Single-object encoding that decodes no record twice: the same bytes come again after each death."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[RecordName, dict[str, Any]]] = {}

    def decode(self, data: bytes, *, topic: str) -> tuple[RecordName, dict[str, Any]]:
        """See `SingleObject`."""
        if data not in self._known:
            self._known[data] = super().decode(data, topic=topic)
        return self._known[data]


REMEMBERING: Final = Remembering()


class Stopped(BaseException):
    """The process died here."""


class DyingTarget(Target):
    """A target that dies at its n-th step: before it, after it, or with a file half written beside its place."""

    def __init__(self, uri: str, *, steps: int | None) -> None:
        """`steps` None: never."""
        super().__init__(uri)
        self.left = steps
        self.steps = 0

    def _step(self) -> None:
        self.steps += 1
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Stopped

    def keep(self, draft: Path, path: str) -> None:
        """Two steps: on the way, and done."""
        self._step()
        super().keep(draft, path)
        self._step()

    def remove(self, path: str) -> None:
        """Two steps."""
        self._step()
        super().remove(path)
        self._step()


class PhotographedTarget(Target):
    """A target of which a copy is kept from before and after each step: what a sink that dies there leaves behind."""

    def __init__(self, uri: str, album: Path) -> None:
        super().__init__(uri)
        self._folder, self._album = Path(uri), album
        self.photographs: list[Path] = []
        self._seen: set[tuple[tuple[str, int, int], ...]] = set()

    def _photograph(self) -> None:
        """Copy it, unless it is as it was."""
        files = [path for path in self._folder.rglob("*") if path.is_file()]
        look = tuple(sorted((str(path), path.stat().st_ino, path.stat().st_size) for path in files))
        if look not in self._seen:
            self._seen.add(look)
            self.photographs.append(self._album / f"{len(self.photographs):03d}")
            shutil.copytree(self._folder, self.photographs[-1])

    def keep(self, draft: Path, path: str) -> None:
        """Before it, with the draft beside its place, and after it."""
        self._photograph()
        super().keep(draft, path)
        self._photograph()

    def remove(self, path: str) -> None:
        """Before it and after it."""
        self._photograph()
        super().remove(path)
        self._photograph()


@dataclass(kw_only=True)
class MemoryTopic:
    """Partitions with their records; `low` is what retention left, `high` the end where it is later than the last record."""

    records: dict[int, list[Inbound]]
    low: dict[int, int] = field(default_factory=dict)
    high: dict[int, int] = field(default_factory=dict)

    def marks(self, partition: int) -> tuple[int, int]:
        """Low and high watermark."""
        last = self.records[partition][-1].offset + 1 if self.records[partition] else 0
        return self.low.get(partition, 0), max(self.high.get(partition, 0), last)

    def from_offset(self, partition: int, offset: int) -> list[Inbound]:
        """What a consumer gets from there."""
        low, _ = self.marks(partition)
        return [one for one in self.records[partition] if one.offset >= max(low, offset)]


def at_once(doing: Callable[[], Result]) -> Result:
    """No retry."""
    return doing()


def work_on(
    topic: MemoryTopic, target: Target, partition: int = 0, *, range_offsets: int = 8, **more: Any
) -> PartitionWork:
    """Begin the work on one partition as a sink does."""
    found = Identity(topic=TOPIC, range_offsets=0, topic_id="one", cluster_id="here")
    identity = open_archive(target, found, range_offsets)
    given: dict[str, Any] = {"tail_s": 60.0, "totals": SinkTotals(), "clock": lambda: 0.0, "wait_out": at_once} | more
    return PartitionWork(
        target=target,
        identity=identity,
        partition=partition,
        framing=REMEMBERING,
        marks=lambda: topic.marks(partition),
        **given,
    )


def feed(topic: MemoryTopic, work: PartitionWork, *, tail_every: int = 0, until: int | None = None) -> None:
    """Bring a partition's records to the work, and its end; with a tail now and then."""
    position = work.begin()
    while True:
        batch = topic.from_offset(work.partition, position)
        for count, one in enumerate(batch):
            if until is not None and one.offset >= until:
                return
            work.take(one)
            if work.seek_to is not None:
                break
            if tail_every and count % tail_every == tail_every - 1:
                work.keep_tail(now=True)
        if work.seek_to is None:
            work.reached(topic.marks(work.partition)[1])
        if work.seek_to is None:
            return
        position, work.seek_to = work.seek_to, None


def sink_once(
    topic: MemoryTopic, target: Target, *, partitions: Sequence[int] = (0,), tail_every: int = 0, **more: Any
) -> SinkTotals:
    """Bring all that is on the topic into the archive, and its tails."""
    totals = SinkTotals()
    for partition in partitions:
        work = work_on(topic, target, partition, totals=totals, **more)
        try:
            feed(topic, work, tail_every=tail_every)
            work.keep_tail(now=True)
        finally:
            work.close()
    return totals


def files_of(folder: Path) -> dict[str, str]:
    """Every file of an archive with its digest, without drafts."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and DRAFTS not in path.relative_to(folder).parts
    }


def plain_topic(count: int, *, partition: int = 0, gaps: Iterable[int] = ()) -> MemoryTopic:
    """Records of two days and two versions, with garbage now and then; offsets in `gaps` hold nothing."""
    offsets = itertools.count()
    records: list[Inbound] = []
    gone = set(gaps)
    while len(records) < count:
        offset = next(offsets)
        if offset in gone:
            continue
        value: Any = b"garbage %d" % offset
        if offset % 11 != 7:
            day = f"2026-11-{26 + offset // 5 % 2:02d}T10:15:00.250Z"
            value = audit_record(offset * 7919 % 1_000_003, event_time=day, model_version=f"2026-{10 + offset % 2}")
        records.append(stored(offset, value, partition=partition, headers=(("a", b"\x80"), ("b", None))[: offset % 3]))
    return MemoryTopic(records={partition: records})
