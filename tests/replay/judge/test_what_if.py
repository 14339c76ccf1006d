from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream.audit.verify.body import verify
from stream.bundle.build import build_bundle
from stream.bundle.open import open_bundle
from stream.errors import ClaimMismatch, ConfigurationError, MissingFeature, ModelNotPublished
from stream.events import Decision
from stream.recourse.model import PublishedModel
from stream.recourse.search.shadows import Shadows
from stream.replay.judge.models import Models
from stream.replay.judge.modes import WhatIf
from stream.replay.judge.verdict import Verdict
from stream.replay.judge.what_if import REVISION, Change, with_rules
from stream.wire.decisions import decision_of
from tests.examples import examples
from tests.service.lender import Lender

probabilities = st.floats(0.05, 0.95)
small = settings(
    max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture(scope="module")
def model(toy: Lender) -> PublishedModel:
    """The small lender's model."""
    return open_bundle(toy.bundle)


@pytest.fixture(scope="module")
def successor(lenders: tuple[Lender, Lender]) -> PublishedModel:
    """Another version, trained on other rows."""
    return open_bundle(lenders[1].bundle)


def decided(lender: Lender, number: int, threshold: float, **changes: Any) -> Decision:
    """A decision as the lender takes it at a threshold of its own."""
    outcome = "approved" if lender.probabilities[number] >= threshold else "declined"
    return decision_of(lender.decision(number, **({"threshold": threshold, "outcome": outcome} | changes)))


def judged(decision: Decision, given_models: list[PublishedModel], **change: Any) -> Verdict:
    return WhatIf(Models(given_models, None), Change(**change)).judge(decision)


@small
@given(
    row=st.integers(0, 899),
    thresholds=st.tuples(probabilities, probabilities).map(sorted),
    basis=st.sampled_from(["model", "policy", "manual", "fraud"]),
    side=st.sampled_from(["by the model", "against it"]),
)
def test_a_higher_threshold_approves_nobody(
    toy: Lender, model: PublishedModel, row: int, thresholds: list[float], basis: str, side: str
) -> None:
    """Given any decision at a threshold, by the model or against it, when it is decided again at a higher one, then a declined one stays declined, and what is approved after was approved before."""
    low, high = thresholds
    decision = decided(toy, row, low, decline_basis=basis)
    if side == "against it":
        decision = dataclasses.replace(decision, outcome="declined" if decision.outcome == "approved" else "approved")
    verdict = judged(decision, [model], threshold=high, threshold_scale="probability")
    after_approved = verdict.outcome in ("still_approved", "newly_approved", "approved_otherwise")
    assert verdict.outcome != "newly_approved"
    assert not (decision.outcome == "declined" and after_approved)
    assert (verdict.answer is None) == after_approved
    owner_approves = bool(toy.probabilities[row] >= high)
    if decision.outcome == "approved" and side == "by the model":
        assert (verdict.outcome == "still_approved") == owner_approves


@small
@given(row=st.integers(0, 899), thresholds=st.tuples(probabilities, probabilities).map(sorted))
def test_a_lower_threshold_declines_nobody(
    toy: Lender, model: PublishedModel, row: int, thresholds: list[float]
) -> None:
    """Given a decision by the model at a threshold, when it is decided again at a lower one, then it is newly declined never, and newly approved exactly where the library's probability says so."""
    low, high = thresholds
    decision = decided(toy, row, high)
    verdict = judged(decision, [model], threshold=low)
    assert verdict.outcome != "newly_declined"
    between = low <= toy.probabilities[row] < high
    assert (verdict.outcome == "newly_approved") == between


@small
@given(row=st.integers(0, 899), threshold=probabilities)
def test_an_answer_of_a_what_if_adds_up_without_a_model(
    toy: Lender, model: PublishedModel, successor: PublishedModel, row: int, threshold: float
) -> None:
    """Given any decision, when another model and threshold decide again and answer, then the audit record passes the check that needs no model, and names that model."""
    decision = decided(toy, row, 0.5)
    verdict = judged(decision, [model, successor], model_version="2026-11", threshold=threshold)
    if verdict.answer is not None:
        made = verdict.answer
        assert verify(made.body, made.body_sha256, made.recommendation) == []
        assert made.body["bundle"] == successor.identity
        assert made.body["decision"]["margin"] is None
        assert made.body["threshold"] == threshold


def test_a_model_that_approves_below_is_turned_around(toy: Lender, tmp_path: Path) -> None:
    """Given a bundle that approves below its threshold, when that is raised, then nobody is newly declined, and when it is lowered, nobody newly approved."""
    folder = toy.bundle.parent
    (tmp_path / "policy.toml").write_text('approve = "below"\n')
    build_bundle(
        model_path=folder / "model.json",
        pool_path=folder / "pool.csv",
        features_path=folder / "features.toml",
        policy_path=tmp_path / "policy.toml",
        threshold=0.5,
        out_dir=tmp_path / "bundle",
        target_column="target",
        model_id="toy",
        model_version="2026-10",
    )
    below = open_bundle(tmp_path / "bundle")
    outcomes: dict[float, set[str]] = {0.3: set(), 0.7: set()}
    for number in range(60):
        outcome = "approved" if toy.probabilities[number] <= 0.5 else "declined"
        decision = decision_of(toy.decision(number, outcome=outcome))
        for threshold, seen in outcomes.items():
            seen.add(judged(decision, [below], threshold=threshold).outcome)
    assert outcomes == {
        0.3: {"still_approved", "newly_declined", "still_declined"},
        0.7: {"still_approved", "newly_approved", "still_declined"},
    }


def test_the_deciders_claims_are_of_the_old_model(
    toy: Lender, model: PublishedModel, successor: PublishedModel
) -> None:
    """Given a decision whose margin and threshold are the old model's, when another model is asked, then neither is compared or kept; when the same is asked, a wrong claim is still refused."""
    decision = decided(toy, toy.declined(1)[0], 0.5)
    asked = judged(decision, [successor])
    assert asked.before is not None
    assert asked.before.margin == decision.margin
    wrong = dataclasses.replace(decision, margin=12.5)
    with pytest.raises(ClaimMismatch):
        judged(wrong, [model], threshold=0.6)
    verdict = judged(wrong, [model, successor], model_version="2026-11")
    assert verdict.outcome in ("still_declined", "newly_approved")
    assert verdict.before is not None
    assert verdict.before.feasibility == "unknown"


def test_what_a_person_decided_stays(toy: Lender, model: PublishedModel, successor: PublishedModel) -> None:
    """Given declines by hand, by policy or against the model, and an approval against it, when decided again, then each stays as it was and is counted apart."""
    accepted = next(number for number in range(900) if toy.probabilities[number] > 0.9)
    refused = next(number for number in range(900) if toy.probabilities[number] < 0.1)
    for number, changes, outcome in (
        (accepted, {"outcome": "declined", "decline_basis": "manual"}, "declined_otherwise"),
        (accepted, {"outcome": "declined", "decline_basis": "model"}, "declined_otherwise"),
        (refused, {"outcome": "declined", "decline_basis": "policy"}, "declined_otherwise"),
        (refused, {"outcome": "approved"}, "approved_otherwise"),
    ):
        decision = decision_of(toy.decision(number, **changes))
        for given_models, change in (
            ([model], {"threshold": 0.05}),
            ([model, successor], {"model_version": "2026-11"}),
        ):
            assert judged(decision, given_models, **change).outcome == outcome


def test_other_rules_answer_as_a_bundle_built_with_them_would(
    toy: Lender, model: PublishedModel, tmp_path: Path
) -> None:
    """Given another features.toml and policy.toml, when a what-if puts them into a bundle, then it answers like a bundle that was built with them, but under an identity of its own that no published bundle has."""
    folder = toy.bundle.parent
    features = (
        (folder / "features.toml").read_text().replace('["f0"]', '["f0"]\nlabel = "first"\ncost = 3\nstep = 0.5', 1)
    )
    features = features.replace(
        '["f1"]\ntype = "number"\nmutability = "mutable"', '["f1"]\ntype = "number"\nmutability = "increase_only"'
    )
    policy = "beta = 2.5\nband_size = 40\nexpiry_days = 10\n"
    (tmp_path / "features.toml").write_text(features)
    (tmp_path / "policy.toml").write_text(policy)
    build_bundle(
        model_path=folder / "model.json",
        pool_path=folder / "pool.csv",
        features_path=tmp_path / "features.toml",
        policy_path=tmp_path / "policy.toml",
        threshold=0.5,
        out_dir=tmp_path / "bundle",
        target_column="target",
        model_id="toy",
        model_version="2026-10",
        revision=2,
    )
    built = open_bundle(tmp_path / "bundle")
    change = {"features": features.encode(), "policy": policy.encode()}
    own = with_rules(model, **change)
    assert own.identity["revision"] == REVISION == 0
    assert own.identity["bundle_sha256"] not in (model.identity["bundle_sha256"], built.identity["bundle_sha256"])
    for key in ("features_sha256", "policy_sha256", "model_sha256", "pool_sha256"):
        assert own.identity[key] == built.identity[key]
    told = 0
    for number in toy.declined(30):
        decision = decided(toy, number, 0.5)
        mine, theirs = judged(decision, [model], **change), judged(decision, [built])
        assert mine.answer is not None
        assert theirs.answer is not None
        bodies = [
            {**one.answer.body, "bundle": None, "recommendation_id": None} for one in (mine, theirs) if one.answer
        ]
        assert bodies[0] == bodies[1]
        told += bool(mine.differs)
    assert told > 15


def test_other_rules_leave_the_shadows(model: PublishedModel) -> None:
    """Given a model with shadows, when a what-if changes its policy, then the same shadows are asked."""
    shadows = Shadows(forests=(model.forest,))
    assert with_rules(dataclasses.replace(model, shadows=shadows), None, b"beta = 2.5\n").shadows is shadows


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"features": '["f0"]\ntype = "integer"'}, "`type`"),
        ({"features": '["f0"]\nno_record = [-9]\ntype = "number"'}, "`no_record`"),
        ({"features": '["f0"]\ntype = "category"\ncategories = ["a"]'}, "`type`"),
        ({"policy": 'approve = "below"'}, "`approve`"),
        ({"policy": 'reference_key_id = "mine"'}, "`reference_key_id`"),
        ({"policy": 'scale = "deviation"'}, "`scale`"),
        ({"policy": "beta = -1"}, "beta"),
        ({"policy": b"\xff"}, "--policy"),
    ],
)
def test_rules_that_the_pool_is_encoded_with_are_refused(
    toy: Lender, model: PublishedModel, change: dict[str, Any], named: str
) -> None:
    """Given rules that a bundle's pool was read or sorted by, when a what-if changes them, then it is refused, and the message names them."""
    content = {}
    for key, text in change.items():
        whole = text if isinstance(text, bytes) else text.encode()
        if key == "features":
            kept = (toy.bundle.parent / "features.toml").read_text().replace('["f0"]\ntype = "number"', text, 1)
            whole = kept.encode()
        content[key] = whole
    with pytest.raises(ConfigurationError, match=named):
        with_rules(model, content.get("features"), content.get("policy"))


def test_features_of_the_other_model(toy: Lender, model: PublishedModel, successor: PublishedModel) -> None:
    """Given decisions with a feature too few or too many for the other model, when it is asked, then the first has its typed reason, and the second is answered without what it does not take."""
    row = toy.decision(toy.declined(1)[0])
    lacking = {name: value for name, value in row["features"].items() if name != "f2"}
    with pytest.raises(MissingFeature):
        judged(decision_of({**row, "features": lacking}), [model, successor], model_version="2026-11")
    more = {**row["features"], "f9": 3.0}
    verdict = judged(
        decision_of({**row, "model_version": "2025-01", "features": more, "policy_overrides": {"f9": "immutable"}}),
        [successor],
    )
    assert verdict.features_left_out == 1
    assert verdict.outcome in ("still_declined", "newly_approved")


def test_a_model_of_another_name_is_not_asked(toy: Lender, model: PublishedModel) -> None:
    """Given a decision of another model id, when the bundle given is of another, then it has its typed reason; a threshold that no margin meets is refused at once."""
    with pytest.raises(ModelNotPublished):
        judged(decision_of(toy.decision(0, model_id="mortgage")), [model], threshold=0.6)
    with pytest.raises(ConfigurationError, match="--threshold"):
        judged(decision_of(toy.decision(0)), [model], threshold=1.5)
