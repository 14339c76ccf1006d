"""Record batches put together byte by byte, and produced as they are: what no ordinary producer sends.

Format: https://kafka.apache.org/documentation/#recordbatch.
"""

from __future__ import annotations

import asyncio
import gzip
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import cramjam
from aiokafka.client import AIOKafkaClient
from aiokafka.codec import lz4_encode
from aiokafka.errors import for_code
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.util import calc_crc32c
from aiokafka.structs import TopicPartition

TIME_MS: Final = 1_700_000_000_000
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
Encode = Callable[[bytes], bytes]
COMPRESS: Final[dict[int, Encode]] = {
    NONE: bytes,
    GZIP: gzip.compress,
    SNAPPY: lambda body: bytes(cramjam.snappy.compress_raw(body)),
    LZ4: lz4_encode,  # Kafka takes no blocks that refer to others
    ZSTD: lambda body: bytes(cramjam.zstd.compress(body)),
}


def varint(number: int) -> bytes:
    """A zigzag number of 64 bits."""
    rest = ((number << 1) ^ (number >> 63)) & ((1 << 64) - 1)
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*out, rest])


def nullable(content: bytes | None) -> bytes:
    """Bytes with their length before them."""
    return varint(-1) if content is None else varint(len(content)) + content


def raw_record(
    key: bytes | None,
    value: bytes | None,
    *,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
    offset_delta: int = 0,
    time_delta_ms: int = 0,
    attributes: int = 0,
) -> bytes:
    """One record of a batch."""
    named = b"".join(varint(len(name)) + name + nullable(given) for name, given in headers)
    body = bytes([attributes]) + varint(time_delta_ms) + varint(offset_delta) + nullable(key) + nullable(value)
    body += varint(len(headers)) + named
    return varint(len(body)) + body


def raw_batch(
    *records: bytes,
    codec: int = NONE,
    encode: Encode | None = None,
    first_ms: int = TIME_MS,
    attributes: int = 0,
    count: int | None = None,
    last_delta: int | None = None,
    base_offset: int = 0,
) -> bytes:
    """One batch of magic 2 with a right checksum. `encode` takes the place of the codec's own compression."""
    count = len(records) if count is None else count
    last_delta = count - 1 if last_delta is None else last_delta
    body = (encode or COMPRESS[codec])(b"".join(records))
    rest = struct.pack(">hiqqqhii", codec | attributes, last_delta, first_ms, first_ms, -1, -1, -1, count) + body
    tail = struct.pack(">ibI", -1, 2, calc_crc32c(rest)) + rest
    return struct.pack(">qi", base_offset, len(tail)) + tail


def produce_raw(brokers: str, topic: str, *batches: bytes, partition: int = 0) -> list[str | None]:
    """Produce batches one after the other; return what the broker says of each, None where it took it."""
    return asyncio.run(_produce_raw(brokers, topic, partition, batches))


async def _produce_raw(brokers: str, topic: str, partition: int, batches: Sequence[bytes]) -> list[str | None]:
    client = AIOKafkaClient(bootstrap_servers=brokers)
    await client.bootstrap()
    said: list[str | None] = []
    try:
        client.add_topic(topic)
        await client.force_metadata_update()
        leader = client.cluster.leader_for_partition(TopicPartition(topic, partition))
        for batch in batches:
            request: Any = ProduceRequest(
                transactional_id=None, required_acks=-1, timeout=10_000, topics=[(topic, [(partition, batch)])]
            )
            answer = await client.send(leader, request)
            code = answer.topics[0][1][0][1]
            said.append(for_code(code).__name__ if code else None)
    finally:
        await client.close()
    return said


def halved(codec: int) -> Encode:
    """Compress the two halves as two frames (gzip: members), one after the other, which every codec's own tools read as one."""

    def encode(body: bytes) -> bytes:
        half = len(body) // 2
        return COMPRESS[codec](body[:half]) + COMPRESS[codec](body[half:])

    return encode


def hostile_batches(key: bytes, value: bytes) -> dict[str, bytes]:
    """Name -> a batch that Apache Kafka 4.4.0 takes: one record that holds `value` with a strange frame around it."""
    plain = raw_record(key, value)
    with_headers: dict[str, Sequence[tuple[bytes, bytes | None]]] = {
        "header name is no UTF-8": [(b"\xff", b"y")],
        "header name is cut UTF-8": [(b"caf\xc3", b"y")],
        "header name holds a NUL": [(b"a\0b", b"y")],
        "header name is empty": [(b"", b"y")],
        "header value is null": [(b"x", None)],
        "header value is no UTF-8": [(b"traceparent", b"\xff\xfe")],
        "a header again and again": [(b"twice", b"1"), (b"twice", b"2")],
        "a thousand headers": [(b"h%d" % n, b"v" * n) for n in range(1_000)],
    }
    return {
        **{name: raw_batch(raw_record(key, value, headers=headers)) for name, headers in with_headers.items()},
        "timestamp before 1970": raw_batch(plain, first_ms=-2),
        "timestamp long before 1970": raw_batch(plain, first_ms=-(10**15)),
        "no timestamp": raw_batch(plain, first_ms=-1),
        "time delta below zero": raw_batch(raw_record(key, value, time_delta_ms=-5)),
        "record attributes": raw_batch(raw_record(key, value, attributes=5)),
        "batch attributes nobody knows": raw_batch(plain, attributes=0x80),
        "delete horizon": raw_batch(plain, attributes=0x40),
        "log-append bit": raw_batch(plain, attributes=0x08),
        **{f"codec {codec}": raw_batch(plain, codec=codec) for codec in COMPRESS},
        "two members of gzip": raw_batch(plain, codec=GZIP, encode=halved(GZIP)),
        "two frames of zstd": raw_batch(plain, codec=ZSTD, encode=halved(ZSTD)),
    }


def unreadable_batches() -> dict[str, bytes]:
    """Name -> a batch that Apache Kafka 4.4.0 takes and that nobody can read."""
    return {
        "unpacks to 100 MB": raw_batch(raw_record(b"k", bytes(100_000_000)), codec=ZSTD),
        "offset beyond its batch": raw_batch(raw_record(b"k", b"{}", offset_delta=5)),
    }
