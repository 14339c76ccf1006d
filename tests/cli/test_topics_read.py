from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from stream.cli.main import coach
from stream.demo.embedded.embedded_kafka import EmbeddedKafka
from stream.wire.avro_records import encode

TOPIC = "mixed"
EXAMPLES = Path(__file__).parents[2] / "schemas" / "examples"


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    """An embedded broker whose topic holds a recommendation, a dead letter, a decision in JSON, and nonsense."""
    recommendation = json.loads((EXAMPLES / "Recommendation" / "ok.json").read_text("utf-8"))
    dead: dict[str, Any] = {
        "key": b"d-2", "value": b"\xff\x00", "headers": [{"key": "h", "value": b"plain"}], "topic": "decisions",
        "partition": 0, "offset": 7, "timestamp": None, "stage": "decode", "error": "MalformedRecord", "message": "no",
        "attempts": 1, "first_seen": "2026-11-28T00:00:00.000Z", "last_seen": "2026-11-28T00:00:00.000Z",
        "software_version": "0", "retryable": False, "redrive_id": None,
    }  # fmt: skip
    values = [
        (b"d-1", encode("Recommendation", recommendation)),
        (b"d-2", encode("DeadLetter", dead)),
        (b"d-3", b'{"decision_id": "d-3"}'),
        (b"d-4", b"\xc3\x01 no schema"),
        (b"d-5", b"nonsense"),
    ]
    with EmbeddedKafka({TOPIC: 1}) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for key, value in values:
            producer.produce(TOPIC, key=key, value=value, partition=0)
        assert producer.flush(10) == 0
        yield kafka.bootstrap


def read(brokers: str, *words: str) -> Result:
    return CliRunner().invoke(coach, ["topics", "read", TOPIC, "--kafka-brokers", brokers, *words])


def test_every_record_is_one_line_of_json(brokers: str) -> None:
    """Given Avro, JSON and nonsense on a topic, each record is a line with its place and key, bytes as text or base64."""
    done = read(brokers)
    assert done.exit_code == 0
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["partition"], one["offset"], one["key"]) for one in found] == [(0, k, f"d-{k + 1}") for k in range(5)]
    records = [one["record"] for one in found]
    assert records[0]["status"] == "ok"
    assert records[1]["key"] == "d-2"
    assert records[1]["value"] == {"base64": "/wA="}
    assert records[1]["headers"] == [{"key": "h", "value": "plain"}]
    assert records[2] == {"decision_id": "d-3"}
    assert "fingerprint" in records[3]["not_readable"]
    assert records[4] == "nonsense"


def test_a_key_and_a_limit_choose(brokers: str) -> None:
    """Given a key, only its records are printed; given a limit, no more than that."""
    assert [json.loads(line)["key"] for line in read(brokers, "--key", "d-3").stdout.splitlines()] == ["d-3"]
    assert len(read(brokers, "--limit", "2").stdout.splitlines()) == 2


def test_a_topic_that_is_not_there_is_a_matter_of_usage(brokers: str) -> None:
    """Given the name of no topic, the command ends with 2 and says how to make the topics."""
    done = CliRunner().invoke(coach, ["topics", "read", "nowhere", "--kafka-brokers", brokers])
    assert done.exit_code == 2
    assert "coach topics apply" in done.stderr
