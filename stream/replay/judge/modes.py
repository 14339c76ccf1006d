"""The three modes: one record -> its verdict, through the same `answer` that the worker calls."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from stream.canonical import sha256
from stream.errors import MalformedRecord, PoisonError, StreamError, UnexpectedFault, where_raised
from stream.events import Decision
from stream.recourse.answer import Answer, answer
from stream.recourse.finding import score
from stream.recourse.model import PublishedModel
from stream.recourse.record.decision_record import ENGINE_VERSION, decision_by_value
from stream.replay.judge.applicant_view import (
    ApplicantView,
    Body,
    FeatureWords,
    applicant_view,
    number_differences,
    view_differences,
    words_of,
)
from stream.replay.judge.models import Models
from stream.replay.judge.repeats import SeenRecords, keys_of
from stream.replay.judge.verdict import (
    OF_A_REPLAY,
    OUTSIDE,
    REPEAT,
    Side,
    Verdict,
    differing_parts,
    differing_recommendation,
    refused,
    side_of,
)
from stream.replay.judge.what_if import Change, ChangedModels, asked_of, is_same_model
from stream.replay.sources.records import Raw, Record, Stored, Window, decided_at_ms, read_raw
from stream.replay.sources.source import ReadsRecords, Snapshot, chunks_of
from stream.wire.framing import Framing

log = logging.getLogger(__name__)

CHUNK_RECORDS = 1_000
DIGEST_BYTES = 16  # of the 32 of SHA-256, to remember which decisions have an answer


class Mode(Protocol):
    """One mode. `counts_answers`: it counts stored answers, not decisions."""

    counts_answers: ClassVar[bool]

    def judge(self, record: Record) -> Verdict:
        """Raises: PoisonError for a record that cannot be replayed, DependencyError, CorruptionError."""


class Judge:
    """Reads records, drops those outside the window and repeats, and asks the mode about the rest."""

    def __init__(
        self, mode: Mode, *, framing: Framing, window: Window, decision_bytes_max: int, seen: SeenRecords
    ) -> None:
        """`seen`: the records before the next; each record judged is noted there."""
        self._mode = mode
        self._seen = seen
        self._framing = framing
        self._window = window
        self._decision_bytes_max = decision_bytes_max

    def verdict(self, raw: Raw) -> Verdict:
        """Return the verdict on one record, with its error if it has one.

        Raises: DependencyError, CorruptionError, ConfigurationError, which end the run.
        """
        decision_id: str | None = None
        conflict = False
        try:
            record = read_raw(raw, self._framing, decision_bytes_max=self._decision_bytes_max)
            decision_id = decision_of_record(record).decision_id
            apart = self._apart(record, decision_id, raw)
            if apart is not None:
                return apart
            noted = self._seen.note(keys_of(record, counts_answers=self._mode.counts_answers))
            if noted == "repeat":
                return Verdict(outcome=REPEAT, decision_id=decision_id)
            conflict = noted == "conflict"
            return replace(self._mode.judge(record), conflict=conflict)
        except PoisonError as error:
            if decision_id is None and not self._window.holds(raw.inbound.timestamp_ms) and not raw.is_line:
                return Verdict(outcome=OUTSIDE, decision_id=None, decided_ms=raw.inbound.timestamp_ms)
            return replace(refused(decision_id, error), conflict=conflict)
        except (StreamError, MemoryError):
            raise
        except Exception as fault:  # noqa: BLE001 - whatever it is, it must not stop the records behind this one
            found = UnexpectedFault(
                f"{type(fault).__name__} at {where_raised(fault)}: a fault of this software; report it"
            )
            log.error(  # noqa: TRY400 - a traceback's last line may hold a feature's value
                "replay.fault", extra={"decision_id": decision_id, "where": raw.where, "fault": str(found)}
            )
            return replace(refused(decision_id, found), conflict=conflict)

    def _apart(self, record: Record, decision_id: str, raw: Raw) -> Verdict | None:
        """The verdict on a record that is not replayed because of its mark or its time; None for all others."""
        if isinstance(record, Stored) and record.replay:
            return Verdict(outcome=OF_A_REPLAY, decision_id=decision_id)
        decided_ms = decided_at_ms(record, raw.inbound)
        if self._window.holds(decided_ms):
            return None
        return Verdict(outcome=OUTSIDE, decision_id=decision_id, decided_ms=decided_ms)


class Reproduce:
    """Answers stored decisions again with the bundle that answered, and compares the bodies byte for byte."""

    counts_answers: ClassVar[bool] = True

    def __init__(self, models: Models) -> None:
        self._models = models

    def judge(self, record: Record) -> Verdict:
        """See `Mode`."""
        if not isinstance(record, Stored):
            message = "the record is a decision; only stored answers can be reproduced, so replay the audit records"
            raise MalformedRecord(message)
        made = answer(record.decision, self._models.by_digest(record.bundle_sha256))
        stored_sha256 = sha256(record.body)  # our own, of its canonical form: the published one is only a claim
        differs = () if made.body_sha256 == stored_sha256 else differing_parts(made.body, record.body)
        if record.recommendation is not None:
            differs += differing_recommendation(made.recommendation, record.recommendation)
        if record.body_sha256 is not None and record.body_sha256 != stored_sha256:
            outcome, differs = "altered", ("body_sha256", *differs)
        elif record.engine_version != ENGINE_VERSION:
            outcome = "other_engine"
        else:
            outcome = "changed" if differs else "identical"
        before = None
        with suppress(KeyError, TypeError, ValueError, AttributeError):  # as it was stored, of any shape
            before = side_of(record.body)
        return Verdict(
            outcome=outcome,
            decision_id=record.decision.decision_id,
            differs=differs,
            before=before,
            after=side_of(made.body),
            decision=replace(record.decision, traceparent=record.traceparent),
            answer=made,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Before:
    """The answer before. `view` and `body` are None where no letter was due, or its text is unknown."""

    side: Side
    its_own: bool
    view: ApplicantView | None = None
    body: Body | None = None


class WhatIf:
    """Decides again, approvals too, and answers those who would be declined."""

    counts_answers: ClassVar[bool] = False

    def __init__(self, models: Models, change: Change) -> None:
        self._models = models
        self._change = change
        self._changed = ChangedModels(models, change)

    def judge(self, record: Record) -> Verdict:
        """See `Mode`."""
        decision = decision_of_record(record)
        model = self._changed.for_decision(decision)
        was = self._before(record, decision, model)
        its_own = was.its_own
        asked, left_out = asked_of(decision, model, self._change)
        accepted = score(asked, model).accepted if its_own else decision.outcome == "approved"
        verdict = Verdict(
            outcome=_outcome(decision, its_own=its_own, accepted=accepted),
            decision_id=decision.decision_id,
            before=was.side,
            features_left_out=left_out,
        )
        if accepted:
            # A person's approval stands whatever the model says, so it need not fit the other model.
            after = Side(margin=score(asked, model).margin) if its_own else None
            return replace(verdict, after=after)
        asked = replace(asked, outcome="declined")
        made = answer(asked, model)
        verdict = replace(verdict, after=side_of(made.body), decision=asked, answer=made)
        if was.view is None or was.body is None:
            return replace(verdict, earlier_known=False)
        view = applicant_view(made.body, words_of(model), made.recommendation["expires_at"])
        with _as_stored():
            behind = number_differences(was.body, made.body)
        differs = view_differences(was.view, view)
        return replace(verdict, differs=differs, behind=behind)

    def _before(self, record: Record, decision: Decision, asked: PublishedModel) -> _Before:
        """The answer before, as far as it is known, and whether the outcome was the model's own.

        An outcome that the deciding model contradicts, or a decline on another basis, was somebody's decision and stays.
        """
        if isinstance(record, Stored):
            words, its_own = self._words_of(record, asked), record.body["status"] != "not_model_decline"
            with _as_stored():
                view, side = applicant_view(record.body, words, None), side_of(record.body)
            return _Before(side=side, its_own=its_own, view=view, body=record.body)
        by_model = decision.outcome == "approved" or decision.decline_basis == "model"
        try:
            own = self._models.of_decision(decision)
            scored = score(decision, own)
            made = None if decision.outcome == "approved" else answer(decision, own)
        except PoisonError:
            if is_same_model(decision, asked):
                raise
            # its own model is not at hand, or not as the decider says
            return _Before(side=Side(margin=decision.margin), its_own=by_model)
        agrees = scored.accepted == (decision.outcome == "approved")
        its_own = by_model and agrees
        if made is None:
            return _Before(side=Side(margin=scored.margin), its_own=its_own)
        view = applicant_view(made.body, words_of(own), made.recommendation["expires_at"])
        return _Before(side=side_of(made.body), its_own=its_own, view=view, body=made.body)

    def _words_of(self, record: Stored, asked: PublishedModel) -> FeatureWords | None:
        """What a stored answer's actions were called; None where its rules are neither those asked nor at hand."""
        if record.body["bundle"].get("features_sha256") == asked.identity["features_sha256"]:
            return words_of(asked)
        try:
            return words_of(self._models.by_digest(record.bundle_sha256))
        except PoisonError:
            return None


class Backfill:
    """Answers the decisions without an answer."""

    counts_answers: ClassVar[bool] = False

    def __init__(self, models: Models, answered: Container[bytes]) -> None:
        """`answered`: digests of the decisions that have one, as `decision_digest` gives them."""
        self._models = models
        self._answered = answered

    def judge(self, record: Record) -> Verdict:
        """See `Mode`."""
        decision = decision_of_record(record)
        if decision.outcome == "approved":
            return Verdict(outcome="approved", decision_id=decision.decision_id)
        if isinstance(record, Stored) or decision_digest(decision) in self._answered:
            return Verdict(outcome="answered_before", decision_id=decision.decision_id)
        made: Answer = answer(decision, self._models.of_decision(decision))
        return Verdict(
            outcome="answered_now",
            decision_id=decision.decision_id,
            after=side_of(made.body),
            decision=decision,
            answer=made,
        )


def answered_in(sources: Iterable[tuple[ReadsRecords, Snapshot]], framing: Framing) -> set[bytes]:
    """Collect the digests of all decisions that a stored answer is about; replays' answers do not count.

    About 100 bytes of memory a decision. Raises: ConfigurationError, DependencyError, CorruptionError.
    """
    found: set[bytes] = set()
    for source, snapshot in sources:
        for read in source.read(chunks_of(snapshot.ranges, CHUNK_RECORDS)):
            for raw in read.raws:
                try:
                    record = read_raw(raw, framing, decision_bytes_max=0)
                except PoisonError:
                    continue  # an unreadable record answers nothing
                if isinstance(record, Stored) and not record.replay:
                    found.add(decision_digest(record.decision))
    return found


def decision_of_record(record: Record) -> Decision:
    """The decision that a record is, or the one stored in it with its answer."""
    return record.decision if isinstance(record, Stored) else record


def decision_digest(decision: Decision) -> bytes:
    """Return a short digest of a decision with its whole content."""
    return bytes.fromhex(sha256(decision_by_value(decision)))[:DIGEST_BYTES]


@contextmanager
def _as_stored() -> Iterator[None]:
    """Report a stored body of another shape as MalformedRecord."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = "the stored body lacks a part of an audit record, or has it in another shape"
        raise MalformedRecord(message) from error


def _outcome(decision: Decision, *, its_own: bool, accepted: bool) -> str:
    if decision.outcome == "approved":
        if not its_own:
            return "approved_otherwise"
        return "still_approved" if accepted else "newly_declined"
    if not its_own:
        return "declined_otherwise"
    return "newly_approved" if accepted else "still_declined"
