"""Reading real topics: a record that a consumer drops is missed, and one that retention took is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from stream.errors import ConfigurationError, CorruptionError
from stream.replay.sources import topic_source
from stream.replay.sources.records import Window
from stream.replay.sources.source import chunks_of
from stream.replay.sources.topic_source import TopicRecords
from stream.runtime.clients import groupless_consumer
from stream.runtime.connections import kafka_properties
from stream.runtime.kafka.topics import TopicKeeper
from stream.runtime.topic_specs import TopicSpec
from tests.replay.past import Lived

pytestmark = pytest.mark.service


class Dropping:
    """A real consumer that loses certain records, each once."""

    def __init__(self, consumer: Consumer, places: list[tuple[int, int]]) -> None:
        self._consumer, self._places = consumer, places

    def __getattr__(self, name: str) -> Any:
        """All else is the consumer's."""
        return getattr(self._consumer, name)

    def consume(self, num_messages: int, timeout: float) -> Sequence[Message]:
        """Give what came but for that."""
        found = []
        for one in self._consumer.consume(num_messages, timeout):
            place = (int(one.partition() or 0), int(one.offset() or 0))
            if one.error() is None and place in self._places:
                self._places.remove(place)
            else:
                found.append(one)
        return found


@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_a_record_that_was_lost_in_reading_is_missed(lived: Lived, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Given a real consumer that drops a record at the beginning, in the middle or at the end of a partition, when the audit topic is read, or reproduced, then it stops with the place, and a sound consumer gives every record of it."""
    properties, topic = kafka_properties(lived.here.settings), lived.here.settings.topic_audit
    source = TopicRecords(properties, topic, window=Window())
    kept = source.snapshot()
    chunks = chunks_of(kept.ranges, 50)
    part, (first, end) = max(kept.ranges.items(), key=lambda item: item[1][1])
    offset = {"first": first, "middle": (first + end) // 2, "last": end - 1}[where]
    places = [(part, offset)]
    out = lived.here.folder / "dropped"
    read_by: list[Callable[[], object]] = [
        lambda: list(source.read(chunks)),
        lambda: lived.replay("dropped", "reproduce", to_topics=False, out=out),
    ]
    with monkeypatch.context() as patched:
        patched.setattr(topic_source, "groupless_consumer", lambda asked: Dropping(groupless_consumer(asked), places))
        with pytest.raises(CorruptionError, match=rf"partition {part}: 1 records from offset {offset} on were lost"):
            read_by[where == "middle"]()
    assert places == []
    found = list(source.read(chunks))
    assert (sum(len(one.raws) for one in found), sum(one.without_record for one in found)) == (kept.records, 0)


def test_what_retention_takes_while_a_run_reads_is_not_passed_over(lived: Lived) -> None:
    """Given a topic whose records are deleted while a run reads another partition, when the run comes to them, then it is refused, and does not go on behind them."""
    properties, topic = kafka_properties(lived.here.settings), f"{lived.here.settings.topic_decisions}.short"
    keeper = TopicKeeper(properties, timeout_s=10)
    keeper.apply(
        [TopicSpec(name=topic, record="Decision", partitions=2, configuration={})], replication=1, dry_run=False
    )
    producer = Producer({"bootstrap.servers": lived.here.settings.kafka_brokers})
    for number in range(40):
        producer.produce(topic, partition=number % 2, value=b"%d" % number)
    assert producer.flush(20) == 0
    source = TopicRecords(properties, topic, window=Window())
    reading = source.read(chunks_of(source.snapshot().ranges, 50))
    assert len(next(reading).raws) == 20
    admin = AdminClient(properties)
    for done in admin.delete_records([TopicPartition(topic, 1, 10)]).values():
        done.result(20)
    with pytest.raises(ConfigurationError, match=r"partition 1 .*retention has deleted"):
        next(reading)
