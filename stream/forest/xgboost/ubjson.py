"""A reader of UBJSON, the binary JSON in which XGBoost saves models, that trusts no length in it.

XGBoost's own reader crashes on many damaged files, or allocates whatever they state; this one raises ValueError.
Source: ubjson.org, draft 12, of which XGBoost writes objects, strings, numbers and counted arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

DEPTH_MAX = 32  # XGBoost's models are 8 deep
_NUMBERS: dict[bytes, np.dtype[Any]] = {
    b"i": np.dtype(">i1"),
    b"U": np.dtype(">u1"),
    b"I": np.dtype(">i2"),
    b"l": np.dtype(">i4"),
    b"L": np.dtype(">i8"),
    b"d": np.dtype(">f4"),
    b"D": np.dtype(">f8"),
}
_CONSTANTS = {b"Z": None, b"T": True, b"F": False}


def read_ubjson(raw: bytes) -> Any:  # noqa: ANN401 - whatever the file holds
    """The value that `raw` holds: objects as dicts, arrays as lists, numbers as int or float.

    Raises: ValueError where it is not UBJSON of the kinds that XGBoost writes, or does not end where it should.
    """
    reader = _Reader(raw)
    value = reader.value(reader.take(1), 0)
    if reader.at != len(raw):
        message = f"{len(raw) - reader.at} bytes follow the end at byte {reader.at}"
        raise ValueError(message)
    return value


class _Reader:
    """A position in the bytes, which only moves forward."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self.at = 0

    def take(self, count: int) -> bytes:
        """The next so many bytes."""
        if not 0 <= count <= len(self._raw) - self.at:
            message = f"it is cut off or damaged at byte {self.at}"
            raise ValueError(message)
        self.at += count
        return self._raw[self.at - count : self.at]

    def value(self, marker: bytes, depth: int) -> Any:  # noqa: ANN401 - whatever the file holds
        """The value that this marker opens."""
        if depth > DEPTH_MAX:
            message = f"it is nested more than {DEPTH_MAX} deep at byte {self.at}"
            raise ValueError(message)
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        if marker in _NUMBERS:
            return self._numbers(marker, 1)[0]
        if marker == b"S":
            return self._text(self.take(1))
        if marker == b"{":
            return self._object(depth)
        if marker == b"[":
            return self._array(depth)
        message = f"marker {marker!r} before byte {self.at} opens no value"
        raise ValueError(message)

    def _numbers(self, marker: bytes, count: int) -> list[Any]:
        dtype = _NUMBERS[marker]
        numbers: list[Any] = np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist()
        return numbers

    def _length(self, marker: bytes) -> int:
        length = self._numbers(marker, 1)[0] if marker in _NUMBERS else None
        if not isinstance(length, int) or length < 0:
            message = f"no length stands before byte {self.at}"
            raise ValueError(message)
        return length

    def _text(self, marker: bytes) -> str:
        return self.take(self._length(marker)).decode()

    def _object(self, depth: int) -> dict[str, Any]:
        held: dict[str, Any] = {}
        while (marker := self.take(1)) != b"}":
            name = self._text(marker)
            if name in held:
                message = f"a name occurs twice in one object before byte {self.at}"
                raise ValueError(message)
            held[name] = self.value(self.take(1), depth + 1)
        return held

    def _array(self, depth: int) -> list[Any]:
        first = self.take(1)
        if first == b"$":
            kind, counted = self.take(1), self.take(1)
            if kind not in _NUMBERS or counted != b"#":
                message = f"an array before byte {self.at} has neither numbers nor a count"
                raise ValueError(message)
            return self._numbers(kind, self._length(self.take(1)))
        if first == b"#":
            return [self.value(self.take(1), depth + 1) for _ in range(self._length(self.take(1)))]
        held = []
        while first != b"]":
            held.append(self.value(first, depth + 1))
            first = self.take(1)
        return held
