"""Re-checks a run of audit records: each by itself, all against each other, and on request against the bundle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stream.audit_log.sources import Found
from stream.errors import PoisonError
from stream.recourse.answer import answer
from stream.recourse.audit import verify
from stream.recourse.canonical import sha256
from stream.recourse.model import PublishedModel
from stream.wire.decisions import decision_of


@dataclass(slots=True, kw_only=True)
class Tally:
    """What a check has seen so far."""

    records: int = 0
    wrong: int = 0  # records with at least one fault
    duplicates: int = 0  # further records of one answer, equal to the first in body
    of_other_bundles: int = 0  # records that the given bundle did not answer, so their margins were not re-scored
    first_seen: dict[str, tuple[str, str]] = field(default_factory=dict, repr=False)  # answer -> body hash, where


def check(found: Iterable[Found], tally: Tally, model: PublishedModel | None = None) -> Iterator[str]:
    """Check records one by one, counting in `tally`; yields one line per fault."""
    for one in found:
        tally.records += 1
        faults = list(_faults(one, tally, model))
        tally.wrong += bool(faults)
        for fault in faults:
            yield f"{one.where}: {fault}"


def _faults(one: Found, tally: Tally, model: PublishedModel | None) -> Iterator[str]:
    if isinstance(one.record, str):
        yield one.record
        return
    body, published = one.record["body"], one.record.get("body_sha256")
    faults = verify(body, published, one.recommendation)
    yield from faults
    if one.record.get("decision_id", _decision_id(body)) != _decision_id(body):
        yield "the record has another decision_id than its body"
    if faults:
        return  # its identity cannot be trusted either
    digest = published or sha256(body)
    before = tally.first_seen.setdefault(body["recommendation_id"], (digest, one.where))
    if before[0] != digest:
        yield f"is the same answer as {before[1]}, with another body"
    tally.duplicates += before != (digest, one.where) and before[0] == digest
    if model is not None:
        yield from _against(body, digest, model, tally)


def _decision_id(body: Mapping[str, Any]) -> object:
    decision = body.get("decision")
    return decision.get("decision_id") if isinstance(decision, Mapping) else None


def _against(body: Mapping[str, Any], digest: str, model: PublishedModel, tally: Tally) -> Iterator[str]:
    """Answer the decision again and compare the whole body, the model's own margins with it."""
    if body["bundle"]["bundle_sha256"] != model.identity["bundle_sha256"]:
        tally.of_other_bundles += 1
        return
    try:
        again = answer(decision_of(body["decision"], timed=False), model)
    except PoisonError as error:
        yield f"the bundle cannot answer this decision: {error.reason}: {error}"
        return
    if again.body_sha256 != digest:
        differ = [key for key in again.body if again.body[key] != body.get(key)]  # type: ignore[literal-required]
        yield f"the bundle gives another body for this decision; it differs in: {', '.join(differ)}"
