"""Re-checks a run of audit records: each by itself, all against each other, and on request against the bundle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stream.audit.sources import Found
from stream.audit.stray_files import ArchiveFault
from stream.audit.verify.body import verify
from stream.canonical import canonical_json, sha256
from stream.errors import PoisonError
from stream.recourse.answer import answer
from stream.recourse.model import PublishedModel
from stream.runtime.scratch_index import ScratchIndex
from stream.wire.decisions import decision_of

BUNDLE_CONSTANTS: Final = (
    "bundle", "library", "library_version", "objective", "trees_used", "summation", "approve",
    "epsilon", "beta", "scales", "unit_log2", "reasons_mapping",
)  # fmt: skip
OF_THE_DELIVERY: Final = ("replay", "run_id")  # of a recommendation; all else follows from decision and bundle


@dataclass(slots=True, kw_only=True)
class Tally:
    """What a check has seen so far. What it must remember of each answer lies on this host's disk."""

    records: int = 0
    wrong: int = 0  # records with at least one fault
    broken: int = 0  # faults of an archive that are none of a record
    duplicates: int = 0  # further records of one answer, equal to the first in body
    answered_again: int = 0  # records that the given bundle was asked about once more
    answers: ScratchIndex = field(default_factory=ScratchIndex, repr=False)  # answer -> body hash, where
    # What a bundle says of itself -> its hash, where.
    of_bundles: ScratchIndex = field(default_factory=ScratchIndex, repr=False)


def check(found: Iterable[Found | ArchiveFault], tally: Tally, model: PublishedModel | None = None) -> Iterator[str]:
    """Check records one by one, counting in `tally`; yields one line per fault, and the same of one record once."""
    for one in found:
        if isinstance(one, ArchiveFault):
            tally.broken += 1
            yield f"{one.where}: {one.fault}"
            continue
        tally.records += 1
        faults = list(dict.fromkeys(_faults(one, tally, model)))
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
    decision = body.get("decision")
    own = decision.get("decision_id") if isinstance(decision, Mapping) else None
    if one.record.get("decision_id", own) != own or one.named not in (None, own):
        yield "the record has another decision_id than its body"
    if faults or not isinstance(published, str):
        return  # its identity cannot be trusted either
    if one.text is not None and one.text != canonical_json(body):
        yield "the body is not kept as its canonical JSON"
    before = tally.answers.first(body["recommendation_id"], published, one.where)
    if before[0] != published:
        yield f"is the same answer as {before[1]}, with another body"
    tally.duplicates += before != (published, one.where) and before[0] == published
    for what, value in _of_the_bundle(body):
        digest = sha256(value)
        first = tally.of_bundles.first("\0".join(what), digest, one.where)
        if first[0] != digest:
            yield f"is of the same bundle as {first[1]}, and gives it another {what[-1]}"
    if model is not None:
        yield from _against(one, body, published, model, tally)


def _of_the_bundle(body: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Take out what is the bundle's and not the decision's, so that all records of one bundle must agree on it."""
    of = (str(body["bundle"]["bundle_sha256"]), str(body["engine_version"]))
    is_brief = body["query_leaves"] is None
    yield (*of, "description"), [body[key] for key in BUNDLE_CONSTANTS] + [body.get("missing"), is_brief]
    threshold = [body["threshold"], body["threshold_scale"]]
    if body["decision"]["threshold"] is None:
        yield (*of, "threshold"), threshold
    yield (*of, sha256(threshold), "cutoff"), body["cutoff_margin"]


def _against(one: Found, body: Mapping[str, Any], digest: str, model: PublishedModel, tally: Tally) -> Iterator[str]:
    """Answer the decision again; compare the whole body, the model's own margins with it, and the recommendation."""
    if body["bundle"]["bundle_sha256"] != model.identity["bundle_sha256"]:
        return
    tally.answered_again += 1
    try:
        again = answer(decision_of(body["decision"], timed=False), model)
    except PoisonError as error:
        yield f"the bundle cannot answer this decision: {error.reason}: {error}"
        return
    if again.body_sha256 != digest:
        yield f"the bundle gives another body for this decision; it differs in: {_differing(again.body, body)}"
    if one.recommendation is not None:
        given = {key: value for key, value in one.recommendation.items() if key not in OF_THE_DELIVERY}
        made = {key: value for key, value in again.recommendation.items() if key not in OF_THE_DELIVERY}
        if sha256(given) != sha256(made):
            differing = _differing(made, given)
            yield f"the bundle gives another recommendation for this decision; it differs in: {differing}"


def _differing(made: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    keys = [key for key in made if key not in given or sha256(made[key]) != sha256(given[key])]
    return ", ".join(keys) or "fields that there are not"
