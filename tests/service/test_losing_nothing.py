"""The ways in which ordinary Faust code loses data, each on the embedded Kafka and on the real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.lender import Lender, record, records, toy_lender
from tests.service.room import FAULTY, room, wait_until
from tests.service.stack import Stack

pytestmark = [pytest.mark.service, pytest.mark.timeout(180)]


def test_poison_faults_and_decode_errors_are_dead_letters_and_the_ones_behind_are_answered(
    each_stack: Stack, toy: Lender, tmp_path: Path
) -> None:
    """Given garbage, an empty value, a broken decision, an agent body that raises and a decoder that raises, each between good decisions, when the worker reads them, then each is a dead letter with the original bytes, and every other decline is answered and committed."""
    declined = toy.declined(8)
    body, decoder = f"toy-{declined[2]}", f"toy-{declined[5]}"
    poison = [(b"k", b"\xff\x00\xfe"), (b"tombstone", None), (None, b'{"decision_id": "x"}')]
    with room(each_stack, tmp_path, partitions=1) as here:
        here.publish(toy)
        here.send(records(toy, declined[:4]))
        here.send(poison, headers=[("a", b"\x80"), ("b", None)])
        here.send(records(toy, declined[4:]))
        worker = here.worker(program=FAULTY, COACH_TEST_RAISE_IN_ANSWER=body, COACH_TEST_RAISE_IN_DECODE=decoder)
        here.until_done()
        expected = {f"toy-{number}" for number in declined} - {body, decoder}
        assert {one["decision_id"] for one in here.recommendations()} == expected
        letters = here.dead_letters()
        assert [one["error"] for one in letters] == [
            "UnexpectedFault", "MalformedRecord", "MalformedRecord", "InvalidDecision", "UnexpectedFault",
        ]  # fmt: skip
        assert [(one["key"], one["value"]) for one in letters[1:4]] == poison
        assert all(
            [(h["key"], h["value"]) for h in one["headers"]] == [("a", b"\x80"), ("b", None)] for one in letters[1:4]
        )
        faults = [letters[0], letters[4]]
        assert [one["key"] for one in faults] == [body.encode(), decoder.encode()]
        assert all(one["retryable"] and "ZeroDivisionError" in one["message"] for one in faults)
        assert worker.stop() == 0


def test_a_failed_delivery_commits_nothing(each_stack: Stack, toy: Lender, tmp_path: Path) -> None:
    """Given delivery reports that are errors, when decisions are answered, then nothing is committed, the worker ends with 3 after the named bound, and once reports are good every decline is answered."""
    declined = toy.declined(5)
    with room(each_stack, tmp_path, partitions=1, outage_max_s="4", delivery_timeout_s="2", drain_s="1") as here:
        here.publish(toy)
        worker = here.worker(program=FAULTY, COACH_TEST_FAIL_DELIVERY="1")
        here.send(records(toy, declined))
        assert worker.wait() == 3
        assert here.committed() == {0: 0}
        assert "COACH_OUTAGE_MAX_S=4" in worker.log.read_text()
        here.worker()
        here.until_done()
        assert {one["decision_id"] for one in here.audits()} == {f"toy-{number}" for number in declined}
        assert {one["decision_id"] for one in here.recommendations()} == {f"toy-{number}" for number in declined}


def test_sigterm_in_mid_batch_loses_nothing(each_stack: Stack, toy: Lender, tmp_path: Path) -> None:
    """Given a worker in the middle of a batch, when it gets SIGTERM, then it ends with 0, commits only what it delivered, and the next worker answers the rest."""
    declined = toy.declined(120)
    with room(each_stack, tmp_path, batch_max="16") as here:
        here.publish(toy)
        here.send(records(toy, declined))
        worker = here.worker(program=FAULTY, COACH_TEST_SLOW="1")
        worker.until("decision.ended", count=20)
        assert worker.stop() == 0
        answered = {one["decision_id"] for one in here.recommendations()}
        assert 20 <= len(answered) < len(declined)
        assert sum(max(offset, 0) for offset in here.committed().values()) <= len(answered)
        here.worker()
        here.until_done()
        assert {one["decision_id"] for one in here.recommendations()} == {f"toy-{number}" for number in declined}
        assert {one["decision_id"] for one in here.audits()} == {f"toy-{number}" for number in declined}


def test_the_committed_offset_never_passes_an_unfinished_decision(
    each_stack: Stack, toy: Lender, tmp_path: Path
) -> None:
    """Given a decision that waits minutes for its model with answered ones behind it, when the worker is stopped, then it ends within seconds with the waiting one uncommitted, and the next worker answers it once the model is there."""
    declined = toy.declined(8)
    waiting = toy.decision(declined[3], model_version="later", margin=None, probability=None)
    with room(each_stack, tmp_path, partitions=1, model_wait_s="600") as here:
        here.publish(toy)
        here.send(records(toy, declined[:3]))
        here.send([record(waiting)])
        here.send(records(toy, declined[4:]))
        worker = here.worker()
        worker.until("decision.ended", count=7)
        wait_until(lambda: here.committed() == {0: 3}, what="three committed", timeout_s=10)
        assert worker.stop(timeout_s=15) == 0
        assert here.committed() == {0: 3}
        here.publish(toy_lender(tmp_path / "later", version="later"))
        here.worker()
        here.until_done()
        answered = {one["decision_id"] for one in here.recommendations()}
        assert answered == {f"toy-{number}" for number in declined}
        assert here.dead_letters() == []
