"""Write schemas/examples anew: `python -m tests.schemas.write_examples`.

The audit records and recommendations are the engine's own answers for a made-up lender, so that every number in them
adds up. To be run when a schema or the engine version changes; what it writes is looked at and committed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stream.notify.letters.templates import read_templates
from stream.notify.letters.view import Recipient, view_of
from stream.notify.notices.notice import KeptLetter, notice
from stream.notify.settings import NotifySettings
from stream.recourse.answer import Answer, answer
from stream.wire.avro_records import encode
from stream.wire.schema_files import RecordName, current_schemas
from tests.recourse.category_lenders import category_lender
from tests.recourse.lenders import lender
from tests.schemas.example_files import EXAMPLES, read_good
from tests.wire.varints import varint

WIDTH = 120
TIME = "2026-11-27T10:15:00.250Z"
DECISION: dict[str, Any] = {
    "decision_id": "d-4711",
    "subject_ref": "s-09ae",
    "event_time": TIME,
    "model_id": "consumer-loan",
    "model_version": "2026-10",
    "features": {"duration": 24, "purpose": "car (new)", "savings": None},
    "outcome": "declined",
    "decline_basis": "model",
    "margin": -0.08271368,
    "probability": 0.47933,
    "threshold": 0.5,
    "threshold_scale": "probability",
    "product": "loan",
    "jurisdiction": "US",
    "policy_overrides": {"income": "immutable"},
    "disclosures": {"credit_bureau": "..."},
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
}
NOTICE_MS = 1_795_781_700_000
LEAST = {name: DECISION[name] for name in ("decision_id", "event_time", "model_id", "model_version", "outcome")}
LETTER: dict[str, Any] = {
    "key": "ZC00NzEx",
    "value": "eyJkZWNpc2lvbl9pZCI6ICJkLTQ3MTEifQ==",
    "headers": [{"key": "trace", "value": "AAEC"}, {"key": "trace", "value": None}],
    "topic": "decisions",
    "partition": 3,
    "offset": 9007199254740993,
    "timestamp": "2026-11-27T10:15:00.300Z",
    "stage": "validate",
    "error": "InvalidDecision",
    "message": "decision: event_time is missing; it is required",
    "attempts": 1,
    "first_seen": "2026-11-27T10:15:00.310Z",
    "last_seen": "2026-11-27T10:15:00.310Z",
    "software_version": "0.1.0",
    "retryable": False,
    "redrive_id": None,
}
MODEL: dict[str, Any] = {
    "model_id": "consumer-loan",
    "model_version": "2026-10",
    "revision": 2,
    "bundle_uri": "s3://models/consumer-loan/2026-10/2",
    "bundle_sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "library": "xgboost",
    "library_version": "3.2.0",
    "format_version": 1,
    "objective": "binary:logistic",
    "link": "logistic",
    "approve": "above",
    "threshold": 0.5,
    "threshold_scale": "probability",
    "cutoff_margin": 0.0,
    "trees_used": 300,
    "features": [{"name": "duration", "type": "integer"}, {"name": "purpose", "type": "category"}],
    "effective_from": "2026-10-01T00:00:00.000Z",
    "published_at": "2026-09-28T09:30:00.000Z",
    "approved_by": "model risk",
    "supersedes": "consumer-loan/2026-10/1",
}


def main() -> None:
    """Write every example."""
    for record, name, value in _good():
        folder = EXAMPLES / record
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(spelt(value) + "\n", "utf-8")
        raw = encode(record, _filled(record, folder / f"{name}.json"))
        (folder / f"{name}.hex").write_text("\n".join(_lines(raw.hex())) + "\n", "utf-8")
    for record, name, error, what, data in _bad():
        text = data if isinstance(data, str) else f"hex {data.hex()}"
        (EXAMPLES / record / f"{name}.bad").write_text(f"{error}: {what}\n{text}\n", "utf-8")


def _filled(record: RecordName, path: Path) -> dict[str, Any]:
    """A decision's record holds what is optional too."""
    value = read_good(record, path)
    defaults: dict[str, Any] = {
        **dict.fromkeys(DECISION),
        "decline_basis": "model",
        "policy_overrides": {},
        "disclosures": {},
    }
    return defaults | value if record == "Decision" else value


def _good() -> Iterator[tuple[RecordName, str, Mapping[str, Any]]]:
    yield "Decision", "contract", DECISION
    yield "Decision", "least", LEAST | {"features": {"duration": 24}}
    yield "Decision", "approved", LEAST | {"features": {"duration": 6}, "outcome": "approved", "probability": 0.91}
    yield "Decision", "declined_by_policy", LEAST | {"features": {"duration": 24}, "decline_basis": "policy"}
    numbers = {"whole": 9007199254740992, "tiny": 5e-324, "huge": 1.7976931348623157e308, "zero": -0.0, "third": 1 / 3}
    yield "Decision", "numbers", LEAST | {"features": numbers}
    yield "Decision", "other_alphabets", LEAST | {"decision_id": "Bescheid-Ü-7", "features": {"目的": "車 🏠"}}
    yield "ModelPublished", "revision", MODEL
    yield "ModelPublished", "first", MODEL | {"revision": 1, "approved_by": None, "supersedes": None}
    yield "DeadLetter", "missing_field", LETTER
    nothing: dict[str, Any] = {
        "key": None,
        "value": None,
        "headers": [],
        "timestamp": None,
        "redrive_id": "r-1",
        "retryable": True,
    }
    yield "DeadLetter", "tombstone_sent_again", LETTER | nothing
    yield from _notices()
    for name, found, envelope in _answers():
        yield "Recommendation", name, found.recommendation
        yield (
            "AuditRecord",
            name,
            {
                "decision_id": found.recommendation["decision_id"],
                "body": found.body,
                "body_sha256": found.body_sha256,
                "envelope": envelope,
            },
        )


def _notices() -> Iterator[tuple[RecordName, str, Mapping[str, Any]]]:
    small = lender("xgboost", trees=5, depth=2)
    told = answer(small.decide(small.declined(1)[0]), small.model).recommendation
    templates = read_templates("", "en").find("en")
    settings = NotifySettings(
        notify_lender_name="Example Savings Bank",
        notify_lender_address="100 Market Street, Springfield IL 62701",
        notify_lender_contact="call 1-800-555-0100",
    )
    recipient = Recipient(name="Pat Doe", address=("1 Main Street",)).kept
    view = view_of(told, settings, recipient=recipient, words=templates.words, now_ms=NOTICE_MS)
    mailed = KeptLetter(
        letter=templates.letter(view),
        locale="en",
        template_version=templates.version,
        channel="email",
        channel_why="as_asked",
        address_hmac=None,
    )
    done = notice(
        told,
        status="sent",
        now_ms=NOTICE_MS,
        kept=mailed,
        attempts=2,
        reply="<4f@lender.example> 250 2.0.0",
    )
    yield "Notice", "sent", done
    yield "Notice", "sending", notice(told, status="sending", now_ms=NOTICE_MS, kept=mailed)
    by_post = replace(mailed, channel="print", channel_why="bounced", address_hmac="5" * 64)
    yield (
        "Notice",
        "printed_after_a_bounce",
        {
            **notice(told, status="printed", now_ms=NOTICE_MS, kept=by_post, attempts=2),
            "reply": "d-4711-0f.html",
            "error": "Bounced: 550 5.1.1",
            "duplicate_possible": True,
        },
    )
    yield "Notice", "failed", notice(told, status="failed", now_ms=NOTICE_MS, attempts=9, error="NoticeGivenUp")
    yield "Notice", "different_answer", notice(told, status="withheld_different_answer", now_ms=NOTICE_MS)


def _answers() -> Iterator[tuple[str, Answer, Mapping[str, Any]]]:
    live = {
        "source": {"topic": "decisions", "partition": 3, "offset": 17, "timestamp": "2026-11-27T10:15:00.300Z"},
        "software_version": "0.1.0", "traceparent": None, "replay": False, "run_id": None, "seal": None,
    }  # fmt: skip
    offline = live | {"source": None}
    small = lender("xgboost", trees=5, depth=2)
    first, second = small.declined(2)
    yield "ok", answer(small.decide(first), small.model), live
    without_trees = small.with_model(audit_trees=False).model
    yield "without_trees", answer(small.decide(second, decision_id="d-4712"), without_trees), live
    by_policy = small.decide(first, decision_id="d-4713", decline_basis="policy")
    yield "not_model_decline", answer(by_policy, small.model), live
    frozen = dict.fromkeys(small.model.forest.features, "immutable")
    stuck = small.decide(first, decision_id="d-4714", policy_overrides=frozen)
    yield "no_feasible_recourse", answer(stuck, small.model), live
    worded = category_lender("xgboost", trees=4)
    yield "categories", answer(worded.decide(worded.declined(1)[0], decision_id="d-4715"), worded.model), live
    below = lender("lightgbm", "below", trees=5, depth=2)
    untimed = below.decide(below.declined(1)[0], decision_id="row-0", event_time_ms=None, disclosures={})
    yield "approve_below_offline", answer(untimed, below.model), offline


def _bad() -> Iterator[tuple[RecordName, str, str, str, str | bytes]]:
    yield from _bad_json_decisions()
    yield from _bad_avro()
    yield from _bad_outputs()


def _bad_json_decisions() -> Iterator[tuple[RecordName, str, str, str, str]]:
    least = LEAST | {"features": {"duration": 24}}
    text = json.dumps(least)

    def changed(before: str, after: str) -> str:
        if text.count(before) != 1:
            raise ValueError(before)
        return text.replace(before, after)

    for name, error, what, data in (
        ("empty", "MalformedRecord", "no bytes at all", ""),
        ("no_object", "MalformedRecord", "a JSON array where an object was expected", f"[{text}]"),
        ("cut_off", "MalformedRecord", "JSON that ends too soon", text[:-2]),
        ("two_objects", "MalformedRecord", "a second object after the first", f"{text} {text}"),
        ("same_key_twice", "MalformedRecord", "two outcomes", changed('"outcome"', '"outcome": "approved", "outcome"')),
        ("same_feature_twice", "MalformedRecord", "two values", changed('{"duration"', '{"duration": 6, "duration"')),
        ("nan", "MalformedRecord", "NaN, which JSON does not have", changed(": 24", ": " + "NaN")),
        ("infinity", "MalformedRecord", "Infinity, which JSON does not have", changed(": 24", ": " + "-Infinity")),
        ("half_a_surrogate_pair", "MalformedRecord", "no Unicode text", changed("d-4711", "\\ud800")),
        ("nested_deeply", "MalformedRecord", "nested beyond reading", '{"features": ' + "[" * 2_000),
        (
            "past_the_doubles",
            "NonFiniteFeature",
            "a number that only infinity could hold",
            changed(": 24", ": " + "1e400"),
        ),
        ("boolean_feature", "WrongFeatureType", "true is neither 1 nor a word", changed(": 24", ": " + "true")),
        ("list_feature", "WrongFeatureType", "a list", changed(": 24", ": " + "[24]")),
        (
            "inexact_integer",
            "WrongFeatureType",
            "an integer between two doubles",
            changed(": 24", ": " + "9007199254740993"),
        ),
        ("outcome_unknown", "UnknownOutcome", "neither approved nor declined", changed("declined", "referred")),
        ("event_time_missing", "InvalidDecision", "required", changed(f'"event_time": "{TIME}", ', "")),
        ("event_time_null", "InvalidDecision", "required, and null is absent", changed(f'"{TIME}"', "null")),
        ("event_time_without_zone", "InvalidDecision", "when is that?", changed(".250Z", ".250")),
        ("event_time_a_number", "InvalidDecision", "milliseconds are for Avro", changed(f'"{TIME}"', "1795774500250")),
        ("field_unknown", "InvalidDecision", "misspelt", changed('"outcome"', '"decline_bases": "fraud", "outcome"')),
        ("decision_id_empty", "InvalidDecision", "1 to 256 characters", changed("d-4711", "")),
        ("decision_id_too_long", "InvalidDecision", "1 to 256 characters", changed("d-4711", "d" * 257)),
        ("decision_id_a_number", "InvalidDecision", "a text", changed('"d-4711"', "4711")),
        (
            "decline_basis_unknown",
            "InvalidDecision",
            "not a word of it",
            changed('{"decision_id', '{"decline_basis": "mood", "decision_id'),
        ),
        ("features_a_list", "InvalidDecision", "an object", changed('{"duration": 24}', "[24]")),
        (
            "override_a_number",
            "InvalidDecision",
            "texts",
            changed('{"decision_id', '{"policy_overrides": {"duration": 1}, "decision_id'),
        ),
    ):
        yield "Decision", name, error, what, data


def _bad_avro() -> Iterator[tuple[RecordName, str, str, str, bytes]]:
    whole = encode("Decision", _filled("Decision", EXAMPLES / "Decision" / "least.json"))
    frame = b"\xc3\x01" + current_schemas()["Decision"].fingerprint
    ids = b"\x02x\x00\x00" + 2 * b"\x02x"
    for name, error, what, data in (
        ("avro_frame_cut", "MalformedRecord", "a fingerprint has 8 bytes", frame[:6]),
        ("avro_cut", "MalformedRecord", "ends in the middle", whole[:-3]),
        ("avro_more", "MalformedRecord", "unknown bytes after the record", whole + b"\x00"),
        ("avro_two_gigabytes", "MalformedRecord", "a text that claims 2 GB", frame + varint(2**31 - 1) + b"d"),
        ("avro_length_negative", "MalformedRecord", "a text of -1 bytes", frame + varint(-1) + b"d"),
        ("avro_features_claimed", "MalformedRecord", "2^40 features claimed", frame + ids + varint(2**40) + b"\x02a"),
        ("avro_feature_twice", "MalformedRecord", "a key twice", frame + ids + varint(2) + 2 * b"\x02a\x00" + b"\x00"),
        ("avro_branch_negative", "MalformedRecord", "branch -1 of a union", frame + ids + b"\x02\x02a\x01"),
        ("avro_text_no_utf8", "MalformedRecord", "not UTF-8", frame + b"\x02\xff" + ids[2:]),
        ("avro_year_300000", "MalformedRecord", "no such time", frame + ids[:3] + varint(2**53) + ids[4:]),
        ("avro_schema_unknown", "UnknownSchema", "a foreign fingerprint", frame[:2] + b"\x01" * 8 + whole[10:]),
        ("avro_for_a_registry", "UnknownSchema", "framed for a schema registry", b"\x00\x00\x00\x00\x07" + whole[10:]),
    ):
        yield "Decision", name, error, what, data


def _bad_outputs() -> Iterator[tuple[RecordName, str, str, str, str]]:
    changes: tuple[tuple[RecordName, str, str, dict[str, Any]], ...] = (
        ("ModelPublished", "revision_a_text", "a whole number", {"revision": "2"}),
        ("ModelPublished", "approve_sideways", "above or below", {"approve": "sideways"}),
        ("ModelPublished", "time_without_zone", "RFC 3339 with a zone", {"effective_from": "2026-10-01T00:00:00"}),
        ("Recommendation", "comparator_inside", "a field that is not in the schema", {"comparator": {"income": 1}}),
        ("Recommendation", "status_unknown", "no such status", {"status": "maybe"}),
        ("AuditRecord", "envelope_missing", "body without envelope", {"envelope": None}),
        ("AuditRecord", "body_a_text", "a body by reference", {"body": "see attachment"}),
        ("Notice", "address_inside", "a field that is not in the schema", {"address": "pat@people.example"}),
        ("Notice", "status_unknown", "no such status", {"status": "lost"}),
        ("DeadLetter", "offset_a_float", "a whole number", {"offset": 1.5}),
    )
    for record, name, what, change in changes:
        smallest = min((EXAMPLES / record).glob("*.json"), key=lambda path: path.stat().st_size)
        whole = json.loads(smallest.read_text("utf-8"))
        yield record, name, "CorruptionError", what, json.dumps(whole | change)


def _lines(text: str) -> Iterator[str]:
    for start in range(0, len(text), WIDTH):
        yield text[start : start + WIDTH]


def spelt(value: Any, indent: int = 0) -> str:
    """JSON that a person reads: what fits a line is on one."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + indent <= WIDTH or not isinstance(value, dict | list) or not value:
        return flat
    pad = " " * (indent + 2)
    if isinstance(value, list):
        if not isinstance(value[0], dict | list):
            return flat
        return "[\n" + ",\n".join(pad + spelt(item, indent + 2) for item in value) + "\n" + pad[2:] + "]"
    members = (f"{pad}{json.dumps(key, ensure_ascii=False)}: {spelt(item, indent + 2)}" for key, item in value.items())
    return "{\n" + ",\n".join(members) + "\n" + pad[2:] + "}"


if __name__ == "__main__":
    main()
