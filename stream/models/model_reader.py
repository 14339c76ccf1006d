"""Reads all of the models topic, without a consumer group: each worker knows every model, after a restart as well."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from confluent_kafka import KafkaError, Message

from stream.errors import CorruptionError, KafkaUnavailable, PoisonError, RegistryUnavailable
from stream.events import ModelPublished
from stream.models.model_table import ModelTable
from stream.runtime.clients import groupless_consumer, kafka_errors
from stream.runtime.kafka.topic_scan import read_to_end, watermarks
from stream.wire.framing import Framing

log = logging.getLogger(__name__)

POLL_S: Final = 0.2
STOP_WAIT_S: Final = 5.0
SCHEMA_AGAIN_S: Final = 1.0  # before the schema registry is asked again
FETCH_WAIT_MS: Final = 100  # the end of the topic shows only when an empty fetch comes back


class ModelReader:
    """Fills a ModelTable from the models topic: up to its present end at once, then as publications come."""

    def __init__(self, configuration: Mapping[str, Any], *, topic: str, table: ModelTable, framing: Framing) -> None:
        self._topic = topic
        self._table = table
        self._framing = framing
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._brokers = str(configuration["bootstrap.servers"])
        self._read_to = 0
        self.refused = 0  # records of the topic that are no publication
        self.remade = 0  # times that the topic was made anew under this reader
        self._consumer = groupless_consumer({"fetch.wait.max.ms": FETCH_WAIT_MS, **configuration})

    def read_to_end(self, timeout_s: float) -> int:
        """Read from the beginning to the end that the topic has now; return how many records were read.

        Raises: KafkaUnavailable when that takes longer than `timeout_s`; RegistryUnavailable.
        """
        deadline = time.monotonic() + timeout_s
        count = 0
        with kafka_errors(f"reading topic {self._topic} from the brokers at {self._brokers}"):
            (low, high) = watermarks(self._consumer, self._topic, self._brokers)[0]
            for messages in read_to_end(self._consumer, self._topic, {0: low}, {0: high}, brokers=self._brokers):
                count += sum(self._take_until(one, lambda: time.monotonic() > deadline) for one in messages)
                if time.monotonic() > deadline:
                    message = f"topic {self._topic} could not be read to its end within {timeout_s:g} s"
                    raise KafkaUnavailable(message)
        return count

    def follow(self) -> None:
        """Go on reading in a thread of its own until `stop`."""
        self._thread = threading.Thread(target=self._run, name="coach-models", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the consumer."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(STOP_WAIT_S)
        self._consumer.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                message = self._consumer.poll(POLL_S)
                if message is not None:
                    self._take_until(message, self._stopping.is_set)
            except RegistryUnavailable:
                return  # we are to stop
            except Exception:  # without its reader a worker would go on with yesterday's models, and nobody would know
                log.exception("models.reader_fault")
                time.sleep(POLL_S)

    def _take_until(self, message: Message, given_up: Callable[[], bool]) -> bool:
        """Learn from one record; ask the schema registry until `given_up` says so. Raises: RegistryUnavailable."""
        while True:
            try:
                taken = self._take(message)
            except RegistryUnavailable as away:
                if given_up():
                    raise
                log.warning("models.schema_away", extra={"epoch": message.offset(), "why": str(away)})
                self._stopping.wait(SCHEMA_AGAIN_S)
            else:
                if message.error() is None:
                    self._read_to = int(message.offset() or 0) + 1
                return taken

    def _take(self, message: Message) -> bool:
        """Learn from one record; log and pass over what is no publication. Raises: RegistryUnavailable."""
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
            log.warning("models.read_failed", extra={"error": error.str()})
            return False
        epoch = int(message.offset() or 0)
        if epoch < self._read_to:  # what its offsets counted is gone; a worker that started now would not know of it
            self.remade += 1
            log.error("models.topic_remade", extra={"topic": self._topic, "expected": self._read_to, "found": epoch})
            self._table.forget_all()
        if error is not None:
            return False
        key, value = message.key(), message.value()
        if value is None:
            self._table.forget(bytes(key or b""))
            return True
        try:
            name, record = self._framing.decode(bytes(value), topic=self._topic)
            if name != "ModelPublished":
                reason = f"a record of type {name} is not a publication"
                raise PoisonError(reason)  # noqa: TRY301 - logged below like any other that is none
            # `decode` checked it against the schema.
            publication = self._table.learn(cast("ModelPublished", record), epoch)
        except (PoisonError, CorruptionError, ValueError) as refused:
            self.refused += 1
            log.error("models.refused", extra={"epoch": epoch, "error": type(refused).__name__})  # noqa: TRY400 - no traceback
            return True
        published = publication.published
        log.info(
            "models.learned",
            extra={
                "model_id": published["model_id"],
                "model_version": published["model_version"],
                "revision": published["revision"],
                "epoch": publication.epoch,
            },
        )
        return True
