"""Re-checks an audit record with nothing but the record: every hash, sum and claim in it. Needs no model.

Written apart from what writes records, so that a fault in one does not hide in the other: it adds the published rows
up again with integers and compares with `==`. What only the model knows (that these are its splits and leaves, how
things are called, and in how many days an offer ends) takes the bundle: `coach audit verify --bundle`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

from stream.audit.verify.ledgers import Sums
from stream.audit.verify.splits import OPERATORS, Json, MalformedBody, is_number, number_at, rounded
from stream.canonical import sha256
from stream.events import TIERS

STATUSES = ("ok", "no_feasible_recourse", "not_model_decline")
LOGISTIC_ERROR_MAX = 1e-6  # of XGBoost's float32 link against the formula in float64; measured: 9e-8
# By objective, what a prediction is: all others are any number, of which the record alone tells nothing.
LOGISTIC = ("binary:logistic", "reg:logistic")
LOGISTIC_WITH_A_FACTOR = ("binary", "cross_entropy")  # LightGBM's; the record does not hold the factor
OF_THE_SIGN = ("binary:hinge",)
THE_MARGIN = (
    "binary:logitraw", "reg:squarederror", "reg:squaredlogerror", "reg:pseudohubererror", "reg:absoluteerror",
    "reg:quantileerror",
)  # fmt: skip
NOT_NEGATIVE = (
    "count:poisson", "reg:gamma", "reg:tweedie", "survival:cox", "survival:aft", "poisson", "gamma", "tweedie",
    "cross_entropy_lambda",
)  # fmt: skip
PROBABILITIES = (*LOGISTIC, *LOGISTIC_WITH_A_FACTOR, *OF_THE_SIGN)
_OTHER_SHAPES = (TypeError, ValueError, IndexError, AttributeError, ArithmeticError, RecursionError, struct.error)


def verify(body: Json, body_sha256: str | None, recommendation: Json | None) -> list[str]:
    """Check one audit body, its published hash, and the recommendation where one goes with it.

    Returns: what is wrong, each in one line without a feature value; empty when every number adds up.
    """
    found: list[str] = []
    try:
        for fault in _faults(body, body_sha256, recommendation):
            found.append(" ".join(fault.split()))  # names in it are the record's own, line breaks too  # noqa: PERF401
    except KeyError as error:
        found.append(" ".join(f"the record does not have the shape of an audit record: {error} is missing".split()))
    except MalformedBody as error:
        found.append(" ".join(f"the record does not have the shape of an audit record: {error}".split()))
    except _OTHER_SHAPES as error:
        found.append(f"the record does not have the shape of an audit record ({type(error).__name__})")
    return found


def _faults(body: Json, body_sha256: str | None, recommendation: Json | None) -> Iterator[str]:
    if body_sha256 is None:
        yield "body_sha256 is missing"
    elif sha256(body) != body_sha256:
        yield "body_sha256 is not the hash of the body"
    yield from _identity(body)
    sums = Sums(body)
    yield from sums.query()
    yield from _settings(body)
    yield from _figures(body)
    yield from _threshold(body, sums)
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


def _identity(body: Json) -> Iterator[str]:
    decision, bundle = body["decision"], body["bundle"]
    named = {"bundle_sha256": bundle["bundle_sha256"], "decision": decision, "engine_version": body["engine_version"]}
    if sha256(named) != body["recommendation_id"]:
        yield "recommendation_id is not the hash of decision, bundle and engine version"
    if any(decision[key] != bundle[key] for key in ("model_id", "model_version")):
        yield "the bundle is of another model than the one that decided"
    if body["reasons_mapping"] != bundle["features_sha256"]:
        yield "reasons_mapping is not the bundle's features.toml"
    if body["library"] not in OPERATORS or body["approve"] not in ("above", "below"):
        yield "the library or the side that is approved is unknown"
    if decision["outcome"] != "declined":
        yield "the decision was not declined"


def _figures(body: Json) -> Iterator[str]:
    """Check what has no sum of its own for being a number of its kind."""
    for where, part in [("query", body), *((str(tier["tier"]), tier) for tier in body["tiers"])]:
        margin, probability = number_at(part, "margin"), part["probability"]
        if not is_number(probability):
            yield f"{where}: the probability is not a finite number"
        elif body["objective"] in PROBABILITIES and not 0 <= probability <= 1:
            yield f"{where}: the probability is not from 0 to 1"
        elif body["objective"] in NOT_NEGATIVE and probability < 0:
            yield f"{where}: the prediction is below 0, which this objective never gives"
        elif not _fits_link(margin, probability, body["objective"]):
            yield f"{where}: the probability is not that of the margin"
    for tier in body["tiers"]:
        if not is_number(tier["effort"]) or tier["effort"] < 0:
            yield f"{tier['tier']}: the effort is not a finite number from 0"
        share = tier["robust_share"]
        if share is not None and (not is_number(share) or not 0 <= share <= 1):
            yield f"{tier['tier']}: robust_share is neither null nor from 0 to 1"


def _settings(body: Json) -> Iterator[str]:
    """Check what the bundle sets for every answer for being numbers of its kind."""
    for key in ("epsilon", "beta"):
        if number_at(body, key) < 0:
            yield f"{key} is below 0"
    if not all(is_number(scale) and scale > 0 for scale in body["scales"].values()):
        yield "a scale is not a finite number above 0"


def _fits_link(margin: float, probability: float, objective: str) -> bool:
    """Compare a prediction with what the objective makes of the margin, as far as the record tells."""
    if objective in LOGISTIC:
        return abs(probability - (1 + math.tanh(margin / 2)) / 2) <= LOGISTIC_ERROR_MAX
    if objective in LOGISTIC_WITH_A_FACTOR:
        return probability >= 1 / 2 if margin > 0 else probability <= 1 / 2
    if objective in OF_THE_SIGN:
        return probability == (margin > 0)
    return probability == margin or objective not in THE_MARGIN


def _threshold(body: Json, sums: Sums) -> Iterator[str]:
    """Check that threshold and cutoff decide alike, so that neither can be moved without the other."""
    decided, threshold, scale = body["decision"], body["threshold"], body["threshold_scale"]
    for key in ("threshold", "threshold_scale"):
        if decided["threshold"] is not None and decided[key] not in (None, body[key]):
            yield f"the {key} is not the decision's"
    if not is_number(threshold) or not is_number(body["cutoff_margin"]):
        yield "threshold or cutoff is not a finite number"
    elif scale == "margin":
        if body["cutoff_margin"] != _cutoff(threshold, sums.sign, body["library"]):
            yield "the cutoff is not the threshold as the library holds margins"
    elif scale == "probability":
        if not _fits_threshold(body, sums.sign):
            yield "the cutoff is not the margin of the threshold"
        for where, part in [("query", body), *((str(tier["tier"]), tier) for tier in body["tiers"])]:
            past = sums.sign * number_at(part, "probability") >= sums.sign * threshold
            if past != sums.accepts(number_at(part, "margin")):
                yield f"{where}: the probability is on one side of the threshold, the margin on the other of the cutoff"
    else:
        yield "the scale of the threshold is unknown"


def _fits_threshold(body: Json, sign: int) -> bool:
    """Whether a cutoff can be that of a threshold on predictions, as far as the record tells."""
    threshold, cutoff, objective = body["threshold"], number_at(body, "cutoff_margin"), body["objective"]
    if objective in THE_MARGIN:
        return cutoff == _cutoff(threshold, sign, body["library"])
    return objective in OF_THE_SIGN or _fits_link(cutoff, threshold, objective)


def _cutoff(threshold: float, sign: int, library: str) -> float:
    """Round a threshold on margins as the library holds them, toward the side that is approved."""
    nearest = rounded(threshold, library)
    if sign * nearest >= sign * threshold:
        return nearest
    upward = sign > 0
    if nearest == 0:
        return sign * math.ldexp(1.0, -149)  # the smallest float32 from 0
    bits = struct.unpack("<i", struct.pack("<f", nearest))[0] + (1 if (nearest > 0) == upward else -1)
    return float(struct.unpack("<f", struct.pack("<i", bits))[0])


def _status(body: Json, sums: Sums) -> Iterator[str]:
    status, tiers = body["status"], body["tiers"]
    if status not in STATUSES:
        yield "the status is unknown"
    if (status == "ok") != bool(tiers):
        yield "the status does not fit the tiers"
    declined = body["decision"]["decline_basis"] == "model" and not sums.accepts(number_at(body, "margin"))
    if declined == (status == "not_model_decline"):
        yield "the status does not fit the margin and the cutoff"
    if (body["reasons_ledger"] is None) != (status == "not_model_decline"):
        yield "the reasons ledger does not fit the status"
    if status == "not_model_decline" and body["reasons"]:
        yield "model reasons for a decline that the model did not make"


def _recommendation(body: Json, recommendation: Json) -> Iterator[str]:
    yield from _recommended_for(body, recommendation)
    if recommendation["status"] != body["status"]:
        yield "the recommendation has another status than the audit record"
    if type(recommendation["proven"]) is not (bool if body["status"] == "no_feasible_recourse" else type(None)):
        yield "the recommendation says that something is proven that its status does not ask for"
    reasons = [{key: r[key] for key in ("code", "text", "feature")} for r in body["reasons"]]
    if recommendation["reasons"] != reasons:
        yield "the recommendation's reasons are not those of the audit record"
    tiers = recommendation["tiers"]
    if not isinstance(tiers, list) or [tier["tier"] for tier in tiers] != [tier["tier"] for tier in body["tiers"]]:
        yield "the recommendation does not have the tiers of the audit record"
        return
    for tier, audited in zip(tiers, body["tiers"], strict=True):
        yield from _recommended_tier(tier, audited, body["decision"]["features"])


def _recommended_for(body: Json, recommendation: Json) -> Iterator[str]:
    """Check that it is for this decision: who, by which model, and when."""
    if recommendation["recommendation_id"] != body["recommendation_id"]:
        yield "the recommendation has another recommendation_id than the audit record"
    for key in ("decision_id", "subject_ref", "model_id", "model_version"):
        if recommendation[key] != body["decision"][key]:
            yield f"the recommendation has another {key} than the audit record"
    if recommendation["revision"] != body["bundle"]["revision"]:
        yield "the recommendation has another revision than the audit record"
    if recommendation["disclosures"] != body["decision"]["disclosures"]:
        yield "the recommendation's disclosures are not the decision's"
    decided_at = body["decision"]["event_time"]
    for key in ("expires_at", "notice_due_at"):
        given = recommendation[key]
        if (given is None) != (decided_at is None) or (given is not None and given < decided_at):
            yield f"the recommendation's {key} does not follow the decision's event_time"


def _recommended_tier(tier: Json, audited: Json, decided: Json) -> Iterator[str]:
    proven = {f["feature"]: f["contribution"] for f in audited["ledgers"]["target"]["features"]}
    if any(tier[key] != audited[key] for key in ("margin", "probability", "effort", "robust_share")):
        yield f"{tier['tier']}: the recommendation's figures are not the audit record's"
    actions = {a["feature"]: a["to"] for a in tier["actions"]}
    if actions != audited["target"] or len(actions) != len(tier["actions"]):
        yield f"{tier['tier']}: the recommended actions are not the audited target"
    rows = audited["ledgers"]["comparator"]["features"]
    barred = [f for f in rows if not f["feasible"] and f["feature"] not in actions]  # an action can go another way
    if tier["withheld"] != [{"feature": f["feature"], "why": f["why_not"]} for f in barred]:
        yield f"{tier['tier']}: what is withheld is not what the comparator ledger holds infeasible"
    for action in tier["actions"]:
        if action["from"] != decided.get(action["feature"]):
            yield f"{tier['tier']}: {action['feature']} does not start from the decided value"
        if action["contribution"] != proven.get(action["feature"], "0"):
            yield f"{tier['tier']}: the contribution of {action['feature']} is not the target ledger's"
        if not _goes(action["direction"], action["from"], action["to"]):
            yield f"{tier['tier']}: the direction of {action['feature']} is not the one from its value to its goal"


def _goes(direction: str, start: Any, goal: Any) -> bool:  # noqa: ANN401  (a feature's value, of any JSON type)
    """Whether a direction can be that of an action: `change` is for categories, `provide` for what is not known."""
    if direction not in ("increase", "decrease") or start is None:
        return direction == "provide" or (direction == "change" and start is not None)
    return is_number(start) and is_number(goal) and (goal > start if direction == "increase" else goal < start)
