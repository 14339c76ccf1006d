"""What a sink makes sure of before each range: that the archive it began with is still there, and is still that one.

An archive that somebody wiped, or a disk that is no longer mounted, would otherwise be filled with ranges that nothing leads
to, and what was whole before would be gone without a word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stream.audit.archive.layout import ARCHIVE
from stream.audit.archive.markers import Holding, Identity, read_identity
from stream.audit.archive.target import Target
from stream.errors import ArchiveDamaged


def make_sure(target: Target, identity: Identity, paths: Sequence[str]) -> None:
    """Look for the archive's own name and for files that were in it.

    Raises: ArchiveDamaged when one is gone, or it is another archive now; DependencyError.
    """
    found = read_identity(target)
    gone = [ARCHIVE] if found is None else [path for path in paths if target.read(path) is None]
    if gone:
        message = (
            f"the archive at {target.shown} lost {gone[0]} while a sink worked on it: was it removed, or its disk unmounted? Put "
            "back what is gone (mount the disk, or take a copy of the archive), then start the sink: it fills what is missing as "
            "long as the topic has it. `coach audit verify` names what is missing"
        )
        raise ArchiveDamaged(message)
    if found != identity:
        message = f"at {target.shown} there is another archive now than when this sink began; start the sink again to fill that one"
        raise ArchiveDamaged(message)


def missing_of(first: int, end: int, there: Mapping[int, Holding], length: int) -> list[tuple[int, int]]:
    """Give the spans [from, to) of `first` to `end` that are in no range of an archive but the first, which lacks them."""
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
