"""Record batches as they lie in Kafka's log -> records, whatever a producer wrote into them.

Kafka's clients give up where the broker does not: on a header name that is no UTF-8 (aiokafka raises, confluent-kafka
too), on a gzip batch of several members (librdkafka reads on for ever), on a batch that unpacks to gigabytes. This reader
gives every record that the broker took. What cannot be read comes as one `UnreadableBatch`, with its bytes, so that
whoever reads can put it aside and go on.

Format: https://kafka.apache.org/documentation/#recordbatch. Measured on Kafka 4.4.0, aiokafka 0.14.0, librdkafka 2.16.1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

from stream.runtime.kafka.batch_codecs import Unreadable, unpacked

LOG_OVERHEAD: Final = 12  # base offset and length, which the length does not count
TRANSACTIONAL, CONTROL, CODEC, LOG_APPEND_TIME = 0x10, 0x20, 0x07, 0x08
HEADER: Final = struct.Struct(">qiibIhiqqqhii")

Headers = tuple[tuple[str, bytes | None], ...]


class UnreadableBatch(bytes):
    """The bytes of a batch that no record could be read from. `why` says what is wrong with it, `records` how many it says it holds."""

    why: str
    records: int

    def __new__(cls, content: bytes, *, why: str, records: int) -> Self:
        """Take the batch whole, its header included."""
        made = super().__new__(cls, content)
        made.why, made.records = why, records
        return made

    def account(self, last_offset: int) -> str:
        """Say what is lost of which offsets, for the dead letter of the batch that ends with `last_offset`."""
        (base,) = struct.unpack_from(">q", self)
        return (
            f"the batch at offsets {base} to {last_offset}, which says that it holds {self.records} records, cannot be read: "
            f"{self.why}; let its producer write them again"
        )


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record; field by field what aiokafka asks of one."""

    offset: int
    timestamp: int  # ms since 1970, any int64
    timestamp_type: int | None  # 0 the producer's, 1 the broker's
    key: bytes | None
    value: bytes | None
    headers: Headers
    checksum: int | None = None


class LogBatch:
    """One batch, as aiokafka's fetcher takes it. Raises nothing: see `UnreadableBatch`."""

    def __init__(self, content: bytes) -> None:
        """`content` is one batch of magic 2, whole, its first twelve bytes included."""
        self._content = content
        fields = HEADER.unpack_from(content.ljust(HEADER.size, b"\0"))
        self.base_offset: int = fields[0]
        self._attributes: int = fields[5]
        self._last_delta: int = fields[6]
        self._first_ms, self._greatest_ms = fields[7], fields[8]
        self.producer_id: int = fields[9]
        self._count: int = fields[12]
        self._records: Iterator[LogRecord] | None = None

    @property
    def next_offset(self) -> int:
        """The offset after the batch; never before it, so that a reader always gets on."""
        return self.base_offset + max(0, self._last_delta) + 1

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return bool(self._attributes & TRANSACTIONAL)

    @property
    def is_control_batch(self) -> bool:
        """Whether it is a marker of the broker's and not data."""
        return bool(self._attributes & CONTROL)

    def validate_crc(self) -> bool:
        """Leave it to the broker, which checked it: a batch damaged since does not become readable by waiting."""
        return True

    def __iter__(self) -> Iterator[LogRecord]:
        return self

    def __next__(self) -> LogRecord:
        if self._records is None:
            self._records = iter(self._read())
        return next(self._records)

    def _read(self) -> list[LogRecord]:
        try:
            return list(self._in_order(self._decoded()))
        except Unreadable as fault:
            whole = UnreadableBatch(self._content, why=str(fault), records=max(0, self._count))
            at = self.next_offset - 1
            return [LogRecord(at, self._greatest_ms, 0, None, whole, ())]

    def _decoded(self) -> Iterator[LogRecord]:
        if len(self._content) < HEADER.size:
            message = "it ends within its header"
            raise Unreadable(message)
        body = unpacked(self._content[HEADER.size :], self._attributes & CODEC)
        read = _Fields(body)
        log_append = bool(self._attributes & LOG_APPEND_TIME)
        try:
            for _ in range(self._count):
                end = read.varint() + read.at
                read.take(1)  # attributes, which mean nothing yet
                timestamp_ms = self._first_ms + read.varint()
                offset = self.base_offset + read.varint()
                key, value = read.nullable(), read.nullable()
                headers = tuple([(read.name(), read.nullable()) for _ in range(read.varint())])
                if read.at != end:
                    message = f"a record ends at byte {read.at} and says that it ends at {end}"
                    raise Unreadable(message)
                yield LogRecord(
                    offset, self._greatest_ms if log_append else timestamp_ms, int(log_append), key, value, headers
                )
        except IndexError as cut:
            message = "it ends within a record"
            raise Unreadable(message) from cut
        if read.at != len(body):
            message = f"{len(body) - read.at} bytes follow its last record"
            raise Unreadable(message)

    def _in_order(self, records: Iterator[LogRecord]) -> Iterator[LogRecord]:
        """Refuse offsets outside of the batch or going back: a reader that believed them would pass over others."""
        expected = self.base_offset
        for record in records:
            if not expected <= record.offset < self.next_offset:
                message = f"a record says that its offset is {record.offset}, within a batch from {self.base_offset}"
                raise Unreadable(message)
            expected = record.offset + 1
            yield record


def whole_batches(content: bytes) -> Iterator[bytes]:
    """Cut what a fetch brought of one partition into its batches; one that is cut off comes again with the next fetch."""
    at = 0
    while len(content) - at >= LOG_OVERHEAD:
        (length,) = struct.unpack_from(">i", content, at + LOG_OVERHEAD - 4)
        end = at + LOG_OVERHEAD + max(0, int(length))
        if end > len(content):
            return
        yield content[at:end]
        at = end


class _Fields:
    """Walks the fields of a record. Raises IndexError past the end."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = 0

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        end = self.at + count
        if end > len(self.content):
            raise IndexError
        taken, self.at = self.content[self.at : end], end
        return taken

    def varint(self) -> int:
        """Return the next zigzag number of up to 64 bits."""
        number, shift = 0, 0
        while True:
            byte = self.content[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follow
                return (number >> 1) ^ -(number & 1)
            shift += 7
            if shift > 63:  # noqa: PLR2004 - the format's longest
                raise IndexError

    def name(self) -> str:
        r"""Return a header's name; what is no UTF-8 of it as `\xff`."""
        return self.take(max(0, self.varint())).decode(errors="backslashreplace")

    def nullable(self) -> bytes | None:
        """Return the next bytes with a length before them; None for a negative length."""
        length = self.varint()
        return None if length < 0 else self.take(length)
