"""CRC-64-AVRO, written from the Avro 1.12 specification ("Schema Fingerprints") and nothing else: an oracle."""

from __future__ import annotations

EMPTY = 0xC15D213AA4D7A795


def _table_entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (EMPTY & -(byte & 1))
    return byte


TABLE = [_table_entry(byte) for byte in range(256)]


def crc64_avro(data: bytes) -> bytes:
    """The fingerprint, little-endian as single-object encoding carries it."""
    crc = EMPTY
    for byte in data:
        crc = (crc >> 8) ^ TABLE[(crc ^ byte) & 0xFF]
    return crc.to_bytes(8, "little")
