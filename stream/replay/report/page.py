"""The report as one page of HTML: no script, nothing to fetch, the plots as SVG within it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from stream.events import TIERS
from stream.replay.judge.verdict import APART, ERROR, OUTCOMES
from stream.replay.report import plots
from stream.replay.report.empty_run import why_nothing
from stream.replay.report.report import FEASIBILITIES, RECOURSE, is_all_right
from stream.replay.report.wording import (
    EXAMPLE_WORDS,
    FEASIBILITY_WORDS,
    MODE_WORDS,
    OUTCOME_WORDS,
    PARAMETER_WORDS,
    REASON_WORDS,
    RECOURSE_WORDS,
    SIDE_WORDS,
    counting,
    headline,
)

TEMPLATE: Final = "page.html.j2"
ALERTS: Final = ("changed", "altered", "other_engine", ERROR)
KIND: Final = {
    "identical": "good", "newly_approved": "good", "answered_now": "good", "newly_declined": "bad", **dict.fromkeys(ALERTS, "bad"),
}  # fmt: skip
TILES: Final = {
    "reproduce": ("identical", "changed", "other_engine", "altered", ERROR),
    "what-if": ("newly_approved", "newly_declined", "still_approved", "still_declined", ERROR),
    "backfill": ("answered_now", "answered_before", "approved", ERROR),
}


def write_page(report: Mapping[str, Any]) -> bytes:
    """Write the page. A pure function of the report: equal reports give equal bytes."""
    return _template().render(**_content(report)).encode()


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.from_string((files("stream.replay.report") / TEMPLATE).read_text("utf-8"))


def _content(report: Mapping[str, Any]) -> dict[str, Any]:
    outcomes, mode = report["outcomes"], report["mode"]
    sides = SIDE_WORDS[mode]
    replayed = report["records"] - sum(outcomes[name] for name in APART)
    return {
        "report": report,
        "mode_words": MODE_WORDS[mode],
        "headline": headline(report, outcomes, replayed),
        "counting": counting(report),
        "nothing": why_nothing(report) or "",
        "asked": _asked(report["parameters"]) if mode == "what-if" else "",
        "tiles": [
            {
                "label": OUTCOME_WORDS[name][0].lower(),
                "count": outcomes[name],
                "kind": KIND.get(name, "") * bool(outcomes[name]),
            }
            for name in TILES[mode]
        ],
        "outcomes": [_row(name, outcomes[name], report["records"], OUTCOME_WORDS) for name in OUTCOMES[mode]],
        "errors": [
            {"name": name, "count": count, "meaning": REASON_WORDS.get(name, "")}
            for name, count in _most_first(report["errors"])
        ],
        "differs": [
            {"label": OUTCOME_WORDS[name][0], "rows": _most_first(report["differs"][name])}
            for name in OUTCOMES[mode]
            if name in report["differs"]
        ],
        "behind": _most_first(report["numbers_behind"]["parts"]),
        "recourse": [_row(name, report["recourse"][name], 0, RECOURSE_WORDS) for name in RECOURSE]
        if any(report["recourse"].values())
        else [],
        "newly_declined": ", ".join(
            f"{report['recourse_of_newly_declined'][name]:,} {FEASIBILITY_WORDS[name]}"
            for name in FEASIBILITIES
            if report["recourse_of_newly_declined"][name]
        ),
        "tiers": list(_tiers(report, sides)),
        "tier_names": TIERS,
        "features": _features(report),
        "sides": sides,
        "examples": list(_examples(report)),
        "facts": list(_facts(report)),
        "plots": _plots(report, sides),
    }


def _plots(report: Mapping[str, Any], sides: tuple[str, str]) -> dict[str, Markup]:
    tiers = report["tiers"]
    answers = any(tiers[side][tier]["answers"] for side in ("before", "after") for tier in TIERS)
    moved = any(before != after for before, after, _ in report["margins"]["pairs"])
    asks = any(tiers[side]["near"]["features"] for side in ("before", "after"))
    drawn = {
        "flow": plots.flow(report) if report["mode"] == "what-if" and report["records"] else "",
        "margins": plots.margins(report) if moved else "",
        "efforts": plots.efforts(report, sides) if answers else "",
        "actions": plots.actions(report, "near", sides) if asks else "",
    }
    return {name: Markup(svg) for name, svg in drawn.items()}  # noqa: S704 - our own drawing, whose texts are escaped


def _most_first(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda one: (-one[1], one[0]))


def _row(name: str, count: int, of: int, words: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    label, meaning = words[name]
    kind = "alert" if name in ALERTS and count else "none" if not count else ""
    share = f"{100 * count / of:.1f} %" if of else ""
    return {"label": label, "meaning": meaning, "count": count, "share": share, "kind": kind}


def _tiers(report: Mapping[str, Any], sides: tuple[str, str]) -> Iterator[dict[str, Any]]:
    for tier in TIERS:
        for side, name in zip(("before", "after"), sides, strict=True):
            found = report["tiers"][side][tier]
            if found["answers"]:
                yield {
                    "tier": tier,
                    "side": name,
                    "answers": found["answers"],
                    "mean": _figure(found["effort_mean"]),
                    "median": _figure(found["effort_median_about"]),
                    "p90": _figure(found["effort_p90_about"]),
                    "actions": _figure(found["actions_mean"]),
                }


def _features(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    before, after = report["tiers"]["before"], report["tiers"]["after"]
    names = {name for side in (before, after) for tier in TIERS for name in side[tier]["features"]}

    def most(name: str) -> tuple[int, str]:
        return -max(side["near"]["features"].get(name, 0) for side in (before, after)), name

    return [
        {
            "name": name,
            "cells": [
                f"{before[tier]['features'].get(name, 0):,} → {after[tier]['features'].get(name, 0):,}"
                for tier in TIERS
            ],
        }
        for name in sorted(names, key=most)
    ]


def _examples(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, rows in sorted(report["examples"].items(), key=lambda one: (one[0] not in ALERTS, one[0])):
        label = OUTCOME_WORDS[name][0] if name in OUTCOME_WORDS else EXAMPLE_WORDS[name]
        yield {"label": label, "rows": rows, "open": name in ALERTS}


def _facts(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    source, parameters = report["source"], report["parameters"]
    yield "mode", report["mode"]
    yield "verdict", "nothing wrong was found" if is_all_right(report) else "something differs or was not replayed"
    yield "source", source["kind"]
    for name, words in PARAMETER_WORDS.items():
        if parameters.get(name) is not None:
            yield words, str(parameters[name])
    for name in ("sha256", "lines"):
        if name in source["says"]:
            yield f"of the file: {name}", str(source["says"][name])
    if source["kind"] != "jsonl":
        for part, (first, end) in sorted(source["ranges"].items(), key=lambda one: int(one[0])):
            yield f"partition {part}", f"offsets {first} to {end}, which is excluded"
    for index, bundle in enumerate(sorted(report["bundles"])):
        yield "bundles that answered" if index == 0 else "", f"{bundle}: {report['bundles'][bundle]:,} answers"
    if report["features_left_out"]:
        yield (
            "features left out",
            f"up to {report['features_left_out']} of a decision, which the other model does not take",
        )


def _asked(parameters: Mapping[str, Any]) -> str:
    asked = []
    if parameters["model"] is not None:
        asked.append(f"model version {parameters['model']}")
    if parameters["threshold"] is not None:
        scale = f" on scale {parameters['threshold_scale']}" if parameters["threshold_scale"] else ""
        asked.append(f"threshold {parameters['threshold']:g}{scale}")
    for key, words in (("features_sha256", "another features.toml"), ("policy_sha256", "another policy.toml")):
        if parameters[key] is not None:
            asked.append(words)
    if not asked:
        asked.append("another bundle")
    return ", ".join(asked)


def _figure(number: float | None) -> str:
    return "" if number is None else f"{number:,.4g}"
