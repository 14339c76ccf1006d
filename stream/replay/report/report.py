"""The report: a pure function of what a run began with and the results of its chunks. The counts add up, or there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import orjson

from stream.errors import CorruptionError
from stream.events import TIERS
from stream.replay.judge.verdict import APART, DIFFERENCES, ERROR, OUTCOMES, ModeName
from stream.replay.report.tally import MARGIN_BIN, NANO, ReplayTally, effort_of_bin
from stream.replay.sources.source import Snapshot

FORMAT_VERSION: Final = 1
FOLDERS: Final = ("out",)  # parameters that say where, not what
SIDES: Final = ("before", "after")
RECOURSE: Final = (
    "still_feasible", "newly_feasible", "no_longer_feasible", "still_infeasible", "not_asked_for", "unknown_before",
)  # fmt: skip
KINDS: Final = ("decision", "unreadable", *APART)  # each record is one of these
ANSWERS: Final = ("told_the_same", "told_differently", "told_before_unknown")
FEASIBILITIES: Final = ("feasible", "infeasible", "not_model")
COMPARED: Final[Mapping[ModeName, tuple[str, ...]]] = {  # outcomes whose recourse is compared
    "reproduce": ("identical", "changed", "other_engine", "altered"), "what-if": ("still_declined",), "backfill": (),
}  # fmt: skip


def report_of(parameters: Mapping[str, Any], source: Snapshot, tally: ReplayTally) -> dict[str, Any]:
    """Compose the report.

    Raises: CorruptionError when its counts do not add up to the input, which would be a fault of this software.
    """
    mode = cast("ModeName", parameters["mode"])
    check_sums(mode, source, tally)
    outcomes = tally.of("outcomes")
    pairs = sorted([*map(int, key.split(",")), number] for key, number in tally.of("margins").items())
    return {
        "format_version": FORMAT_VERSION,
        "run_id": parameters["run_id"],
        "mode": mode,
        "parameters": {name: value for name, value in parameters.items() if name not in FOLDERS},
        "source": source.to_json(),
        "records": tally.records,
        "offsets_without_record": tally.without_record,
        "counted": {name: tally.of("kinds")[name] for name in KINDS},
        "conflicts": tally.of("conflicts").total(),
        "outside": None if tally.outside_ms is None else dict(zip(("first", "last"), tally.outside_ms, strict=True)),
        "outcomes": {name: outcomes[name] for name in OUTCOMES[mode]},
        "answers": {name: tally.of("answers")[name] for name in ANSWERS},
        "numbers_behind": {
            "of_those_told_the_same": tally.of("behind").total(),
            "parts": _by_name(tally.of("behind_parts")),
        },
        "recourse": {name: tally.of("recourse")[name] for name in RECOURSE},
        "recourse_of_newly_declined": {name: tally.of("recourse_of_newly_declined")[name] for name in FEASIBILITIES},
        "differs": {
            name: _by_name(tally.of(f"differs:{name}")) for name in OUTCOMES[mode] if f"differs:{name}" in tally.counts
        },
        "errors": _by_name(tally.of("errors")),
        "bundles": dict(sorted(tally.of("bundles").items())),
        "features_left_out": tally.features_left_out,
        "feasibility": {
            side: {name: tally.of(f"feasibility:{side}")[name] for name in FEASIBILITIES} for side in SIDES
        },
        "tiers": {side: {tier: _tier(tally, side, tier) for tier in TIERS} for side in SIDES},
        "margins": {"bin_width": MARGIN_BIN, "pairs": pairs},
        "examples": tally.examples,
    }


def check_sums(mode: ModeName, source: Snapshot, tally: ReplayTally) -> None:
    """Check the counts against each other and against the input. Raises: CorruptionError."""
    outcomes = tally.of("outcomes")
    compared = sum(outcomes[name] for name in COMPARED[mode])
    kinds = tally.of("kinds")
    apart = {name: outcomes[name] for name in APART}
    sums = [
        ("records and proven gaps, and input", tally.records + tally.without_record, source.records),
        ("outcomes and records", outcomes.total(), tally.records),
        ("known outcomes and records", sum(outcomes[name] for name in OUTCOMES[mode]), tally.records),
        (
            "decisions, unreadable ones, repeats and those apart, and records",
            sum(map(kinds.__getitem__, KINDS)),
            tally.records,
        ),
        *((f"records counted as {name}, and outcomes", kinds[name], number) for name, number in apart.items()),
        ("reasons of errors and errors", tally.of("errors").total(), outcomes[ERROR]),
        ("recourse and declines", tally.of("recourse").total(), compared),
        ("answers and declines", tally.of("answers").total(), outcomes["still_declined"]),
        (
            "recourse of newly declined and newly declined",
            tally.of("recourse_of_newly_declined").total(),
            outcomes["newly_declined"],
        ),
    ]
    for what, one, other in sums:
        if one != other:
            message = f"the report's counts do not add up: {what} are {one} and {other}; keep the run's folder, and report this"
            raise CorruptionError(message)


def report_bytes(report: Mapping[str, Any]) -> bytes:
    """The bytes of report.json: equal reports have equal bytes."""
    return orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


def is_all_right(report: Mapping[str, Any]) -> bool:
    """Whether the run found nothing wrong: no difference to stored answers, and no record that failed."""
    outcomes = report["outcomes"]
    if report["mode"] != "reproduce":
        return not outcomes[ERROR]
    return outcomes["identical"] > 0 and not any(outcomes[name] for name in DIFFERENCES)


def _tier(tally: ReplayTally, side: str, tier: str) -> dict[str, Any]:
    bins = tally.of(f"effort:{side}:{tier}")
    count = bins.total()
    histogram = sorted((effort_of_bin(key), number) for key, number in bins.items())
    total, actions = tally.of(f"effort_nano:{side}")[tier], tally.of(f"actions:{side}:{tier}")[""]
    return {
        "answers": count,
        "effort_mean": round(total / count / NANO, 6) if count else None,
        "effort_median_about": _quantile(histogram, 0.5),
        "effort_p90_about": _quantile(histogram, 0.9),
        "actions_mean": round(actions / count, 4) if count else None,
        "histogram": [[round(effort, 6), number] for effort, number in histogram],
        "features": _by_name(tally.of(f"features:{side}:{tier}")),
    }


def _quantile(histogram: Iterable[tuple[float, int]], share: float) -> float | None:
    """The effort that `share` of all answers do not exceed, as well as its bin tells."""
    bins = list(histogram)
    wanted, seen = share * sum(number for _, number in bins), 0
    for effort, number in bins:
        seen += number
        if seen >= wanted:
            return round(effort, 4)
    return None


def _by_name(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))
