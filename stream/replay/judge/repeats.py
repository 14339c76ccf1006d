"""Which records repeat an earlier one: a redriven decision, or a duplicate of at-least-once delivery.

A record is known by digests of its content alone, so neither when nor how often a run was started matters. Those of a
finished chunk are kept with its result; those of all chunks before the one at work lie in a database of SQLite's that has
no name, on the disk past its cache, so memory is bounded whatever the number of records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, Self, TypeAlias

from stream.canonical import sha256
from stream.errors import MalformedRecord
from stream.recourse.record.decision_record import decision_by_value
from stream.replay.judge.verdict import OF_THE_DELIVERY
from stream.replay.sources.records import Record, Stored
from stream.runtime.scratch_index import ScratchIndex

DIGITS: Final = 32  # 128 bits: of a billion records, two different ones are taken for equal with chance 2^-69
CACHE_KIB: Final = 8 * 1024
DISK_FULL: Final = (
    "this host's temporary folder (TMPDIR) cannot hold which decisions were seen ({error}); make room, and start "
    "again with the same --run-id to go on"
)

Noted: TypeAlias = Literal["new", "repeat", "conflict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Digests of a record, hex: of the decision's id, of the decision with all its content, and of what is counted."""

    name: str
    decision: str
    record: str

    def to_text(self) -> str:
        """As a chunk's file keeps it."""
        return self.name + self.decision + ("" if self.record == self.decision else self.record)


def keys_from(text: str) -> Keys:
    """Read back what `Keys.to_text` wrote. Raises: ValueError for anything else."""
    if len(text) not in (2 * DIGITS, 3 * DIGITS) or not set(text) <= set("0123456789abcdef"):
        message = "is not the digests of a record"
        raise ValueError(message)
    name, decision, record = text[:DIGITS], text[DIGITS : 2 * DIGITS], text[2 * DIGITS :]
    return Keys(name=name, decision=decision, record=record or decision)


def keys_of(record: Record, *, counts_answers: bool) -> Keys:
    """Return a record's digests.

    Where decisions are counted, one that is stored with its answer is the same as when it was sent, and whatever was
    answered is no matter. Where answers are counted (`counts_answers`), it takes an equal answer with an equal hash. What
    delivery adds (trace, envelope) is no content. Raises: MalformedRecord for what has no canonical spelling.
    """
    decision = record.decision if isinstance(record, Stored) else record
    try:
        its_digest = record_digest = sha256(decision_by_value(decision))[:DIGITS]
        if counts_answers and isinstance(record, Stored):
            said = record.recommendation
            answer = None if said is None else {key: one for key, one in said.items() if key not in OF_THE_DELIVERY}
            content = {"body": record.body, "body_sha256": record.body_sha256, "recommendation": answer}
            record_digest = sha256(content)[:DIGITS]
        return Keys(name=sha256(decision.decision_id)[:DIGITS], decision=its_digest, record=record_digest)
    except ValueError as error:
        message = f"the record has no canonical spelling: {error}"
        raise MalformedRecord(message) from error


class SeenRecords:
    """The records so far, in the order of the source. To be used as a block.

    All methods raise DiskUnavailable when the temporary folder is full.
    """

    def __init__(self) -> None:
        self._taken: list[Keys] = []
        self._index = ScratchIndex(DISK_FULL, cache_kib=CACHE_KIB)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_why: object) -> None:
        self._index.close()

    def note(self, keys: Keys) -> Noted:
        """Add the next record: new, equal to an earlier one, or with the id of a decision of other content."""
        name, decision, record = _rows(keys)
        if record in self._index:
            return "repeat"
        conflict = name in self._index and decision not in self._index
        self.know((keys,))
        self._taken.append(keys)
        return "conflict" if conflict else "new"

    def know(self, earlier: Iterable[Keys]) -> None:
        """Add the records of a chunk that an earlier start finished."""
        self._index.add(one for keys in earlier for one in _rows(keys))

    def taken(self) -> list[Keys]:
        """Return the records noted since the last call that were no repeats, in order: a chunk's result keeps them."""
        taken, self._taken = self._taken, []
        return taken


def _rows(keys: Keys) -> tuple[bytes, bytes, bytes]:
    name, decision, record = map(bytes.fromhex, (keys.name, keys.decision, keys.record))
    return b"n" + name, b"d" + decision, b"r" + record
