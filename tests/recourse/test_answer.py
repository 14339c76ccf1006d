from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.audit.verify.body import verify
from stream.canonical import canonical_json, sha256
from stream.errors import (
    ClaimMismatch,
    InvalidDecision,
    MissingFeature,
    NonFiniteFeature,
    OverrideRefused,
    UnknownCategory,
    UnknownFeature,
)
from stream.recourse.answer import Answer, answer, answer_if_declined
from stream.recourse.rules.features import read_features
from tests.examples import examples
from tests.recourse.lenders import FEATURES, LENDERS, RULES, Approve, Lender, Library, lender

PAIRS = pytest.mark.parametrize(("library", "approve"), LENDERS)
REPOSITORY = Path(__file__).resolve().parents[2]


def content(answered: Answer) -> bytes:
    return canonical_json([answered.recommendation, answered.body, answered.body_sha256])


def digests(library: Library, approve: Approve, count: int) -> list[str]:
    """Hashes of the answers to the first declined rows; another process calls it too."""
    return [sha256([a.recommendation, a.body]) for a in lender(library, approve).answers(count)]


# --- deterministic -------------------------------------------------------------------------------------------------


def test_another_process_gives_the_same_bytes() -> None:
    """Given another process that hashes otherwise and has answered nothing before, its answers are the same bytes."""
    code = (
        "import json; from tests.recourse.lenders import LENDERS; from tests.recourse.test_answer import digests\n"
        "print(json.dumps([digests(library, approve, 12) for library, approve in LENDERS]))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": str(REPOSITORY)}
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, env=environment, check=True, capture_output=True, timeout=100
    )
    assert json.loads(ran.stdout) == [digests(library, approve, 12) for library, approve in LENDERS]


@PAIRS
def test_threads_share_a_model_and_agree(library: Library, approve: Approve) -> None:
    """Given one model asked by several threads at once, at many thresholds, each answer is the one a lone thread gets."""
    shop = lender(library, approve).with_policy()
    asked = [shop.decide(row, threshold=0.5 + 0.002 * k) for k, row in enumerate(shop.declined(24))]
    alone = [content(answer(decision, lender(library, approve).model)) for decision in asked]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda decision: content(answer(decision, shop.model)), asked)) == alone


@PAIRS
@settings(max_examples=examples(3))
@given(seed=st.integers(0, 2**32 - 1))
def test_what_came_before_changes_nothing(library: Library, approve: Approve, seed: int) -> None:
    """Given the same decisions in another order, with bad ones between, on a fresh model, each answer is the same."""
    warm, cold = lender(library, approve), lender(library, approve).with_policy()
    rows = list(warm.declined(8))
    usual = {i: content(answer(warm.decide(row), warm.model)) for i, row in enumerate(rows)}
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)  # noqa: S311  (a seeded order, no secret)
    for i in order:
        with pytest.raises(MissingFeature):
            answer(cold.decide(rows[i], features={}), cold.model)
        assert content(answer(cold.decide(rows[i]), cold.model)) == usual[i]


@PAIRS
@settings(max_examples=examples(8))
@given(order=st.permutations(FEATURES))
def test_the_order_of_features_says_nothing(library: Library, approve: Approve, order: list[str]) -> None:
    """Given a decision whose features come in another order, the answer is the same."""
    shop = lender(library, approve)
    row = shop.declined(1)[0]
    features = shop.features_of(row)
    other = shop.decide(row, features={name: features[name] for name in order})
    assert content(answer(other, shop.model)) == content(answer(shop.decide(row), shop.model))


@PAIRS
def test_a_decision_is_only_read(library: Library, approve: Approve) -> None:
    """Given a decision and a model, an answer changes neither, and what is later done to an answer does not reach the next."""
    shop = lender(library, approve)
    decision = shop.decide(shop.declined(1)[0])
    before, arrays = repr(decision), {k: v.tobytes() for k, v in shop.model.matrix.arrays().items()}
    first = answer(decision, shop.model)
    usual = content(first)
    spoilt: Any = first.body
    spoilt["decision"]["features"].clear()
    spoilt["bundle"]["model_id"] = "another"
    spoilt["tiers"].clear()
    assert repr(decision) == before
    assert {k: v.tobytes() for k, v in shop.model.matrix.arrays().items()} == arrays
    assert content(answer(decision, shop.model)) == usual


def test_transport_is_no_content() -> None:
    """Given another trace context, the answer and its id are the same; given another content, the id is another."""
    shop = lender("xgboost")
    row = shop.declined(1)[0]
    usual = answer(shop.decide(row), shop.model)
    traced = answer(shop.decide(row, traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01"), shop.model)
    assert content(traced) == content(usual)
    changes: list[dict[str, Any]] = [
        {"decision_id": "d-4712"}, {"subject_ref": None}, {"threshold": 0.6}, {"event_time_ms": 1}, {"product": None},
        {"jurisdiction": "DE"}, {"policy_overrides": {"income": "immutable"}}, {"disclosures": {}},
        {"decline_basis": "manual"}, {"model_version": "2026-11"}, {"margin": usual.body["margin"]},
    ]  # fmt: skip
    ids = [answer(shop.decide(row, **change), shop.model).body["recommendation_id"] for change in changes]
    assert len({usual.body["recommendation_id"], *ids}) == 1 + len(changes)


@PAIRS
def test_the_hash_is_of_the_body(library: Library, approve: Approve) -> None:
    """Given an answer, body_sha256 is the hash of the body's canonical JSON, and survives a trip through JSON text."""
    shop = lender(library, approve)
    for answered in shop.answers(3):
        assert sha256(json.loads(json.dumps(answered.body))) == answered.body_sha256


# --- scores, thresholds and claims -----------------------------------------------------------------------------------


@PAIRS
@pytest.mark.parametrize("scale", ["probability", "margin"])
def test_accepted_is_what_the_library_says(library: Library, approve: Approve, scale: str) -> None:
    """Given thresholds on and beside the library's own outputs, on either scale and side, a row is declined just where that output misses it."""
    shop = lender(library, approve)
    rows = shop.pool[:10]
    given = shop.owner.ask(rows, "probability" if scale == "probability" else "margin").astype(np.float64)
    for row, own in zip(rows, given.tolist(), strict=True):
        for threshold in (own, float(np.nextafter(own, -np.inf)), float(np.nextafter(own, np.inf))):
            if scale == "probability" and not 0 < threshold < 1:
                continue
            decision = shop.decide(row, threshold=threshold, threshold_scale=scale)
            meets = own >= threshold if approve == "above" else own <= threshold
            body = answer(decision, shop.model).body
            assert (body["status"] == "not_model_decline") == meets
            assert (answer_if_declined(decision, shop.model) is None) == meets
            assert (body["threshold"], body["threshold_scale"]) == (threshold, scale)


@PAIRS
def test_the_scores_are_the_librarys(library: Library, approve: Approve) -> None:
    """Given answers, margins and probabilities, before and after the actions, are the library's own to the last bit."""
    shop = lender(library, approve)
    rows = shop.declined(20)
    given = list(zip(shop.owner.ask(rows, "margin"), shop.owner.ask(rows, "probability"), strict=True))
    for row, (margin, probability), answered in zip(rows, given, shop.answers(20), strict=True):
        assert (answered.body["margin"], answered.body["probability"]) == (float(margin), float(probability))
        for tier in answered.recommendation["tiers"]:
            changed = shop.features_of(row) | {a["feature"]: a["to"] for a in tier["actions"]}
            after = shop.model.rules.encode(changed)[None]
            assert tier["margin"] == float(shop.owner.ask(after, "margin")[0])
            assert tier["probability"] == float(shop.owner.ask(after, "probability")[0])


@PAIRS
def test_the_events_threshold_wins(library: Library, approve: Approve) -> None:
    """Given a threshold in the event, it holds instead of the bundle's, on the bundle's scale where the event names none."""
    shop = lender(library, approve)
    row = shop.declined(1)[0]
    own = float(shop.owner.ask(row[None], "probability")[0])
    body = answer(shop.decide(row), shop.model).body
    assert (body["threshold"], body["threshold_scale"], body["status"]) == (0.5, "probability", "ok")
    kind = answer(shop.decide(row, threshold=own), shop.model).body
    assert (kind["threshold"], kind["threshold_scale"], kind["status"]) == (own, "probability", "not_model_decline")
    on_margins = shop.with_model(threshold=0.0, threshold_scale="margin")
    assert answer(on_margins.decide(row), on_margins.model).body["threshold_scale"] == "margin"
    margin = float(shop.owner.ask(row[None], "margin")[0])
    kind = answer(on_margins.decide(row, threshold=margin), on_margins.model).body
    assert (kind["cutoff_margin"], kind["threshold_scale"], kind["status"]) == (margin, "margin", "not_model_decline")


@PAIRS
@pytest.mark.parametrize(
    ("threshold", "scale"),
    [(0.0, "probability"), (1.0, "probability"), (-0.1, "probability"), (1e999, "margin"), (float("nan"), "margin")],
)
def test_a_threshold_nobody_can_meet_is_refused(
    library: Library, approve: Approve, threshold: float, scale: str
) -> None:
    """Given a threshold outside its scale, the decision is refused as invalid, not answered."""
    shop = lender(library, approve)
    with pytest.raises(InvalidDecision, match="threshold"):
        answer(shop.decide(shop.pool[0], threshold=threshold, threshold_scale=scale), shop.model)


@PAIRS
@pytest.mark.parametrize("claim", ["margin", "probability"])
def test_a_claim_is_compared_after_a_cast(library: Library, approve: Approve, claim: str) -> None:
    """Given a claimed score, it holds if the library's dtype reads it as the model's own, and is a mismatch one ulp beside."""
    shop = lender(library, approve)
    dtype = shop.model.forest.dtype
    for row in shop.declined(10):
        own = shop.owner.ask(row[None], "margin" if claim == "margin" else "probability")[0]
        good = [float(own), float(str(own))]  # the second is the shortest decimal, in doubles another number
        if dtype == np.float32:
            good.append(float(np.nextafter(np.float64(own), np.inf)))
        for value in good:
            assert answer(shop.decide(row, **{claim: value}), shop.model).body["status"] == "ok"
        wrong = [float(np.nextafter(own, dtype.type(way))) for way in (-np.inf, np.inf)] + [0.0, -float(own), 1e300]
        for value in wrong:
            with pytest.raises(ClaimMismatch, match=f"the claimed {claim} is not") as refused:
                answer(shop.decide(row, **{claim: value}), shop.model)
            assert repr(value) not in str(refused.value)


# --- what the model did not decline ---------------------------------------------------------------------------------


@PAIRS
@pytest.mark.parametrize("basis", ["policy", "manual", "fraud"])
def test_another_basis_gets_no_model_reason(library: Library, approve: Approve, basis: str) -> None:
    """Given a decline on another basis, even of a row that the model declines, there are no actions, reasons or ledgers of the model."""
    shop = lender(library, approve)
    nothing_of_the_model(answer(shop.decide(shop.declined(1)[0], decline_basis=basis), shop.model))


@PAIRS
def test_a_score_that_the_model_accepts_gets_no_model_reason(library: Library, approve: Approve) -> None:
    """Given a row that the model accepts and someone declined, the status says so, whatever basis was claimed."""
    shop = lender(library, approve)
    for row in shop.pool[shop.accepts(shop.pool)][:5]:
        nothing_of_the_model(answer(shop.decide(row), shop.model))
        assert answer_if_declined(shop.decide(row), shop.model) is None


def nothing_of_the_model(answered: Answer) -> None:
    body, told = answered.body, answered.recommendation
    assert body["status"] == told["status"] == "not_model_decline"
    assert (body["tiers"], body["reasons"], body["reasons_ledger"]) == ([], [], None)
    assert (told["tiers"], told["reasons"], told["proven"]) == ([], [], None)


# --- the recommendation ----------------------------------------------------------------------------------------------


def test_times_are_counted_from_the_event() -> None:
    """Given an event_time, expiry and notice are so many days later; without one there is neither."""
    shop = lender("xgboost").with_policy(expiry_days=60, notice_days=30)
    row = shop.declined(1)[0]
    told = answer(shop.decide(row), shop.model).recommendation
    assert (told["notice_due_at"], told["expires_at"]) == ("2026-12-27T10:15:00.250Z", "2027-01-26T10:15:00.250Z")
    told = answer(shop.decide(row, event_time_ms=None), shop.model).recommendation
    assert (told["notice_due_at"], told["expires_at"]) == (None, None)


def test_a_time_that_expires_after_the_calendar_is_refused() -> None:
    """Given an event at the end of the year 9999, its expiry has no date: the decision is refused as invalid."""
    shop = lender("xgboost")
    with pytest.raises(InvalidDecision, match="event_time"):
        answer(shop.decide(shop.declined(1)[0], event_time_ms=253_402_300_799_999), shop.model)


@PAIRS
def test_an_action_says_what_to_change(library: Library, approve: Approve) -> None:
    """Given recommendations, each action goes from the decided value to another, in words where there are words, with its direction, unit and proven contribution."""
    text = RULES.replace('"increase_only"', '"mutable"')  # so that -9 accounts, which is no number, can change too
    shop = lender(library, approve).with_model(rules=read_features(text, FEATURES))
    directions: set[tuple[str, str]] = set()
    for answered in shop.answers(60):
        decided = answered.body["decision"]["features"]
        for tier, audited in zip(answered.recommendation["tiers"], answered.body["tiers"], strict=True):
            proven = {f["feature"]: f["contribution"] for f in audited["ledgers"]["target"]["features"]}
            assert tier["actions"]
            for action in tier["actions"]:
                own, to = decided[action["feature"]], action["to"]
                assert action["from"] == own != to
                assert action["contribution"] == proven.get(action["feature"], "0")
                assert action["unit"] == ("EUR" if action["feature"] == "income" else None)
                assert action["label"] == ("monthly income" if action["feature"] == "income" else action["feature"])
                direction = direction_of(own, to, action["feature"])
                assert action["direction"] == direction
                directions.add((action["feature"], direction))
            assert {a["feature"]: a["to"] for a in tier["actions"]} == audited["target"]
    assert {("income", "provide"), ("income", "increase"), ("debts", "decrease"), ("purpose", "change")} <= directions
    assert ("accounts", "provide") in directions


def direction_of(own: Any, to: Any, feature: str) -> str:
    if own is None or (feature == "accounts" and own == -9):
        return "provide"
    if feature in ("purpose", "region"):
        return "change"
    return "increase" if to > own else "decrease"


@PAIRS
def test_an_actions_threshold_is_the_one_it_just_passes(library: Library, approve: Approve) -> None:
    """Given an action on a number, its binding threshold bounds the target's cell on the side from which it was entered, the end that it lies at."""
    shop = lender(library, approve)
    cells = shop.model.cells
    for answered in shop.answers(60):
        for tier in answered.recommendation["tiers"]:
            for action in tier["actions"]:
                j, to = FEATURES.index(action["feature"]), action["to"]
                if action["direction"] == "change" or isinstance(to, str) or to is None:
                    continue
                interval = cells.interval(j, cells.cell(j, to))
                if action["direction"] == "provide":
                    low = -np.inf if interval["low"] is None else interval["low"]
                    high = np.inf if interval["high"] is None else interval["high"]
                    assert action["binding_threshold"] == (low if to - low < high - to else high)
                    continue
                assert action["binding_threshold"] == interval["low" if action["direction"] == "increase" else "high"]


@PAIRS
def test_what_is_withheld_is_of_the_comparator_and_says_why(library: Library, approve: Approve) -> None:
    """Given an immutable age and an override, rows of the comparator ledger that nobody can act on are withheld with a reason, unless an action moves the feature another way."""
    shop = lender(library, approve)
    why = set()
    for row in shop.declined(40):
        answered = answer(shop.decide(row, policy_overrides={"income": "immutable"}), shop.model)
        for tier, audited in zip(answered.recommendation["tiers"], answered.body["tiers"], strict=True):
            ledger = audited["ledgers"]["comparator"]["features"]
            acted = {a["feature"] for a in tier["actions"]}
            assert tier["withheld"] == [
                {"feature": f["feature"], "why": f["why_not"]}
                for f in ledger
                if not f["feasible"] and f["feature"] not in acted
            ]
            assert not acted & {w["feature"] for w in tier["withheld"]}
            assert "income" not in acted
            assert "age" not in acted
            why |= {(w["feature"], w["why"]) for w in tier["withheld"]}
    assert {("age", "immutable"), ("income", "immutable")} <= why


@PAIRS
def test_disclosures_and_references_pass_through(library: Library, approve: Approve) -> None:
    """Given who and what was decided, the recommendation carries ids, versions and disclosures as they came."""
    shop = lender(library, approve)
    told = answer(shop.decide(shop.declined(1)[0]), shop.model).recommendation
    assert told["decision_id"] == "d-4711"
    assert told["subject_ref"] == "s-09ae"
    assert (told["model_id"], told["model_version"], told["revision"]) == ("consumer-loan", "2026-10", 1)
    assert told["disclosures"] == {"credit_bureau": "Büro"}
    assert (told["replay"], told["run_id"]) == (False, None)


# --- refusals --------------------------------------------------------------------------------------------------------


@PAIRS
def test_what_does_not_fit_the_model_is_refused(library: Library, approve: Approve) -> None:
    """Given features or overrides that do not fit, an answer is a typed refusal, whatever the row's score would be."""
    shop = lender(library, approve)
    row = shop.declined(1)[0]
    features = shop.features_of(row)
    wrong: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"features": {}}, MissingFeature),
        ({"features": {**features, "x": 1.0}}, UnknownFeature),
        ({"features": {**features, "purpose": "yacht"}}, UnknownCategory),
        ({"policy_overrides": {"x": "immutable"}}, OverrideRefused),
        ({"policy_overrides": {"age": "mutable"}}, OverrideRefused),
        ({"policy_overrides": {"age": "mutable"}, "decline_basis": "policy"}, OverrideRefused),
    ]
    for changes, error in wrong:
        with pytest.raises(error):
            answer(shop.decide(row, **changes), shop.model)


def test_a_number_too_large_for_the_models_floats_is_refused() -> None:
    """Given 1e39, which XGBoost's float32 reads as inf, it is refused there by the feature's name, and LightGBM takes it."""
    for library in ("xgboost", "lightgbm"):
        shop: Lender = lender(library)
        decision = shop.decide(shop.pool[0], features={**shop.features_of(shop.declined(1)[0]), "limit": -1e39})
        if library == "lightgbm":
            assert answer(decision, shop.model).body["decision"]["features"]["limit"] == -1e39
            continue
        with pytest.raises(NonFiniteFeature, match="limit is too large for the float32"):
            answer(decision, shop.model)


@pytest.mark.parametrize("approve", ["above", "below"])
def test_the_farthest_move_has_a_finite_effort(approve: Approve) -> None:
    """Given an applicant whose number is the largest there is, then the ranking stays in order, and efforts are finite and add up."""
    shop = lender("lightgbm", approve)
    efforts = []
    for row in shop.declined(20):
        for name, value in itertools.product(("share", "income"), (-1.7e308, 1.7e308)):
            answered = answer(shop.decide(row, features={**shop.features_of(row), name: value}), shop.model)
            assert verify(answered.body, answered.body_sha256, answered.recommendation) == []
            efforts += [tier["effort"] for tier in answered.body["tiers"] if name in tier["target"]]
    assert max(efforts) > 1e290


NUMBERS = [name for name in FEATURES if name != "purpose"]
EXTREMES = [0.0, -0.0, 1e-35, -1e-35, 5e-324, 2.0**24 + 1, 2.0**53 + 1, -1e30, 3e38, 1e300, -1.7e308, -9.0, None]


@PAIRS
@settings(max_examples=examples(40))
@given(
    place=st.integers(0, 100),
    extreme=st.dictionaries(
        st.sampled_from(NUMBERS),
        st.sampled_from(EXTREMES) | st.floats(allow_nan=False, allow_infinity=False),
        max_size=4,
    ),
)
def test_any_finite_numbers_are_answered(
    library: Library, approve: Approve, place: int, extreme: dict[str, float | None]
) -> None:
    """Given any finite numbers, to the largest, the answer verifies and the library accepts its targets, or the refusal is typed."""
    shop = lender(library, approve)
    features = {**shop.features_of(shop.declined(101)[place]), **extreme}
    decision = shop.decide(shop.pool[0], features=features)
    if library == "xgboost" and any(value and abs(value) > 3.4028235e38 for value in extreme.values()):
        with pytest.raises(NonFiniteFeature):
            answer(decision, shop.model)
        return
    answered = answer(decision, shop.model)
    assert verify(answered.body, answered.body_sha256, answered.recommendation) == []
    for tier in answered.body["tiers"]:
        target = shop.model.rules.encode({**features, **tier["target"]})[None]
        assert shop.accepts(target).all()
        assert tier["margin"] == float(shop.owner.ask(target, "margin")[0])
