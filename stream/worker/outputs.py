"""A batch's outcomes -> records on their topics, in the order that loses nothing.

Every audit record is acknowledged by the brokers, then every recommendation, then every dead letter. What a topic
refuses for good is a dead letter; a dead letter that is refused goes again without its value; if that is refused, the
worker ends, and nothing of the batch is committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from stream.errors import ConfigurationError, DeliveryRefused
from stream.runtime.kafka.dead_letters import dead_letter
from stream.runtime.kafka.delivery import Delivers, Output
from stream.runtime.kafka.inbound import Inbound
from stream.runtime.retry import Retry
from stream.runtime.settings import Settings
from stream.wire.framing import Framing
from stream.worker.answering import DECLINED, Answered, Outcome, Refused

log = logging.getLogger(__name__)

Tried: TypeAlias = tuple[Inbound, int]  # a record, and how often it was tried


def write_out(
    delivery: Delivers,
    framing: Framing,
    topics: Settings,
    tried: Sequence[Tried],
    outcomes: Sequence[Outcome],
    retry: Retry,
) -> list[Outcome]:
    """Write everything of a batch; return its outcomes, with those refused whose records a topic does not take.

    Raises: as `Delivers.deliver` does; ConfigurationError when a dead letter cannot be kept at all.
    """
    settled = list(outcomes)
    answered = {place: one for place, one in enumerate(outcomes) if isinstance(one, Answered)}
    for topic, written in ((topics.topic_audit, "audit"), (topics.topic_recommendations, "recommendation")):
        outputs = {
            place: Output(topic=topic, key=one.decision_id.encode(), value=getattr(one, written))
            for place, one in answered.items()
        }
        refused = {id(one.output): one for one in delivery.deliver(list(outputs.values()), retry)}
        for place, output in outputs.items():
            if id(output) in refused:  # without its audit record no recommendation goes out
                one, reason = answered.pop(place), refused[id(output)].reason
                why = f"topic {topic} refuses the record of {len(output.value)} bytes for good: {reason}"
                error = DeliveryRefused(why)
                settled[place] = Refused(decision_id=one.decision_id, error=error, outcome=DECLINED, timer=one.timer)
    dead = [(*one, outcome) for one, outcome in zip(tried, settled, strict=True) if isinstance(outcome, Refused)]
    if dead:
        _write_dead_letters(delivery, framing, topics.topic_dlq, dead, retry)
    return settled


def _write_dead_letters(
    delivery: Delivers, framing: Framing, topic: str, dead: Sequence[tuple[Inbound, int, Refused]], retry: Retry
) -> None:
    write = partial(dead_letter, topic=topic, now_ms=time.time_ns() // 1_000_000, framing=framing)
    letters = [write(record, refused.error, attempts=tries) for record, tries, refused in dead]
    unkept = {id(one.output): one.reason for one in delivery.deliver(letters, retry)}
    shorter = []
    for (record, tries, refused), letter in zip(dead, letters, strict=True):
        if id(letter) in unkept:
            why = f"topic {topic} refuses the letter of {len(letter.value)} bytes: {unkept[id(letter)]}"
            where = {"partition": record.partition, "offset": record.offset}
            log.error("dead_letter.without_value", extra={"decision_id": refused.decision_id, **where, "why": why})
            shorter.append(write(record, refused.error, attempts=tries, without_value=True))
    for lost in delivery.deliver(shorter, retry) if shorter else ():
        message = (
            f"topic {topic} refuses a dead letter of {len(lost.output.value)} bytes ({lost.reason}); nothing of this "
            "batch is committed; raise its max.message.bytes (`coach topics apply`) and start again"
        )
        raise ConfigurationError(message)
