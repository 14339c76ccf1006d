from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from stream.demo.embedded.embedded_kafka import EmbeddedKafka
from stream.errors import RegistryUnavailable
from stream.models import model_reader
from stream.models.model_reader import ModelReader
from stream.models.model_table import ModelTable
from stream.wire.avro_records import encode
from stream.wire.registry import framing as registry_framing
from stream.wire.registry.framing import RegistryFraming
from stream.wire.schema_files import current_schemas
from tests.models.test_model_table import published
from tests.wire.registry.registries import MemoryRegistry


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    """An embedded broker with two topics of models."""
    with EmbeddedKafka({"started": 1, "followed": 1}) as kafka:
        yield kafka.bootstrap


def put(brokers: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": brokers})
    for value in values:
        producer.produce(topic, key=b"k", value=value, partition=0)
    assert producer.flush(10) == 0


def reader(brokers: str, topic: str, registry: MemoryRegistry) -> tuple[ModelReader, ModelTable]:
    table = ModelTable()
    framing = RegistryFraming(registry, register=True)
    return ModelReader({"bootstrap.servers": brokers}, topic=topic, table=table, framing=framing), table


def framed(schema_id: int, revision: int) -> bytes:
    body = encode("ModelPublished", published(revision, "2026-01-01T00:00:00Z"))[10:]
    return b"\x00" + schema_id.to_bytes(4, "big") + body


def test_a_start_waits_for_the_registry_as_long_as_for_the_topic(brokers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a publication whose schema only a registry that is away can tell of, when the topic is read at the start, then it is asked until the time is over, and the publication is not passed over."""
    monkeypatch.setattr(model_reader, "SCHEMA_AGAIN_S", 0.05)
    registry = MemoryRegistry()
    schema_id = registry.put("models-value", current_schemas()["ModelPublished"].document)
    put(brokers, "started", encode("ModelPublished", published(1, "2026-01-01T00:00:00Z")), framed(schema_id, 2))
    registry.down = True
    here, table = reader(brokers, "started", registry)
    try:
        with pytest.raises(RegistryUnavailable):
            here.read_to_end(2.0)
        assert here.refused == 0
        assert [one.published["revision"] for one in table.publications()] == [1]
    finally:
        here.stop()


def test_a_publication_is_learnt_once_the_registry_is_back(brokers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a reader that follows while the registry is away, when a publication by a new schema comes, then it is learnt when the registry is back, and the next ones after it."""
    monkeypatch.setattr(model_reader, "SCHEMA_AGAIN_S", 0.05)
    monkeypatch.setattr(registry_framing, "OUTAGE_S", 0.05)
    registry = MemoryRegistry()
    schema_id = registry.put("models-value", current_schemas()["ModelPublished"].document)
    here, table = reader(brokers, "followed", registry)
    try:
        here.read_to_end(20.0)
        here.follow()
        registry.down = True
        put(brokers, "followed", framed(schema_id, 1), framed(schema_id, 2))
        until(lambda: bool(registry.asked))
        assert table.publications() == []
        registry.down = False
        until(lambda: len(table.publications()) == 2)
        assert here.refused == 0
    finally:
        here.stop()


def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
