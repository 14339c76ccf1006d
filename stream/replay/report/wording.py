"""How the report calls things, and what each means: one line for a person who sees it for the first time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

OUTCOME_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "identical": ("Identical", "answered again byte for byte as it is stored"),
    "changed": ("Changed", "the same engine version gives another answer today: this must not be, look into it"),
    "other_engine": ("Other engine version", "stored by another version of the method, whose answers may differ"),
    "altered": ("Altered", "what is stored is not what its own hash says: it was changed after it was written"),
    "still_approved": ("Still approved", "approved then, and would be now"),
    "newly_declined": ("Newly declined", "approved then, and would be declined now"),
    "newly_approved": ("Newly approved", "declined then, and would be approved now"),
    "still_declined": ("Still declined", "declined then, and would be now"),
    "approved_otherwise": ("Approved by a person", "the model that decided would have declined; it stays approved"),
    "declined_otherwise": (
        "Declined otherwise",
        "by policy, by hand or for fraud, or against the model; it stays declined",
    ),
    "answered_before": ("Answered before", "has an audit record already"),
    "answered_now": ("Answered now", "had no audit record; the answer is in this run's output"),
    "approved": ("Approved", "needs no answer"),
    "error": ("Not replayed", "each by its reason below; none is lost, they are in the run's dead letters"),
    "repeat": (
        "Repeats",
        "equal to an earlier record, such as a redriven one or one delivered twice; not counted again",
    ),
    "outside_window": ("Outside the window", "decided before --from, or at --to or later"),
    "of_a_replay": ("Of a replay", "written by a replay, so it is neither a decision nor an answer of its own"),
}
RECOURSE_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "still_feasible": ("Still feasible", "there was something to do, and there is"),
    "newly_feasible": ("Newly feasible", "there was nothing to do, and now there is"),
    "no_longer_feasible": ("No longer feasible", "there was something to do, and now there is nothing"),
    "still_infeasible": ("Still infeasible", "there was nothing to do, and there is nothing"),
    "not_asked_for": ("Not asked for", "not the model's decline on one of the two sides"),
    "unknown_before": ("Unknown before", "the model that decided is not at hand"),
}
EXAMPLE_WORDS: Final[Mapping[str, str]] = {  # groups of examples that are no outcome
    **{name: label for name, (label, _) in RECOURSE_WORDS.items()},
    "conflict": "Same id, other content",
}
FEASIBILITY_WORDS: Final[Mapping[str, str]] = {
    "feasible": "with something to do", "infeasible": "with nothing to do", "not_model": "not the model's decline",
}  # fmt: skip
REASON_WORDS: Final[Mapping[str, str]] = {
    "MalformedRecord": "the bytes are no record of the kind that this mode reads",
    "UnreadableRecords": "in a batch of Kafka's log that cannot be read",
    "UnknownSchema": "framed with a schema that nobody here knows",
    "InvalidDecision": "a field of the decision breaks its contract",
    "UnknownOutcome": "the outcome is neither approved nor declined",
    "MissingFeature": "a feature of the model is absent from the decision",
    "UnknownFeature": "the decision has a feature that the model does not have",
    "WrongFeatureType": "a number where the model takes a word, or a word where it takes a number",
    "NonFiniteFeature": "a feature is infinite, or too large for the model",
    "UnknownCategory": "a category that neither features.toml nor the model file lists",
    "OverrideRefused": "a policy override that these rules refuse",
    "ModelNotPublished": "nobody published the model, or gave it with --bundle",
    "BundleLoading": "of a model whose bundle was still being fetched",
    "ClaimMismatch": "the decider's margin or probability is not what its model gives",
    "RecordTooLarge": "the answer is larger than its topic takes",
    "DeliveryRefused": "the brokers refuse the answer for good",
    "UnexpectedFault": "a fault of this software; report it",
}
SIDE_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "reproduce": ("stored", "again"), "what-if": ("before", "after"), "backfill": ("before", "now"),
}  # fmt: skip
MODE_WORDS: Final[Mapping[str, str]] = {
    "reproduce": "Stored answers, answered again with the bundles that they name",
    "what-if": "Decisions, decided again under other conditions",
    "backfill": "Decisions without an answer, answered",
}
COUNTED_WORDS: Final[Mapping[str, str]] = {
    "reproduce": "stored answer", "what-if": "decision", "backfill": "decision",
}  # fmt: skip
APART_WORDS: Final[Mapping[str, str]] = {
    "unreadable": "not readable", "outside_window": "outside the window", "of_a_replay": "of a replay",
}  # fmt: skip
PARAMETER_WORDS: Final[Mapping[str, str]] = {
    "model": "model version asked",
    "threshold": "threshold",
    "threshold_scale": "scale of the threshold",
    "features_sha256": "SHA-256 of features.toml",
    "policy_sha256": "SHA-256 of policy.toml",
    "topic": "topic read",
    "archive": "archive read",
    "engine_version": "engine version",
}


def counting(report: Mapping[str, Any]) -> str:
    """Say how many decisions the records are, and what the others are."""
    counted, noun = report["counted"], COUNTED_WORDS[report["mode"]]
    said = [_count(counted["decision"], noun)]
    if counted["repeat"]:
        said.append(f"{counted['repeat']:,} that {'repeats' if counted['repeat'] == 1 else 'repeat'} one of them")
    said += [f"{counted[name]:,} {words}" for name, words in APART_WORDS.items() if counted[name]]
    return f"{_count(report['records'], 'record')}: {', '.join(said)}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def headline(report: Mapping[str, Any], outcomes: Mapping[str, int], records: int) -> str:
    """Say in one sentence what the run found."""
    if report["mode"] == "reproduce":
        found = sum(outcomes[name] for name in ("changed", "other_engine", "altered"))
        if not records:
            return "There was nothing to reproduce."
        if outcomes["identical"] == records:
            return f"All {records:,} stored answers come out again, byte for byte."
        return (
            f"{outcomes['identical']:,} of {records:,} stored answers come out again byte for byte; {found:,} differ."
        )
    if report["mode"] == "backfill":
        return f"{outcomes['answered_now']:,} decisions had no answer and have one now."
    newly = f"{outcomes['newly_approved']:,} would be newly approved, {outcomes['newly_declined']:,} newly declined"
    return f"Of {_count(report['counted']['decision'], 'decision')}, {newly}."
