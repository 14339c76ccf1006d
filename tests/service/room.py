"""One test's own corner of a stack: topics and a group of its own, worker processes, and what was written."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from stream.cli.main import coach
from stream.models.model_table import PublicationAtEpoch
from stream.models.publishing import PublishRequest, publish
from stream.runtime.connections import framing_of
from stream.runtime.settings import Settings, read_settings
from stream.runtime.start_at import read_start_at
from stream.wire.framing import Framing
from tests.service.lender import Lender
from tests.service.stack import Stack

REPOSITORY: Final = Path(__file__).resolve().parents[2]
# Where a process of the product imports from. Numba imports coverage where it finds it, which takes a third of a second.
_IN_THE_WAY: Final = ["as_deployed"] if "COVERAGE_PROCESS_CONFIG" in os.environ else ["as_deployed", "unmeasured"]
PYTHONPATH: Final = os.pathsep.join(
    map(str, (REPOSITORY, *(Path(__file__).resolve().parent / one for one in _IN_THE_WAY)))
)
REAL: Final = "stream.cli.main"
FAULTY: Final = "tests.service.faulty_worker"
WAIT_S: Final = 60.0
LOOK_AGAIN_S: Final = 0.05
STOP_S: Final = 40.0
LAST_WORDS: Final = 1_500  # characters of a log that a failed wait shows


class WorkerProcess:
    """`coach worker` as a process; its log is a file of JSON lines."""

    def __init__(self, program: str, environment: dict[str, str], log: Path, *arguments: str) -> None:
        self.log = log
        self._said = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", program, "worker", *arguments],
            env={**os.environ, "PYTHONPATH": PYTHONPATH, **environment},
            stdout=self._said,
            stderr=self._said,
            start_new_session=True,
        )

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """The log's lines, of one event or of all."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return [one for one in found if name is None or one["event"] == name]

    def until(self, name: str, *, count: int = 1, timeout_s: float = WAIT_S) -> list[dict[str, Any]]:
        """Wait for an event of the log."""
        wait_until(
            lambda: len(self.events(name)) >= count or not self.alive, timeout_s=timeout_s, what=f"{name} in {self.log}"
        )
        found = self.events(name)
        assert len(found) >= count, f"the worker ended: {self.log.read_text(errors='replace')[-2000:]}"
        return found

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        self.wait()

    def stop(self, *, timeout_s: float = STOP_S) -> int:
        """End it as an orchestrator does, and return its exit code."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = WAIT_S) -> int:
        """Wait for its end, and return its exit code."""
        try:
            return self.process.wait(timeout_s)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self._said.close()


def probed(port: int, path: str) -> tuple[int, Any]:
    """What a probe hears."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def freeze(pid: int) -> None:
    """Stop a child process until SIGCONT, and return when it stands still: a busy one goes on for a while after SIGSTOP."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def wait_until(condition: Callable[[], Any], *, timeout_s: float = WAIT_S, what: str) -> None:
    """Wait for a condition, and fail with `what` it was."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(LOOK_AGAIN_S)


@dataclass(kw_only=True)
class Room:
    """Topics and group have a name of their own; `environment` is what its workers start from."""

    stack: Stack
    folder: Path
    environment: dict[str, str]
    partitions: int
    workers: list[WorkerProcess] = field(default_factory=list)
    _producer: Producer | None = None
    _asks: Consumer | None = None
    _framing: Framing | None = None

    @property
    def settings(self) -> Settings:
        """The settings of its workers."""
        return read_settings(self.environment)

    def publish(self, lender: Lender, **more: Any) -> PublicationAtEpoch:
        """Publish a lender's bundle, effective long ago."""
        effective = read_start_at("2026-01-01T00:00:00Z").time_ms
        return publish(
            self.settings, PublishRequest(uri=str(lender.bundle), **({"effective_from_ms": effective} | more))
        )

    def send(
        self,
        records: Iterable[tuple[bytes | None, bytes | None]],
        *,
        headers: list[tuple[str, Any]] | None = None,
        timestamp_ms: int = 0,
    ) -> int:
        """Write decisions, and wait until all are there; return how many."""
        if self._producer is None:
            self._producer = Producer({"bootstrap.servers": self.settings.kafka_brokers, "linger.ms": 5})
        failures: list[str] = []
        count = 0
        for key, value in records:
            self._producer.produce(
                self.settings.topic_decisions,
                key=key,
                value=value,
                headers=headers,
                timestamp=timestamp_ms,
                on_delivery=lambda error, _: failures.append(str(error)) if error else None,
            )
            count += 1
            self._producer.poll(0)
        assert self._producer.flush(30) == 0
        assert not failures
        return count

    def worker(self, *arguments: str, wait: bool = True, program: str = REAL, **environment: str) -> WorkerProcess:
        """Start a worker, and wait until it has partitions."""
        log = self.folder / f"worker-{len(self.workers)}.log"
        started = WorkerProcess(program, self.environment | environment, log, *arguments)
        self.workers.append(started)
        if wait:
            started.until("worker.assigned")
        return started

    def read(self, topic: str) -> list[Message]:
        """All that a topic holds now."""
        settings = {"bootstrap.servers": self.settings.kafka_brokers, "group.id": uuid.uuid4().hex}
        consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
        found: list[Message] = []
        try:
            ends = {}
            for number in range(len(consumer.list_topics(topic, timeout=10).topics[topic].partitions)):
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10, cached=False)
                if high > low:
                    ends[number] = high
            consumer.assign([TopicPartition(topic, number, 0) for number in ends])
            deadline = time.monotonic() + WAIT_S
            while ends:
                assert time.monotonic() < deadline, f"{topic} is not read to its end"
                for message in consumer.consume(500, 0.2):
                    assert message.error() is None, message.error()
                    found.append(message)
                    if int(message.offset() or 0) + 1 >= ends.get(int(message.partition() or 0), 1 << 62):
                        ends.pop(int(message.partition() or 0), None)
        finally:
            consumer.close()
        return found

    def values(self, topic: str) -> list[bytes]:
        """The values of a topic."""
        return [bytes(one.value() or b"") for one in self.read(topic)]

    def recommendations(self) -> list[dict[str, Any]]:
        """All recommendations, decoded."""
        return self._decoded(self.settings.topic_recommendations)

    def audits(self) -> list[dict[str, Any]]:
        """All audit records, decoded."""
        return self._decoded(self.settings.topic_audit)

    def dead_letters(self) -> list[dict[str, Any]]:
        """All dead letters, decoded."""
        return self._decoded(self.settings.topic_dlq)

    def _decoded(self, topic: str) -> list[dict[str, Any]]:
        if self._framing is None:
            self._framing = framing_of(self.settings)
        framing = self._framing
        return [framing.decode(value, topic=topic)[1] for value in self.values(topic)]

    def committed(self) -> dict[int, int]:
        """The group's committed offset on each partition; below 0 where there is none."""
        asked = [TopicPartition(self.settings.topic_decisions, number) for number in range(self.partitions)]
        return {one.partition: one.offset for one in self._watcher().committed(asked, timeout=10)}

    def lag(self) -> int:
        """How many decisions are not committed."""
        total = 0
        for number, offset in self.committed().items():
            partition = TopicPartition(self.settings.topic_decisions, number)
            _, high = self._watcher().get_watermark_offsets(partition, timeout=10, cached=False)
            total += high - max(offset, 0)
        return total

    def _watcher(self) -> Consumer:
        """A consumer that only asks."""
        if self._asks is None:
            self._asks = Consumer({"bootstrap.servers": self.settings.kafka_brokers, "group.id": self.settings.group})
        return self._asks

    def close(self) -> None:
        """End whatever still runs."""
        for one in self.workers:
            if one.alive:
                one.kill()
        if self._asks is not None:
            self._asks.close()

    def until_done(self, timeout_s: float = WAIT_S) -> None:
        """Wait until every decision is committed; where that does not come, fail with what the group and workers say."""
        deadline = time.monotonic() + timeout_s
        while (state := self._state()) != "lag 0":
            if time.monotonic() > deadline or not any(one.alive for one in self.workers):
                pytest.fail(
                    f"group {self.settings.group} is not done within {timeout_s:g} s: {state}\n{self._last_words()}"
                )
            time.sleep(LOOK_AGAIN_S)

    def _state(self) -> str:
        """How far the group is, or why that is not known: a broker that was down may still be loading the group."""
        try:
            return f"lag {self.lag()}"
        except KafkaException as unknown:
            return str(unknown)

    def _last_words(self) -> str:
        """The last events of each worker."""
        said = [
            f"{one.log.name} ({'runs' if one.alive else 'ended'}): {one.log.read_text(errors='replace')[-LAST_WORDS:]}"
            for one in self.workers
        ]
        return "\n".join(said)


@contextmanager
def room(
    stack: Stack,
    folder: Path,
    *,
    partitions: int = 2,
    sizes: dict[str, int] | None = None,
    replication: int = 1,
    **environment: str,
) -> Iterator[Room]:
    """A room of its own; whatever its workers still do is ended with it. `environment` is without the prefix COACH_."""
    name = f"t{uuid.uuid4().hex[:8]}"
    variables = {
        "COACH_KAFKA_BROKERS": stack.kafka.bootstrap,
        "COACH_REDIS_URL": stack.redis.url,
        "COACH_GROUP": name,
        "COACH_TOPIC_DECISIONS": f"{name}.decisions",
        "COACH_TOPIC_MODELS": f"{name}.models",
        "COACH_TOPIC_RECOMMENDATIONS": f"{name}.recommendations",
        "COACH_TOPIC_AUDIT": f"{name}.audit",
        "COACH_TOPIC_DLQ": f"{name}.dlq",
        "COACH_TOPIC_NOTICES": f"{name}.notices",
        "COACH_BUNDLE_DIR": str(folder / "bundles"),
        "COACH_BUNDLE_SOURCES": "/",  # lenders' bundles lie in folders of the test session
        "COACH_START_AT": "earliest",
        "COACH_START_WAIT_S": "20",
        "COACH_COMMIT_INTERVAL_S": "0.2",
        "COACH_SESSION_TIMEOUT_S": "6",
        "COACH_LOG_TOTALS_EVERY_S": "1",
    }
    variables |= {f"COACH_{key.upper()}": value for key, value in environment.items()}
    here = Room(stack=stack, folder=folder, environment=variables, partitions=partitions)
    named = {f"{name}.{topic}": limit for topic, limit in (sizes or {}).items()}
    with redis.Redis.from_url(stack.redis.url) as client:
        client.flushall()  # other tests used the same decision ids
    stack.create_topics(here.settings, partitions=partitions, replication=replication, sizes=named)
    with ExitStack() as cleanup:
        cleanup.callback(here.close)
        yield here


def command(here: Room, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `coach ...` to its end, with the room's settings: a worker as a process, all else in this one.

    Importing the model libraries takes a process two seconds, which is most of what a command takes.
    """
    changed = {**here.environment, **environment}
    if arguments[0] == "worker":
        return subprocess.run(
            [sys.executable, "-m", "stream.cli.main", *arguments],
            env={**os.environ, "PYTHONPATH": PYTHONPATH, **changed},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
    done = invoked(*arguments, **changed)
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def invoked(*arguments: str, **environment: str) -> Result:
    """Run `coach ...` within this process, and restore the signal handlers that it replaces."""
    handlers = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        return CliRunner().invoke(coach, arguments, env=environment, catch_exceptions=False)
    finally:
        for one, handler in handlers.items():
            signal.signal(one, handler)
