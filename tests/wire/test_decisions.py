from __future__ import annotations

import contextlib
import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.errors import (
    InvalidDecision,
    MalformedRecord,
    NonFiniteFeature,
    PoisonError,
    UnknownOutcome,
    UnknownSchema,
    WrongFeatureType,
)
from stream.events import Decision
from stream.times import TIME_MS_MAX, TIME_MS_MIN
from stream.wire.avro_records import encode
from stream.wire.decisions import DECISION_BYTES_MAX, ID_CHARACTERS_MAX, read_decision
from tests.examples import examples
from tests.records import decision_dict
from tests.wire.records import records, texts_of_json

DECISION: dict[str, Any] = {
    "decision_id": "d-4711", "subject_ref": "s-09ae", "event_time": "2026-11-27T10:15:00.250Z",
    "model_id": "consumer-loan", "model_version": "2026-10",
    "features": {"duration": 24, "purpose": "car (new)", "savings": None},
    "outcome": "declined", "decline_basis": "model",
    "margin": -0.08271368, "probability": 0.47933, "threshold": 0.5, "threshold_scale": "probability",
    "product": "loan", "jurisdiction": "US", "policy_overrides": {"income": "immutable"},
    "disclosures": {"credit_bureau": "..."}, "traceparent": "00-...",
}  # fmt: skip
REQUIRED = ("decision_id", "event_time", "model_id", "model_version", "features", "outcome")
SECRET = "s3cr3t-value"  # noqa: S105 - stands for what must not be repeated

ids = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=20)
numbers = st.floats(allow_nan=False, allow_infinity=False)
optional_text = st.none() | texts_of_json
decisions = st.builds(
    Decision,
    decision_id=ids,
    event_time_ms=st.integers(TIME_MS_MIN, TIME_MS_MAX),
    model_id=ids,
    model_version=ids,
    features=st.dictionaries(texts_of_json, st.none() | numbers | texts_of_json, max_size=5),
    outcome=st.sampled_from(["approved", "declined"]),
    decline_basis=st.sampled_from(["model", "policy", "manual", "fraud"]),
    subject_ref=optional_text,
    margin=st.none() | numbers,
    probability=st.none() | st.floats(0, 1),
    threshold=st.none() | numbers,
    threshold_scale=st.sampled_from([None, "probability", "margin"]),
    product=optional_text,
    jurisdiction=optional_text,
    policy_overrides=st.dictionaries(texts_of_json, texts_of_json, max_size=3),
    disclosures=st.dictionaries(texts_of_json, texts_of_json, max_size=3),
    traceparent=optional_text,
)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def test_the_decision_of_the_contract_is_read() -> None:
    """Given the example that the contract prints, when it is read, then each field is where it belongs."""
    decision = read_decision(_json(DECISION))
    assert decision.decision_id == "d-4711"
    assert decision.event_time_ms == 1795774500250
    assert decision.features == {"duration": 24.0, "purpose": "car (new)", "savings": None}
    assert isinstance(decision.features["duration"], float)
    assert decision.policy_overrides == {"income": "immutable"}


@given(decision=decisions, ascii_only=st.booleans())
def test_json_and_avro_say_the_same(decision: Decision, ascii_only: bool) -> None:  # noqa: FBT001 - drawn
    """Given any decision, when it is written as Avro and as JSON, then both read as it, to the bit."""
    fields = decision_dict(decision)
    by_avro = read_decision(encode("Decision", fields))
    by_json = read_decision(json.dumps(fields, ensure_ascii=ascii_only).encode())
    assert by_avro == by_json == decision
    assert repr(by_avro) == repr(by_json) == repr(decision)  # tells 0.0 from -0.0


def test_only_what_is_required_must_be_there() -> None:
    """Given a decision with the required fields alone, when it is read, then the others are absent and the basis is the model."""
    decision = read_decision(_json({name: DECISION[name] for name in REQUIRED}))
    assert decision.decline_basis == "model"
    assert (decision.margin, decision.threshold, decision.subject_ref, decision.traceparent) == (None,) * 4
    assert decision.policy_overrides == decision.disclosures == {}


@pytest.mark.parametrize("name", sorted(DECISION.keys() - set(REQUIRED)))
def test_null_is_the_same_as_absent_where_a_field_is_optional(name: str) -> None:
    """Given an optional field that is null, when it is read, then the decision is that without the field."""
    without = {key: value for key, value in DECISION.items() if key != name}
    assert read_decision(_json(without | {name: None})) == read_decision(_json(without))


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("change", ["absent", "null"])
def test_a_missing_required_field_is_named(name: str, change: str) -> None:
    """Given a decision without a required field, or with null there, when it is read, then the refusal names the field."""
    fields = {key: value for key, value in DECISION.items() if key != name}
    with pytest.raises(InvalidDecision, match=rf"decision: {name} is missing"):
        read_decision(_json(fields if change == "absent" else fields | {name: None}))


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("decision_id", "", InvalidDecision),
        ("decision_id", SECRET * ID_CHARACTERS_MAX, InvalidDecision),
        ("decision_id", SECRET + "\n", InvalidDecision),
        ("decision_id", SECRET + "\x00", InvalidDecision),
        ("decision_id", 4711, InvalidDecision),
        ("model_id", [SECRET], InvalidDecision),
        ("model_version", 2026.1, InvalidDecision),
        ("event_time", SECRET, InvalidDecision),
        ("event_time", "2026-11-27T10:15:00", InvalidDecision),
        ("event_time", 1795774500250, InvalidDecision),
        ("outcome", SECRET, UnknownOutcome),
        ("outcome", ["declined"], UnknownOutcome),
        ("outcome", True, UnknownOutcome),
        ("outcome", "Declined", UnknownOutcome),
        ("decline_basis", SECRET, InvalidDecision),
        ("decline_basis", {}, InvalidDecision),
        ("threshold_scale", SECRET, InvalidDecision),
        ("margin", SECRET, InvalidDecision),
        ("margin", True, InvalidDecision),
        ("margin", 2**53 + 1, InvalidDecision),
        ("margin", 10**400, InvalidDecision),
        ("threshold", [0.5], InvalidDecision),
        ("subject_ref", 7, InvalidDecision),
        ("product", {"a": SECRET}, InvalidDecision),
        ("jurisdiction", False, InvalidDecision),
        ("traceparent", 1, InvalidDecision),
        ("policy_overrides", [SECRET], InvalidDecision),
        ("policy_overrides", {"income": 1}, InvalidDecision),
        ("disclosures", {"bureau": None}, InvalidDecision),
        ("disclosures", SECRET, InvalidDecision),
        ("features", [], InvalidDecision),
        ("features", SECRET, InvalidDecision),
    ],
)
def test_a_wrong_field_is_named_and_its_value_is_not(field: str, value: object, error: type[PoisonError]) -> None:
    """Given a field of a wrong type or word, when it is read, then the typed refusal names the field, never the value."""
    with pytest.raises(error) as refused:
        read_decision(_json(DECISION | {field: value}))
    assert type(refused.value) is error
    assert f"decision: {field} " in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (True, WrongFeatureType),
        (False, WrongFeatureType),
        ([1], WrongFeatureType),
        ({"a": 1}, WrongFeatureType),
        (2**53 + 1, WrongFeatureType),
        (-(2**53) - 1, WrongFeatureType),
        (2**64 + 1, WrongFeatureType),  # orjson would round this one without a word
        (10**309, WrongFeatureType),
    ],
)
def test_a_feature_of_no_usable_type_is_named(value: object, error: type[PoisonError]) -> None:
    """Given a feature that is neither an exact number, a text nor null, when it is read, then the refusal names it."""
    with pytest.raises(error, match="feature 'duration'"):
        read_decision(_json(DECISION | {"features": {"duration": value}}))


@pytest.mark.parametrize(
    ("value", "number"),
    [(2**53, 2.0**53), (2**54 + 4, float(2**54 + 4)), (2**1000, 2.0**1000), (-0.0, -0.0), (0, 0.0), (5e-324, 5e-324)],
)
def test_a_number_that_a_double_holds_becomes_one(value: float, number: float) -> None:
    """Given a number that a double holds exactly, however large, when it is read, then it is that double."""
    read = read_decision(_json(DECISION | {"features": {"duration": value}})).features["duration"]
    assert isinstance(read, float)
    assert math.copysign(1, read) == math.copysign(1, number)
    assert read == number


def test_a_literal_past_the_doubles_is_not_finite() -> None:
    """Given 1e400 in JSON, when it is read, then it is a feature that is not finite, not inf."""
    text = _json(DECISION).replace(b'"duration": 24', b'"duration": 1e400')
    with pytest.raises(NonFiniteFeature, match="feature 'duration'"):
        read_decision(text)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_an_avro_feature_that_is_not_finite_is_named(number: float) -> None:
    """Given NaN or inf as an Avro feature, when it is read, then it is refused by the feature's name."""
    whole = encode("Decision", decision_dict(read_decision(_json(DECISION | {"features": {"duration": 24.5}}))))
    damaged = whole.replace(_double(24.5), _double(number))
    with pytest.raises(NonFiniteFeature, match="feature 'duration'"):
        read_decision(damaged)


@pytest.mark.parametrize("field", ["margin", "probability", "threshold"])
def test_an_avro_claim_that_is_not_finite_is_named(field: str) -> None:
    """Given NaN as an Avro claim, when it is read, then it is refused by the field's name."""
    whole = encode("Decision", decision_dict(read_decision(_json(DECISION | {field: 0.28125}))))
    with pytest.raises(InvalidDecision, match=f"decision: {field} must be finite"):
        read_decision(whole.replace(_double(0.28125), _double(math.nan)))


def _double(number: float) -> bytes:
    return struct.pack("<d", number)


@pytest.mark.parametrize("literal", [b"NaN", b"Infinity", b"-Infinity"])
def test_numbers_that_json_does_not_have_are_malformed(literal: bytes) -> None:
    """Given NaN or Infinity as a JSON literal, when it is read, then the record is malformed and null is suggested."""
    with pytest.raises(MalformedRecord, match="null"):
        read_decision(_json(DECISION).replace(b"24", literal))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"decision_id": "d-4711"', b'"decision_id": "d-4711", "decision_id": "d-4712"'),
        (b'"duration": 24', b'"duration": 24, "duration": 25'),
        (b'"duration": 24', b'"duration": 24, "d\\u0075ration" : 25'),
        (b'"income": "immutable"', b'"income": "immutable", "income": "immutable"'),
    ],
)
def test_the_same_key_twice_is_malformed(before: bytes, after: bytes) -> None:
    """Given an object with the same key twice, spelt differently or not, when it is read, then nobody picks one of them."""
    with pytest.raises(MalformedRecord, match="same key twice"):
        read_decision(_json(DECISION).replace(before, after))


def test_a_field_that_a_decision_does_not_have_is_refused() -> None:
    """Given a misspelt optional field, when it is read, then it is refused: ignored, it would change the answer unnoticed."""
    with pytest.raises(InvalidDecision, match="no field 'decline_bases'"):
        read_decision(_json(DECISION | {"decline_bases": "fraud"}))


def test_a_name_that_the_sender_chose_is_cut_short_and_escaped() -> None:
    """Given a field or feature with an endless or unprintable name, when it is refused, then the message stays readable."""
    with pytest.raises(InvalidDecision) as refused:
        read_decision(_json(DECISION | {"a\n" + "x" * 100_000: 1}))
    assert len(str(refused.value)) < 250
    assert "\n" not in str(refused.value)
    with pytest.raises(WrongFeatureType) as refused:
        read_decision(_json(DECISION | {"features": {"a\n" + "x" * 100_000: True}}))
    assert len(str(refused.value)) < 250
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "value",
    [
        b"", b" ", b"null", b"[]", b"17", b'"text"', b"{", b'{"a":}', b"{'a': 1}", b'{"a": 1,}', b"\xff\xfe{}", b"\xef\xbb\xbf{}",
        b'{"a": "\xff"}', b'{"a": 01}', b'{"a": 1}x', b'{"a": "\n"}', "{}".encode("utf-16"), b'{"a": "\\ud800"}',
        b'{"features": {"\\udc00x": 1}}', b'{"a":' * 100_000, b'{"a":' + b"[" * 100_000, b'{"a":' + b"9" * 5_000 + b"}",
    ],
)  # fmt: skip
def test_what_is_no_json_object_is_malformed(value: bytes) -> None:
    """Given bytes that are no single well-formed JSON object in UTF-8, when they are read, then they are malformed."""
    with pytest.raises(MalformedRecord):
        read_decision(value)


def test_surrogate_pairs_and_blanks_around_are_fine() -> None:
    """Given escapes that pair up and blanks around the object, when it is read, then the text is the character."""
    text = b" \r\n\t" + _json(DECISION | {"product": "🏠"}) + b" \n"
    assert b"\\ud83c\\udfe0" in text
    assert read_decision(text).product == "🏠"


def test_a_decision_past_the_size_limit_is_not_even_parsed() -> None:
    """Given a value that is larger than allowed, when it is read, then it is malformed, by a limit that can be set."""
    value = _json(DECISION | {"product": "x" * DECISION_BYTES_MAX})
    with pytest.raises(MalformedRecord, match=f"at most {DECISION_BYTES_MAX}"):
        read_decision(value)
    assert read_decision(value, bytes_max=2 * DECISION_BYTES_MAX).decision_id == "d-4711"


def test_another_record_is_no_decision() -> None:
    """Given a dead letter on the decisions topic, when it is read as a decision, then it is malformed and says what came."""
    letter = encode("DeadLetter", {
        "key": None, "value": None, "headers": [], "topic": "t", "partition": 0, "offset": 0, "timestamp": None,
        "stage": "decode", "error": "E", "message": "", "attempts": 1, "first_seen": "2026-11-27T10:15:00.250Z",
        "last_seen": "2026-11-27T10:15:00.250Z", "software_version": "1", "retryable": False, "redrive_id": None,
    })  # fmt: skip
    with pytest.raises(MalformedRecord, match="a DeadLetter where a Decision was expected"):
        read_decision(letter)


def test_a_registry_frame_is_an_unknown_schema() -> None:
    """Given a record framed for a schema registry, when it is read without one, then the refusal says so."""
    with pytest.raises(UnknownSchema, match="schema registry"):
        read_decision(b"\x00\x00\x00\x00\x01" + b"x" * 20)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(300))
@given(field=st.sampled_from(sorted(DECISION)), value=json_values)
def test_any_json_in_any_field_is_read_or_refused_by_type(field: str, value: object) -> None:
    """Given any JSON value in any field, when it is read, then a decision comes out or a typed refusal, nothing else."""
    with contextlib.suppress(PoisonError):
        read_decision(_json(DECISION | {field: value}))


@settings(max_examples=examples(300))
@given(data=st.data())
def test_damaged_bytes_are_read_or_refused_by_type(data: st.DataObject) -> None:
    """Given JSON or Avro with bytes flipped, cut or put in, when it is read, then a typed refusal or a decision comes out."""
    whole = data.draw(st.sampled_from([_json(DECISION), encode("Decision", data.draw(records("Decision")))]))
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(len(damaged) - 1, 0)))
        damaged[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    with contextlib.suppress(PoisonError):
        read_decision(bytes(damaged))
