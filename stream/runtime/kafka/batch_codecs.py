"""The four codecs of Kafka's batches, unpacked up to a bound: the topic's max.message.bytes bounds only what is packed."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Final

import cramjam
import numpy as np

UNPACKED_BYTES_MAX: Final = 64 << 20  # of one batch
GZIP_WINDOW: Final = 31  # zlib's word for a gzip member
XERIAL: Final = b"\x82SNAPPY\x00"  # how the framing of Java's snappy library begins
XERIAL_HEADER_BYTES: Final = 16


class Unreadable(Exception):
    """A batch breaks the format; the text says how."""


def unpacked(body: bytes, codec: int) -> bytes:
    """Unpack the records of a batch. Raises: Unreadable for a broken frame, or one of more than UNPACKED_BYTES_MAX."""
    if codec not in CODECS:
        message = f"there is no codec {codec}"
        raise Unreadable(message)
    name, unpack = CODECS[codec]
    try:
        return unpack(body)
    except (cramjam.DecompressionError, zlib.error, struct.error, _TooLarge) as fault:
        message = f"its {name} cannot be unpacked to {UNPACKED_BYTES_MAX} bytes or fewer: {fault}"
        raise Unreadable(message) from fault


class _TooLarge(Exception):
    """More than UNPACKED_BYTES_MAX."""

    def __str__(self) -> str:
        return "it is larger"


def _gzip(body: bytes) -> bytes:
    """Unpack one member after the other: Java's library reads several, and so does the broker."""
    parts: list[bytes] = []
    room = UNPACKED_BYTES_MAX
    while body:
        if room <= 0:
            raise _TooLarge
        member = zlib.decompressobj(GZIP_WINDOW)
        parts.append(member.decompress(body, room))
        if not member.eof:
            if member.unconsumed_tail:
                raise _TooLarge
            message = "it is cut off"
            raise zlib.error(message)
        room -= len(parts[-1])
        body = member.unused_data
    return b"".join(parts)


def _snappy(body: bytes) -> bytes:
    """Unpack one block, or the framing of Java's library, which puts blocks one after the other."""
    if not body.startswith(XERIAL):
        return _snappy_block(body, UNPACKED_BYTES_MAX)
    parts, at, room = [], XERIAL_HEADER_BYTES, UNPACKED_BYTES_MAX
    while at < len(body):
        (size,) = struct.unpack_from(">I", body, at)
        parts.append(_snappy_block(body[at + 4 : at + 4 + size], room))
        room -= len(parts[-1])
        at += 4 + size
    return b"".join(parts)


def _snappy_block(block: bytes, room: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > room:  # what it says; unpacking less than that is an error
        raise _TooLarge
    return bytes(cramjam.snappy.decompress_raw(block))


def _framed(library: ModuleType) -> Callable[[bytes], bytes]:
    def unpack(body: bytes) -> bytes:
        room = np.empty(UNPACKED_BYTES_MAX, np.uint8)  # pages that nothing is written to cost nothing
        return room[: library.decompress_into(body, room)].tobytes()

    return unpack


CODECS: Final[dict[int, tuple[str, Callable[[bytes], bytes]]]] = {
    0: ("content", lambda body: body),
    1: ("gzip", _gzip),
    2: ("snappy", _snappy),
    3: ("lz4", _framed(cramjam.lz4)),
    4: ("zstd", _framed(cramjam.zstd)),
}
