"""Sends dead letters back to the topic that they came from: key, value and headers as they were, and one header more.

The additional header names the redrive; should the record die again, its next dead letter carries the name. A record
sent back twice is answered twice, equally.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, cast

import redis

from stream.dlq.dead_letter_reader import StoredLetter, redrives
from stream.dlq.originals import OriginalGone, Originals
from stream.errors import ConfigurationError, RedisUnavailable
from stream.events import REPLAY_MARK, DeadLetter
from stream.runtime.clients import redis_errors
from stream.runtime.kafka.dead_letters import REDRIVE_HEADER
from stream.runtime.kafka.delivery import Delivers, Output
from stream.runtime.retry import Retry

KEY_PREFIX: Final = "coach:redriven:"
RECEIPTS_TTL_S: Final = 90 * 24 * 60 * 60  # as long as the dead letters' topic keeps a record
BATCH: Final = 200
REDRIVES_MAX: Final = 16  # a record that died this often dies for a reason that a redrive does not mend


@dataclass(slots=True, kw_only=True)
class RedriveTotals:
    """Letters sent, and letters left by reason."""

    sent: int = 0
    left: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)  # one text for each that a topic did not take, with its position
    could_not: int = 0  # of those left: letters that nobody can send back
    receipts_missing: str | None = None  # why Redis could not be told or asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """One run: its name, and into which topics (with their numbers of partitions) it may write."""

    redrive_id: str
    targets: Mapping[str, int]
    again: bool = False  # those too that were sent back before
    dry_run: bool = False


class Receipts:
    """Which dead letters of a topic were sent back already, remembered in Redis as long as the topic keeps them.

    Redis may forget: then a letter is sent back once more, which costs an answer equal to the one that is there.
    """

    def __init__(self, client: redis.Redis, topic: str) -> None:
        """`topic` is the dead letters' own."""
        self._client = client
        self._key = f"{KEY_PREFIX}{topic}"

    def of(self, positions: Sequence[str]) -> list[str | None]:
        """The id of the last redrive of each position (partition:offset), None for none. Raises: RedisUnavailable."""
        if not positions:
            return []
        with redis_errors("looking up redrive receipts"):
            found = cast("list[bytes | None]", self._client.hmget(self._key, list(positions)))
        return [None if one is None else one.decode() for one in found]

    def write(self, positions: Sequence[str], redrive_id: str) -> None:
        """Remember that these were sent back. Raises: RedisUnavailable."""
        with redis_errors("writing redrive receipts"):
            pipeline = self._client.pipeline(transaction=False)
            pipeline.hset(self._key, mapping=dict.fromkeys(positions, redrive_id))
            pipeline.expire(self._key, RECEIPTS_TTL_S)
            pipeline.execute()


def check_source(topic: str) -> None:
    """Refuse a replay's dead letters: they would be answered on the live topics. Raises: ConfigurationError."""
    if REPLAY_MARK in topic:
        message = f"{topic} holds a replay's dead letters, which are not to reach the live topics; run the replay again"
        raise ConfigurationError(message)


def send_back(
    letters: Iterable[tuple[StoredLetter, DeadLetter]],
    redrive: Redrive,
    *,
    delivery: Delivers,
    originals: Originals,
    receipts: Receipts,
    retry: Callable[[], Retry],
    totals: RedriveTotals,
) -> None:
    """Send letters back, a batch at a time: delivered and acknowledged, then its receipts.

    Raises: KafkaUnavailable when the brokers take nothing for longer than the outage bound; `totals` then says what
    is sent already.
    """
    stream = iter(letters)
    while batch := list(islice(stream, BATCH)):
        outputs: dict[str, Output] = {}
        for (stored, letter), receipt in zip(batch, _receipts(receipts, batch, totals), strict=True):
            if receipt and not redrive.again:
                totals.left["sent back before"] += 1
                continue
            why = _unfit(letter, redrive)
            if why is None:
                try:
                    outputs[stored.position] = _output(letter, redrive, originals)
                except OriginalGone as gone:
                    why = str(gone)
            if why is not None:
                totals.left[why] += 1
                totals.could_not += 1
        if redrive.dry_run:
            totals.sent += len(outputs)
            continue
        never = {id(one.output): one.reason for one in delivery.deliver(list(outputs.values()), retry())}
        totals.refused += [f"{position}: {never[id(one)]}" for position, one in outputs.items() if id(one) in never]
        done = [position for position, one in outputs.items() if id(one) not in never]
        totals.sent += len(done)
        try:
            if done:
                receipts.write(done, redrive.redrive_id)
        except RedisUnavailable as away:
            totals.receipts_missing = str(away)


def _receipts(
    receipts: Receipts, batch: list[tuple[StoredLetter, DeadLetter]], totals: RedriveTotals
) -> list[str | None]:
    try:
        return receipts.of([stored.position for stored, _ in batch])
    except RedisUnavailable as away:
        totals.receipts_missing = str(away)
        return [None] * len(batch)


def _unfit(letter: DeadLetter, redrive: Redrive) -> str | None:
    if letter["topic"] not in redrive.targets:
        return f"came from topic {letter['topic']}, which is none of ours to write to"
    if redrives(letter) >= REDRIVES_MAX:
        return f"was sent back {REDRIVES_MAX} times already"
    return None


def _output(letter: DeadLetter, redrive: Redrive, originals: Originals) -> Output:
    """Raises: OriginalGone."""
    partitions = redrive.targets[letter["topic"]]
    return Output(
        topic=letter["topic"],
        key=letter["key"],
        value=originals.value_of(letter),
        headers=(
            *((one["key"], one["value"]) for one in letter["headers"]),
            (REDRIVE_HEADER, redrive.redrive_id.encode()),
        ),
        partition=letter["partition"] if 0 <= letter["partition"] < partitions else None,
    )
