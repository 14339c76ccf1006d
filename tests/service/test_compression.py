"""Decisions as their producers compress them: brokers count compressed bytes, workers meet the whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.service.lender import Lender, record
from tests.service.room import room
from tests.service.stack import Stack

pytestmark = [pytest.mark.service, pytest.mark.timeout(180)]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def test_every_codec_of_kafka_is_read_and_what_is_large_unpacked_is_a_dead_letter(
    stack: Stack, toy: Lender, tmp_path: Path
) -> None:
    """Given decisions in every codec, and one in each that is small compressed and larger unpacked than any topic takes, when the worker reads them, then all the others are answered, and each large one is a dead letter with its value byte for byte."""
    declined = toy.declined(len(CODECS))
    large = b"{" + b" " * (5 << 20)
    with room(stack, tmp_path, partitions=1) as here:
        here.publish(toy)
        for number, codec in zip(declined, CODECS, strict=True):
            producer = Producer(
                {
                    "bootstrap.servers": here.settings.kafka_brokers,
                    "compression.type": codec,
                    "message.max.bytes": 100_000_000,
                }
            )
            key, value = record(toy.decision(number))
            producer.produce(here.settings.topic_decisions, key=key, value=value + b" " * 5_000)
            if codec != "none":
                producer.produce(here.settings.topic_decisions, key=f"large {codec}".encode(), value=large)
            assert producer.flush(30) == 0
        worker = here.worker()
        here.until_done()
        assert {one["decision_id"] for one in here.recommendations()} == {f"toy-{number}" for number in declined}
        letters = here.dead_letters()
        assert sorted(one["key"].decode() for one in letters) == sorted(f"large {codec}" for codec in CODECS[1:])
        assert {(one["error"], one["value"] == large) for one in letters} == {("MalformedRecord", True)}
        assert worker.stop() == 0
        assert not worker.events("dead_letter.without_value")
