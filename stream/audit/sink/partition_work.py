"""What a sink does with one partition: one range after the other, from the first that is not whole in the archive.

The archive itself says where to go on, and nothing else does: a group whose offsets expired, or that served another
archive before, misleads nobody, and a range that was lost is filled again while the topic still has it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, TypeVar

from stream.audit.archive.layout import ARCHIVE, begins_path, marker_path, range_of, ranges_folder
from stream.audit.archive.markers import (
    Holding,
    Identity,
    Marker,
    is_known,
    ranges_in,
    read_beginning,
    read_identity,
    read_marker,
    write_beginning,
    write_known,
)
from stream.audit.archive.open_range import OpenRange
from stream.audit.archive.rows import row_of, suspect
from stream.audit.archive.target import Target
from stream.errors import ArchiveDamaged, ConfigurationError, RecordsLost
from stream.runtime.kafka.inbound import Inbound
from stream.wire.framing import Framing

log = logging.getLogger(__name__)
Result = TypeVar("Result")
TAIL_SHARE_MAX: Final = 0.1  # of the time may go into writing tails: a slow store is written to less often
SPANS_SHOWN_MAX: Final = 5


class WaitOut(Protocol):
    """Runs something that may fail for a dependency, until it succeeds or retry ends."""

    def __call__(self, doing: Callable[[], Result], /) -> Result:
        """Run it. Raises: DependencyError, Abandoned."""


@dataclass(slots=True, kw_only=True)
class SinkTotals:
    """What was done since the start."""

    records: int = 0
    unreadable: int = 0
    suspect: int = 0  # records whose own hash is not that of their body
    lost: int = 0  # offsets that were deleted unread, and accepted
    ranges: int = 0  # brought into the archive as whole
    tails: int = 0
    rows: int = 0  # of those ranges and tails
    seconds_keeping: float = 0.0

    def counts(self) -> dict[str, int]:
        """Return the numbers that the log and the command report, by name."""
        return {
            "records": self.records,
            "unreadable": self.unreadable,
            "hash_differs": self.suspect,
            "offsets_lost": self.lost,
            "ranges": self.ranges,
            "tails": self.tails,
        }


@dataclass(kw_only=True)
class PartitionWork:
    """One partition. `marks` asks the brokers for its low and high watermark."""

    target: Target
    identity: Identity
    partition: int
    framing: Framing
    marks: Callable[[], tuple[int, int]]
    wait_out: WaitOut
    tail_s: float
    accept_loss: bool = False
    totals: SinkTotals = field(default_factory=SinkTotals)
    clock: Callable[[], float] = time.monotonic
    seek_to: int | None = None  # where the reader has to go on; until it does, what it brings is passed over
    _there: dict[int, Holding] = field(default_factory=dict)
    _open: OpenRange | None = None
    _first: int = 0
    _held: bool = False  # whether the archive says that something of the partition was kept
    _begins: bool = True  # whether it says where the partition begins
    _unkept_since_s: float | None = None
    _kept_at_s: float = 0.0
    _keeping_s: float = 0.0

    def begin(self) -> int:
        """Look at the archive; return the offset to read from.

        Raises: RecordsLost; ConfigurationError for a topic that is not the archive's any more; ArchiveDamaged,
        DependencyError, Abandoned.
        """
        of_topic, length = self.identity.topic, self.identity.range_offsets
        self._there = self.wait_out(lambda: ranges_in(self.target, of_topic, self.partition, length))
        for start in [start for start, what in self._there.items() if what == "both"]:
            tail = marker_path(range_of(of_topic, self.partition, start, length), whole=False)
            self.wait_out(partial(self.target.remove, tail))
            self._there[start] = "whole"
        self._first = self._beginning()
        self._start(self._next(range_of(of_topic, self.partition, self._first, length).start))
        self._settle()  # what was lost may be all of it
        self.seek_to = None
        return self._range.until

    def _beginning(self) -> int:
        """The first offset that the archive is to have: of a new one what the topic still has, from now on for ever."""
        of_topic = self.identity.topic
        self._held = self.wait_out(lambda: is_known(self.target, of_topic, self.partition, held=True))
        self.wait_out(lambda: write_known(self.target, of_topic, self.partition, held=False))
        if self._there and not self._held:
            self._say_held()
        known = self.wait_out(lambda: read_beginning(self.target, of_topic, self.partition))
        self._begins = known is not None or not self._there
        if known is not None:
            return known
        if self._there:
            log.error("sink.beginning_lost", extra={"partition": self.partition, "first": min(self._there)})
            return min(self._there)
        low, _ = self.wait_out(self.marks)
        if self._held and low:
            message = (
                f"the archive at {self.target.shown} kept records of {of_topic} partition {self.partition}, and "
                f"{ranges_folder(of_topic, self.partition)} is gone; the topic has nothing below offset {low} any more. Put the "
                f"partition's files back from a copy of the archive; is there none, remove _partitions/{of_topic}/"
                f"{self.partition:05d}.held.json to have the partition begin at {low}"
            )
            raise ArchiveDamaged(message)
        self.wait_out(lambda: write_beginning(self.target, of_topic, self.partition, low))
        made = self.wait_out(lambda: read_beginning(self.target, of_topic, self.partition))
        return low if made is None else made  # another sink may have made it at the same moment

    @property
    def position(self) -> int:
        """The next offset that is wanted."""
        return self._range.until

    @property
    def committable(self) -> int:
        """Below it everything is whole in the archive."""
        return self._range.first

    def take(self, stored: Inbound) -> None:
        """Take a record; keep ranges that it fills. Raises: RecordsLost, ArchiveDamaged, DependencyError, Abandoned."""
        while self.seek_to is None and stored.offset >= self._range.of.end:
            self.reached(self._range.of.end)
        if self.seek_to is not None or stored.offset < self.position:
            return
        row, why = self.wait_out(lambda: row_of(stored, self._range.of, self.framing))
        self._range.add(row)
        self._unkept_since_s = self.clock() if self._unkept_since_s is None else self._unkept_since_s
        is_suspect = suspect(row)
        self.totals.records += not why
        self.totals.unreadable += bool(why)
        self.totals.suspect += is_suspect
        if why:
            log.error("sink.unreadable", extra={"where": stored.where, "why": why})
        elif is_suspect:
            said = "body_sha256 is not the hash of the body"
            log.error("sink.hash_differs", extra={"where": stored.where, "why": said})
        self._settle()

    def reached(self, until: int) -> None:
        """Note that the topic holds nothing more below an offset. Raises: as `take`."""
        while self.seek_to is None and until > self.position:
            self._range.reached(until)
            self._settle()

    def keep_tail(self, *, now: bool = False) -> None:
        """Write the tail of the last range when it is due, or `now`. Raises: as `take`."""
        if self._range.ahead and (now or self._due()):
            self._keep()
        elif now:
            self.wait_out(self._check_still_there)

    def close(self) -> None:
        """Free the local spool; an unfinished range will be read again."""
        if self._open is not None:
            self._open.close()

    @property
    def _range(self) -> OpenRange:
        if self._open is None:
            message = "work on a partition begins with `begin`"
            raise RuntimeError(message)
        return self._open

    def _due(self) -> bool:
        if not self.tail_s or self._unkept_since_s is None:
            return False
        now_s = self.clock()
        rest_s = self._keeping_s / TAIL_SHARE_MAX
        return now_s - self._unkept_since_s >= self.tail_s and now_s - self._kept_at_s >= rest_s

    def _settle(self) -> None:
        """Keep the range if it is full, and go on to the next one that is not."""
        while self._range.full:
            done = self._range
            self._keep()
            done.close()
            self._there[done.of.start] = "whole"
            self._start(self._next(done.of.end))
            if self.position != done.of.end:
                self.seek_to = self.position

    def _next(self, start: int) -> int:
        while self._there.get(start) == "whole":
            start += self.identity.range_offsets
        return start

    def _start(self, start: int) -> None:
        """Open a range: from the topic, or from the archive where the topic no longer has all of it."""
        of = range_of(self.identity.topic, self.partition, start, self.identity.range_offsets)
        tail = self.wait_out(lambda: read_marker(self.target, of, whole=False)) if start in self._there else None
        opened = OpenRange(self.target, of, first=max(of.start, self._first), tail=tail)
        try:
            self._catch_up(opened, tail)
        except BaseException:
            opened.close()
            raise
        self._open = opened

    def _catch_up(self, opened: OpenRange, tail: Marker | None) -> None:
        low, high = self.wait_out(self.marks)
        known = opened.first if tail is None else tail.until
        if known > high:
            message = (
                f"topic {opened.of.topic} partition {self.partition} ends at offset {high}, and the archive at {self.target.shown} "
                f"holds it up to {known}: the topic was made anew or cut; give the new one an archive of its own"
            )
            raise ConfigurationError(message)
        if low > opened.first and tail is not None and tail.rows:
            try:
                self.wait_out(lambda: opened.restore(self.framing, tail))
                log.info("sink.restored", extra={"range": opened.of.where, "rows": opened.rows})
            except ArchiveDamaged as damaged:
                log.error("sink.tail_spoilt", extra={"range": opened.of.where, "why": str(damaged)})  # noqa: TRY400 - the message says it all
        elif tail is not None and low > opened.first:
            opened.reached(tail.until)
        if low > opened.until:
            self._lose(opened, low)

    def _lose(self, opened: OpenRange, low: int) -> None:
        first, last = opened.until, min(low, opened.of.end) - 1
        if not self.accept_loss:
            gone = missing_of(opened.until, low, self._there, self.identity.range_offsets)
            spans = ", ".join(f"{start} to {end - 1}" for start, end in gone[:SPANS_SHOWN_MAX])
            spans += f" and {len(gone) - SPANS_SHOWN_MAX} more spans" if len(gone) > SPANS_SHOWN_MAX else ""
            message = (
                f"offsets {spans} of {opened.of.topic} partition {self.partition} are not in the archive at {self.target.shown}, "
                f"and were deleted from the topic (retention), which begins at {low}. {self._why_missing(opened)}If they are lost "
                "for good, say so once with --accept-loss: the archive will name them as lost, and go on"
            )
            raise RecordsLost(message)
        opened.lose(low)
        self.totals.lost += last - first + 1
        log.error("sink.records_lost", extra={"range": opened.of.where, "first": first, "last": last})

    def _why_missing(self, opened: OpenRange) -> str:
        if max(self._there, default=-1) <= opened.of.start:
            return ""  # they came after all that it has
        return (
            f"It has later ranges, so {marker_path(opened.of, whole=True)} was there and is gone: put it back from a copy of "
            "the archive; the range's other files may be where they were (`coach audit verify` names them). "
        )

    def _say_held(self) -> None:
        self.wait_out(lambda: write_known(self.target, self.identity.topic, self.partition, held=True))
        self._held = True

    def _check_still_there(self) -> None:
        """Check that the archive is still the one this sink began with.

        A wiped archive or an unmounted disk would otherwise fill with ranges that nothing leads to.
        Raises: ArchiveDamaged, DependencyError.
        """
        of = self._range.of
        before = of.start - self.identity.range_offsets
        paths = [begins_path(of.topic, of.partition)] if self._begins else []
        if self._there.get(before) == "whole":
            whole = range_of(of.topic, of.partition, before, self.identity.range_offsets)
            paths = [marker_path(whole, whole=True)]
        found = read_identity(self.target)
        gone = [ARCHIVE] if found is None else [path for path in paths if self.target.read(path) is None]
        if gone:
            message = (
                f"the archive at {self.target.shown} lost {gone[0]} while a sink worked on it: was it removed, or its disk "
                "unmounted? Put back what is gone (mount the disk, or take a copy of the archive), then start the sink: it "
                "fills what is missing as long as the topic has it. `coach audit verify` names what is missing"
            )
            raise ArchiveDamaged(message)
        if found != self.identity:
            message = (
                f"at {self.target.shown} there is another archive now than when this sink began; start the sink again to "
                "fill that one"
            )
            raise ArchiveDamaged(message)

    def _keep(self) -> None:
        began_s = self.clock()
        self.wait_out(self._check_still_there)
        if not self._held:
            self._say_held()
        marker = self.wait_out(self._range.keep)
        self._kept_at_s = self.clock()
        self._keeping_s = self._kept_at_s - began_s
        self._unkept_since_s = None
        if marker is None:
            log.warning("sink.overtaken", extra={"range": self._range.of.where, "until": self.position})
            return
        self.totals.seconds_keeping += self._keeping_s
        self.totals.ranges += marker.whole
        self.totals.tails += not marker.whole
        self.totals.rows += marker.rows
        log.info(
            "sink.range_kept" if marker.whole else "sink.tail_kept",
            extra={
                "range": marker.of.where,
                "until": marker.until,
                "rows": marker.rows,
                "files": len(marker.all_files),
                "elapsed_ms": round(1e3 * self._keeping_s),
            },
        )


def missing_of(first: int, end: int, there: Mapping[int, Holding], length: int) -> list[tuple[int, int]]:
    """Return the spans [from, to) within `first` to `end` that no range of the archive holds; the first range lacks them."""
    spans: list[tuple[int, int]] = []
    own = first - first % length
    at = first
    while at < end:
        start = at - at % length
        until = min(end, start + length)
        if start == own or start not in there:
            if spans and spans[-1][1] == at:
                spans[-1] = (spans[-1][0], until)
            else:
                spans.append((at, until))
        at = until
    return spans
