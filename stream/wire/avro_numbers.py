"""How Avro writes numbers, and what bounds we put on them."""

from __future__ import annotations

from typing import Final

from stream.errors import MalformedRecord

INT_LIMIT: Final = 1 << 31
LONG_LIMIT: Final = 1 << 63
DOUBLE_BYTES: Final = 8
EXACT_INTEGER_BYTES_USUAL: Final = 8  # a fixed width, because a whole column of them is then packed at once
EXACT_INTEGER_BYTES_MAX: Final = 512  # 2^-1074 to 2^1024 takes 263 bytes; the rest is room for sums
MORE: Final = 0x80  # set in each byte of a varint but its last
_VARINT_BITS_MAX: Final = 70


def varint(number: int) -> bytes:
    """Write a zigzag varint of at most 64 bits."""
    return SMALL.get(number) or _varint(number)


def read_varint(data: bytes, at: int, where: str) -> tuple[int, int]:
    """Read a zigzag varint in its one form, no empty byte at its end and no more than 64 bits: (number, where it ends).

    Raises: MalformedRecord; IndexError when the bytes end in the middle.
    """
    raw = data[at]
    at += 1
    if raw >= MORE:
        raw -= MORE
        for shift in range(7, _VARINT_BITS_MAX, 7):
            byte = data[at]
            at += 1
            raw |= (byte & ~MORE) << shift
            if byte < MORE:
                break
        if byte >= MORE or byte == 0 or raw >= LONG_LIMIT << 1:
            msg = f"{where}: a number is padded or has more than 64 bits"
            raise MalformedRecord(msg)
    return (raw >> 1) ^ -(raw & 1), at


def exact_integer_bytes(text: str) -> bytes:
    """Turn a decimal string into two's complement, big-endian: 8 bytes, or as few as a larger one needs.

    Raises: ValueError when it is not the one decimal form of an integer of the size allowed.
    """
    number = int(text)
    size = max(((number if number >= 0 else ~number).bit_length() >> 3) + 1, EXACT_INTEGER_BYTES_USUAL)
    if str(number) != text or size > EXACT_INTEGER_BYTES_MAX:
        raise ValueError
    return number.to_bytes(size, "big", signed=True)


def exact_integer_text(raw: bytes) -> str:
    """Turn two's complement, big-endian, of any width into a decimal string."""
    return str(int.from_bytes(raw, "big", signed=True))


def _varint(number: int) -> bytes:
    raw = (number << 1) ^ (number >> 63)
    out = bytearray()
    while raw >= MORE:
        out.append(raw & ~MORE & 0xFF | MORE)
        raw >>= 7
    out.append(raw)
    return bytes(out)


# Most numbers of a record are leaf ids, node ids and lengths: looked up in a tenth of the time.
SMALL: Final = {number: _varint(number) for number in range(-64, 8_192)}
