"""The whole story on one machine, from past applications to checked audit records: what `coach demo` runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

from stream.bundle.build import build_bundle
from stream.bundle.manifest import Manifest
from stream.bundle.open import open_bundle
from stream.demo.account import account_of, figures
from stream.demo.credit_data import CreditData, read_credit_data
from stream.demo.decider import decisions
from stream.demo.embedded_kafka import EmbeddedKafka
from stream.demo.embedded_redis import EmbeddedRedis
from stream.demo.letter import Thirds
from stream.demo.scoring_model import POOL_TARGET, Scores, train
from stream.demo.script import Script
from stream.demo.traffic import Exchange, Heard, Lines, Post
from stream.demo.worker_process import WorkerProcess
from stream.models.publishing import Request, publish
from stream.runtime.settings import Settings, read_settings

GROUP: Final = "coach-demo"
PARTITIONS: Final = {"decisions": 4, "models": 1, "recommendations": 4, "audit": 16, "decisions.dlq": 1}
DECISION_BYTES_MAX: Final = 16 * 1024  # far above any decision of a demo; the size of an audit record includes it

Say: TypeAlias = Callable[[str], None]
Progress: TypeAlias = Callable[[int, str], AbstractContextManager[Callable[[int], None]]]  # (length, label) -> step


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The files of one run, all in its folder; they stay when the user named one."""

    model: Path
    pool: Path
    features: Path
    bundle: Path
    answers: Path
    worker_bundles: Path
    worker_log: Path

    @classmethod
    def under(cls, folder: Path) -> Files:
        """Name them."""
        return cls(
            model=folder / "model.json",
            pool=folder / "pool.parquet",
            features=folder / "features.toml",
            bundle=folder / "bundle",
            answers=folder / "answers.jsonl",
            worker_bundles=folder / "worker-bundles",
            worker_log=folder / "worker.log",
        )


def tell(script: Script, say: Say, progress: Progress) -> list[str]:
    """Run it all, and `say` it; return what was found wrong, each in one line, empty when all is well.

    Raises: StreamError when a part does not start or does not end well.
    """
    files = Files.under(script.folder)
    say(f"\n1. The data: {script.title}")
    data = read_credit_data(
        script.data,
        script.features_toml,
        target=script.target,
        favourable=script.favourable,
        leave_out=script.leave_out,
    )
    scores = _train(script, files, data, say)
    manifest = _build(script, files, say)
    with EmbeddedRedis() as redis, EmbeddedKafka(PARTITIONS) as kafka:
        say(f"\n4. Kafka, embedded, on {kafka.bootstrap}; Redis, embedded, on 127.0.0.1:{redis.port}")
        variables = _variables(files, kafka, redis)
        settings = read_settings(variables)
        publication = publish(settings, Request(uri=str(files.bundle), approved_by="coach demo"))
        say(f"   published the bundle to Redis and to the topic {settings.topic_models}, epoch {publication.epoch}")
        posts = decisions(
            data,
            scores,
            model_id=manifest["model_id"],
            model_version=manifest["model_version"],
            threshold=script.threshold,
            decided_at=datetime.now(UTC),
        )
        with WorkerProcess(variables, files.worker_log) as worker:
            worker.wait_until_assigned()
            say("   the worker, `coach worker`, runs as a process of its own")
            heard = _exchange(script, settings, worker, posts, manifest, progress)
    account = account_of(posts, heard)
    files.answers.write_bytes(b"".join(account.answers()))
    faults = list(account.faults())
    for text in account.letters(_thirds(files.bundle, manifest["cutoff_margin"])):
        say("\n" + text)
    say("\n6. The account")
    for line in figures(account, heard, len(faults), files.worker_log.read_text(encoding="utf-8", errors="replace")):
        say("   " + line)
    return faults


def _train(script: Script, files: Files, data: CreditData, say: Say) -> Scores:
    rows, training = len(data.matrix), len(data.training_rows())
    say(
        f"   {rows:,} applications with {len(data.rules.names)} features; {int(data.favourable.sum()):,} turned out well"
    )
    say("\n2. The lender's model: XGBoost")
    scores = train(data, files.model, files.pool)
    files.features.write_text(script.features_toml, encoding="utf-8")
    say(
        f"   trained on {training:,} applications; on the other {rows - training:,} its AUC is {scores.held_out_auc:.3f}"
    )
    declined = int((scores.probabilities < script.threshold).sum())
    say(
        f"   it approves from a probability of {script.threshold:g} on: {rows - declined:,} approved, {declined:,} declined"
    )
    return scores


def _build(script: Script, files: Files, say: Say) -> Manifest:
    say("\n3. The bundle: model, pool, features.toml and leaf matrix, checked against XGBoost itself")
    built = build_bundle(
        model_path=files.model,
        pool_path=files.pool,
        features_path=files.features,
        threshold=script.threshold,
        target_column=POOL_TARGET,
        out_dir=files.bundle,
        model_id=script.model_id,
        decision_bytes_max=DECISION_BYTES_MAX,
    )
    manifest = built.manifest
    say(
        f"   {manifest['model_id']} {manifest['model_version']}: {manifest['trees_used']} trees, every bit of {built.probe.rows:,} probes equal"
    )
    say(f"   an audit record can have at most {manifest['audit_record_bytes_max']:,} bytes")
    return manifest


def _thirds(bundle: Path, cutoff: float) -> Thirds:
    """Where the thirds of the pool's approved people begin, by what the model says of them."""
    model = open_bundle(bundle, verify=False)  # built a moment ago
    approved = model.matrix.margins[model.matrix.first_past(cutoff, model.policy.sign) :]
    return Thirds(middle=float(approved[len(approved) // 3]), highest=float(approved[2 * len(approved) // 3]))


def _variables(files: Files, kafka: EmbeddedKafka, redis: EmbeddedRedis) -> dict[str, str]:
    """The worker's settings; what the user may have set for a worker of his own does not reach this one."""
    return {
        "COACH_KAFKA_BROKERS": kafka.bootstrap,
        "COACH_REDIS_URL": redis.url,
        "COACH_GROUP": GROUP,
        "COACH_BUNDLE_DIR": str(files.worker_bundles),
        "COACH_START_AT": "earliest",
        "COACH_START_WAIT_S": "3",  # the embedded Kafka does not tell the limits of its topics, however long one waits
    }


def _exchange(
    script: Script,
    settings: Settings,
    worker: WorkerProcess,
    posts: list[Post],
    manifest: Manifest,
    progress: Progress,
) -> Heard:
    lines = Lines(
        brokers=settings.kafka_brokers,
        group=settings.group,
        decisions=settings.topic_decisions,
        recommendations=settings.topic_recommendations,
        audit=settings.topic_audit,
        dead_letters=settings.topic_dlq,
        partitions=PARTITIONS,
    )
    with progress(len(posts), f"\n5. {len(posts):,} decisions, {script.per_second:g} a second") as step:
        exchange = Exchange(lines, check_alive=worker.check_alive, on_step=step)
        try:
            return exchange.run(
                posts, per_second=script.per_second, answer_bytes_max=manifest["audit_record_bytes_max"]
            )
        finally:
            exchange.close()
