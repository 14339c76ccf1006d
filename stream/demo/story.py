"""The whole story on one machine, from past applications to checked audit records: what `coach demo` runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

from stream.bundle.open import open_bundle
from stream.demo.account import account_of, figures
from stream.demo.decision_messages import decisions
from stream.demo.embedded.embedded_kafka import EmbeddedKafka
from stream.demo.embedded.embedded_redis import EmbeddedRedis
from stream.demo.letter import Thirds
from stream.demo.preparation import BUNDLE, Say, prepare
from stream.demo.script import Script
from stream.demo.traffic import Exchange
from stream.demo.worker_process import WorkerChildProcess
from stream.models.publishing import PublishRequest, publish
from stream.runtime.settings import read_settings

GROUP: Final = "coach-demo"
ANSWERS: Final = "answers.jsonl"
WORKER_BUNDLES: Final = "worker-bundles"
WORKER_LOG: Final = "worker.log"
PARTITIONS: Final = {"decisions": 4, "models": 1, "recommendations": 4, "audit": 16, "decisions.dlq": 1}

DemoProgress: TypeAlias = Callable[[int, str], AbstractContextManager[Callable[[int], None]]]  # (length, label) -> step


def run_demo(script: Script, say: Say, progress: DemoProgress) -> list[str]:
    """Run it all, and `say` it; return what was found wrong, each in one line, empty when all is well.

    Raises: StreamError when a part does not start or does not end well.
    """
    bundle, worker_log = script.folder / BUNDLE, script.folder / WORKER_LOG
    prepared = prepare(script, say)
    manifest = prepared.manifest
    with EmbeddedRedis() as redis, EmbeddedKafka(PARTITIONS) as kafka:
        say(f"\n4. Kafka, embedded, on {kafka.bootstrap}; Redis, embedded, on 127.0.0.1:{redis.port}")
        variables = _variables(script.folder, kafka, redis)
        settings = read_settings(variables)
        publication = publish(settings, PublishRequest(uri=str(bundle), approved_by="coach demo"))
        say(f"   published the bundle to Redis and to the topic {settings.topic_models}, epoch {publication.epoch}")
        posts = decisions(prepared, threshold=script.threshold, decided_at=datetime.now(UTC))
        with WorkerChildProcess(variables, worker_log) as worker:
            worker.wait_until_assigned()
            say("   the worker, `coach worker`, runs as a process of its own")
            with progress(len(posts), f"\n5. {len(posts):,} decisions, {script.per_second:g} a second") as step:
                exchange = Exchange(settings, PARTITIONS, check_alive=worker.check_alive, on_step=step)
                bytes_max = manifest["audit_record_bytes_max"]
                with closing(exchange):
                    heard = exchange.run(posts, per_second=script.per_second, answer_bytes_max=bytes_max)
    account = account_of(posts, heard)
    (script.folder / ANSWERS).write_bytes(b"".join(account.answers()))
    faults = list(account.faults())
    for text in account.letters(_thirds(bundle, manifest["cutoff_margin"])):
        say("\n" + text)
    say("\n6. The account")
    for line in figures(account, heard, len(faults), worker_log.read_text(encoding="utf-8", errors="replace")):
        say("   " + line)
    return faults


def _thirds(bundle: Path, cutoff: float) -> Thirds:
    """Where the thirds of the pool's approved people begin, by what the model says of them."""
    model = open_bundle(bundle, verify=False)  # built a moment ago
    approved = model.matrix.margins[model.matrix.first_past(cutoff, model.policy.sign) :]
    return Thirds(middle=float(approved[len(approved) // 3]), highest=float(approved[2 * len(approved) // 3]))


def _variables(folder: Path, kafka: EmbeddedKafka, redis: EmbeddedRedis) -> dict[str, str]:
    """The worker's settings; what the user may have set for a worker of his own does not reach this one."""
    return {
        "COACH_KAFKA_BROKERS": kafka.bootstrap,
        "COACH_REDIS_URL": redis.url,
        "COACH_GROUP": GROUP,
        "COACH_BUNDLE_DIR": str(folder / WORKER_BUNDLES),
        "COACH_BUNDLE_SOURCES": str(folder),
        "COACH_START_AT": "earliest",
        "COACH_START_WAIT_S": "3",  # the embedded Kafka does not tell the limits of its topics, however long one waits
    }
