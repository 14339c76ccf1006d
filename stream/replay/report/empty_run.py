"""Why a run replayed nothing: what its source holds, and which flag left it out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from stream.times import rfc3339

WINDOW: Final = (("from_ms", "--from"), ("to_ms", "--to"))


def why_nothing(report: Mapping[str, Any]) -> str | None:
    """Say it in a few sentences; None where a decision was replayed, or at least a record could not be."""
    counted = report["counted"]
    if counted["decision"] or counted["unreadable"]:
        return None
    return " ".join(["Nothing was replayed:", *_sentences(report)])


def _sentences(report: Mapping[str, Any]) -> Iterator[str]:
    parameters, source, counted = report["parameters"], report["source"], report["counted"]
    source_name, left_out = _source_name(parameters, source), source["says"].get("left_out")
    of_topic = source["kind"] == "kafka"
    flags = _flags(parameters)
    if not left_out and not report["records"]:
        chosen = parameters.get("offsets") is not None
        yield f"--offsets names no record of {source_name}." if chosen else f"{source_name} holds no record."
        return
    if left_out:
        span = "" if not left_out.get("first") else f" of {_span(left_out['first'], left_out['last'])}"
        number = f"{'up to ' if of_topic else ''}{left_out['records']:,}"
        text = f"{source_name} holds {number} records{span} that {_flags(parameters, WINDOW[:1]) if of_topic else flags} left out unread"
        yield text + (", by the times at which the brokers took them in." if of_topic else ".")
    if counted["outside_window"]:
        when, outside = "", report["outside"]
        if outside is not None:
            when = f"; they were decided {_span(rfc3339(outside['first']), rfc3339(outside['last']))}"
        yield f"{counted['outside_window']:,} records of {source_name} were read, and {flags} left them out{when}."
    if counted["of_a_replay"]:
        yield f"{counted['of_a_replay']:,} records of {source_name} were written by replays, which are not replayed."


def _source_name(parameters: Mapping[str, Any], source: Mapping[str, Any]) -> str:
    if source["kind"] == "kafka":
        return f"topic {source['says']['topic']}"
    return f"archive {parameters['archive']}" if source["kind"] == "archive" else "the file of --input"


def _flags(parameters: Mapping[str, Any], window: Sequence[tuple[str, str]] = WINDOW) -> str:
    given = [f"{flag} {rfc3339(parameters[name])}" for name, flag in window if parameters.get(name) is not None]
    return " and ".join(given) or "the window"


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"
