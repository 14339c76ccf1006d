"""What a worker and the commands around it say when something is not as it must be."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from stream.times import rfc3339
from tests.kafka.brokers import free_ports
from tests.service.lender import Lender, records, toy_lender
from tests.service.room import Room, command, room
from tests.service.stack import Stack

pytestmark = [pytest.mark.service, pytest.mark.timeout(180)]


def last_line(here: Room, code: int, *arguments: str, **environment: str) -> str:
    """Run `coach ...`, expect this exit code, and give the one line that it ended with."""
    done = command(here, *arguments, **environment)
    said = done.stderr.strip().splitlines()
    assert done.returncode == code, done.stderr
    assert said[-1].startswith("coach: ")
    assert "Traceback" not in done.stderr
    return said[-1]


def test_without_a_committed_offset_a_start_must_be_told_where(stack: Stack, toy: Lender, tmp_path: Path) -> None:
    """Given a group that never read, when a worker starts without --start-at, then it exits with 2 and says what to do; told a time or latest it begins there, and committed offsets win afterwards."""
    declined = toy.declined(6)
    with room(stack, tmp_path, partitions=1) as here:
        here.publish(toy)
        here.send(records(toy, declined[:2]))
        told = last_line(here, 2, "worker", COACH_START_AT="")
        assert "--start-at earliest" in told
        assert here.committed() == {0: -1001}
        worker = here.worker(COACH_START_AT="latest")
        here.send(records(toy, declined[2:4]))
        here.until_done()
        assert worker.stop() == 0
        here.send(records(toy, declined[4:]))
        here.worker(COACH_START_AT="earliest")
        here.until_done()
        assert {one["decision_id"] for one in here.recommendations()} == {f"toy-{number}" for number in declined[2:]}


def test_a_start_at_a_time_begins_with_the_first_decision_from_then_on(
    stack: Stack, toy: Lender, tmp_path: Path
) -> None:
    """Given decisions before and after a time, when a group starts there, then it answers those from then on only."""
    declined = toy.declined(4)
    with room(stack, tmp_path, partitions=1) as here:
        here.publish(toy)
        now_ms = time.time_ns() // 1_000_000
        here.send(records(toy, declined[:2]), timestamp_ms=now_ms - 100_000)
        here.send(records(toy, declined[2:]), timestamp_ms=now_ms - 10_000)
        here.worker(COACH_START_AT=rfc3339(now_ms - 50_000))
        here.until_done()
        assert {one["decision_id"] for one in here.recommendations()} == {f"toy-{number}" for number in declined[2:]}


def test_an_unreachable_broker_or_redis_is_exit_code_3_and_one_line(stack: Stack, tmp_path: Path) -> None:
    """Given no broker, or no Redis, at the address, when a worker starts, then within the named wait it exits with 3 and one line that says which."""
    (nobody,) = free_ports(1)
    with room(stack, tmp_path, partitions=1, start_wait_s="2") as here:
        told = last_line(here, 3, "worker", COACH_KAFKA_BROKERS=f"127.0.0.1:{nobody}")
        assert "no Kafka broker answered within 2 s" in told
        told = last_line(here, 3, "worker", COACH_REDIS_URL=f"redis://:secret@127.0.0.1:{nobody}/0")
        assert f"Redis at 127.0.0.1:{nobody}" in told
        assert "secret" not in told


def test_wrong_settings_and_missing_topics_are_exit_code_2_and_named(stack: Stack, tmp_path: Path) -> None:
    """Given wrong settings, or topics that do not exist, when a worker starts, then it exits with 2 and names each."""
    with room(stack, tmp_path, partitions=1) as here:
        told = last_line(here, 2, "worker", COACH_BATCH_MAX="0", COACH_KAFKA_BROKERS="nowhere")
        assert "COACH_BATCH_MAX='0'" in told
        assert "COACH_KAFKA_BROKERS=" in told
        told = last_line(here, 2, "worker", COACH_TOPIC_AUDIT="no-such-audit")
        assert "no-such-audit" in told
        assert "coach topics apply" in told


def test_topics_apply_creates_checks_and_mends(real_stack_or_none: Stack | None, tmp_path: Path) -> None:
    """Given a real broker with some topics missing and one too small, when applied, then a dry run reports with 1 and changes nothing, a real run creates and mends, and running it again changes nothing; a worker refuses limits that are too small."""
    if real_stack_or_none is None:
        pytest.skip("the embedded Kafka has neither CreateTopics nor DescribeConfigs")
    with room(real_stack_or_none, tmp_path, partitions=1, sizes={"audit": 20_000}) as here:
        names = {"COACH_TOPIC_DLQ": f"{here.settings.topic_dlq}.new"}
        dry = command(here, "topics", "apply", "--dry-run", "--json", **names)
        assert dry.returncode == 1
        verdicts = {one["topic"]: one["verdict"] for one in json.loads(dry.stdout)}
        assert verdicts[here.settings.topic_audit] == "different"
        assert verdicts[names["COACH_TOPIC_DLQ"]] == "missing"
        assert verdicts[here.settings.topic_models] == "ok"
        told = last_line(here, 2, "worker")
        assert "COACH_AUDIT_BYTES_MAX=4194304" in told
        done = command(here, "topics", "apply", "--json", **names)
        assert done.returncode == 0, done.stderr
        verdicts = {one["topic"]: one["verdict"] for one in json.loads(done.stdout)}
        assert verdicts[here.settings.topic_audit] == "changed"
        assert verdicts[names["COACH_TOPIC_DLQ"]] == "created"
        again = command(here, "topics", "apply", "--dry-run", "--json", **names)
        assert again.returncode == 0
        assert {one["verdict"] for one in json.loads(again.stdout)} == {"ok"}


def test_publish_and_list(stack: Stack, toy: Lender, tmp_path: Path) -> None:
    """Given a bundle, when it is published by the command, then the list shows it as current and cached; the same revision with another content is refused with 2, a folder that does not exist with 2, and an unreadable URI with 3."""
    with room(stack, tmp_path, partitions=1) as here:
        done = command(here, "model", "publish", str(toy.bundle), "--effective-from", "2026-01-01T00:00:00Z", "--json")
        assert done.returncode == 0, done.stderr
        (row,) = json.loads(command(here, "model", "list", "--json").stdout)
        assert (row["model_id"], row["revision"], row["epoch"], row["cache"], row["current"]) == (
            "toy",
            1,
            0,
            "held",
            True,
        )
        assert "published already" in last_line(here, 2, "model", "publish", str(toy_other(tmp_path)))
        assert "no bundle at" in last_line(here, 2, "model", "publish", str(tmp_path / "nothing"))
        assert "cannot be read" in last_line(here, 3, "model", "publish", (tmp_path / "nothing").as_uri())
        told = last_line(here, 2, "model", "publish", "s3://user:hunter2@bucket/bundle")
        assert "hunter2" not in told
        for arguments in (["list"], ["publish", str(toy.bundle)]):
            assert "coach topics apply" in last_line(here, 2, "model", *arguments, COACH_TOPIC_MODELS="no-such-models")


def toy_other(folder: Path) -> Path:
    """A bundle of the same name, version and revision, and other content."""
    return toy_lender(folder / "other", seed=99).bundle
