"""`coach dlq` on real Kafka and Redis: what waited for a model is answered after one command, and nothing goes astray."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer

from stream.runtime.kafka.dead_letters import REDRIVE_HEADER
from stream.wire.avro_records import encode
from tests.service.lender import Lender, record
from tests.service.room import Room, command, room
from tests.service.stack import Stack

pytestmark = [pytest.mark.service, pytest.mark.timeout(180)]


def coach(here: Room, *arguments: str) -> tuple[int, str]:
    """Run a command; its code, and all that it said."""
    done = command(here, *arguments)
    return done.returncode, done.stdout + done.stderr


def listed(here: Room, *arguments: str) -> list[dict[str, Any]]:
    """What `coach dlq list --json` gives."""
    done = command(here, "dlq", "list", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def put(here: Room, topic: str, key: bytes, value: bytes, headers: list[tuple[str, Any]] | None = None) -> None:
    """Write one record, and wait for it."""
    producer = Producer({"bootstrap.servers": here.settings.kafka_brokers})
    producer.produce(topic, key=key, value=value, headers=headers, partition=0)
    assert producer.flush(20) == 0


def letter_of(here: Room, value: bytes | None, **changes: Any) -> bytes:
    """A dead letter of a decision."""
    letter = {
        "key": b"k", "value": value, "headers": [{"key": "h", "value": b"\x00"}], "topic": here.settings.topic_decisions,
        "partition": 0, "offset": 0, "timestamp": None, "stage": "resolve", "error": "ModelNotPublished",
        "message": "nobody published it", "attempts": 1, "first_seen": "2026-11-28T00:00:00.000Z",
        "last_seen": "2026-11-28T00:00:00.000Z", "software_version": "0", "retryable": True, "redrive_id": None,
    }  # fmt: skip
    return encode("DeadLetter", letter | changes)


def test_what_waited_for_a_version_is_answered_after_one_command(stack: Stack, toy: Lender, tmp_path: Path) -> None:
    """Given decisions that died because nobody had published their model, when it is published and they are redriven, then each is answered with its headers kept; a second redrive sends nothing; what is not retryable stays; a dry run and a listing change nothing."""
    numbers = toy.declined(12)
    headers = [("trace", b"\x00\xff"), ("none", None)]
    with room(stack, tmp_path, partitions=2, model_wait_s="0") as here:
        worker = here.worker()
        here.send((record(toy.decision(number)) for number in numbers), headers=headers)
        here.send([(b"bad", b"no decision")])
        here.until_done()
        assert len(here.dead_letters()) == len(numbers) + 1
        assert {one["error"] for one in listed(here)} == {"ModelNotPublished", "MalformedRecord"}
        assert {one["decision_id"] for one in listed(here)} == {None, *(f"toy-{number}" for number in numbers)}
        assert [one["error"] for one in listed(here, "--decision", f"toy-{numbers[3]}")] == ["ModelNotPublished"]
        assert all("value" not in one and "headers" not in one for one in listed(here))

        here.publish(toy)
        code, said = coach(here, "dlq", "redrive", "--dry-run")
        assert (code, here.recommendations()) == (0, [])
        assert "would send 12 dead letters back" in said

        code, said = coach(here, "dlq", "redrive", "--reason", "ModelNotPublished", "--redrive-id", "monday")
        assert code == 0
        assert "sent 12 dead letters back (monday)" in said
        here.until_done()
        assert {one["decision_id"] for one in here.recommendations()} == {f"toy-{number}" for number in numbers}
        sent_back = [
            one for one in here.read(here.settings.topic_decisions) if dict(one.headers() or []).get(REDRIVE_HEADER)
        ]
        assert len(sent_back) == len(numbers)
        assert all(list(one.headers() or [])[:-1] == headers for one in sent_back)
        assert {one["sent_back"] for one in listed(here, "--reason", "ModelNotPublished")} == {"monday"}

        code, said = coach(here, "dlq", "redrive")
        assert "sent 0 dead letters back" in said
        assert "left 12: sent back before" in said
        assert code == 0
        code, said = coach(here, "dlq", "redrive", "--permanent", "--reason", "MalformedRecord")
        assert "sent 1 dead letters back" in said
        here.until_done()
        assert {one["redrive_id"] is None for one in here.dead_letters() if one["error"] == "MalformedRecord"} == {
            True,
            False,
        }
        assert worker.alive


def test_a_redrive_stays_within_its_bounds(stack: Stack, tmp_path: Path) -> None:
    """Given letters from a topic that is none of ours, of a record sent back too often, whose value was left out and is still or no longer there, then only what can be sent back byte for byte is, each other is counted by why, and the exit code is 1; a replay's dead letters and malformed places are refused with exit 2."""
    value = orjson.dumps({"decision_id": "long"})
    told = (
        f"the value of {len(value)} bytes, sha256 {hashlib.sha256(value).hexdigest()}, is left out, for it is too large"
    )
    often = [{"key": REDRIVE_HEADER, "value": b"r"}] * 16
    with room(stack, tmp_path, partitions=1) as here:
        put(here, here.settings.topic_decisions, b"k", value)
        letters = {
            b"elsewhere": letter_of(here, b"x", topic="payments"),
            b"often": letter_of(here, b"x", headers=often),
            b"there": letter_of(here, None, message=told),
            b"gone": letter_of(here, None, message=told, offset=7_000),
            b"other": letter_of(here, None, message=told.replace("sha256 ", "sha256 " + "0" * 8, 1)),
            b"null": letter_of(here, None),
            b"nowhere": letter_of(here, None, message=told, partition=99),
            b"below": letter_of(here, b"below", partition=-5),
            b"beyond": letter_of(here, b"beyond", partition=99, stage="s\r\n\x1b[2J", error="E\x1b[31m"),
            b"junk": b"no letter",
        }
        for key, letter in letters.items():
            put(here, here.settings.topic_dlq, key, letter)
        code, said = coach(here, "dlq", "redrive", "--json")
        assert code == 1
        counts = json.loads(said.splitlines()[-1])
        assert counts["sent"] == 3
        assert sum(counts["left"].values()) == 6
        sent = here.read(here.settings.topic_decisions)
        assert [bytes(one.value() or b"") for one in sent] == [value, value, b"below", b"beyond"]
        assert {one.key() for one in sent} == {b"k"}

        code, said = coach(here, "dlq", "list")
        assert code == 0
        assert "(unreadable)" in said
        assert all(line.isprintable() for line in said.splitlines()), "control characters reach the terminal"
        code, said = coach(here, "dlq", "show", "0:2")
        assert code == 0
        assert '"error": "ModelNotPublished"' in said
        for refused in (
            ("dlq", "redrive", "--topic", f"{here.settings.topic_dlq}.replay.r1"),
            ("dlq", "redrive", "--at", "everything"),
            ("dlq", "redrive", "--redrive-id", "a name"),
            ("dlq", "redrive", "--since", "yesterday"),
            ("dlq", "redrive", "--reason", "ModelNotPublishd"),
            ("dlq", "show", "0:999"),
        ):
            code, said = coach(here, *refused)
            assert code == 2, said


def test_without_redis_letters_still_go_back(stack: Stack, tmp_path: Path) -> None:
    """Given Redis away, when letters are redriven, then they are sent, and that nobody remembers it is said."""
    with room(stack, tmp_path, partitions=1) as here:
        put(here, here.settings.topic_dlq, b"a", letter_of(here, b"\x00value"))
        done = command(here, "dlq", "redrive", "--redis-url", "redis://127.0.0.1:1/0")
        assert done.returncode == 0
        assert "Redis does not know what was sent back" in done.stderr
        assert [one.value() for one in here.read(here.settings.topic_decisions)] == [b"\x00value"]
