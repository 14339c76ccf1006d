"""Outputs to the broker: delivered only when every delivery report came back without an error.

`flush` returning early or a full queue is not delivery. What the broker refuses for good comes back to the caller; what
may heal is sent again until the outage bound. Blocking: the worker calls it off the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer

from stream.errors import KafkaUnavailable
from stream.runtime.retry import Retry

log = logging.getLogger(__name__)

POLL_S: Final = 0.1
PARTITION_BY_KEY: Final = -1  # librdkafka: RD_KAFKA_PARTITION_UA
# The largest record that librdkafka can be told to let through. It counts a record as it is, and brokers count batches
# as they are compressed: a lower bound here would refuse what its topic takes, and dead letters hold what others sent.
PRODUCER_BYTES_MAX: Final = 1_000_000_000
COMPRESSION: Final = "zstd"  # so that what fitted its topic in any other codec fits the dead letters' topic
# What will not heal by waiting. All else is tried again, except a fatal error of the idempotent producer.
PERMANENT: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Output:
    """One record to write. `eq=False`: two equal outputs are still two. Without a partition the key decides."""

    topic: str
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Undeliverable:
    """An output that the broker refuses for good, and its reason."""

    output: Output
    reason: str


class Delivers(Protocol):
    """Whoever takes outputs to the broker."""

    def deliver(self, outputs: Sequence[Output], retry: Retry) -> list[Undeliverable]:
        """Return what can never be delivered, once all else is acknowledged by the broker.

        Raises: KafkaUnavailable when retry ends first, Abandoned when a stop or rebalance ends it; then some outputs
        may be delivered and some not.
        """


class ProducerBroken(KafkaUnavailable):
    """The idempotent producer ended with a fatal error: only a new process can go on."""


class KafkaDelivery:
    """Delivery through one idempotent producer (acks=all), which is to be used by one thread at a time."""

    def __init__(
        self, configuration: Mapping[str, Any], *, delivery_timeout_s: float, bytes_max: int = PRODUCER_BYTES_MAX
    ) -> None:
        """`bytes_max` is the largest record that is sent at all; the topics' own limits come after it."""
        self._producer = Producer(
            {
                **configuration,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "compression.type": COMPRESSION,
                "message.max.bytes": bytes_max,
                "message.timeout.ms": int(delivery_timeout_s * 1000),
            }
        )
        self._last_error = ""

    def deliver(self, outputs: Sequence[Output], retry: Retry) -> list[Undeliverable]:
        """See `Delivers`."""
        never: list[Undeliverable] = []
        waiting = list(outputs)
        while waiting:
            again, refused = self._send_and_wait(waiting, retry)
            for suspect in refused:  # the broker refuses whole batches: sent alone, an output shows if it is to blame
                retried, alone = self._send_and_wait([suspect.output], retry)
                again += retried
                never += alone
            waiting = again
            if waiting:
                message = f"{len(waiting)} outputs are not acknowledged by the brokers ({self._last_error})"
                retry.pause(KafkaUnavailable(message))
        return never

    def _send_and_wait(self, outputs: Sequence[Output], retry: Retry) -> tuple[list[Output], list[Undeliverable]]:
        """Send all, wait for each report; return those to send again and those that are refused for good."""
        reports = _Reports()
        for output in outputs:
            self._produce(output, reports, retry)
        while reports.pending:  # bounded by message.timeout.ms, after which the report is an error
            self._producer.poll(POLL_S)
            retry.check()  # what is under way may still arrive: a harmless duplicate
        if reports.fatal is not None:
            message = f"the Kafka producer cannot go on ({reports.fatal}); nothing of this batch is committed"
            raise ProducerBroken(message)
        self._last_error = reports.last_error
        return reports.again, reports.never

    def _produce(self, output: Output, reports: _Reports, retry: Retry) -> None:
        while True:
            try:
                self._producer.produce(
                    output.topic,
                    value=output.value,
                    key=output.key,
                    headers=list(output.headers),
                    on_delivery=reports.expect(output),
                    partition=PARTITION_BY_KEY if output.partition is None else output.partition,
                )
            except BufferError:  # the local queue is full: let reports come in
                reports.pending -= 1
                self._producer.poll(POLL_S)
                retry.check()
                continue
            except KafkaException as raised:  # some errors are raised at once instead of reported, too large among them
                reports.pending -= 1
                reports.sort(raised.args[0], output)
            return


@dataclass(slots=True)
class _Reports:
    """What came back of one round of sending."""

    pending: int = 0
    again: list[Output] = field(default_factory=list)
    never: list[Undeliverable] = field(default_factory=list)
    fatal: str | None = None
    last_error: str = ""

    def expect(self, output: Output) -> Callable[[KafkaError | None, object], None]:
        """Count one output as on its way, and return its delivery callback."""
        self.pending += 1

        def reported(error: KafkaError | None, _message: object) -> None:
            self.pending -= 1
            if error is not None:
                self.sort(error, output)

        return reported

    def sort(self, error: KafkaError, output: Output) -> None:
        """Decide whether an error heals by waiting."""
        self.last_error = str(error.str())
        if error.fatal():
            self.fatal = self.last_error
        elif error.code() in PERMANENT:
            self.never.append(Undeliverable(output, self.last_error))
        else:
            self.again.append(output)
