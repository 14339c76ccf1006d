"""Record batches read to the byte: as aiokafka reads them where it can, and in one piece where nobody can."""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from stream.runtime.kafka.batch_codecs import UNPACKED_BYTES_MAX
from stream.runtime.kafka.record_batches import LogBatch, UnreadableBatch, whole_batches
from tests.kafka.raw_log import (
    COMPRESS,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    halved,
    hostile_batches,
    raw_batch,
    raw_record,
    unreadable_batches,
)

NULLABLE = st.none() | st.binary(max_size=60)
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 2**53), NULLABLE, NULLABLE, st.lists(st.tuples(st.text(max_size=9), NULLABLE), max_size=4)
    ),
    min_size=1,
    max_size=20,
)


def read(batch: bytes) -> list[Any]:
    """The records of one batch."""
    return list(LogBatch(batch))


def fields(record: Any) -> tuple[Any, ...]:
    """What is compared of a record."""
    return record.offset, record.timestamp, record.timestamp_type, record.key, record.value, list(record.headers)


@given(RECORDS, st.sampled_from(sorted(COMPRESS)), st.integers(0, 1))
def test_what_aiokafka_reads_is_read_as_it_does(records: list[Any], codec: int, transactional: int) -> None:
    """Given any batch that aiokafka writes, in each codec, then each record is what aiokafka reads, and so are the batch's own fields."""
    builder = DefaultRecordBatchBuilder(2, codec, transactional, 7, 1, 3, 1 << 20)
    for number, (timestamp_ms, key, value, headers) in enumerate(records):
        builder.append(number, timestamp_ms, key, value, headers)
    written = bytes(builder.build())
    ours, theirs = LogBatch(written), DefaultRecordBatch(written)
    for name in ("base_offset", "next_offset", "producer_id", "is_transactional", "is_control_batch"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert [fields(one) for one in ours] == [fields(one) for one in theirs]


@pytest.mark.parametrize("name", sorted(hostile_batches(b"k", b"v")))
def test_a_strange_frame_leaves_key_and_value_as_they_are(name: str) -> None:
    """Given a batch that no ordinary producer writes and the broker takes, then its record is read, key and value byte for byte."""
    (record,) = read(hostile_batches(b"key", b"value")[name])
    assert (record.offset, record.key, record.value) == (0, b"key", b"value")


def test_what_is_no_utf8_of_a_header_s_name_is_escaped() -> None:
    """Given header names of any bytes, then what is text of them stays, the rest is written in hexadecimal, and values stay."""
    headers = [(b"caf\xc3\xa9", b"1"), (b"\xff", b"\xff"), (b"a\xc3", None)]
    (record,) = read(raw_batch(raw_record(None, None, headers=headers)))
    assert record.headers == (("café", b"1"), (r"\xff", b"\xff"), (r"a\xc3", None))


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_frames_one_after_the_other_are_one_body(codec: int) -> None:
    """Given a body compressed as two frames or members, then it is read whole."""
    records = [raw_record(b"k%d" % n, b"v" * n, offset_delta=n) for n in range(9)]
    assert [one.value for one in read(raw_batch(*records, codec=codec, encode=halved(codec)))] == [
        b"v" * n for n in range(9)
    ]


def test_the_framing_of_java_s_snappy_is_read() -> None:
    """Given a body of several blocks after Java's header, then it is read whole."""

    def encode(body: bytes) -> bytes:
        blocks = [bytes(cramjam.snappy.compress_raw(body[at : at + 10])) for at in range(0, len(body), 10)]
        framed = b"".join(struct.pack(">I", len(one)) + one for one in blocks)
        return b"\x82SNAPPY\0" + struct.pack(">II", 1, 1) + framed

    (record,) = read(raw_batch(raw_record(b"k", b"some value"), codec=SNAPPY, encode=encode))
    assert record.value == b"some value"


@cache
def broken_batches() -> dict[str, bytes]:
    """Name -> a batch against the format, which no broker takes."""
    plain, good = raw_record(b"k", b"v"), raw_batch(raw_record(b"k", b"v"))
    large = bytes(UNPACKED_BYTES_MAX + 1)
    return {
        **unreadable_batches(),
        "bytes after the last record": raw_batch(plain, encode=lambda body: body + b"zz"),
        "more records than there are": raw_batch(plain, count=3),
        "fewer bytes than a record says": raw_batch(plain, encode=lambda body: body[:-1]),
        "a record longer than it says": raw_batch(plain, encode=lambda body: b"\x02" + body[1:]),
        "offsets that go back": raw_batch(raw_record(b"k", b"1", offset_delta=1), plain),
        "an endless number": raw_batch(plain, encode=lambda _: b"\xff" * 40),
        "codec 5": raw_batch(plain, codec=5, encode=bytes),
        "its header alone": good[:40],
        **{
            f"codec {codec}, no frame": raw_batch(plain, codec=codec, encode=lambda _: b"nothing") for codec in COMPRESS
        },
        **{
            f"codec {codec}, cut": raw_batch(plain, codec=codec, encode=lambda body, of=codec: COMPRESS[of](body)[:-3])  # type: ignore[misc]
            for codec in COMPRESS
            if codec
        },
        **{f"codec {codec}, too large": raw_batch(raw_record(b"k", large), codec=codec) for codec in COMPRESS if codec},
        "a length that snappy makes up": raw_batch(plain, codec=SNAPPY, encode=lambda _: b"\xff\xff\xff\xff\x0fxx"),
        "a last member beyond the bound": raw_batch(
            plain, codec=GZIP, encode=lambda _: COMPRESS[GZIP](large[:-1]) + COMPRESS[GZIP](b"xx")
        ),
        "java's snappy, cut in a length": raw_batch(plain, codec=SNAPPY, encode=lambda _: b"\x82SNAPPY\0" + bytes(10)),
    }


@pytest.mark.parametrize("name", sorted(broken_batches()))
def test_what_nobody_can_read_comes_in_one_piece(name: str) -> None:
    """Given a batch against the format or beyond the bound, then it is one record at its last offset that holds the whole batch, says why and how many records it claims, and no part of a record."""
    batch = broken_batches()[name]
    (record,) = read(batch)
    assert isinstance(record.value, UnreadableBatch)
    assert bytes(record.value) == batch
    assert (record.key, record.headers) == (None, ())
    assert record.offset == LogBatch(batch).next_offset - 1
    assert record.value.why in record.value.account(record.offset)


@given(st.binary(max_size=300), st.integers(0, 7))
def test_any_bytes_are_records_or_one_unreadable_batch(body: bytes, codec: int) -> None:
    """Given any bytes as the body of a batch, in any codec, then reading them raises nothing, and goes on past the batch."""
    batch = raw_batch(raw_record(b"k", b"v"), codec=codec, encode=lambda _: body)
    assert all(0 <= one.offset < LogBatch(batch).next_offset for one in read(batch))


@given(st.lists(st.binary(max_size=30), max_size=5), st.integers(0, 400))
def test_a_fetch_is_cut_into_its_whole_batches(values: list[bytes], kept: int) -> None:
    """Given batches one after the other, cut off anywhere, then those that are whole come, in their order."""
    batches = [raw_batch(raw_record(b"k", value), codec=NONE) for value in values]
    content = b"".join(batches)[:kept]
    ends = [sum(map(len, batches[: n + 1])) for n in range(len(batches))]
    assert list(whole_batches(content)) == batches[: sum(end <= kept for end in ends)]
