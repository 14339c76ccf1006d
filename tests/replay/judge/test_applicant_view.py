"""What a letter says is told from the numbers behind it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from stream.bundle.open import open_bundle
from stream.errors import MalformedRecord
from stream.recourse.answer import answer
from stream.recourse.model import PublishedModel
from stream.recourse.rules.policy import Policy
from stream.replay.judge.applicant_view import applicant_view, number_differences, view_differences, words_of
from stream.replay.judge.models import Models
from stream.replay.judge.modes import WhatIf
from stream.replay.judge.verdict import Verdict
from stream.replay.judge.what_if import Change
from stream.replay.report.report import report_of
from stream.replay.report.tally import ReplayTally
from stream.replay.sources.records import stored_of
from stream.replay.sources.source import Snapshot
from stream.wire.decisions import decision_of
from tests.service.lender import Lender

DECLINED = 40


@pytest.fixture(scope="module")
def model(toy: Lender) -> PublishedModel:
    """The small lender's model."""
    return open_bundle(toy.bundle)


def features_of(toy: Lender, each: str) -> bytes:
    """The lender's features.toml with more in each feature."""
    text = (toy.bundle.parent / "features.toml").read_text()
    return text.replace('type = "number"\n', f'type = "number"\n{each}\n').encode()


def judged(toy: Lender, models: Models, change: Change, *, from_audit: bool) -> list[Verdict]:
    """Decide the first declined again, from what was sent or from what is stored."""
    mode, found = WhatIf(models, change), []
    for number in toy.declined(DECLINED):
        decision = decision_of(toy.decision(number))
        if not from_audit:
            found.append(mode.judge(decision))
            continue
        made = answer(decision, open_bundle(toy.bundle))
        body = orjson.loads(orjson.dumps(made.body))
        found.append(mode.judge(stored_of({"body": body, "body_sha256": made.body_sha256}, None)))
    return found


def report(verdicts: list[Verdict]) -> dict[str, Any]:
    tally = ReplayTally()
    for place, one in enumerate(verdicts):
        tally.add(one, f"line {place}")
    source = Snapshot(kind="jsonl", says={}, ranges={0: (0, tally.records)}, records=tally.records)
    return report_of({"run_id": "x", "mode": "what-if"}, source, tally)


@pytest.mark.parametrize("from_audit", [False, True])
def test_a_dearer_effort_is_told_to_nobody(toy: Lender, model: PublishedModel, *, from_audit: bool) -> None:
    """Given rules in which all that differs is that every cost has doubled, those of an action and of what is wished for too, when a what-if answers again, then all are told the same, and every tier's effort differs as a number behind it."""
    settings = Policy()
    doubled = ("action_cost", "mid_surplus_price", "far_surplus_price", "far_distance_price")
    dear = [f"{key} = {2 * getattr(settings, key)}" for key in doubled]
    dear += [f"far_reserve_price = {4 * settings.far_reserve_price}"]  # which is divided by what mid costs
    policy = "\n".join([(toy.bundle / "policy.toml").read_text(), *dear, ""])
    dearer = Change(features=features_of(toy, "cost = 2"), policy=policy.encode())
    verdicts = judged(toy, Models([model], None), dearer, from_audit=from_audit)
    found = report(verdicts)
    assert found["answers"] == {"told_the_same": DECLINED, "told_differently": 0, "told_before_unknown": 0}
    assert found["differs"] == {}
    with_tiers = sum(bool(one.after is not None and one.after.tiers) for one in verdicts)
    assert found["numbers_behind"]["of_those_told_the_same"] == with_tiers > 20
    assert set(found["numbers_behind"]["parts"]) == {"near: effort", "mid: effort", "far: effort"}


@pytest.mark.parametrize("from_audit", [False, True])
@pytest.mark.parametrize(
    ("each", "parts"),
    [
        ('label = "what you owe"', {"near: wording", "mid: wording", "far: wording"}),
        ('unit = "months"', {"near: wording", "mid: wording", "far: wording"}),
        ('reason = { too_low = "Too little.", too_high = "Too much." }', {"reasons"}),
    ],
)
def test_other_words_are_told(
    toy: Lender, model: PublishedModel, each: str, parts: set[str], *, from_audit: bool
) -> None:
    """Given a features.toml of which only a label, a unit or a reason's text is another, when a what-if answers again, then it is told differently, from decisions and from stored answers alike."""
    verdicts = judged(toy, Models([model], None), Change(features=features_of(toy, each)), from_audit=from_audit)
    told = {part for one in verdicts for part in one.differs}
    assert parts <= told
    assert not {part for part in told if "actions" in part}


def test_what_nobody_knows_any_more_is_not_counted_as_the_same(toy: Lender, model: PublishedModel) -> None:
    """Given decisions of a model that is not at hand, when another is asked, then what they were told is unknown, and neither the same nor different."""
    verdicts = []
    for number in toy.declined(DECLINED):
        decision = decision_of(toy.decision(number, model_version="2025-01"))
        verdicts.append(WhatIf(Models([model], None), Change()).judge(decision))
    assert report(verdicts)["answers"]["told_before_unknown"] == DECLINED


CHANGES: dict[str, tuple[Callable[[Any], object], tuple[str, ...], tuple[str, ...]]] = {
    "nothing": (lambda _: None, (), ()),
    "status": (lambda body: body.update(status="no_feasible_recourse"), ("status",), ()),
    "reason's text": (lambda body: body["reasons"][0].update(text="Other."), ("reasons",), ()),
    "reason's contribution": (
        lambda body: body["reasons"][0].update(contribution="1"), (), ("reasons: contributions",),
    ),
    "reason's code": (lambda body: body["reasons"][0].update(code="Z"), (), ("reasons: codes",)),
    "target": (
        lambda body: body["tiers"][0]["target"].update({next(iter(body["tiers"][0]["target"])): 99.0}), ("near: actions",), (),
    ),
    "own value": (
        lambda body: body["decision"]["features"].update({next(iter(body["tiers"][0]["target"])): 98.0}), ("near: actions",), (),
    ),
    "tier": (lambda body: body["tiers"].pop(0), ("near: lost",), ()),
    "effort": (lambda body: body["tiers"][1].update(effort=77.0), (), ("mid: effort",)),
    "robust share": (lambda body: body["tiers"][1].update(robust_share=0.5), (), ("mid: robust_share",)),
    "margins": (
        lambda body: (body.update(margin=-9.0), body["tiers"][2].update(margin=9.0)), (), ("margin", "far: margin"),
    ),
    "contribution": (
        lambda body: body["tiers"][0]["ledgers"]["target"]["features"][0].update(contribution="1"), (), ("near: contributions",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_each_part_is_on_its_side(toy: Lender, model: PublishedModel, name: str) -> None:
    """Given two answers that differ in one part, when compared, then it is named among what is told or among the numbers behind it, and on the other side there is nothing but what follows from it."""
    change, told, behind = CHANGES[name]
    answers = (answer(decision_of(toy.decision(number)), model).body for number in toy.declined(200))
    before = orjson.loads(
        orjson.dumps(next(body for body in answers if len(body["tiers"]) == 3 and body["reasons"] and _apart(body)))
    )
    after = copy.deepcopy(before)
    change(after)
    words = words_of(model)
    found = view_differences(applicant_view(before, words, None), applicant_view(after, words, None))
    assert found[: len(told)] == told
    assert len(found) == len(told) or name == "own value"
    assert number_differences(before, after) == behind


def _apart(body: Any) -> bool:
    """Whether no two tiers share what a test changes."""
    return len({id(one) for one in body["tiers"]}) == len(body["tiers"])


@pytest.mark.parametrize("lacking", ["text", "effort", "ledgers"])
def test_a_body_of_another_shape_is_said_to_be_one(toy: Lender, model: PublishedModel, lacking: str) -> None:
    """Given a stored body that lacks a part within its tiers or reasons, when decided again, then it is refused as malformed, and not as a fault of this software."""
    bodies = (answer(decision_of(toy.decision(number)), model).body for number in toy.declined(50))
    body = orjson.loads(orjson.dumps(next(one for one in bodies if one["tiers"] and one["reasons"])))
    del (body["reasons"] if lacking == "text" else body["tiers"])[0][lacking]
    with pytest.raises(MalformedRecord, match="stored body"):
        WhatIf(Models([model], None), Change(threshold=0.6)).judge(stored_of({"body": body}, None))


def test_the_expiry_is_told(toy: Lender, model: PublishedModel) -> None:
    """Given a policy of which only the days of validity are others, when a what-if answers again, then everybody is told another day, and nothing else."""
    verdicts = judged(toy, Models([model], None), Change(policy=b"expiry_days = 11\n"), from_audit=False)
    assert {one.differs for one in verdicts} == {("expiry",)}


def test_a_bundle_that_is_not_at_hand_leaves_wording_out(toy: Lender, model: PublishedModel, tmp_path: Path) -> None:
    """Given stored answers of rules that nobody gave, when another bundle is asked, then all but the wording is still compared, and no record is refused."""
    del tmp_path
    mode = WhatIf(Models([model], None), Change(features=features_of(toy, 'label = "other"')))
    for number in toy.declined(5):
        body = orjson.loads(orjson.dumps(answer(decision_of(toy.decision(number)), model).body))
        body["bundle"]["bundle_sha256"] = "ab" * 32
        body["bundle"]["features_sha256"] = "cd" * 32
        assert not [part for part in mode.judge(stored_of({"body": body}, None)).differs if "wording" in part]
