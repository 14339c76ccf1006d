from __future__ import annotations

import json
from typing import cast

import pytest

from stream.demo.account import Account, account_of, figures
from stream.demo.traffic import Heard, Post
from stream.errors import PoisonError
from stream.events import AuditRecord, DeadLetter, Recommendation


def post(decision_id: str, *, declined: bool = True) -> Post:
    return Post(decision_id=decision_id, value=b"{}", declined=declined)


def account(
    posts: list[Post],
    *,
    recommended: tuple[str, ...] = (),
    audited: tuple[str, ...] = (),
    dead: tuple[DeadLetter, ...] = (),
) -> Account:
    recommendation = cast("Recommendation", {"status": "no_feasible_recourse", "tiers": [], "reasons": []})
    record = cast("AuditRecord", {"body": {}, "body_sha256": "0"})
    return Account(
        posts=posts,
        recommendations=dict.fromkeys(recommended, recommendation),
        audits=dict.fromkeys(audited, record),
        dead_letters=dead,
    )


def test_a_declined_one_without_an_answer_is_a_fault() -> None:
    """Given a declined decision that came back without its records, when checked, then both are named as lacking."""
    assert list(account([post("d-1")]).faults()) == [
        "d-1 was declined and has no recommendation",
        "d-1 was declined and has no audit record",
    ]


def test_an_approved_one_with_an_answer_is_a_fault() -> None:
    """Given an approved decision with a recommendation, when checked, then that is a fault."""
    faults = account([post("a-1", declined=False)], recommended=("a-1",)).faults()
    assert list(faults) == ["a-1 was approved and has a recommendation"]


def test_a_record_that_does_not_verify_is_a_fault() -> None:
    """Given an audit record that is none, when checked, then the fault names its decision."""
    faults = account([post("d-1")], recommended=("d-1",), audited=("d-1",)).faults()
    assert [fault for fault in faults if fault.startswith("audit record of d-1: ")]


def test_a_dead_letter_is_a_fault() -> None:
    """Given a dead letter, when checked, then stage, error and message of it are said."""
    dead = cast("DeadLetter", {"stage": "decode", "error": "MalformedRecord", "message": "no JSON"})
    assert list(account([], dead=(dead,)).faults()) == ["dead letter in stage decode: MalformedRecord: no JSON"]


def test_the_answers_are_lines_in_the_order_of_the_decisions() -> None:
    """Given answers that came in any order, when kept, then each is one line, as the decisions were; none is half."""
    whole = account([post("b"), post("c"), post("a")], recommended=("a", "b", "c"), audited=("a", "b"))
    lines = [json.loads(line) for line in whole.answers()]
    assert [line["decision_id"] for line in lines] == ["b", "a"]
    assert {*lines[0]} == {"decision_id", "recommendation", "audit"}
    assert {*lines[0]["audit"]} == {"body", "body_sha256"}


def test_the_figures_say_how_many_of_each() -> None:
    """Given an account, when its figures are written, then decisions, answers and latencies have a line each."""
    heard = Heard(answered_after_s={"d-1": 0.008}, duplicates=2)
    log = '{"event":"decision.ended","elapsed_us":4000}'
    lines = figures(account([post("d-1"), post("a-1", declined=False)], recommended=("d-1",)), heard, 3, log)
    assert lines == [
        "decisions           2: 1 approved, 1 declined",
        "recommendations     1: no_feasible_recourse 1",
        "answers by tier     none",
        "audit records       0, each verified without the model: 3 faults",
        "dead letters        0",
        "records read twice  2 (delivery is at least once: what is sent again is the same answer)",
        "decision to answer  p50 8.0 ms, p90 8.0 ms, p99 8.0 ms",
        "                    (of it up to 0.1 s because the embedded broker lets an idle reader wait; Kafka itself does not)",
        "worker's own time   p50 4.0 ms, p90 4.0 ms, p99 4.0 ms a declined decision",
    ]


def test_what_no_schema_reads_is_not_counted_as_an_answer() -> None:
    """Given bytes on a topic that are no record of ours, when decoded, then the error says so."""
    with pytest.raises(PoisonError):
        account_of([post("d-1")], Heard(recommendations={"d-1": b"nonsense"}))
