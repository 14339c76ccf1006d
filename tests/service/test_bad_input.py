"""Bad input through real Kafka: each kind is a typed dead letter with the original bytes, and the stream goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from stream.wire.avro_records import encode
from stream.wire.decisions import read_decision
from tests.records import decision_dict
from tests.service.lender import Lender, record
from tests.service.room import room
from tests.service.stack import Stack

pytestmark = [pytest.mark.service, pytest.mark.timeout(180)]


def bad_records(lender: Lender) -> dict[str, tuple[str, str, bytes]]:
    """Name -> (error, stage, value)."""
    number = lender.declined(1, skip=30)[0]
    good = lender.decision(number)
    avro = encode("Decision", decision_dict(read_decision(orjson.dumps(good))))
    first = lender.features[0]

    def changed(name: str, **changes: Any) -> bytes:
        return orjson.dumps(lender.decision(number, decision_id=name, **changes))

    def features(name: str, **changes: Any) -> bytes:
        return changed(name, features={**good["features"], **changes})

    without_first = {key: value for key, value in good["features"].items() if key != first}
    long_text = "x" * 40_000
    return {
        "cut_avro": ("MalformedRecord", "decode", avro[:-3]),
        "cut_json": ("MalformedRecord", "decode", orjson.dumps(good)[:-5]),
        "a_word": ("MalformedRecord", "decode", b"hello"),
        "unknown_fingerprint": ("UnknownSchema", "decode", avro[:2] + b"\x01" * 8 + avro[10:]),
        "registry_frame": ("UnknownSchema", "decode", b"\x00\x00\x00\x00\x07" + avro[10:]),
        "another_record": ("MalformedRecord", "decode", encode("Recommendation", RECOMMENDATION)),
        "missing_feature": ("MissingFeature", "validate", changed("missing_feature", features=without_first)),
        "unknown_feature": ("UnknownFeature", "validate", features("unknown_feature", not_of_the_model=1)),
        "wrong_type": ("WrongFeatureType", "validate", features("wrong_type", **{first: "seven"})),
        "infinite": ("NonFiniteFeature", "validate", features("infinite").replace(b'"f0":', b'"f0":1e999,"x":', 1)),
        "no_such_outcome": ("UnknownOutcome", "validate", changed("no_such_outcome", outcome="perhaps")),
        "no_zone": ("InvalidDecision", "validate", changed("no_zone", event_time="2026-11-27T10:15:00")),
        "false_claim": ("ClaimMismatch", "score", changed("false_claim", margin=0.125)),
        "unpublished": ("ModelNotPublished", "resolve", changed("unpublished", model_version="nobody")),
        "too_early": ("ModelNotPublished", "resolve", changed("too_early", event_time="2020-01-01T00:00:00Z")),
        "loosening": (
            "OverrideRefused",
            "validate",
            changed("loosening", policy_overrides={lender.features[-1]: "mutable"}),
        ),
        "too_large": ("RecordTooLarge", "encode", changed("too_large", disclosures={"text": long_text})),
    }


RECOMMENDATION: dict[str, Any] = {
    "recommendation_id": "r", "decision_id": "d", "subject_ref": None, "model_id": "m", "model_version": "1",
    "revision": 1, "status": "not_model_decline", "proven": None, "tiers": [], "reasons": [], "disclosures": {},
    "expires_at": None, "notice_due_at": None, "replay": False, "run_id": None,
}  # fmt: skip


def test_each_kind_of_bad_input_is_a_typed_dead_letter_and_the_stream_goes_on(
    stack: Stack, toy: Lender, tmp_path: Path
) -> None:
    """Given every kind of bad input between good decisions, when the worker reads them, then each is one dead letter that names stage and reason and holds key, value and headers byte for byte, no message holds a feature value, and every good decline is answered."""
    bad = bad_records(toy)
    declined = toy.declined(20)
    headers = [("id", b"\x00\x01"), ("id", b"twice"), ("none", None)]
    with room(stack, tmp_path, partitions=2, model_wait_s="2", audit_bytes_max="30000") as here:
        here.publish(toy)
        for place, (name, (_, _, value)) in enumerate(bad.items()):
            here.send([(name.encode(), value)], headers=headers)
            here.send([record(toy.decision(declined[place]))])
        again = toy.decision(declined[0], product="another product")
        here.send([record(toy.decision(declined[0])), (b"conflict", orjson.dumps(again))], headers=headers)
        worker = here.worker()
        here.until_done()
        letters = {one["key"].decode(): one for one in here.dead_letters()}
        expected = {name: (error, stage) for name, (error, stage, _) in bad.items()}
        expected["conflict"] = ("DecisionConflict", "validate")
        assert {name: (one["error"], one["stage"]) for name, one in letters.items()} == expected
        assert len(here.dead_letters()) == len(expected)
        for name, letter in letters.items():
            value = bad[name][2] if name in bad else orjson.dumps(again)
            assert letter["value"] == value
            assert [(one["key"], one["value"]) for one in letter["headers"]] == headers
            assert letter["retryable"] == (letter["error"] == "ModelNotPublished")
            assert letter["topic"] == here.settings.topic_decisions
        told = " ".join(one["message"] for one in letters.values()) + worker.log.read_text()
        assert "seven" not in told
        assert long_value_of(toy) not in told
        assert {one["decision_id"] for one in here.recommendations()} == {f"toy-{n}" for n in declined[: len(bad)]}
        assert worker.alive


def long_value_of(lender: Lender) -> str:
    """A feature value of the bad decisions that nothing else contains by chance."""
    row = lender.rows[lender.declined(1, skip=30)[0]]
    return max((str(float(value)) for value in row), key=len)


def test_what_the_model_did_not_decline_gets_no_model_reason(stack: Stack, toy: Lender, tmp_path: Path) -> None:
    """Given a decline by policy and a decline of what the model accepts, when answered, then both are not_model_decline without tiers and reasons, with an audit record each, and approved decisions get nothing."""
    declined = toy.declined(1)[0]
    accepted = [number for number in range(50) if toy.approved(number)]
    with room(stack, tmp_path, partitions=1) as here:
        here.publish(toy)
        here.send(
            [
                record(toy.decision(declined, decision_id="by-policy", decline_basis="policy")),
                record(toy.decision(accepted[0], decision_id="against-the-model", outcome="declined")),
                *(record(toy.decision(number)) for number in accepted[1:]),
            ]
        )
        worker = here.worker()
        here.until_done()
        answers = here.recommendations()
        assert {one["decision_id"] for one in answers} == {"by-policy", "against-the-model"}
        assert all(one["status"] == "not_model_decline" and not one["tiers"] and not one["reasons"] for one in answers)
        assert {one["decision_id"] for one in here.audits()} == {"by-policy", "against-the-model"}
        worker.until("worker.totals")
        assert worker.stop() == 0
        assert worker.events("worker.stopped")[0]["decisions:approved/not_needed"] == len(accepted) - 1
