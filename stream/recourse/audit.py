"""Re-checks an audit record with nothing but the record: every hash, sum and claim in it. Needs no model.

Written apart from what writes records, so that a fault in one does not hide in the other: it adds the published rows
up again with integers and compares with `==`.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any

from stream.recourse.canonical import sha256

REASONS_MAX = 4
STATUSES = ("ok", "no_feasible_recourse", "not_model_decline")
TIERS = ("near", "mid", "far")
UNIT_LOG2_MIN, UNIT_LOG2_MAX = -1074, 1023  # the exponents of a double's bits

_OTHER_SHAPES = (TypeError, ValueError, IndexError, AttributeError, ArithmeticError, RecursionError, struct.error)


def verify(body: Mapping[str, Any], body_sha256: str | None, recommendation: Mapping[str, Any] | None) -> list[str]:
    """Check one audit body, its published hash, and the recommendation that goes with it, as far as they are given.

    Returns: what is wrong, each in one line without a feature value; empty when every number adds up.
    """
    found: list[str] = []
    try:
        for fault in _faults(body, body_sha256, recommendation):
            found.append(" ".join(fault.split()))  # names in it are the record's own, line breaks too  # noqa: PERF401
    except KeyError as error:
        found.append(f"the record does not have the shape of an audit record: {error} is missing")
    except _OTHER_SHAPES as error:
        found.append(f"the record does not have the shape of an audit record ({type(error).__name__})")
    return found


def _faults(
    body: Mapping[str, Any], body_sha256: str | None, recommendation: Mapping[str, Any] | None
) -> Iterator[str]:
    if body_sha256 is not None and sha256(body) != body_sha256:
        yield "body_sha256 is not the hash of the body"
    named = {
        "bundle_sha256": body["bundle"]["bundle_sha256"],
        "decision": body["decision"],
        "engine_version": body["engine_version"],
    }
    if sha256(named) != body["recommendation_id"]:
        yield "recommendation_id is not the hash of decision, bundle and engine version"
    sums = _Sums(body)
    yield from sums.query()
    if body["reasons_ledger"] is not None:
        yield from sums.reasons()
    names = [tier["tier"] for tier in body["tiers"]]
    if names != [tier for tier in TIERS if tier in names]:
        yield "a tier stands twice, out of order, or is unknown"
    for tier in body["tiers"]:
        yield from sums.tier(tier)
    yield from _status(body, sums)
    if recommendation is not None:
        yield from _recommendation(body, recommendation)


class _Sums:
    """The arithmetic of one body, in units of 2^unit_log2."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.body = body
        if not UNIT_LOG2_MIN <= body["unit_log2"] <= UNIT_LOG2_MAX:
            raise ValueError
        self.unit = Fraction(2) ** int(body["unit_log2"])
        self.sign = 1 if body["approve"] == "above" else -1
        self.exact = int(body["margin_exact"])
        self.splits: list[str] | None = body["splits"]["feature"] if body["splits"] is not None else None
        self.leaves: list[int] | None = body["query_leaves"]

    def accepts(self, margin: float) -> bool:
        return self.sign * margin >= self.sign * float(self.body["cutoff_margin"])

    def query(self) -> Iterator[str]:
        if Fraction(float(self.body["margin"])) != (self.exact + int(self.body["margin_rounding"])) * self.unit:
            yield "margin is not its exact sum plus the published rounding"
        for claim in ("margin", "probability"):
            claimed = self.body["decision"][claim]
            if claimed is not None and _rounded(claimed, self.body["library"]) != float(self.body[claim]):
                yield f"the decision's claimed {claim} is not the published one"
        decided = self.body["decision"]
        for key in ("threshold", "threshold_scale"):
            if decided["threshold"] is not None and decided[key] not in (None, self.body[key]):
                yield f"the {key} is not the decision's"
        if self.leaves is not None and len(self.leaves) != self.body["trees_used"]:
            yield "query_leaves does not hold one leaf per tree"

    def reasons(self) -> Iterator[str]:
        ledger, where = self.body["reasons_ledger"], "reasons ledger"
        gap = int(ledger["margin_gap"])
        if sum(int(f["contribution"]) for f in ledger["features"]) != gap:
            yield f"{where}: feature rows do not sum to the gap"
        yield from self._feature_names(ledger["features"], where)
        yield from self._query_values(ledger["features"], where)
        if (trees := ledger["trees"]) is not None:
            if sum(map(int, trees["contribution"])) != gap:
                yield f"{where}: tree rows do not sum to the gap"
            yield from self._query_leaves(trees, where)
        by_code: Counter[str] = Counter()
        for feature in ledger["features"]:
            by_code[feature["code"]] += self.sign * int(feature["contribution"])
        ranked = sorted((-amount, code) for code, amount in by_code.items() if amount > 0)[:REASONS_MAX]
        published = [(-self.sign * int(r["contribution"]), r["code"]) for r in self.body["reasons"]]
        if published != ranked:
            yield "the principal reasons are not the largest shortfalls of the reasons ledger"

    def tier(self, tier: Mapping[str, Any]) -> Iterator[str]:
        name = tier["tier"]
        if set(tier["ledgers"]) != {"comparator", "target"}:
            yield f"{name}: a ledger is missing"
        for kind, ledger in tier["ledgers"].items():
            yield from self._ledger(ledger, f"{name} {kind} ledger")
        target = tier["ledgers"]["target"]
        reached = self.exact + int(target["margin_gap"]) + int(tier["margin_rounding"])
        if Fraction(float(tier["margin"])) != reached * self.unit:
            yield f"{name}: margin after the actions is not the query's exact sum plus the target ledger's gap"
        if not self.accepts(float(tier["margin"])):
            yield f"{name}: the target does not reach the cutoff"
        decided = self.body["decision"]["features"]
        for feature, value in tier["target"].items():
            if feature not in decided or value is None or value == decided[feature]:
                yield f"{name}: an action on {feature} changes nothing, or nothing that was decided on"
        moved = {f["feature"] for f in target["features"]}
        if not moved <= set(tier["target"]):
            yield f"{name}: the target ledger names features that no action moves"
        for feature in target["features"]:
            if feature["other"]["value"] != tier["target"].get(feature["feature"]):
                yield f"{name}: the target ledger's value of {feature['feature']} is not the action's"

    def _ledger(self, ledger: Mapping[str, Any], where: str) -> Iterator[str]:
        gap, features, trees = int(ledger["margin_gap"]), ledger["features"], ledger["trees"]
        if sum(int(f["contribution"]) for f in features) != gap:
            yield f"{where}: feature rows do not sum to the gap"
        yield from self._feature_names(features, where)
        yield from self._query_values(features, where)
        for row in features:
            if row["feasible"] != (row["why_not"] is None):
                yield f"{where}: {row['feature']} is feasible and not feasible at once"
        if trees is not None:
            yield from self._trees(trees, features, gap, where)

    def _trees(
        self, trees: Mapping[str, Any], features: list[Mapping[str, Any]], gap: int, where: str
    ) -> Iterator[str]:
        if sum(map(int, trees["contribution"])) != gap:
            yield f"{where}: tree rows do not sum to the gap"
        yield from self._query_leaves(trees, where)
        if any(a == b for a, b in zip(trees["query_leaf"], trees["other_leaf"], strict=True)):
            yield f"{where}: holds a tree whose leaves are the same"
        if self.splits is None:
            yield f"{where}: its splits are not in the record"
            return
        total: Counter[str] = Counter()
        count: Counter[str] = Counter()
        for split, contribution in zip(trees["split"], trees["contribution"], strict=True):
            total[self.splits[split]] += int(contribution)
            count[self.splits[split]] += 1
        published = {f["feature"]: (int(f["contribution"]), f["trees"]) for f in features}
        if published != {feature: (total[feature], count[feature]) for feature in count}:
            yield f"{where}: a feature row is not the sum of its decisive splits"

    def _query_leaves(self, trees: Mapping[str, Any], where: str) -> Iterator[str]:
        ids = trees["tree"]
        if any(b <= a for a, b in pairwise(ids)) or not all(0 <= t < self.body["trees_used"] for t in ids):
            yield f"{where}: trees are not listed once each, in order"
        elif self.leaves is not None and [self.leaves[t] for t in ids] != trees["query_leaf"]:
            yield f"{where}: a query leaf is not the one of query_leaves"

    def _query_values(self, rows: list[Mapping[str, Any]], where: str) -> Iterator[str]:
        for row in rows:
            if row["query_value"] != self.body["decision"]["features"].get(row["feature"]):
                yield f"{where}: the query value of {row['feature']} is not the decision's"

    def _feature_names(self, rows: list[Mapping[str, Any]], where: str) -> Iterator[str]:
        names = [row["feature"] for row in rows]
        if len(set(names)) != len(names) or not set(names) <= set(self.body["decision"]["features"]):
            yield f"{where}: a feature stands twice, or is not of the decision"


def _status(body: Mapping[str, Any], sums: _Sums) -> Iterator[str]:
    status, tiers = body["status"], body["tiers"]
    if status not in STATUSES:
        yield "the status is unknown"
    if (status == "ok") != bool(tiers):
        yield "the status does not fit the tiers"
    declined = body["decision"]["decline_basis"] == "model" and not sums.accepts(float(body["margin"]))
    if declined == (status == "not_model_decline"):
        yield "the status does not fit the margin and the cutoff"
    if (body["reasons_ledger"] is None) != (status == "not_model_decline"):
        yield "the reasons ledger does not fit the status"
    if status == "not_model_decline" and body["reasons"]:
        yield "model reasons for a decline that the model did not make"


def _recommendation(body: Mapping[str, Any], recommendation: Mapping[str, Any]) -> Iterator[str]:
    if recommendation["recommendation_id"] != body["recommendation_id"]:
        yield "the recommendation has another recommendation_id than the audit record"
    for key in ("decision_id", "subject_ref", "model_id", "model_version"):
        if recommendation[key] != body["decision"][key]:
            yield f"the recommendation has another {key} than the audit record"
    if recommendation["revision"] != body["bundle"]["revision"]:
        yield "the recommendation has another revision than the audit record"
    if recommendation["disclosures"] != body["decision"]["disclosures"]:
        yield "the recommendation's disclosures are not the decision's"
    if recommendation["status"] != body["status"]:
        yield "the recommendation has another status than the audit record"
    reasons = [{key: r[key] for key in ("code", "text", "feature")} for r in body["reasons"]]
    if recommendation["reasons"] != reasons:
        yield "the recommendation's reasons are not those of the audit record"
    tiers = recommendation["tiers"]
    if not isinstance(tiers, list) or [tier["tier"] for tier in tiers] != [tier["tier"] for tier in body["tiers"]]:
        yield "the recommendation does not have the tiers of the audit record"
        return
    for tier, audited in zip(tiers, body["tiers"], strict=True):
        yield from _recommended_tier(tier, audited, body["decision"]["features"])


def _recommended_tier(tier: Mapping[str, Any], audited: Mapping[str, Any], decided: Mapping[str, Any]) -> Iterator[str]:
    proven = {f["feature"]: f["contribution"] for f in audited["ledgers"]["target"]["features"]}
    if any(tier[key] != audited[key] for key in ("margin", "probability", "effort", "robust_share")):
        yield f"{tier['tier']}: the recommendation's figures are not the audit record's"
    actions = {a["feature"]: a["to"] for a in tier["actions"]}
    if actions != audited["target"] or len(actions) != len(tier["actions"]):
        yield f"{tier['tier']}: the recommended actions are not the audited target"
    rows = audited["ledgers"]["comparator"]["features"]
    if tier["withheld"] != [{"feature": f["feature"], "why": f["why_not"]} for f in rows if not f["feasible"]]:
        yield f"{tier['tier']}: what is withheld is not what the comparator ledger holds infeasible"
    for action in tier["actions"]:
        if action["from"] != decided.get(action["feature"]):
            yield f"{tier['tier']}: {action['feature']} does not start from the decided value"
        if action["contribution"] != proven.get(action["feature"], "0"):
            yield f"{tier['tier']}: the contribution of {action['feature']} is not the target ledger's"


def _rounded(value: float, library: str) -> float:
    """Round a claim as the library holds it: float32 for XGBoost."""
    if library != "xgboost":
        return float(value)
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)
