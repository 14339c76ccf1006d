"""How far one partition is done: what may be committed when letters end in another order than they began."""

from __future__ import annotations


class Progress:
    """The offsets of one partition that are under way."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._next: int | None = None

    def began(self, offset: int) -> None:
        """A record was read."""
        self._open.add(offset)
        self._next = offset + 1 if self._next is None else max(self._next, offset + 1)

    def done(self, offset: int) -> None:
        """It is settled for good."""
        self._open.discard(offset)

    def is_open(self, offset: int) -> bool:
        """Whether it was read since the partition came, and is not settled."""
        return offset in self._open

    @property
    def safe(self) -> int | None:
        """The offset to commit: everything below it is settled; None when nothing was read."""
        return min(self._open) if self._open else self._next
