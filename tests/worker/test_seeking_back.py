from __future__ import annotations

import asyncio
import uuid

import aiokafka
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from stream.worker.app import seek_back
from tests.service.stack import Stack

RECORDS = 5
COMMITTED = {0: 0, 1: 3, 2: None}  # by partition; None: nothing


@pytest.mark.service
def test_every_partition_goes_back_to_what_is_committed(stack: Stack) -> None:
    """Given a group that read everything and committed offset 0, offset 3 and nothing, when it seeks back, then all that is not committed is read again; aiokafka's own leaves out the first and the last."""
    if not stack.real:
        pytest.skip("the embedded Kafka makes no topics on request")
    topic, group = f"t{uuid.uuid4().hex[:8]}", f"g{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": stack.kafka.bootstrap})
    make_topic(stack, topic)
    for partition in COMMITTED:
        for number in range(RECORDS):
            producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(30) == 0
    assert asyncio.run(read_twice(stack.kafka.bootstrap, topic, group)) == {
        partition: [*range(offset or 0, RECORDS)] for partition, offset in COMMITTED.items()
    }


async def read_twice(brokers: str, topic: str, group: str) -> dict[int, list[int]]:
    """Read to the end, seek back, and read to the end again: the offsets of the second time, by partition."""
    async with aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=brokers, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
    ) as consumer:
        await offsets(consumer, RECORDS * len(COMMITTED))
        await consumer.commit(
            {aiokafka.TopicPartition(topic, p): offset for p, offset in COMMITTED.items() if offset is not None}
        )
        await seek_back(consumer)
        return await offsets(consumer, sum(RECORDS - (offset or 0) for offset in COMMITTED.values()))


async def offsets(consumer: aiokafka.AIOKafkaConsumer, count: int) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {partition: [] for partition in COMMITTED}
    async with asyncio.timeout(60):
        while sum(map(len, found.values())) < count:
            for partition, records in (await consumer.getmany(timeout_ms=200)).items():
                found[partition.partition] += [record.offset for record in records]
    return found


def make_topic(stack: Stack, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap})
    for made in admin.create_topics([NewTopic(topic, len(COMMITTED), 1)]).values():
        made.result(20)
