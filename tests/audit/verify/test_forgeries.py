"""Records rewritten with care: both of them alike, the hashes made to fit. Each of these once passed for genuine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream.audit.verify.body import verify
from stream.canonical import sha256
from tests.audit.verify.test_body import Json, add, comparator, decided, first_action, one, put, target, tell
from tests.recourse.lenders import LENDERS, Approve, Library


def excuse(body: Json, told: Json) -> None:
    """Turn a decline by the model into one that it did not make."""
    sign = 1 if body["approve"] == "above" else -1
    body.update(cutoff_margin=-100.0 * sign, status="not_model_decline", tiers=[], reasons=[])
    body.update(reasons_ledger=None, splits=None)
    told.update(status="not_model_decline", tiers=[], reasons=[])


def excuse_without_splits(body: Json, told: Json) -> None:
    """The same with a threshold on margins, which is said to be the cutoff."""
    excuse(body, told)
    body.update(threshold_scale="margin", threshold=0.5)


def swap_shortfalls(body: Json, told: Json) -> None:
    """Let the least of the reasons be the largest."""
    sign = 1 if body["approve"] == "above" else -1
    rows = sorted(body["reasons_ledger"]["features"], key=lambda f: int(f["contribution"]))
    rows[0]["contribution"], rows[-1]["contribution"] = rows[-1]["contribution"], rows[0]["contribution"]
    by_code: dict[str, int] = {}
    for f in body["reasons_ledger"]["features"]:
        by_code[f["code"]] = by_code.get(f["code"], 0) + sign * int(f["contribution"])
    named = {f["code"]: f["feature"] for f in rows}
    body["reasons"] = [
        {"code": code, "text": "too old", "feature": named[code], "contribution": str(sign * amount)}
        for code, amount in sorted(by_code.items(), key=lambda p: (-p[1], p[0]))[:4]
        if amount > 0
    ]
    told["reasons"] = [{key: r[key] for key in ("code", "text", "feature")} for r in body["reasons"]]


def swap_nodes_of_the_reasons(body: Json, _: Json) -> None:
    trees, names = body["reasons_ledger"]["trees"], body["splits"]["feature"]
    other = next(k for k, s in enumerate(trees["split"]) if names[s] != names[trees["split"][0]])
    amounts = trees["contribution"]
    amounts[0], amounts[other] = add(amounts[other], 1), add(amounts[0], -1)


def twice_the_same_node(body: Json, _: Json) -> None:
    trees = body["reasons_ledger"]["trees"]
    for column in trees.values():
        column.insert(0, column[0])
    trees["contribution"][0] = "0"


def numeric(body: Json, ledger: Json) -> Json:
    """A row of a ledger whose values are numbers."""
    return next(f for f in ledger["features"] if type(body["decision"]["features"][f["feature"]]) is float)


def other_goal(body: Json, told: Json) -> None:
    """Tell all tiers to go the other way, in ledger, target and actions alike."""
    name = numeric(body, target(body))["feature"]
    own = body["decision"]["features"][name]
    for tier, to in zip(body["tiers"], told["tiers"], strict=True):
        for row in tier["ledgers"]["target"]["features"]:
            if row["feature"] == name:
                wrong = own + (1.0 if row["other"]["value"] < own else -1.0)
                row["other"]["value"] = tier["target"][name] = wrong
                action = next(a for a in to["actions"] if a["feature"] == name)
                action.update(to=wrong, direction="increase" if wrong > own else "decrease")


def other_cell(body: Json, _: Json) -> None:
    """Say of the comparator that its value lies where the query's does."""
    row = next(f for f in comparator(body)["features"] if f["other"]["cell"] and type(f["query_value"]) is float)
    row["other"]["cell"].update(low=row["query_value"] - 1e-3, high=row["query_value"] + 1e-3)


def wide_cell(body: Json, _: Json) -> None:
    row = next(f for f in comparator(body)["features"] if f["other"]["cell"])
    row["other"]["cell"].update(low=None, high=None)


def other_end(body: Json, _: Json) -> None:
    row = next(f for f in comparator(body)["features"] if f["other"]["cell"])
    row["other"]["cell"]["closed"] = "low" if row["other"]["cell"]["closed"] == "high" else "high"


def comparators_value(body: Json, _: Json) -> None:
    other = comparator(body)["features"][0]["other"]
    other.update(cell=None, categories=None, missing=False, value=12.5)


def said_twice(body: Json, _: Json) -> None:
    other = target(body)["features"][0]["other"]
    other["missing"] = True


def move_threshold(body: Json, _: Json) -> None:
    """Move a decisive split past both of its sides."""
    feature = numeric(body, target(body))["feature"]
    for k, name in enumerate(body["splits"]["feature"]):
        if name == feature:
            body["splits"]["threshold"][k] = 1e9


def other_split_of_a_node(body: Json, _: Json) -> None:
    """Give one node of the target ledger another row of the same split table, on the same feature."""
    for ledger in [t["ledgers"]["target"] for t in body["tiers"]]:
        for k, split in enumerate(ledger["trees"]["split"]):
            same = [s for s, name in enumerate(body["splits"]["feature"]) if name == body["splits"]["feature"][split]]
            if len(same) > 1:
                ledger["trees"]["split"][k] = next(s for s in same if s != split)
                return


def other_worth_of_a_leaf(body: Json, _: Json) -> None:
    """Let a leaf that two ledgers reach be worth more in one of them."""
    seen = set()
    for trees in [ledger["trees"] for tier in body["tiers"] for ledger in tier["ledgers"].values()]:
        for k, leaf in enumerate(zip(trees["tree"], trees["other_leaf"], strict=True)):
            if leaf in seen:
                trees["contribution"][k] = add(trees["contribution"][k], 1)
                return
            seen.add(leaf)


def no_leaves(body: Json, _: Json) -> None:
    body["query_leaves"] = None


def no_trees(body: Json, _: Json) -> None:
    comparator(body)["trees"] = None


def probabilities(body: Json, told: Json) -> None:
    for tier, to in zip(body["tiers"], told["tiers"], strict=True):
        tier["probability"] = to["probability"] = 1 - tier["probability"]


def in_both(key: str, value: Any) -> Callable[[Json, Json], None]:
    """Set a figure of the first tier in both records."""

    def change(body: Json, told: Json) -> None:
        body["tiers"][0][key] = told["tiers"][0][key] = value

    return change


FORGED: dict[str, tuple[Callable[[Json, Json], None], str]] = {
    "a decline excused": (excuse, "on one side of the threshold, the margin on the other of the cutoff"),
    "a decline excused by a margin": (excuse_without_splits, "the cutoff is not the threshold as the library holds"),
    "a scale nobody knows": (put(lambda b: b, "threshold_scale", "odds"), "scale of the threshold is unknown"),
    "a threshold that is none": (put(lambda b: b, "threshold", None), "not a finite number"),
    "the principal reasons swapped": (swap_shortfalls, "reasons ledger: a feature row is not the sum of its decisive"),
    "nodes of the reasons swapped": (swap_nodes_of_the_reasons, "reasons ledger: a feature row is not the sum"),
    "a node of the reasons twice": (twice_the_same_node, "reasons ledger: a node stands twice"),
    "how many trees a reason counts": (
        put(lambda b: b["reasons_ledger"]["features"][0], "trees", 999),
        "reasons ledger: a feature row is not the sum",
    ),
    "another goal": (other_goal, "does not part the two sides"),
    "the comparator's cell at the query": (other_cell, "does not part the two sides"),
    "a comparator's cell without ends": (wide_cell, "does not part the two sides"),
    "the other end of a cell": (other_end, "does not part the two sides"),
    "a value of the comparator": (comparators_value, "tells a value of the comparator"),
    "the other side said twice": (said_twice, "is not said in one way"),
    "a threshold moved": (move_threshold, "does not part the two sides"),
    "a node on another split": (other_split_of_a_node, "has another split than elsewhere"),
    "a leaf worth more": (other_worth_of_a_leaf, "has another value or decisive node than elsewhere"),
    "a binding threshold": (
        put(lambda b: comparator(b)["features"][0], "binding_threshold", 0.125),
        "is not that of the split that adds most",
    ),
    "a binding threshold of the reasons": (
        put(lambda b: b["reasons_ledger"]["features"][0], "binding_threshold", 0.125),
        "reasons ledger: the binding threshold of",
    ),
    "another operator": (put(lambda b: b["splits"]["operator"], 0, ">"), "operator that is not the library's"),
    "missing values to nowhere": (put(lambda b: b["splits"]["default_left"], 0, 1), "where a missing value goes"),
    "a negative row of the splits": (put(lambda b: comparator(b)["trees"]["split"], 0, -1), "shape"),
    "no query leaves": (no_leaves, "in one part of the record and not in another"),
    "no trees in one ledger": (no_trees, "in one part of the record and not in another"),
    "no trees in the reasons": (
        put(lambda b: b["reasons_ledger"], "trees", None),
        "in one part of the record and not in another",
    ),
    "an approval": (decided("outcome", "approved"), "the decision was not declined"),
    "an effort below zero": (in_both("effort", -1.0), "the effort is not a finite number"),
    "an effort without end": (in_both("effort", None), "the effort is not a finite number"),
    "a share above one": (in_both("robust_share", 1.5), "robust_share is neither null nor from 0 to 1"),
    "a share that is true": (in_both("robust_share", True), "robust_share is neither null nor"),  # noqa: FBT003
    "a probability above one": (in_both("probability", 1.5), "the probability is not from 0 to 1"),
    "probabilities turned round": (probabilities, "the probability is not that of the margin"),
    "another model's bundle": (put(lambda b: b["bundle"], "model_id", "other"), "the bundle is of another model"),
    "another mapping of reasons": (put(lambda b: b, "reasons_mapping", "0" * 64), "reasons_mapping is not"),
    "a library nobody knows": (put(lambda b: b, "library", "catboost"), "library or the side"),
    "a side nobody knows": (put(lambda b: b, "approve", "beside"), "library or the side"),
    "an action turned round": (
        lambda _, t: first_action(t).update(
            direction="increase" if first_action(t)["direction"] == "decrease" else "decrease"
        ),
        "the direction of",
    ),
    "something proven": (tell(lambda t: t, "proven", value=True), "says that something is proven"),
    "expired before it came": (
        tell(lambda t: t, "expires_at", "1999-01-01T00:00:00.000Z"),
        "expires_at does not follow",
    ),
    "no notice": (tell(lambda t: t, "notice_due_at", None), "notice_due_at does not follow"),
}


def with_hashes(body: Json, told: Json) -> str:
    """Make every hash fit what was rewritten; returns that of the body."""
    named = {"bundle_sha256": body["bundle"]["bundle_sha256"], "decision": body["decision"]}
    body["recommendation_id"] = told["recommendation_id"] = sha256(named | {"engine_version": body["engine_version"]})
    return sha256(body)


@pytest.mark.parametrize(("library", "approve"), LENDERS)
@pytest.mark.parametrize(("forge", "named"), FORGED.values(), ids=FORGED)
def test_a_forgery_is_named(
    library: Library, approve: Approve, forge: Callable[[Json, Json], None], named: str
) -> None:
    """Given a record rewritten in all places that belong together, hashes included, verify() names what does not fit."""
    body, told = one(library, approve)
    forge(body, told)
    faults = verify(body, with_hashes(body, told), told)
    assert any(named in fault for fault in faults), faults
    assert not any("hash" in fault for fault in faults)
