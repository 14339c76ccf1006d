"""The lender's side alone, on a Kafka and Redis that run elsewhere: `coach demo --publish-only`, as the stack starts it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from stream.demo.decision_messages import decisions
from stream.demo.preparation import BUNDLE, Say, prepare
from stream.demo.script import Script
from stream.demo.story import DemoProgress
from stream.demo.traffic import Post
from stream.errors import KafkaUnavailable
from stream.models.publishing import PublishRequest, publish, read_models
from stream.runtime.connections import kafka_properties
from stream.runtime.settings import Settings

FLUSH_MAX_S: Final = 60.0
POLL_S: Final = 0.02


def publish_only(script: Script, settings: Settings, say: Say, progress: DemoProgress) -> None:
    """Publish the demo's model and send its decisions, each run under ids of its own; return when the brokers have all.

    Raises: ConfigurationError, DependencyError.
    """
    read_models(settings)  # before the minute that training takes: is Kafka there, and has it the topics?
    prepared = prepare(script, say)
    uri = str((script.folder / BUNDLE).resolve())
    publication = publish(settings, PublishRequest(uri=uri, approved_by="coach demo"))
    say(f"\n4. Published to {settings.kafka_brokers} and Redis, epoch {publication.epoch}")
    now = datetime.now(UTC)
    posts = decisions(prepared, threshold=script.threshold, decided_at=now, run=f"{now:%Y%m%dT%H%M%S}-")
    with progress(len(posts), f"\n5. {len(posts):,} decisions, {script.per_second:g} a second") as step:
        _Sender(settings).send(posts, script.per_second, step)
    declined = sum(post.declined for post in posts)
    say(f"\n   the brokers have all of them, {declined:,} declined; the workers' answers are on the topics")


class _Sender:
    """Sends decisions at a fixed rate, and waits until the brokers have acknowledged them."""

    def __init__(self, settings: Settings) -> None:
        properties = {**kafka_properties(settings), "acks": "all", "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer(properties)
        self._topic = settings.topic_decisions
        self._refused: KafkaError | None = None

    def send(self, posts: Sequence[Post], per_second: float, step: Callable[[int], None]) -> None:
        began_s = time.monotonic()
        for number, post in enumerate(posts):
            while time.monotonic() < began_s + number / per_second:
                self._producer.poll(POLL_S)
            self._producer.produce(self._topic, key=post.decision_id, value=post.value, on_delivery=self._delivered)
            self._check()
            step(1)
        left = self._producer.flush(FLUSH_MAX_S)
        self._check()
        if left:
            message = f"the brokers did not acknowledge {left} decisions within {FLUSH_MAX_S:g} s; run it again"
            raise KafkaUnavailable(message)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        self._refused = self._refused or error

    def _check(self) -> None:
        if self._refused is not None:
            message = f"the brokers did not take a decision on topic {self._topic}: {self._refused.str()}"
            raise KafkaUnavailable(message)
