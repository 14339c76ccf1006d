"""Avro's numbers as the reference implementation writes them, to put bytes together by hand."""

from __future__ import annotations

from io import BytesIO

from avro.io import BinaryEncoder


def varint(number: int) -> bytes:
    """Write a number of at most 64 bits as a zigzag varint."""
    file = BytesIO()
    BinaryEncoder(file).write_long(number)
    return file.getvalue()
