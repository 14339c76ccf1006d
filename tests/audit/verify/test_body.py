from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import lightgbm as lgb
import pytest
import xgboost as xgb
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stream.audit.verify.body import verify
from stream.canonical import canonical_json, sha256
from stream.recourse.answer import Answer, answer
from tests.examples import examples
from tests.recourse.lenders import FEATURES, LENDERS, Approve, Lender, Library, applicants, lender, lender_of
from tests.strategies import json_values

PAIRS = pytest.mark.parametrize(("library", "approve"), LENDERS)
Json = Any


def kinds(shop: Lender) -> list[Answer]:
    """One answer of every kind: with and without recourse, per-tree detail, a time, claims; and not the model's decline."""
    row, accepted = shop.declined(3)[2], shop.pool[shop.accepts(shop.pool)][0]
    brief = shop.with_model(audit_trees=False)
    margin, probability = (float(shop.owner.ask(row[None], what)[0]) for what in ("margin", "probability"))
    claims = {"margin": float(str(margin)), "probability": probability}
    return [
        *shop.answers(3),
        answer(brief.decide(row, event_time_ms=None, subject_ref=None), brief.model),
        answer(shop.decide(row, **claims, threshold=0.5, threshold_scale="probability"), shop.model),
        answer(shop.decide(row, policy_overrides=dict.fromkeys(FEATURES, "immutable")), shop.model),
        answer(shop.decide(row, decline_basis="fraud"), shop.model),
        answer(shop.decide(accepted), shop.model),
    ]


@PAIRS
def test_every_answer_verifies(library: Library, approve: Approve) -> None:
    """Given answers of every kind, as they are and after a trip through JSON text, verify() finds nothing."""
    for answered in [*kinds(lender(library, approve)), *lender(library, approve).answers(40)]:
        assert verify(answered.body, answered.body_sha256, answered.recommendation) == []
        body, told = json.loads(json.dumps([answered.body, answered.recommendation]))
        assert verify(body, answered.body_sha256, told) == []
        assert verify(body, answered.body_sha256, None) == []


OBJECTIVES: list[tuple[Library, str, float]] = [  # and a threshold on what they predict
    ("xgboost", "reg:squarederror", 0.4), ("xgboost", "reg:gamma", 1.4), ("xgboost", "binary:hinge", 0.5),
    ("xgboost", "reg:logistic", 0.4), ("lightgbm", "regression", 0.4), ("lightgbm", "poisson", 0.4),
    ("lightgbm", "cross_entropy", 0.4), ("lightgbm", "cross_entropy_lambda", 0.4),
]  # fmt: skip


@cache
def of_objective(library: Library, objective: str, threshold: float) -> Lender:
    pool, target = applicants(3, 240)
    if library == "xgboost":
        settings = {"objective": objective, "max_depth": 3, "eta": 0.3, "nthread": 1, "verbosity": 0}
        outcome = target + 1 if objective == "reg:gamma" else target
        booster = xgb.train(settings, xgb.DMatrix(pool, outcome, feature_names=list(FEATURES), nthread=1), 8)
        return lender_of(booster, pool, "above", threshold=threshold)
    settings = {"objective": objective, "num_leaves": 6, "verbose": -1, "num_threads": 1, "min_data_in_leaf": 5}
    data = lgb.Dataset(pool, target, feature_name=list(FEATURES))
    return lender_of(lgb.train(settings, data, 8), pool, "above", threshold=threshold)


@pytest.mark.parametrize(("library", "objective", "threshold"), OBJECTIVES)
def test_answers_of_every_kind_of_objective_verify(library: Library, objective: str, threshold: float) -> None:
    """Given models whose prediction is a probability, a number, a rate or a word, their answers verify, and another prediction is named where the objective tells it."""
    shop = of_objective(library, objective, threshold)
    answered = [a for a in shop.answers(30) if a.body["tiers"]]
    assert answered
    for one in answered:
        assert verify(one.body, one.body_sha256, one.recommendation) == []
        body: Json = {**one.body, "probability": -0.25}
        faults = verify(body, sha256(body), None)
        assert bool(faults) == (objective != "regression")  # LightGBM's may be a root, and the record does not say so


# --- one wrong thing at a time, named even where the hash is made to fit ----------------------------------------------


def one(library: Library, approve: Approve = "above") -> tuple[Json, Json]:
    """A body with two actions, two reasons and something withheld, and its recommendation, free to be spoilt."""
    body, told = json.loads(_one(library, approve))
    return body, told


@cache
def _one(library: Library, approve: Approve) -> str:
    shop = lender(library, approve)
    for row in shop.declined(100):
        answered = answer(shop.decide(row), shop.model)
        body, told = answered.body, answered.recommendation
        if len(body["tiers"][0]["target"]) > 1 and len(body["reasons"]) > 1 and told["tiers"][0]["withheld"]:
            return json.dumps([body, told])
    pytest.fail("no answer with two actions, two reasons and something withheld")


def add(text: str, amount: int) -> str:
    return str(int(text) + amount)


def comparator(body: Json) -> Json:
    return body["tiers"][0]["ledgers"]["comparator"]


def target(body: Json) -> Json:
    return body["tiers"][0]["ledgers"]["target"]


def two_of_different_features(body: Json) -> tuple[int, int]:
    names = [body["splits"]["feature"][split] for split in comparator(body)["trees"]["split"]]
    return 0, next(k for k, name in enumerate(names) if name != names[0])


def bump(path: Callable[[Json], Json], key: str | int) -> Callable[[Json, Json], None]:
    """Add one to a decimal string somewhere in the body."""

    def change(body: Json, _: Json) -> None:
        at = path(body)
        at[key] = add(at[key], 1)

    return change


def put(path: Callable[[Json], Json], key: Any, value: Any) -> Callable[[Json, Json], None]:
    """Set something in the body."""

    def change(body: Json, _: Json) -> None:
        path(body)[key] = value

    return change


def tell(path: Callable[[Json], Json], key: Any, value: Any) -> Callable[[Json, Json], None]:
    """Set something in the recommendation."""

    def change(_: Json, told: Json) -> None:
        path(told)[key] = value

    return change


def in_both(**figures: float) -> Callable[[Json, Json], None]:
    """Set figures of the first tier in both records alike."""

    def change(body: Json, told: Json) -> None:
        for record in (body, told):
            record["tiers"][0].update(figures)

    return change


def shift_between_features(body: Json, _: Json) -> None:
    features = comparator(body)["features"]
    features[0]["contribution"], features[1]["contribution"] = (
        add(features[0]["contribution"], 1),
        add(features[1]["contribution"], -1),
    )


def shift_between_trees(body: Json, _: Json) -> None:
    trees = comparator(body)["trees"]
    a, b = two_of_different_features(body)
    trees["contribution"][a] = add(trees["contribution"][a], 1)
    trees["contribution"][b] = add(trees["contribution"][b], -1)


def shift_between_reasons(body: Json, _: Json) -> None:
    trees = body["reasons_ledger"]["trees"]
    names = [body["splits"]["feature"][split] for split in trees["split"]]
    other = next(k for k, name in enumerate(names) if name != names[0])
    for k, amount in ((0, 1), (other, -1)):
        trees["contribution"][k] = add(trees["contribution"][k], amount)


def twice_the_same_node(body: Json, _: Json) -> None:
    for column in body["reasons_ledger"]["trees"].values():
        column.insert(1, column[0])


def a_number_in_its_cell(body: Json) -> Json:
    """A row of the comparator ledger whose query is a number, and whose other side is an interval."""
    rows = comparator(body)["features"]
    return next(f for f in rows if f["other"]["cell"] is not None and isinstance(f["query_value"], float))


def tell_a_value(body: Json, _: Json) -> None:
    a_number_in_its_cell(body)["other"].update(cell=None, value=a_number_in_its_cell(body)["binding_threshold"])


def stay_in_the_cell(body: Json, _: Json) -> None:
    row = a_number_in_its_cell(body)
    below = row["query_value"] < row["binding_threshold"]
    row["other"]["cell"].update(low=None if below else row["binding_threshold"], high=None)
    if below:
        row["other"]["cell"].update(high=row["binding_threshold"])


def swap_contributions(body: Json, _: Json) -> None:
    trees = comparator(body)["trees"]
    a, b = two_of_different_features(body)
    trees["contribution"][a], trees["contribution"][b] = trees["contribution"][b], trees["contribution"][a]


def swap_trees(body: Json, _: Json) -> None:
    for column in comparator(body)["trees"].values():
        column[0], column[1] = column[1], column[0]


def drop_tree(body: Json, _: Json) -> None:
    for column in target(body)["trees"].values():
        del column[0]


def twice_the_same_tree(body: Json, _: Json) -> None:
    for column in comparator(body)["trees"].values():
        column.insert(1, column[0])


def same_leaf(body: Json, _: Json) -> None:
    trees = target(body)["trees"]
    trees["other_leaf"][0] = trees["query_leaf"][0]


def drop_feature(body: Json, _: Json) -> None:
    del target(body)["features"][0]


def twice_the_same_feature(body: Json, _: Json) -> None:
    rows = comparator(body)["features"]
    rows.append({**rows[0], "contribution": "0", "trees": 0})


def swap_reasons(body: Json, told: Json) -> None:
    for reasons in (body["reasons"], told["reasons"]):
        reasons[0], reasons[1] = reasons[1], reasons[0]


def drop_reason(body: Json, told: Json) -> None:
    del body["reasons"][-1], told["reasons"][-1]


def invent_reason(body: Json, told: Json) -> None:
    body["reasons"].append({**body["reasons"][0], "code": "X"})
    told["reasons"].append({**told["reasons"][0], "code": "X"})


def next_float(path: Callable[[Json], Json], key: str) -> Callable[[Json, Json], None]:
    def change(body: Json, _: Json) -> None:
        path(body)[key] = math.nextafter(path(body)[key], math.inf)

    return change


def drop_tier(body: Json, _: Json) -> None:
    del body["tiers"][0]


def repeat_tier(body: Json, told: Json) -> None:
    for record in (body, told):
        record["tiers"][1] = {**copy.deepcopy(record["tiers"][0])}


def drop_tiers(body: Json, told: Json) -> None:
    body["tiers"], told["tiers"] = [], []


def other_action(_: Json, told: Json) -> None:
    action = told["tiers"][0]["actions"][0]
    action["to"] = "other" if isinstance(action["to"], str) else action["to"] + 1


def other_target(body: Json, told: Json) -> None:
    """In both records alike, so that only the ledger speaks against it."""
    name = target(body)["features"][0]["feature"]
    to = body["tiers"][0]["target"][name]
    body["tiers"][0]["target"][name] = "other" if isinstance(to, str) else to + 1
    action = next(a for a in told["tiers"][0]["actions"] if a["feature"] == name)
    action["to"] = body["tiers"][0]["target"][name]


def stay(body: Json, _: Json) -> None:
    name = target(body)["features"][0]["feature"]
    body["tiers"][0]["target"][name] = body["decision"]["features"][name]


def drop_from_target(body: Json, _: Json) -> None:
    del body["tiers"][0]["target"][target(body)["features"][0]["feature"]]


def decided(key: str, value: Any) -> Callable[[Json, Json], None]:
    return put(lambda body: body["decision"], key, value)


def out_of_reach(body: Json, _: Json) -> None:
    sign = 1 if body["approve"] == "above" else -1
    body["cutoff_margin"] = body["tiers"][0]["margin"] + sign


def already_there(body: Json, _: Json) -> None:
    body["cutoff_margin"] = body["margin"]


def other_side(body: Json, _: Json) -> None:
    body["approve"] = "below" if body["approve"] == "above" else "above"


def first_action(told: Json) -> Json:
    return told["tiers"][0]["actions"][0]


SPOILT: dict[str, tuple[Callable[[Json, Json], None], str]] = {
    "a feature's contribution": (bump(lambda b: comparator(b)["features"][0], "contribution"), "do not sum to the gap"),
    "a contribution in the target ledger": (bump(lambda b: target(b)["features"][0], "contribution"), "do not sum"),
    "a contribution in the reasons ledger": (
        bump(lambda b: b["reasons_ledger"]["features"][-1], "contribution"),
        "reasons ledger: feature rows do not sum",
    ),
    "a tree's contribution": (
        bump(lambda b: comparator(b)["trees"]["contribution"], 0),
        "tree rows do not sum",
    ),
    "a node's contribution in the reasons ledger": (
        bump(lambda b: b["reasons_ledger"]["trees"]["contribution"], 0),
        "reasons ledger: tree rows do not sum",
    ),
    "a comparator's gap": (bump(comparator, "margin_gap"), "do not sum to the gap"),
    "a target's gap": (bump(target, "margin_gap"), "do not sum to the gap"),
    "the gap of the reasons": (bump(lambda b: b["reasons_ledger"], "margin_gap"), "reasons ledger"),
    "a unit from one feature to another": (shift_between_features, "not the sum of its decisive splits"),
    "a unit from one tree to another": (shift_between_trees, "not the sum of its decisive splits"),
    "two trees' contributions swapped": (swap_contributions, "not the sum of its decisive splits"),
    "a unit from one split to another": (shift_between_reasons, "reasons ledger: a feature row is not the sum"),
    "a split of the reasons twice": (twice_the_same_node, "reasons ledger: a node stands twice"),
    "a binding threshold": (
        put(lambda b: comparator(b)["features"][0], "binding_threshold", 0.123),
        "the binding threshold of",
    ),
    "a binding threshold of the reasons": (
        put(lambda b: b["reasons_ledger"]["features"][0], "binding_threshold", 0.123),
        "reasons ledger: the binding threshold of",
    ),
    "two trees swapped": (swap_trees, "not listed once each, in order"),
    "a tree dropped": (drop_tree, "tree rows do not sum"),
    "a tree twice": (twice_the_same_tree, "not listed once each"),
    "a tree beyond the last": (
        put(lambda b: comparator(b)["trees"]["tree"], -1, 999),
        "not listed once each, in order",
    ),
    "a tree whose leaves are the same": (same_leaf, "whose leaves are the same"),
    "a list of trees one short": (lambda b, _: target(b)["trees"]["other_leaf"].pop(), "shape of an audit record"),
    "a query leaf": (put(lambda b: comparator(b)["trees"]["query_leaf"], 0, 99), "a query leaf is not"),
    "a query leaf of the reasons": (
        put(lambda b: b["reasons_ledger"]["trees"]["query_leaf"], 0, 99),
        "reasons ledger: a query leaf is not",
    ),
    "the leaf vector one short": (lambda b, _: b["query_leaves"].pop(), "one leaf per tree"),
    "a split of another feature": (
        put(lambda b: b["splits"]["feature"], 0, "region"),
        "not the sum of its decisive splits",
    ),
    "no splits": (lambda b, _: b.update(splits=None), "its splits are not in the record"),
    "a feature row dropped": (drop_feature, "do not sum to the gap"),
    "a feature row twice": (twice_the_same_feature, "stands twice"),
    "a row of a feature nobody decided on": (
        put(lambda b: comparator(b)["features"][0], "feature", "shoe size"),
        "not of the decision",
    ),
    "how many trees a row counts": (put(lambda b: comparator(b)["features"][0], "trees", 999), "decisive splits"),
    "a row's query value": (put(lambda b: comparator(b)["features"][0], "query_value", 0.123), "is not the decision's"),
    "a query value of the reasons": (
        put(lambda b: b["reasons_ledger"]["features"][0], "query_value", 0.123),
        "is not the decision's",
    ),
    "feasible and not": (
        lambda b, _: comparator(b)["features"][0].update(feasible=not comparator(b)["features"][0]["feasible"]),
        "feasible and not feasible at once",
    ),
    "a comparator's own value": (tell_a_value, "tells a value of the comparator"),
    "a cell on the query's side": (stay_in_the_cell, "does not part the two sides"),
    "no target ledger": (lambda b, _: b["tiers"][0]["ledgers"].pop("target"), "a ledger is missing"),
    "the margin": (next_float(lambda b: b, "margin"), "margin is not its exact sum"),
    "the exact margin": (bump(lambda b: b, "margin_exact"), "margin is not its exact sum"),
    "the rounding": (bump(lambda b: b, "margin_rounding"), "margin is not its exact sum"),
    "the unit": (lambda b, _: b.update(unit_log2=b["unit_log2"] + 1), "margin is not its exact sum"),
    "an absurd unit": (put(lambda b: b, "unit_log2", 10**9), "shape of an audit record"),
    "a tier's margin": (next_float(lambda b: b["tiers"][0], "margin"), "margin after the actions is not"),
    "a tier's rounding": (bump(lambda b: b["tiers"][0], "margin_rounding"), "margin after the actions is not"),
    "a probability": (put(lambda b: b, "probability", 0.999), "query: the probability is not that of the margin"),
    "a tier's probability": (in_both(probability=0.123), "near: the probability is not that of the margin"),
    "a probability that is none": (put(lambda b: b, "probability", 1.5), "not from 0 to 1"),
    "an effort below nothing": (in_both(effort=-1.0), "the effort is not a finite number from 0"),
    "a cutoff that no target reaches": (out_of_reach, "does not reach the cutoff"),
    "a cutoff that the query reaches": (already_there, "does not fit the margin and the cutoff"),
    "the side that is approved": (other_side, "does not fit the margin and the cutoff"),
    "the status": (put(lambda b: b, "status", "no_feasible_recourse"), "status does not fit the tiers"),
    "a status nobody knows": (put(lambda b: b, "status", "fine"), "status is unknown"),
    "a status that excuses": (put(lambda b: b, "status", "not_model_decline"), "status does not fit"),
    "no reasons ledger": (put(lambda b: b, "reasons_ledger", None), "reasons ledger does not fit the status"),
    "two reasons swapped": (swap_reasons, "not the largest shortfalls"),
    "a reason dropped": (drop_reason, "not the largest shortfalls"),
    "a reason invented": (invent_reason, "not the largest shortfalls"),
    "a reason's contribution": (bump(lambda b: b["reasons"][0], "contribution"), "not the largest shortfalls"),
    "a reason's code": (put(lambda b: b["reasons"][0], "code", "X"), "not the largest shortfalls"),
    "a code in the reasons ledger": (
        put(lambda b: b["reasons_ledger"]["features"][0], "code", "X"),
        "not the largest shortfalls",
    ),
    "no tiers": (drop_tiers, "status does not fit the tiers"),
    "a tier in one record only": (drop_tier, "does not have the tiers"),
    "a tier twice": (repeat_tier, "a tier stands twice"),
    "an action in both records": (other_target, "is not the action's"),
    "an action that changes nothing": (stay, "changes nothing"),
    "a target without one of its actions": (drop_from_target, "names features that no action moves"),
    "who decided": (decided("decision_id", "d-1"), "recommendation_id is not the hash"),
    "a decided feature": (
        lambda b, _: b["decision"]["features"].update(region=9.0),
        "recommendation_id is not the hash",
    ),
    "a claimed margin": (decided("margin", 0.1), "claimed margin is not the published one"),
    "a claim too large for float32": (decided("margin", 1e300), "claimed margin is not the published one"),
    "a claim that is a text": (decided("margin", "x"), "shape of an audit record"),
    "a claimed probability": (decided("probability", 0.1), "claimed probability is not the published one"),
    "the event's threshold": (decided("threshold", 0.9), "threshold is not the decision's"),
    "the engine": (put(lambda b: b, "engine_version", "0"), "recommendation_id is not the hash"),
    "the bundle": (put(lambda b: b["bundle"], "bundle_sha256", "c" * 64), "recommendation_id is not the hash"),
    "the bundle's model": (put(lambda b: b["bundle"], "model_version", "x"), "the bundle is of another model"),
    "which reasons were mapped": (put(lambda b: b, "reasons_mapping", "x"), "reasons_mapping is not"),
    "the library": (put(lambda b: b, "library", "catboost"), "the library or the side that is approved is unknown"),
    "an approved decision": (decided("outcome", "approved"), "the decision was not declined"),
    "the id of one record": (tell(lambda t: t, "recommendation_id", "0" * 64), "another recommendation_id"),
    "the person of one record": (tell(lambda t: t, "subject_ref", "s-1"), "another subject_ref"),
    "the revision of one record": (tell(lambda t: t, "revision", 2), "another revision"),
    "the disclosures of one record": (tell(lambda t: t, "disclosures", {}), "disclosures"),
    "the status of one record": (tell(lambda t: t, "status", "no_feasible_recourse"), "another status"),
    "a reason of one record": (tell(lambda t: t["reasons"][0], "text", "because"), "reasons are not those"),
    "no tiers in one record": (tell(lambda t: t, "tiers", []), "does not have the tiers"),
    "an action's goal": (other_action, "actions are not the audited target"),
    "an action's start": (
        lambda _, t: first_action(t).update({"from": 0.123}),
        "does not start from the decided value",
    ),
    "an action's contribution": (
        lambda _, t: first_action(t).update(contribution=add(first_action(t)["contribution"], 1)),
        "contribution of",
    ),
    "an action's direction": (
        lambda _, t: first_action(t).update(direction="away"),
        "the direction of",
    ),
    "a proof of one record": (tell(lambda t: t, "proven", "yes"), "something is proven"),
    "an offer that ended before": (tell(lambda t: t, "expires_at", "2020-01-01T00:00:00.000Z"), "does not follow"),
    "an action dropped": (lambda _, t: t["tiers"][0]["actions"].pop(), "actions are not the audited target"),
    "an action twice": (
        lambda _, t: t["tiers"][0]["actions"].append(first_action(t)),
        "actions are not the audited target",
    ),
    "a margin of one record": (tell(lambda t: t["tiers"][0], "margin", 9.9), "figures are not the audit record's"),
    "an effort of one record": (tell(lambda t: t["tiers"][0], "effort", 0.0), "figures are not the audit record's"),
    "what is withheld": (tell(lambda t: t["tiers"][0], "withheld", []), "withheld"),
}


@pytest.mark.parametrize(("library", "approve"), LENDERS[1:3])
@pytest.mark.parametrize(("spoil", "named"), SPOILT.values(), ids=SPOILT)
def test_one_wrong_thing_is_named(
    library: Library, approve: Approve, spoil: Callable[[Json, Json], None], named: str
) -> None:
    """Given one wrong thing in a record whose hash was made to fit it, verify() names it; against the true hash, that too."""
    body, told = one(library, approve)
    before = sha256(body)
    spoil(body, told)
    after = sha256(body)
    faults = verify(body, after, told)
    assert any(named in fault for fault in faults), faults
    assert not any("body_sha256" in fault for fault in faults)
    if after != before and "shape" not in named:
        assert "body_sha256 is not the hash of the body" in verify(body, before, told)


def test_a_hash_alone_is_checked() -> None:
    """Given a good body with another hash or with none, that is the fault; a recommendation may be absent."""
    body, told = one("xgboost")
    assert verify(body, "0" * 64, told) == ["body_sha256 is not the hash of the body"]
    assert verify(body, None, told) == ["body_sha256 is missing"]
    assert verify(body, sha256(body), None) == []


def test_a_model_reason_for_another_decline_is_a_fault() -> None:
    """Given a decline that was not the model's, a reason or a tier in its body is named."""
    shop = lender("lightgbm")
    body: Json = answer(shop.decide(shop.declined(1)[0], decline_basis="fraud"), shop.model).body
    with_reason = {**body, "reasons": [{"code": "R1", "text": "t", "feature": "income", "contribution": "1"}]}
    assert verify(with_reason, sha256(with_reason), None) == ["model reasons for a decline that the model did not make"]
    with_tier = {**body, "tiers": answer(shop.decide(shop.declined(1)[0]), shop.model).body["tiers"]}
    assert "the status does not fit the tiers" in verify(with_tier, sha256(with_tier), None)


# --- any change at all -----------------------------------------------------------------------------------------------


def paths(value: Json, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every part of a JSON value."""
    found = [here] if here else []
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in parts:
        found += paths(item, (*here, key))
    return found


def changed(value: Json, path: tuple[Any, ...], new: Json) -> Json:
    spoilt = copy.deepcopy(value)
    at = spoilt
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = new
    return spoilt


@cache
def records() -> list[tuple[Json, str, Json]]:
    """Records of every kind, as they come out of JSON: body, its hash, recommendation."""
    return [
        (json.loads(json.dumps(a.body)), a.body_sha256, json.loads(json.dumps(a.recommendation)))
        for library, approve in LENDERS[:3:2]
        for a in kinds(lender(library, approve))[2:]
    ]


@settings(max_examples=examples(150))
@given(which=st.integers(0, 11), place=st.integers(0, 2**20), new=json_values)
def test_no_change_of_a_body_goes_unnoticed(which: int, place: int, new: Json) -> None:
    """Given a body with any part replaced by anything else, verify() says so in lines, and never raises."""
    body, digest, told = records()[which]
    ways = paths(body)
    spoilt = changed(body, ways[place % len(ways)], new)
    assume(canonical_json(spoilt) != canonical_json(body))
    faults = verify(spoilt, digest, told)
    assert faults
    assert all("\n" not in fault for fault in faults)


# What the audit record does not prove: how things are called, and times, which are the event's plus policy's days.
UNPROVEN = {
    "label", "direction", "unit", "binding_threshold", "expires_at", "notice_due_at", "replay", "run_id",
}  # fmt: skip


@settings(max_examples=examples(150))
@given(which=st.integers(0, 11), place=st.integers(0, 2**20), new=json_values)
def test_no_proven_part_of_a_recommendation_can_change(which: int, place: int, new: Json) -> None:
    """Given a recommendation with any part replaced that the audit record proves, verify() says so, and never raises."""
    body, digest, told = records()[which]
    ways = [path for path in paths(told) if not UNPROVEN & {*path}]
    spoilt = changed(told, ways[place % len(ways)], new)
    assume(canonical_json(spoilt) != canonical_json(told))
    assert verify(body, digest, spoilt)


@settings(max_examples=examples(150))
@given(body=json_values, digest=st.none() | st.text(max_size=4), told=json_values)
def test_garbage_is_a_fault_and_no_crash(body: Json, digest: str | None, told: Json) -> None:
    """Given any JSON value for a record, verify() gives a fault in one line, and never raises."""
    faults = verify(body, digest, told)
    assert faults
    assert all("\n" not in fault for fault in faults)


@pytest.mark.parametrize(
    "garbage",
    [None, 1, "", [], {}, {"bundle": None}, {"decision": {}}, [[[]]], json.loads("[" * 900 + "]" * 900)],
    ids=lambda g: repr(g)[:20],
)
def test_other_shapes_are_faults(garbage: Json) -> None:
    """Given another shape in the place of a record or of any of its parts, verify() gives a fault, and never raises."""
    assert verify(garbage, None, None)
    body, told = one("xgboost")
    for key in body:
        verify({**body, key: garbage}, sha256(body), told)
        verify({k: v for k, v in body.items() if k != key}, None, told)
    for key in told:
        verify(body, None, {**told, key: garbage})


def test_nesting_without_end_is_a_fault() -> None:
    """Given a value nested deeper than Python recurses, verify() gives a fault, and does not end the process."""
    deep: Json = []
    for _ in range(100_000):
        deep = [deep]
    body, told = one("xgboost")
    assert verify({**body, "decision": deep}, "0" * 64, told)
    while deep:  # taken apart by hand, for the interpreter would recurse
        deep = deep.pop()


def test_a_fault_holds_no_value() -> None:
    """Given values where numbers belong, the fault says where, and does not repeat them."""
    body, told = one("xgboost")
    for spoilt in ({**body, "margin": "secret"}, {**body, "margin_exact": "secret"}, {**body, "unit_log2": "secret"}):
        faults = verify(spoilt, None, told)
        assert faults
        assert "secret" not in " ".join(faults)
