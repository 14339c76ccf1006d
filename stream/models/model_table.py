"""Which publication answers a decision: the highest revision of its model version that was effective at its time."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from stream.errors import ModelNotPublished
from stream.events import ModelPublished
from stream.times import rfc3339, time_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationAtEpoch:
    """One record of the models topic; `epoch` is its offset there."""

    published: ModelPublished
    epoch: int
    effective_from_ms: int


def models_key(model_id: str, model_version: str, revision: int) -> bytes:
    """The key on the models topic: compaction keeps the last record of each revision."""
    return f"{model_id}/{model_version}/{revision}".encode()


class ModelTable:
    """All publications that the models topic holds. Written by the reader's thread, read by the answering one.

    A revision published again replaces the earlier publication of the same revision, as compaction does.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[bytes, PublicationAtEpoch] = {}
        self._by_version: dict[tuple[str, str], list[PublicationAtEpoch]] = {}
        self._changes = 0

    @property
    def changes(self) -> int:
        """How many records were taken in; who waits for a model looks again when it has grown."""
        with self._lock:
            return self._changes

    @property
    def epoch(self) -> int:
        """The latest publication taken in; -1 for none."""
        with self._lock:
            return max((one.epoch for one in self._by_key.values()), default=-1)

    def learn(self, published: ModelPublished, epoch: int) -> PublicationAtEpoch:
        """Take in a publication, unless a later one of the same revision is known."""
        publication = PublicationAtEpoch(
            published=published, epoch=epoch, effective_from_ms=time_ms(published["effective_from"])
        )
        key = models_key(published["model_id"], published["model_version"], published["revision"])
        with self._lock:
            known = self._by_key.get(key)
            if known is None or known.epoch < epoch:
                self._by_key[key] = publication
                self._index()
        return publication

    def forget(self, key: bytes) -> None:
        """Take back what a tombstone withdraws."""
        with self._lock:
            self._by_key.pop(key, None)
            self._index()

    def forget_all(self) -> None:
        """Begin anew: the topic did."""
        with self._lock:
            self._by_key.clear()
            self._index()

    def resolve(self, model_id: str, model_version: str, event_time_ms: int) -> PublicationAtEpoch:
        """Find what answers a decision of this time. Raises: ModelNotPublished, which says what is missing."""
        with self._lock:
            candidates = self._by_version.get((model_id, model_version))
        if not candidates:
            message = f"nobody published version {model_version} of model {model_id}; publish it and redrive"
            raise ModelNotPublished(message)
        for publication in candidates:  # highest revision first
            if publication.effective_from_ms <= event_time_ms:
                return publication
        earliest = min(one.effective_from_ms for one in candidates)
        message = (
            f"no revision of version {model_version} of model {model_id} was effective at {rfc3339(event_time_ms)}; the "
            f"earliest is from {rfc3339(earliest)} on: publish one with an earlier --effective-from and redrive"
        )
        raise ModelNotPublished(message)

    def known(self, key: bytes) -> PublicationAtEpoch | None:
        """The latest publication of a revision, by its key on the topic."""
        with self._lock:
            return self._by_key.get(key)

    def publications(self) -> list[PublicationAtEpoch]:
        """All of them, in the order in which they were published."""
        with self._lock:
            return sorted(self._by_key.values(), key=lambda one: one.epoch)

    def _index(self) -> None:
        """Sort anew: publications are few and rare, look-ups are neither."""
        by_version: dict[tuple[str, str], list[PublicationAtEpoch]] = {}
        for one in sorted(self._by_key.values(), key=lambda one: -one.published["revision"]):
            by_version.setdefault((one.published["model_id"], one.published["model_version"]), []).append(one)
        self._by_version = by_version
        self._changes += 1
