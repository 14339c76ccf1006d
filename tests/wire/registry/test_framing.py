from __future__ import annotations

import copy
import io
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fastavro import parse_schema, schemaless_writer

from stream.errors import ConfigurationError, CorruptionError, MalformedRecord, RegistryUnavailable, UnknownSchema
from stream.wire.avro_records import encode, encode_body
from stream.wire.avro_shapes import plain_schema
from stream.wire.decisions import read_decision
from stream.wire.registry import framing as registry_framing
from stream.wire.registry.client import RefusedSchemaError, Registered
from stream.wire.registry.framing import RegistryFraming
from stream.wire.schema_files import RECORDS, RecordName, current_schemas
from tests.wire.registry.registries import MemoryRegistry

EXAMPLES = Path(__file__).parents[3] / "schemas" / "examples"
TOPICS: dict[str, RecordName] = {"decisions": "Decision", "audit": "AuditRecord", "recommendations": "Recommendation"}
DECISION: dict[str, Any] = {
    "decision_id": "d-1",
    "event_time": "2026-11-27T10:15:00.250Z",
    "model_id": "m",
    "model_version": "1",
    "features": {"duration": 24.0, "purpose": "car", "savings": None},
    "outcome": "declined",
}


def framing(registry: MemoryRegistry, *, register: bool = True, wait_s: float | None = None) -> RegistryFraming:
    return RegistryFraming(registry, register=register, records=TOPICS, lookup_wait_s=wait_s)


def schema(record: RecordName = "Decision", **changes: Any) -> dict[str, Any]:
    """A record's schema with changed members."""
    return copy.deepcopy(dict(current_schemas()[record].document)) | changes


def wider() -> dict[str, Any]:
    """The schema of a producer in its own namespace, with fields that only it knows."""
    document = schema(namespace="com.bank.events")
    branch = {"type": "record", "name": "Branch", "fields": [{"name": "id", "type": "int"}]}
    document["fields"].insert(2, {"name": "branch", "type": branch})
    document["fields"].append({"name": "officer", "type": ["null", "string"], "default": None})
    return document


def written(schema_id: int, document: dict[str, Any], value: dict[str, Any]) -> bytes:
    """A record as another writer frames it."""
    file = io.BytesIO()
    schemaless_writer(file, parse_schema(plain_schema(document)), value)
    return b"\x00" + schema_id.to_bytes(4, "big") + file.getvalue()


def example(record: RecordName) -> dict[str, Any]:
    path = min((EXAMPLES / record).glob("*.json"))
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def test_a_record_is_zero_the_id_and_the_same_body() -> None:
    """Given a record, when framed for a registry, then it is 00, the id in four bytes, and the body of the single-object encoding byte for byte."""
    registry = MemoryRegistry()
    registry.put("other-value", "string")
    data = framing(registry).encode("Recommendation", example("Recommendation"), topic="recommendations")
    assert data[:5] == b"\x00\x00\x00\x00\x02"
    assert data[5:] == encode("Recommendation", example("Recommendation"))[10:]
    assert data[5:] == encode_body("Recommendation", example("Recommendation"))


@pytest.mark.parametrize("record", [one for one in RECORDS if one not in ("DeadLetter", "Notice")])
def test_what_is_written_is_read_again_by_either_frame(record: RecordName) -> None:
    """Given a record framed either way, when a registry framing reads it, then it is the same record."""
    here = framing(MemoryRegistry())
    value = example(record)
    for data in (here.encode(record, value, topic="a-topic"), encode(record, value)):
        assert here.decode(data, topic="a-topic")[0] == record
        assert encode(record, here.decode(data, topic="a-topic")[1]) == encode(record, value)


def test_a_value_that_does_not_fit_is_a_fault_of_ours() -> None:
    """Given a value that lacks a field, when framed, then the error names it."""
    with pytest.raises(CorruptionError, match="recommendation_id"):
        framing(MemoryRegistry()).encode("Recommendation", {}, topic="recommendations")


def test_ids_are_fetched_once() -> None:
    """Given a registry that goes away after the start, when records are written and read, then nothing is asked and nothing fails."""
    registry = MemoryRegistry()
    theirs = registry.put("decisions-value", wider())
    here = framing(registry)
    here.prepare(writes={"audit": "AuditRecord"}, reads=("decisions",))
    registry.down = True
    value = DECISION | {"event_time": 1_000, "branch": {"id": 7}}
    assert here.encode("AuditRecord", example("AuditRecord"), topic="audit")[:1] == b"\x00"
    assert here.decode(written(theirs, wider(), value), topic="decisions")[1]["decision_id"] == "d-1"
    here.prepare(writes={"audit": "AuditRecord"}, reads=("decisions",))
    assert registry.asked == []


def test_a_producers_own_schema_gives_the_same_decision() -> None:
    """Given a decision by a schema with other namespace and more fields, when read, then it is the decision that JSON gives."""
    registry = MemoryRegistry()
    here = framing(registry)
    data = written(
        registry.put("decisions-value", wider()),
        wider(),
        DECISION | {"event_time": 1_795_774_500_250, "branch": {"id": 7}, "officer": "x"},
    )
    assert read_decision(data, framing=here, topic="decisions") == read_decision(json.dumps(DECISION).encode())


@pytest.mark.parametrize(
    ("document", "kind", "told"),
    [
        ({"type": "object"}, "JSON", "is JSON; it must be Avro"),
        ("syntax", "PROTOBUF", "is PROTOBUF; it must be Avro"),
        (schema(name="Loan"), "AVRO", "of Loan; it must be Avro, of a record named Decision"),
        ("string", "AVRO", "something that is no record"),
        ({"type": "record", "name": "Decision"}, "AVRO", "no Avro schema"),
        (schema(fields=[]), "AVRO", "field decision_id is missing there"),
        ({**schema(), "fields": [*schema()["fields"], {"name": "x", "type": "nowhere"}]}, "AVRO", "cannot be read"),
    ],
)
def test_a_schema_that_cannot_be_read_is_unknown(document: Any, kind: str, told: str) -> None:
    """Given an id of another kind, of another record, or of a schema that ours cannot read, then the refusal says which and why."""
    registry = MemoryRegistry()
    schema_id = registry.put("theirs-value", document, kind=kind)
    with pytest.raises(UnknownSchema, match=told):
        framing(registry).decode(b"\x00" + schema_id.to_bytes(4, "big") + b"x", topic="decisions")


def test_what_is_too_short_or_damaged_is_malformed() -> None:
    """Given a frame that breaks off, or a body that is none, then it is a malformed record."""
    here = framing(MemoryRegistry())
    data = here.encode("Recommendation", example("Recommendation"), topic="t")
    for damaged in (b"\x00\x00", data[:40], data + b"x", b"neither"):
        with pytest.raises(MalformedRecord):
            here.decode(damaged, topic="t")


def test_an_id_that_the_registry_denies_is_asked_for_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given an id that the registry denies, when many records name it, then it is asked once until the denial is old; and what is remembered is bounded."""
    registry = MemoryRegistry()
    here = framing(registry)
    for _ in range(3):
        with pytest.raises(UnknownSchema, match="knows no schema 77"):
            here.decode(b"\x00\x00\x00\x00\x4dx", topic="decisions")
    assert registry.asked == [77]
    monkeypatch.setattr(registry_framing, "DENIED_MAX", 2)
    for number in (78, 79, 80, 77):
        with pytest.raises(UnknownSchema):
            here.decode(b"\x00" + number.to_bytes(4, "big") + b"x", topic="decisions")
    assert registry.asked == [77, 78, 79, 80, 77]
    monkeypatch.setattr(registry_framing, "DENIED_S", 0.0)
    with pytest.raises(UnknownSchema):
        here.decode(b"\x00\x00\x00\x00\x01x", topic="decisions")
    registry.put("decisions-value", schema())
    with pytest.raises(MalformedRecord):  # known now
        here.decode(b"\x00\x00\x00\x00\x01x", topic="decisions")


def test_an_outage_says_nothing_about_the_record_and_is_no_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a registry that is away, when records with unknown ids come, then it is asked once a while, each is told to wait, and is read once it is back."""
    registry = MemoryRegistry()
    theirs = registry.put("decisions-value", wider())
    here = framing(registry)
    registry.down = True
    data = written(theirs, wider(), DECISION | {"event_time": 1_000, "branch": {"id": 7}})
    for _ in range(5):
        with pytest.raises(RegistryUnavailable, match=r"http://registry\.test"):
            here.decode(data, topic="decisions")
    assert registry.asked == [theirs]
    registry.down = False
    monkeypatch.setattr(registry_framing, "OUTAGE_S", 0.0)
    until_s = time.monotonic() + 5
    while True:
        try:
            assert here.decode(data, topic="decisions")[1]["decision_id"] == "d-1"
            break
        except RegistryUnavailable:
            assert time.monotonic() < until_s
            time.sleep(0.05)


class SlowRegistry(MemoryRegistry):
    """Tells of a schema only when let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.waited = 0

    def schema(self, schema_id: int) -> Registered | None:
        """See `SchemaRegistry`."""
        self.waited += 1
        self.go.wait(10)
        return super().schema(schema_id)


def test_a_slow_registry_holds_up_nobody() -> None:
    """Given a registry that hangs, when 200 records name 100 ids that are not known, then the reader waits once for as long as it is told to, not for each; later they are read."""
    registry = SlowRegistry()
    theirs = registry.put("decisions-value", wider())
    here = framing(registry, wait_s=0.1)
    data = written(theirs, wider(), DECISION | {"event_time": 1_000, "branch": {"id": 7}})
    for number in range(200):
        with pytest.raises(RegistryUnavailable):
            here.decode(data if number % 2 else b"\x00" + number.to_bytes(4, "big") + b"x", topic="decisions")
    assert registry.waited == 1
    registry.go.set()
    until_s = time.monotonic() + 5
    while time.monotonic() < until_s:
        try:
            record = here.decode(data, topic="decisions")[1]
            break
        except RegistryUnavailable:
            time.sleep(0.05)
    assert record["decision_id"] == "d-1"


def test_confluents_own_serializers_read_and_write_the_same() -> None:
    """Given confluent-kafka's own serializer and deserializer on a mock of its registry, then they read what we write, and write what we read."""
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    registry = _Mocked(client)
    here = framing(registry)
    value = example("Recommendation")
    context = SerializationContext("recommendations", MessageField.VALUE)
    ours = here.encode("Recommendation", value, topic="recommendations")
    theirs = AvroDeserializer(client)(ours, context)
    assert theirs["decision_id"] == value["decision_id"]
    assert theirs["reasons"] == value["reasons"]
    back = AvroSerializer(client, json.dumps(schema("Recommendation")))(theirs, context)
    assert back[1:5] == ours[1:5]
    assert here.decode(back, topic="recommendations") == (
        "Recommendation",
        here.decode(ours, topic="recommendations")[1],
    )


class _Mocked(MemoryRegistry):
    """Registers with confluent-kafka's mock."""

    def __init__(self, client: SchemaRegistryClient) -> None:
        super().__init__()
        self._client = client

    def register(self, subject: str, document: Any) -> int:
        """See `SchemaRegistry`."""
        from confluent_kafka.schema_registry import Schema  # noqa: PLC0415 - beside the others it would shadow `schema`

        self.put(subject, document)
        return int(self._client.register_schema(subject, Schema(json.dumps(document), "AVRO")))


def test_no_setting_of_the_registry_stops_what_was_settled() -> None:
    """Given a subject that the registry guards with a stricter level, then it is left as it is."""
    registry = MemoryRegistry()
    registry.put("audit-value", schema("AuditRecord"))
    registry.levels["audit-value"] = "FULL_TRANSITIVE"
    framing(registry).prepare(writes={"audit": "AuditRecord"})
    assert registry.levels == {"audit-value": "FULL_TRANSITIVE"}
    assert registry.registered == []


def test_a_subject_that_is_made_is_guarded() -> None:
    """Given an empty registry, when a topic is prepared for, then its schema is registered with its texts, and kept BACKWARD_TRANSITIVE; decisions' too, so that producers find it."""
    registry = MemoryRegistry()
    framing(registry).prepare(writes={"audit": "AuditRecord"}, reads=("decisions", "recommendations"))
    assert registry.registered == ["audit-value", "decisions-value"]
    assert set(registry.levels.values()) == {"BACKWARD_TRANSITIVE"}
    assert registry.versions("decisions-value")[0].document == schema()


def test_a_schema_of_ours_is_known_by_its_content() -> None:
    """Given our schema as another registered it, in other order and without texts, then it is taken, and not registered again."""
    registry = MemoryRegistry()
    theirs = registry.put("audit-value", json.loads(json.dumps(schema("AuditRecord"), sort_keys=True)) | {"doc": "x"})
    data = framing(registry).encode("AuditRecord", example("AuditRecord"), topic="audit")
    assert int.from_bytes(data[1:5], "big") == theirs
    assert registry.registered == []


def test_an_incompatible_subject_is_refused_with_the_difference() -> None:
    """Given a subject with a version that ours cannot read, when prepared for, then the refusal names subject, version, field, and what to do."""
    registry = MemoryRegistry()
    broken = schema("AuditRecord")
    next(one for one in broken["fields"] if one["name"] == "body_sha256")["type"] = "int"
    registry.put("audit-value", broken)
    with pytest.raises(ConfigurationError) as refused:
        framing(registry).prepare(writes={"audit": "AuditRecord"})
    for told in ("audit-value", r"version 1 (id 1)", "field body_sha256 is int there and string here", "COACH_TOPIC_"):
        assert told in str(refused.value)
    assert registry.registered == []


def test_what_a_registry_refuses_is_refused() -> None:
    """Given a registry that refuses a schema by rules of its own, then its words are told."""

    class Refusing(MemoryRegistry):
        def register(self, subject: str, document: Any) -> int:
            reason = f"{subject} is frozen until Monday, {document['name']} too"
            raise RefusedSchemaError(reason)

    with pytest.raises(ConfigurationError, match="audit-value is frozen until Monday"):
        framing(Refusing()).prepare(writes={"audit": "AuditRecord"})


def test_a_producer_that_breaks_its_schema_later_does_not_keep_us_from_starting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Given a subject that holds our schema and a later version that ours cannot read, then the start goes on, says so, and only that version's records are refused."""
    registry = MemoryRegistry()
    registry.put("decisions-value", schema())
    later = schema()
    later["fields"][0]["type"] = "long"
    bad = registry.put("decisions-value", later)
    here = framing(registry)
    here.prepare(reads=("decisions",))
    assert [one.message for one in caplog.records] == ["schema.unreadable"]
    with pytest.raises(UnknownSchema, match="field decision_id is long there"):
        here.decode(b"\x00" + bad.to_bytes(4, "big") + b"x", topic="decisions")
    assert registry.asked == []


@pytest.mark.parametrize("register", [True, False])
def test_producers_subjects_are_theirs(register: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Given a subject of decisions that producers made, when prepared for, then nothing is registered there, and its level stays."""
    registry = MemoryRegistry()
    registry.put("decisions-value", wider())
    framing(registry, register=register).prepare(reads=("decisions",))
    assert registry.registered == []
    assert registry.levels == {}


def test_a_locked_registry_is_only_looked_at() -> None:
    """Given that nothing may be registered, then a missing schema, and a level that guards nothing, are refused with the command that mends them."""
    registry = MemoryRegistry()
    with pytest.raises(ConfigurationError, match=r"audit-value .*coach topics apply --only schemas"):
        framing(registry, register=False).prepare(writes={"audit": "AuditRecord"})
    registry.put("audit-value", schema("AuditRecord"))
    with pytest.raises(ConfigurationError, match=r"compatibility NONE.*coach topics apply --only schemas"):
        framing(registry, register=False).prepare(writes={"audit": "AuditRecord"})
    registry.levels["audit-value"] = "BACKWARD_TRANSITIVE"
    framing(registry, register=False).prepare(writes={"audit": "AuditRecord"}, reads=("decisions",))
    assert registry.registered == []
