"""The service with a real schema registry: framed for it, refused by it, and without it."""

from __future__ import annotations

import copy
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from stream.bundle.open import open_bundle
from stream.recourse.answer import answer
from stream.times import time_ms
from stream.wire.avro_records import encode
from stream.wire.decisions import read_decision
from stream.wire.schema_files import current_schemas
from tests.kafka.brokers import free_ports
from tests.kafka.registry import ApicurioRegistry
from tests.records import decision_dict
from tests.service.lender import Lender, record
from tests.service.registry_stand import PASSWORD, USER, guarded, registry
from tests.service.room import Room, WorkerProcess, command, freeze, room, wait_until
from tests.service.stack import Stack

__all__ = ["registry"]

pytestmark = [pytest.mark.service, pytest.mark.timeout(180)]

DOCS: Final = Path(__file__).parents[2] / "docs" / "schema-registry.md"
BIN: Final = Path(sys.executable).parent  # where `coach` is installed
TOPICS: Final = ("DECISIONS", "MODELS", "RECOMMENDATIONS", "AUDIT", "DLQ", "NOTICES")
PRODUCERS: Final = "schema of a producer, in its own namespace and with fields that only it knows"


def producers_schema(*more: str) -> dict[str, Any]:
    """A wider schema than ours; `more` are further fields."""
    document = copy.deepcopy(dict(current_schemas()["Decision"].document)) | {"namespace": "com.bank", "doc": PRODUCERS}
    branch = {"type": "record", "name": "Branch", "fields": [{"name": "id", "type": "int"}]}
    document["fields"].insert(2, {"name": "branch", "type": ["null", branch], "default": None})
    document["fields"] += [{"name": name, "type": ["null", "string"], "default": None} for name in more]
    return document


@dataclass(frozen=True, kw_only=True)
class Stand:
    """A worker at work with the registry."""

    here: Room
    worker: WorkerProcess
    registry: ApicurioRegistry
    client: SchemaRegistryClient

    def framed(self, lender: Lender, numbers: list[int], document: dict[str, Any]) -> list[tuple[bytes, bytes]]:
        """Keys and values of decisions as a producer with Confluent's serializer writes them."""
        write = AvroSerializer(self.client, json.dumps(document))
        context = SerializationContext(self.here.settings.topic_decisions, MessageField.VALUE)
        found = []
        for number in numbers:
            decision = lender.decision(number)
            value = decision | {"event_time": time_ms(decision["event_time"]), "branch": {"id": number}}
            found.append((decision["decision_id"].encode(), write(value, context)))
        return found

    def answered(self) -> set[str]:
        """The decisions that have an answer."""
        return {one["decision_id"] for one in self.here.recommendations()}


@pytest.fixture(scope="module")
def stand(
    stack: Stack, toy: Lender, registry: ApicurioRegistry, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stand]:
    """A published model, and a worker that knows the registry."""
    folder = tmp_path_factory.mktemp("stand")
    how: dict[str, Any] = {"schema_registry_url": registry.url, "model_wait_s": "3", "schema_registry_timeout_s": "2"}
    with (
        SchemaRegistryClient({"url": registry.url}) as client,
        room(stack, folder, partitions=1, **how) as here,
    ):
        here.publish(toy)
        yield Stand(here=here, worker=here.worker(), registry=registry, client=client)


def test_a_producers_decision_is_answered_for_confluents_own_reader(stand: Stand, toy: Lender) -> None:
    """Given decisions by Confluent's serializer with a wider schema, in single-object encoding and in JSON, when answered, then Confluent's deserializer reads every output, and the audit bodies are what the method gives."""
    here, numbers = stand.here, toy.declined(6)
    here.send(stand.framed(toy, numbers[:2], producers_schema()))
    plain = [toy.decision(number) for number in numbers[2:]]
    here.send(record(one) for one in plain[:2])
    here.send(
        (one["decision_id"].encode(), encode("Decision", decision_dict(read_decision(orjson.dumps(one)))))
        for one in plain[2:]
    )
    here.until_done()
    settings, read = here.settings, AvroDeserializer(stand.client)
    audits = {}
    for topic in (settings.topic_audit, settings.topic_recommendations, settings.topic_models):
        values = here.values(topic)
        assert all(value.startswith(b"\x00") for value in values)
        found = [read(value, SerializationContext(topic, MessageField.VALUE)) for value in values]
        if topic == settings.topic_audit:
            audits = {one["decision_id"]: one for one in found}
        else:
            assert len(found) == (1 if topic == settings.topic_models else len(numbers))
    model = open_bundle(toy.bundle)
    for number in numbers:
        decision = toy.decision(number)
        expected = answer(read_decision(orjson.dumps(decision)), model)
        assert audits[decision["decision_id"]]["body_sha256"] == expected.body_sha256
    verified = command(here, "audit", "verify", "--topic", settings.topic_audit, "--json")
    assert json.loads(verified.stdout)["wrong"] == 0
    shown = command(here, "topics", "read", settings.topic_decisions, "--limit", "1")
    assert json.loads(shown.stdout)["record"]["decision_id"] == f"toy-{numbers[0]}"


def test_the_subjects_are_those_of_the_topics_and_guarded(stand: Stand) -> None:
    """Given a worker that started, then each topic's subject holds our schema with its texts and is BACKWARD_TRANSITIVE, and a second start registers nothing."""
    settings, client = stand.here.settings, stand.client
    for topic, name in ((settings.topic_audit, "AuditRecord"), (settings.topic_dlq, "DeadLetter")):
        subject = f"{topic}-value"
        held = client.get_latest_version(subject)
        assert json.loads(str(held.schema.schema_str)) == current_schemas()[name].document  # type: ignore[index]
        assert client.get_compatibility(subject) == "BACKWARD_TRANSITIVE"
    before = client.get_subjects()
    again = command(stand.here, "topics", "apply", "--only", "schemas", "--dry-run", "--json")
    missing = [one for one in json.loads(again.stdout) if one["verdict"] != "ok"]
    assert [one["topic"] for one in missing] == [f"{settings.topic_notices}-value"]  # no notifier ran yet
    assert client.get_subjects() == before


def test_an_incompatible_schema_is_refused_at_the_start(stand: Stand) -> None:
    """Given a subject that holds what ours cannot read, when a worker starts, then it ends with 2 and names subject, version, field and what to do."""
    broken = copy.deepcopy(dict(current_schemas()["AuditRecord"].document))
    next(one for one in broken["fields"] if one["name"] == "body_sha256")["type"] = "int"
    topic = stand.here.settings.topic_notices  # stands for another audit topic that somebody used before
    stand.client.register_schema(f"{topic}-value", Schema(json.dumps(broken), "AVRO"))
    try:
        other = {"COACH_TOPIC_AUDIT": topic, "COACH_TOPIC_NOTICES": "elsewhere", "COACH_AUDIT_BYTES_MAX": "1000000"}
        done = command(stand.here, "worker", **other)
        assert done.returncode == 2
        told = done.stderr.strip().splitlines()[-1]
        assert f"subject {topic}-value" in told
        assert "version 1" in told
        assert "field body_sha256 is int there and string here" in told
        assert "COACH_TOPIC_" in told
    finally:
        stand.client.delete_subject(f"{topic}-value")


def test_a_registry_that_may_not_be_written_to_says_what_to_do(stand: Stand) -> None:
    """Given COACH_SCHEMA_REGISTRY_REGISTER=never and a subject without our schema, when a worker starts, then it ends with 2 and gives the command; after that command it starts."""
    locked = {
        "COACH_SCHEMA_REGISTRY_REGISTER": "never",
        "COACH_TOPIC_RECOMMENDATIONS": stand.here.settings.topic_notices,
        "COACH_TOPIC_NOTICES": "elsewhere",
        "COACH_GROUP": "other",
    }
    done = command(stand.here, "worker", **locked)
    assert done.returncode == 2
    assert "coach topics apply --only schemas" in done.stderr
    applied = command(
        stand.here, "topics", "apply", "--only", "schemas", **locked | {"COACH_SCHEMA_REGISTRY_REGISTER": "auto"}
    )
    assert applied.returncode == 0, applied.stderr
    checked = command(stand.here, "topics", "apply", "--only", "schemas", "--json", **locked)
    assert {one["verdict"] for one in json.loads(checked.stdout)} == {"ok"}


def test_an_unreachable_registry_ends_the_start_with_its_address(stand: Stand) -> None:
    """Given an address at which nobody answers, when a worker starts, then it waits for its bound and ends with 3, naming the address and no password."""
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
    away = {
        "COACH_SCHEMA_REGISTRY_URL": nobody,
        "COACH_SCHEMA_REGISTRY_USERNAME": USER,
        "COACH_SCHEMA_REGISTRY_PASSWORD": PASSWORD,
        "COACH_START_WAIT_S": "1",
    }
    done = command(stand.here, "worker", **away)
    assert done.returncode == 3
    told = done.stderr.strip().splitlines()[-1]
    assert nobody in told
    assert "COACH_START_WAIT_S" in told
    assert PASSWORD not in done.stderr


def test_a_password_and_an_authority_of_ones_own(stand: Stand, tmp_path: Path) -> None:
    """Given a registry behind TLS and a password, then with both it is used; with a wrong password the command ends with 2, without the authority with 3, and the password is in no output."""
    with guarded(stand.registry, tmp_path) as (url, authority):
        access = {
            "COACH_SCHEMA_REGISTRY_URL": url,
            "COACH_SCHEMA_REGISTRY_USERNAME": USER,
            "COACH_SCHEMA_REGISTRY_PASSWORD": PASSWORD,
            "COACH_SCHEMA_REGISTRY_CA_FILE": str(authority),
            "COACH_TOPIC_NOTICES": "guarded",
        }
        apply = ("topics", "apply", "--only", "schemas")
        right = command(stand.here, *apply, **access)
        wrong = command(stand.here, *apply, **access | {"COACH_SCHEMA_REGISTRY_PASSWORD": f"{PASSWORD}-not"})
        stranger = command(stand.here, *apply, **access | {"COACH_SCHEMA_REGISTRY_CA_FILE": ""})
        shown = command(stand.here, "worker", "--print-config", **access)
    assert (right.returncode, wrong.returncode, stranger.returncode) == (0, 2, 3), right.stderr
    assert "COACH_SCHEMA_REGISTRY_USERNAME='coach'" in wrong.stderr
    assert all(PASSWORD not in one.stdout + one.stderr for one in (right, wrong, stranger, shown))


def test_the_commands_of_the_docs_do_what_they_say(stand: Stand) -> None:
    """Given the page for operators, when its commands are run in order on topics that nobody used, then each ends well, and the registry then holds what the page says."""
    blocks = re.findall(r"```bash\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    fresh = {f"COACH_TOPIC_{name}": f"docs.{name.lower()}" for name in TOPICS}
    environment = {**os.environ, **stand.here.environment, **fresh, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "".join(blocks)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "something is to be done" in done.stdout
    assert done.stdout.count("created ") == len(TOPICS)
    assert '{"compatibilityLevel":"BACKWARD_TRANSITIVE"}' in done.stdout
    assert {one["verdict"] for one in json.loads(done.stdout.splitlines()[-1])} == {"ok"}


def test_a_registry_that_goes_away_stops_nothing(stand: Stand, toy: Lender) -> None:
    """Given a registry that hangs while the worker runs, then decisions by known schemas go on being answered; one by a schema registered since waits without holding up the others, becomes a retryable dead letter with its bytes, and is answered when redriven. Given one killed for good, the worker goes on as well."""
    here, numbers = stand.here, toy.declined(7, skip=10)
    here.send(stand.framed(toy, numbers[6:], producers_schema()))
    here.until_done()
    assert f"toy-{numbers[6]}" in stand.answered()  # now we can read answers without the registry, too
    later = producers_schema("officer")
    registered_since = stand.framed(toy, [numbers[0], numbers[3]], later)
    known = stand.framed(toy, numbers[1:3], producers_schema())
    pid = stand.registry.pid
    try:
        freeze(pid)
        here.send([registered_since[0], *known])
        wait_until(lambda: {f"toy-{n}" for n in numbers[1:3]} <= stand.answered(), what="the others' answers")
        assert f"toy-{numbers[0]}" not in stand.answered()
        here.until_done()
    finally:
        os.kill(pid, signal.SIGCONT)
    (letter,) = here.dead_letters()
    assert (letter["error"], letter["stage"], letter["retryable"]) == ("SchemaUnavailable", "decode", True)
    assert stand.registry.url in letter["message"]
    assert (letter["key"], letter["value"]) == registered_since[0]
    redriven = command(here, "dlq", "redrive", "--reason", "SchemaUnavailable")
    assert redriven.returncode == 0, redriven.stderr
    here.until_done()
    assert f"toy-{numbers[0]}" in stand.answered()
    stand.registry.down()
    here.send([registered_since[1], *(record(toy.decision(number)) for number in numbers[4:6])])
    here.until_done()
    stand.registry.up()  # empty, as other tests may want it
    assert stand.worker.alive
    assert {f"toy-{number}" for number in numbers} <= stand.answered()
    assert not [one for one in stand.worker.events() if PASSWORD in json.dumps(one)]
