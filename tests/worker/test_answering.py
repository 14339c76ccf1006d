from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from stream.bundle.open import open_bundle
from stream.errors import BundleLost, CorruptionError, RedisUnavailable
from stream.events import ModelPublished
from stream.models.model_table import ModelTable
from stream.recourse.model import PublishedModel
from stream.runtime.kafka.inbound import Inbound
from stream.runtime.settings import Settings
from stream.wire.avro_records import decode, encode
from stream.wire.decisions import read_decision
from stream.wire.framing import SINGLE_OBJECT, Framing
from stream.wire.registry.client import Registered
from stream.wire.registry.framing import RegistryFraming
from stream.wire.schema_files import current_schemas
from stream.worker.answering import Answered, Answerer, Approved, Outcome, Refused, Waiting
from tests.models.test_model_table import published
from tests.records import decision_dict
from tests.service.lender import Lender, toy_lender
from tests.wire.registry.registries import MemoryRegistry
from tests.worker.fakes import inbound


class Memory:
    """Remembers digests as Redis does: the first content wins."""

    def __init__(self) -> None:
        self.seen: dict[str, bytes] = {}

    def __call__(self, decisions: Sequence[tuple[str, bytes]]) -> list[bool]:
        """True for a conflict."""
        return [self.seen.setdefault(name, digest) != digest for name, digest in decisions]


class Models:
    """Opens one model, or fails as it is told."""

    def __init__(self, model: PublishedModel) -> None:
        self.model_there = model
        self.failure: Exception | None = None

    def model(self, published: ModelPublished) -> PublishedModel:  # noqa: ARG002 - the interface
        """Open it."""
        if self.failure is not None:
            raise self.failure
        return self.model_there


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Lender:
    """The small lender."""
    return toy_lender(tmp_path_factory.mktemp("toy"))


@pytest.fixture
def models(toy: Lender) -> Models:
    """Its model."""
    return Models(open_bundle(Path(toy.bundle)))


def answerer(
    models: Models, memory: Memory | None = None, framing: Framing = SINGLE_OBJECT, settings: Settings | None = None
) -> Answerer:
    table = ModelTable()
    record = published(1, "2026-01-01T00:00:00Z", version="2026-10")
    record["model_id"] = "toy"
    table.learn(record, 0)
    return Answerer(
        table=table,
        open_model=models.model,
        remember=memory or Memory(),
        framing=framing,
        settings=settings or Settings(),
    )


def read(decision: dict[str, Any], offset: int = 0) -> Inbound:
    return inbound(offset, value=orjson.dumps(decision))


def only(here: Answerer, record: Inbound) -> Outcome:
    (outcome,) = here.outcomes([record], budget_s=60)
    return outcome


def test_the_same_decision_gives_the_same_bytes_wherever_it_was_read(toy: Lender, models: Models) -> None:
    """Given one decision as JSON and as Avro at two offsets, when answered, then recommendation and audit body are equal byte for byte, and only the envelopes differ."""
    decision = toy.decision(toy.declined(1)[0])
    avro = encode("Decision", decision_dict(read_decision(orjson.dumps(decision))))
    first, second = only(answerer(models), read(decision, 3)), only(answerer(models), inbound(9, value=avro))
    assert isinstance(first, Answered)
    assert isinstance(second, Answered)
    assert first.recommendation == second.recommendation
    audits = [decode(one.audit)[1] for one in (first, second)]
    assert audits[0]["body"] == audits[1]["body"]
    assert audits[0]["body_sha256"] == audits[1]["body_sha256"]
    assert [one["envelope"]["source"]["offset"] for one in audits] == [3, 9]


def test_a_decision_id_with_other_content_is_a_conflict_and_the_first_wins(toy: Lender, models: Models) -> None:
    """Given one id with two contents, in one batch and later again, when answered, then the first content is answered each time, and the other is refused each time."""
    here = answerer(models)
    first = toy.decision(toy.declined(1)[0])
    other = first | {"product": "another"}
    outcomes = here.outcomes([read(first), read(other), read(first)], budget_s=60)
    assert [type(one) for one in outcomes] == [Answered, Refused, Answered]
    assert [type(one) for one in here.outcomes([read(other), read(first)], budget_s=60)] == [Refused, Answered]
    assert isinstance(outcomes[1], Refused)
    assert outcomes[1].error.reason == "DecisionConflict"


def test_a_decision_corrected_after_a_mistake_is_no_conflict(toy: Lender, models: Models) -> None:
    """Given a decision that lacked a feature, when it is sent again with it under the same id, then it is answered."""
    here = answerer(models)
    whole = toy.decision(toy.declined(1)[0])
    broken = whole | {"features": {}}
    assert isinstance(only(here, read(broken)), Refused)
    assert isinstance(only(here, read(whole)), Answered)


def test_an_approved_decision_needs_no_model(toy: Lender, models: Models) -> None:
    """Given an approved decision of an unpublished version, when read, then it is counted and not waited for; a broken one is refused."""
    decision = toy.decision(0, outcome="approved", model_version="nobody")
    assert isinstance(only(answerer(models), read(decision)), Approved)
    assert isinstance(only(answerer(models), read(decision | {"event_time": "today"})), Refused)


def test_an_unpublished_version_waits(toy: Lender, models: Models) -> None:
    """Given a declined decision of an unpublished version, when read, then it waits, and its id is not remembered yet."""
    memory = Memory()
    outcome = only(answerer(models, memory), read(toy.decision(toy.declined(1)[0], model_version="nobody")))
    assert isinstance(outcome, Waiting)
    assert (outcome.model_id, outcome.model_version) == ("toy", "nobody")
    assert memory.seen == {}


def test_a_lost_bundle_makes_its_decision_wait_and_no_other(toy: Lender, models: Models) -> None:
    """Given a bundle that is nowhere, when a decision of its model is read, then it waits."""
    models.failure = BundleLost("nowhere")
    outcome = only(answerer(models), read(toy.decision(toy.declined(1)[0])))
    assert isinstance(outcome, Waiting)
    assert outcome.error.reason == "BundleLost"


def test_a_decision_over_the_set_size_is_refused_unread(toy: Lender, models: Models) -> None:
    """Given a bound on decisions, when one is larger, then it is refused with the bound."""
    outcome = only(answerer(models, settings=Settings(decision_bytes_max=100)), read(toy.decision(toy.declined(1)[0])))
    assert isinstance(outcome, Refused)
    assert "at most 100" in str(outcome.error)


@pytest.mark.parametrize("settings", [Settings(audit_bytes_max=500), Settings(recommendation_bytes_max=500)])
def test_a_record_over_its_topics_limit_is_refused_before_it_is_sent(
    toy: Lender, models: Models, settings: Settings
) -> None:
    """Given a limit that the record does not fit, when answered, then the refusal names the record, both sizes and the setting."""
    outcome = only(answerer(models, settings=settings), read(toy.decision(toy.declined(1)[0])))
    assert isinstance(outcome, Refused)
    assert (outcome.error.reason, outcome.error.stage) == ("RecordTooLarge", "encode")
    record = "AUDIT" if settings.audit_bytes_max == 500 else "RECOMMENDATION"
    assert f"COACH_{record}_BYTES_MAX" in str(outcome.error)


def test_a_fault_of_ours_is_a_retryable_refusal_without_its_text(toy: Lender, models: Models) -> None:
    """Given a fault that nobody expected, with a feature value in its text, when it comes up, then the refusal names kind and place, and not the text."""
    models.failure = KeyError("salary 1234.5")
    outcome = only(answerer(models), read(toy.decision(toy.declined(1)[0])))
    assert isinstance(outcome, Refused)
    assert (outcome.error.reason, outcome.error.retryable) == ("UnexpectedFault", True)
    assert "KeyError at test_answering.py" in str(outcome.error)
    assert "1234" not in str(outcome.error)


@pytest.mark.parametrize("failure", [RedisUnavailable("away"), CorruptionError("sums differ")])
def test_what_concerns_everyone_is_raised(toy: Lender, models: Models, failure: Exception) -> None:
    """Given a dependency that is away, or two of our own numbers that disagree, when it comes up, then it is raised, and nothing is remembered."""
    memory = Memory()
    models.failure = failure
    records = [read(toy.decision(number)) for number in toy.declined(3)]
    with pytest.raises(type(failure)):
        answerer(models, memory).outcomes(records, budget_s=60)
    assert memory.seen == {}


def test_a_batch_ends_with_its_budget(toy: Lender, models: Models) -> None:
    """Given no time at all, when a batch is answered, then one decision is."""
    records = [read(toy.decision(number)) for number in toy.declined(3)]
    assert len(answerer(models).outcomes(records, budget_s=0)) == 1


def test_a_decision_whose_schema_nobody_can_tell_of_waits_alone(toy: Lender, models: Models) -> None:
    """Given a schema registry that is away, when a batch has a decision that only it can tell the schema of, then that one waits, with a retryable reason that names the registry, and the others are answered."""
    registry = MemoryRegistry()
    theirs = registry.put("decisions-value", current_schemas()["Decision"].document)
    registry.down = True
    decision = toy.decision(toy.declined(1)[0])
    body = encode("Decision", decision_dict(read_decision(orjson.dumps(decision))))[10:]
    framed = inbound(1, value=b"\x00" + theirs.to_bytes(4, "big") + body)
    here = answerer(models, framing=RegistryFraming(_Settled(registry), register=True))
    waiting, answered = here.outcomes([framed, read(decision, 2)], budget_s=60)
    assert isinstance(waiting, Waiting)
    assert (waiting.decision_id, waiting.error.reason, waiting.error.retryable) == (None, "SchemaUnavailable", True)
    assert registry.url in str(waiting.error)
    assert isinstance(answered, Answered)


class _Settled(MemoryRegistry):
    """A registry that is away, but for the subjects of what we write."""

    def __init__(self, away: MemoryRegistry) -> None:
        super().__init__()
        self._away = away

    def schema(self, schema_id: int) -> Registered | None:
        """See `SchemaRegistry`."""
        return self._away.schema(schema_id)
