"""What the log says of each decision, and what it must never say."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.bundle.open import open_bundle
from stream.runtime.health import Vitals
from stream.runtime.kafka.inbound import Inbound
from stream.runtime.logs import JsonFormatter
from stream.worker.answering import Answerer
from stream.worker.decision_log import DecisionLog
from stream.worker.metrics import worker_counters
from tests.service.lender import Lender
from tests.worker.fakes import inbound
from tests.worker.test_answering import Models, answerer

VALUE_MARK = "7316440"  # every value below has it, whatever its type
WORDS = st.text(max_size=20).map(lambda text: f"{text}{VALUE_MARK}{text}")
NUMBERS = st.integers(0, 999).map(lambda end: float(f"{VALUE_MARK}{end}.25"))
SCALARS = WORDS | NUMBERS | NUMBERS.map(int) | NUMBERS.map(lambda one: -one)
VALUES = (
    SCALARS | st.none() | st.booleans() | st.lists(SCALARS, max_size=2) | st.dictionaries(WORDS, SCALARS, max_size=2)
)


@contextmanager
def log_lines() -> Iterator[io.StringIO]:
    """All that `stream` logs meanwhile, as the process writes it."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonFormatter())
    ours = logging.getLogger("stream")
    before = ours.level
    ours.addHandler(handler)
    ours.setLevel("DEBUG")
    try:
        yield written
    finally:
        ours.setLevel(before)
        ours.removeHandler(handler)


@pytest.fixture(scope="module")
def models(toy: Lender) -> Models:
    """The small lender's model."""
    return Models(open_bundle(Path(toy.bundle)))


def told(here: Answerer, record: Inbound) -> str:
    """Answer one record, close its account, and give what was logged."""
    decision_log = DecisionLog(worker_counters(), Vitals())
    with log_lines() as written:
        (outcome,) = here.outcomes([record], budget_s=60)
        decision_log.close([(record, outcome)], acknowledged_ms=3_500)
    return written.getvalue()


@given(
    changed=st.dictionaries(st.sampled_from([f"f{number}" for number in range(6)] + ["f9"]), VALUES, max_size=7),
    more=st.dictionaries(st.sampled_from(["margin", "probability", "threshold"]), NUMBERS | WORDS, max_size=1),
    outcome=st.sampled_from(["approved", "declined"]),
    cut=st.integers(0, 60) | st.none(),
    fault=st.sampled_from(["", f"cannot convert {VALUE_MARK}"]),
)
def test_no_feature_value_gets_into_the_log(
    toy: Lender, models: Models, changed: dict[str, Any], more: dict[str, Any], outcome: str, cut: int | None, fault: str
) -> None:  # fmt: skip
    """Given decisions with feature values and scores of any type and size, sound, wrong, cut off, or met by a fault that quotes them, when each comes to its end, then no line of the log holds one."""
    decision = toy.decision(toy.declined(1)[0], margin=None, probability=None)
    decision["features"] |= changed
    decision |= more | {"outcome": outcome}
    value = orjson.dumps(decision)
    models.failure = ValueError(fault) if fault else None
    try:
        line = told(answerer(models), inbound(0, value=value[: len(value) - cut] if cut else value))
    finally:
        models.failure = None
    assert VALUE_MARK not in line
    assert "decision.ended" in line


def test_each_decision_is_one_line_that_says_what_became_of_it(toy: Lender, models: Models) -> None:
    """Given an answered, an approved and a refused decision, when they come to their end, then each is one line with id, outcome, status, place, and the time of each stage that it passed, the first with its model and the last with its reason."""
    here = answerer(models)
    declined = toy.decision(toy.declined(1)[0])
    answered, approved, refused = (
        json.loads(told(here, inbound(offset, value=orjson.dumps(one))))
        for offset, one in enumerate([declined, declined | {"decision_id": "a", "outcome": "approved"}, {"decision_id": "r"}])
    )  # fmt: skip
    assert [one["event"] for one in (answered, approved, refused)] == ["decision.ended"] * 3
    assert answered | {"outcome": "declined", "status": "ok", "model": "toy/2026-10/1", "whole_ms": 2_500} == answered
    assert {"decode_us", "resolve_us", "answer_us", "encode_us", "remember_us", "elapsed_us", "tiers"} <= set(answered)
    assert (answered["topic"], answered["partition"], answered["offset"]) == ("decisions", 0, 0)
    assert approved | {"decision_id": "a", "outcome": "approved", "status": "not_needed", "offset": 1} == approved
    assert refused | {"outcome": "unread", "status": "dead_letter", "stage": "validate", "level": "WARNING"} == refused
    assert refused["reason"] == "InvalidDecision"
