"""A replay where all records are framed for a schema registry."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from stream.bundle.open import open_bundle
from stream.recourse.answer import answer
from stream.replay.report.report import is_all_right
from stream.replay.request import Request
from stream.replay.run import run_replay
from stream.replay.settings import ReplaySettings
from stream.runtime.connections import framing_of
from stream.runtime.kafka.dead_letters import SOFTWARE_VERSION
from stream.wire.decisions import decision_of
from tests.kafka.registry import ApicurioRegistry
from tests.service.lender import Lender
from tests.service.registry_stand import registry
from tests.service.room import room
from tests.service.stack import Stack

__all__ = ["registry"]


@pytest.mark.nightly
@pytest.mark.service
@pytest.mark.timeout(300)
def test_records_are_read_and_written_as_the_registry_has_them(
    stack: Stack, toy: Lender, registry: ApicurioRegistry, tmp_path: Path
) -> None:
    """Given audit records framed for a registry, when reproduced twice with one run id, then all are identical, and what the run wrote is framed for the registry as well and known as its own."""
    if not stack.real:
        pytest.skip("the embedded Kafka makes no topics on request")
    with room(stack, tmp_path, schema_registry_url=registry.url) as here:
        here.publish(toy)
        live, framing = here.settings, framing_of(here.settings)
        model = open_bundle(toy.bundle)
        producer = Producer({"bootstrap.servers": live.kafka_brokers})
        for number in toy.declined(20):
            made = answer(decision_of(toy.decision(number)), model)
            envelope = {
                "source": None, "software_version": SOFTWARE_VERSION, "traceparent": None, "replay": False, "run_id": None, "seal": None,
            }  # fmt: skip
            record = {
                "decision_id": f"toy-{number}",
                "body": made.body,
                "body_sha256": made.body_sha256,
                "envelope": envelope,
            }
            value = framing.encode("AuditRecord", record, topic=live.topic_audit)
            assert value.startswith(b"\x00")
            producer.produce(live.topic_audit, key=f"toy-{number}".encode(), value=value)
        assert producer.flush(20) == 0
        request = Request(run_id="framed", mode="reproduce", state=tmp_path / "state")
        for _ in range(2):
            report = run_replay(request, live, ReplaySettings(replay_partitions=1)).report
            assert is_all_right(report)
            assert report["outcomes"]["identical"] == 20
        for topic in (live.topic_audit, live.topic_recommendations):
            written = here.values(f"{topic}.replay.framed")
            assert len(written) == 20
            assert all(value.startswith(b"\x00") for value in written)
