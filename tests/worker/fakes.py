"""Stand-ins that keep the promises of the worker's neighbours, for tests without Kafka."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from stream.errors import BundleLost, DependencyError, KafkaUnavailable, ModelNotPublished, PoisonError
from stream.runtime.counters import Counters
from stream.runtime.health import Vitals
from stream.runtime.kafka.commit_order import CommitOrder
from stream.runtime.kafka.delivery import Output, Undeliverable
from stream.runtime.kafka.inbound import Inbound
from stream.runtime.retry import Retry
from stream.runtime.settings import Settings
from stream.wire.framing import SINGLE_OBJECT
from stream.worker.answering import Answered, Approved, Outcome, Refused, Waiting
from stream.worker.decision_log import DecisionLog
from stream.worker.metrics import worker_counters
from stream.worker.outputs import write_out
from stream.worker.pipeline import Pipeline

TICK_S = 0.005


def inbound(offset: int, *, partition: int = 0, value: bytes = b"", generation: int = 1) -> Inbound:
    """A record of the decisions topic."""
    return Inbound(
        key=f"k{offset}".encode(),
        value=value or f"answer {partition}-{offset}".encode(),
        headers=(("trace", b"\x00\xff"), ("empty", None)),
        topic="decisions",
        partition=partition,
        offset=offset,
        timestamp_ms=1_000,
        generation=generation,
        first_seen_ms=1_000,
    )


@dataclass
class Book:
    """What Faust would know: which records were acked, in order, and which were let go."""

    acked: list[tuple[int, int]] = field(default_factory=list)
    released: list[tuple[int, int]] = field(default_factory=list)

    def order(self) -> CommitOrder:
        """A commit order that writes into this book."""

        def ack(record: Inbound) -> None:
            self.acked.append((record.partition, record.offset))

        def release(record: Inbound) -> None:
            self.released.append((record.partition, record.offset))

        return CommitOrder(ack=ack, release=release)

    def committed(self, partition: int = 0) -> list[int]:
        """The acked offsets of one partition, in the order of their acks."""
        return [offset for one, offset in self.acked if one == partition]


class FakeAnswerer:
    """Answers by the words of the value: `answer ID`, `approve ID`, `poison ID`, `wait MODEL ID`, `lost MODEL ID`. Models become known by `publish`, and `fail` makes the next calls raise."""

    def __init__(self) -> None:
        self.published: set[str] = set()
        self.found: set[str] = set()  # whose bundle came back, without a word
        self.changes = 0
        self.failures: list[Exception] = []
        self.batches: list[list[int]] = []
        self.per_batch_max = 1_000

    def publish(self, model: str) -> None:
        """Make a model known."""
        self.published.add(model)
        self.changes += 1

    def outcomes(self, records: Sequence[Inbound], _budget_s: float) -> list[Outcome]:
        """See `Answerer`."""
        if self.failures:
            raise self.failures.pop(0)
        taken = records[: self.per_batch_max]
        self.batches.append([one.offset for one in taken])
        return [self._outcome(one) for one in taken]

    def _outcome(self, one: Inbound) -> Outcome:
        match (one.value or b"").decode(errors="replace").split():
            case ["answer", name]:
                return answered(name)
            case ["approve", name]:
                return Approved(decision_id=name, digest=b"")
            case ["wait" | "lost" as why, model, name]:
                if model in (self.published if why == "wait" else self.found):
                    return answered(name)
                nobody = ModelNotPublished(f"nobody published {model}")
                error = nobody if why == "wait" else BundleLost(f"the bundle of {model} is nowhere")
                return Waiting(decision_id=name, model_id=model, model_version="1", error=error)
            case _:
                return Refused(decision_id=None, error=PoisonError("it is poison"))


def answered(name: str) -> Answered:
    """An answer whose records name the decision."""
    return Answered(
        decision_id=name,
        digest=b"",
        model=("m", "1", "1"),
        status="ok",
        tiers=3,
        audit=f"audit of {name}".encode(),
        recommendation=f"recommendation of {name}".encode(),
        elapsed_us=1,
    )


class FakeDelivery:
    """A broker: keeps what it acknowledged, in order. `refuse` says which outputs it never takes; while `down` it takes nothing, as the real one until its retry ends."""

    def __init__(self) -> None:
        self.delivered: list[Output] = []
        self.refuse: Callable[[Output], bool] = lambda _output: False
        self.down = False
        self.on_delivery: Callable[[Sequence[Output]], None] = lambda _outputs: None

    def deliver(self, outputs: Sequence[Output], retry: Retry) -> list[Undeliverable]:
        """See `Delivers`."""
        while self.down and outputs:
            retry.pause(KafkaUnavailable("the broker is down"))
        self.on_delivery(outputs)
        self.delivered += [one for one in outputs if not self.refuse(one)]
        return [Undeliverable(one, "it is too large") for one in outputs if self.refuse(one)]

    def values(self, topic: str) -> list[bytes]:
        """What a topic holds."""
        return [one.value for one in self.delivered if one.topic == topic]


@dataclass
class Bench:
    """A pipeline with fakes around it."""

    pipeline: Pipeline
    answerer: FakeAnswerer
    delivery: FakeDelivery
    book: Book
    counters: Counters
    vitals: Vitals
    task: asyncio.Task[None]
    generation: int = 1
    suspended: bool = False

    async def take(self, *records: Inbound) -> None:
        """Let the agent read these."""
        for one in records:
            await self.pipeline.take(one)

    async def until(self, condition: Callable[[], Any], timeout_s: float = 3.0) -> None:
        """Wait for a condition."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                if self.task.done():
                    self.task.result()
                await asyncio.sleep(TICK_S)

    async def pause(self, duration_s: float = 0.05) -> None:
        """Give the pipeline time in which nothing may happen."""
        await asyncio.sleep(duration_s)


@asynccontextmanager
async def bench(**settings: Any) -> AsyncIterator[Bench]:
    """A running pipeline; `settings` replace the defaults."""
    answerer, delivery, book, counters = FakeAnswerer(), FakeDelivery(), Book(), worker_counters()
    defaults: dict[str, Any] = {"outage_max_s": 5.0, "retry_delay_max_s": 0.05, "model_wait_s": 30.0, "drain_s": 0.0}
    vitals = Vitals()
    chosen = Settings(**(defaults | settings))
    state: dict[str, Bench] = {}
    pipeline = Pipeline(
        outcomes_of=answerer.outcomes,
        write_out=partial(write_out, delivery, SINGLE_OBJECT, chosen),
        order=book.order(),
        settings=chosen,
        decision_log=DecisionLog(counters, vitals),
        generation=lambda: state["bench"].generation,
        suspended=lambda: state["bench"].suspended,
        models_changes=lambda: answerer.changes,
    )
    task = asyncio.get_running_loop().create_task(pipeline.run())
    state["bench"] = Bench(pipeline, answerer, delivery, book, counters, vitals, task)
    try:
        yield state["bench"]
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, DependencyError, Exception):
            await task
