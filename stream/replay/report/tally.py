"""What a chunk adds to the report: counts, sums and a few examples. Adding two tallies is exact, in any grouping.

Never a feature value: of a person there is at most the decision_id.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stream.replay.judge.verdict import APART, Side, Verdict

EXAMPLES_MAX: Final = 12  # decision ids kept for each outcome that is worth a look
WORDS_MAX: Final = 6  # of what differs, per example
NANO: Final = 10**9
BINS_PER_OCTAVE: Final = 8
MARGIN_BIN: Final = 0.125
MARGIN_BINS_MAX: Final = 128  # beyond, margins fall into the last bin: +-16 in log-odds
WITHOUT_EXAMPLE: Final = frozenset(  # outcomes that need no example
    {
        "identical",
        "still_approved",
        "approved",
        "answered_before",
        "outside_window",
        "of_a_replay",
        "approved_otherwise",
    }
)
ZERO_EFFORT: Final = "0"
CONFLICT: Final = "conflict"  # the group of examples


@dataclass(slots=True)
class ReplayTally:
    """Counts by what they are counts of. Keys are texts, so that JSON gives back what it was given."""

    records: int = 0
    without_record: int = 0  # offsets that were proven to hold none
    features_left_out: int = 0  # most features of one decision that the other model does not take
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    examples: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    outside_ms: tuple[int, int] | None = None  # the first and last time of decision outside the window

    def add(self, verdict: Verdict, where: str) -> None:
        """Count a verdict in each of the report's groups; `where` is its record's, for the examples."""
        self.records += 1
        self.features_left_out = max(self.features_left_out, verdict.features_left_out)
        self._count("outcomes", verdict.outcome)
        self._count("kinds", kind_of(verdict))
        if verdict.conflict:
            self._count("conflicts", CONFLICT)
        if verdict.decided_ms is not None:
            self.outside_ms = _span(self.outside_ms, (verdict.decided_ms, verdict.decided_ms))
        for part in verdict.differs:
            self._count(f"differs:{verdict.outcome}", part)
        what = _some(verdict.differs) or _some(verdict.behind)
        if verdict.error is not None:
            self._count("errors", verdict.error.reason)
            what = verdict.error.reason
        if verdict.outcome == "still_declined":
            self._answers(verdict)
        if verdict.answer is not None:
            bundle = verdict.answer.body["bundle"]
            name = f"{bundle['model_id']}/{bundle['model_version']}/{bundle['revision']}"
            self._count("bundles", f"{name} {bundle['bundle_sha256']}")
        self._sides(verdict)
        feasibility = self._feasibility(verdict)
        for group in (verdict.outcome, feasibility, CONFLICT if verdict.conflict else None):
            if group is not None and group not in WITHOUT_EXAMPLE:
                self._example(group, {"decision_id": verdict.decision_id or "", "where": where, "what": what})

    def _answers(self, verdict: Verdict) -> None:
        """Count, for those declined both times, whether they are told the same, and what differs behind it."""
        if not verdict.earlier_known:
            self._count("answers", "told_before_unknown")
            return
        self._count("answers", "told_differently" if verdict.differs else "told_the_same")
        if verdict.behind and not verdict.differs:
            self._count("behind", "told_the_same")
        for part in verdict.behind:
            self._count("behind_parts", part)

    def _sides(self, verdict: Verdict) -> None:
        for name, side in (("before", verdict.before), ("after", verdict.after)):
            if side is None:
                continue
            if side.feasibility != "unknown":
                self._count(f"feasibility:{name}", side.feasibility)
            for tier, effort, features in side.tiers:
                self._count(f"effort:{name}:{tier}", effort_bin(effort))
                self._count(f"effort_nano:{name}", tier, round(effort * NANO))
                self._count(f"actions:{name}:{tier}", "", len(features))
                for feature in features:
                    self._count(f"features:{name}:{tier}", feature)
        before, after = verdict.before, verdict.after
        if before is not None and after is not None and before.margin is not None and after.margin is not None:
            self._count("margins", f"{margin_bin(before.margin)},{margin_bin(after.margin)}")

    def _feasibility(self, verdict: Verdict) -> str | None:
        """Count what became of recourse for those declined on both sides; return the group, if worth an example."""
        if verdict.answer is None or verdict.after is None:
            return None
        if verdict.outcome == "newly_declined":
            self._count("recourse_of_newly_declined", verdict.after.feasibility)
            return None
        if verdict.outcome not in ("still_declined", "identical", "changed", "other_engine", "altered"):
            return None
        group = recourse_group(verdict.before, verdict.after)
        self._count("recourse", group)
        return group if group in ("newly_feasible", "no_longer_feasible") else None

    def _count(self, of: str, key: str, by: int = 1) -> None:
        self.counts.setdefault(of, Counter())[key] += by

    def _example(self, group: str, example: dict[str, str]) -> None:
        kept = self.examples.setdefault(group, [])
        if len(kept) < EXAMPLES_MAX:
            kept.append(example)

    def merge(self, other: ReplayTally) -> None:
        """Add a later tally, in the order of the source."""
        self.records += other.records
        self.without_record += other.without_record
        self.features_left_out = max(self.features_left_out, other.features_left_out)
        self.outside_ms = _span(self.outside_ms, other.outside_ms)
        for of, counts in other.counts.items():
            self.counts.setdefault(of, Counter()).update(counts)
        for group, examples in other.examples.items():
            for example in examples:
                self._example(group, example)

    def of(self, what: str) -> Counter[str]:
        """The counts of something; empty where there was nothing to count."""
        return self.counts.get(what, Counter())

    def to_json(self) -> dict[str, Any]:
        """As a chunk's file keeps it."""
        return {
            "records": self.records,
            "without_record": self.without_record,
            "features_left_out": self.features_left_out,
            "counts": {of: dict(sorted(counts.items())) for of, counts in sorted(self.counts.items())},
            "examples": dict(sorted(self.examples.items())),
            "outside_ms": None if self.outside_ms is None else list(self.outside_ms),
        }


def tally_of(kept: Mapping[str, Any]) -> ReplayTally:
    """Read back what `Tally.to_json` wrote. Raises: KeyError, TypeError for anything else."""
    return ReplayTally(
        records=int(kept["records"]),
        without_record=int(kept["without_record"]),
        features_left_out=int(kept["features_left_out"]),
        counts={of: Counter(counts) for of, counts in kept["counts"].items()},
        examples={group: list(examples) for group, examples in kept["examples"].items()},
        outside_ms=None if kept["outside_ms"] is None else (int(kept["outside_ms"][0]), int(kept["outside_ms"][1])),
    )


def merged(tallies: Iterable[ReplayTally]) -> ReplayTally:
    """Add up tallies, in the order of their chunks."""
    whole = ReplayTally()
    for one in tallies:
        whole.merge(one)
    return whole


def kind_of(verdict: Verdict) -> str:
    """What a record is: a decision (with its answer, where those are counted), or one of those that say nothing new."""
    if verdict.outcome in APART:
        return verdict.outcome
    return "unreadable" if verdict.decision_id is None else "decision"


def _span(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    both = [span for span in (one, other) if span is not None]
    return (min(first for first, _ in both), max(last for _, last in both)) if both else None


def _some(parts: tuple[str, ...]) -> str:
    return ", ".join(parts[:WORDS_MAX]) + (", ..." if len(parts) > WORDS_MAX else "")


def recourse_group(before: Side | None, after: Side) -> str:
    """Name what became of a declined person's recourse."""
    was = "unknown" if before is None else before.feasibility
    if was == "unknown":
        return "unknown_before"
    if "not_model" in (was, after.feasibility):
        return "not_asked_for"
    if was == after.feasibility:
        return "still_feasible" if was == "feasible" else "still_infeasible"
    return "newly_feasible" if after.feasibility == "feasible" else "no_longer_feasible"


def effort_bin(effort: float) -> str:
    """The bin of an effort: eighths of an octave, and 0 by itself."""
    return ZERO_EFFORT if effort <= 0 else f"b{math.floor(BINS_PER_OCTAVE * math.log2(effort))}"


def effort_of_bin(key: str) -> float:
    """The middle of an effort's bin, within 4.5 % of all efforts in it."""
    return 0.0 if key == ZERO_EFFORT else 2.0 ** ((int(key[1:]) + 0.5) / BINS_PER_OCTAVE)


def margin_bin(margin: float) -> int:
    """The bin of a margin, MARGIN_BIN wide; the outermost hold all beyond MARGIN_BINS_MAX."""
    return max(-MARGIN_BINS_MAX, min(MARGIN_BINS_MAX, math.floor(margin / MARGIN_BIN)))
