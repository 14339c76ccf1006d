"""The columns of an archive's files, and how an audit record becomes a row of them.

The columns are for questions in SQL. The record itself lies in `body`, `envelope` and `body_sha256`, from which every
other column can be made again; so a field that a later version adds is kept by an older sink too. Columns are only ever
added, always nullable, and readers go by name: files of different versions can be read as one table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from stream.canonical import canonical_json
from stream.times import TIME_MS_MAX, TIME_MS_MIN, time_ms

SHIFT_MAX: Final = 2_000  # a double ends at 2^1024 and 2^-1074: beyond, a contribution has no number as a double
_text: Final = pa.string()
_word: Final = pa.string()  # of few different values: written with a dictionary
_number: Final = pa.float64()
_time: Final = pa.timestamp("ms", tz="UTC")
_reason: Final = pa.struct(
    [("code", _text), ("text", _text), ("feature", _text), ("contribution", _text), ("margin", _number)]
)
_action: Final = pa.struct(
    [
        ("feature", _text),
        ("from_number", _number),
        ("from_text", _text),
        ("to_number", _number),
        ("to_text", _text),
        ("contribution", _text),
        ("margin", _number),
    ]
)
_tier: Final = pa.struct(
    [
        ("tier", _text),
        ("rank", pa.int32()),
        ("from_tercile", pa.bool_()),
        ("margin", _number),
        ("probability", _number),
        ("effort", _number),
        ("robust_share", _number),
        ("comparator_reference", _text),
        ("comparator_key_id", _text),
        ("actions", pa.list_(_action)),
    ]
)
_headers: Final = pa.list_(pa.struct([("key", _text), ("value", pa.binary())]))

OF_KAFKA: Final = (
    ("kafka_topic", _word),
    ("kafka_partition", pa.int32()),
    ("kafka_offset", pa.int64()),
    ("kafka_timestamp", _time),  # null where the broker has none, or one that is no time
    ("kafka_timestamp_ms", pa.int64()),
    ("kafka_key", pa.binary()),
    ("kafka_headers", _headers),
)
RECORDS: Final = pa.schema(
    [
        ("decision_id", _text),
        ("subject_ref", _text),
        ("recommendation_id", _text),
        ("status", _word),
        ("event_time", _time),
        ("model_id", _word),
        ("model_version", _word),
        ("revision", pa.int32()),
        ("product", _word),
        ("jurisdiction", _word),
        ("outcome", _word),
        ("decline_basis", _word),
        ("margin", _number),
        ("cutoff_margin", _number),
        ("margin_short", _number),  # how far the margin lies on the declined side of the cutoff; below 0: accepted
        ("probability", _number),
        ("approve", _word),
        ("threshold", _number),
        ("threshold_scale", _word),
        ("reasons", pa.list_(_reason)),
        ("tiers", pa.list_(_tier)),
        ("bundle_sha256", _word),
        ("model_sha256", _word),
        ("pool_sha256", _word),
        ("features_sha256", _word),
        ("policy_sha256", _word),
        ("engine_version", _word),
        ("library", _word),
        ("library_version", _word),
        ("objective", _word),
        ("trees_used", pa.int32()),
        ("software_version", _word),
        ("source_topic", _word),
        ("source_partition", pa.int32()),
        ("source_offset", pa.int64()),
        ("source_timestamp", _time),
        ("traceparent", _text),
        ("replay", pa.bool_()),
        ("run_id", _word),
        ("seal", _text),
        *OF_KAFKA,
        ("envelope", _text),
        ("body_sha256", _text),
        ("body", _text),
    ]
)
UNREADABLE: Final = pa.schema([("why", _text), *OF_KAFKA, ("kafka_value", pa.binary())])
DICTIONARY: Final = (
    "status", "model_id", "model_version", "product", "jurisdiction", "outcome", "decline_basis", "approve",
    "threshold_scale", "bundle_sha256", "model_sha256", "pool_sha256", "features_sha256", "policy_sha256",
    "engine_version", "library", "library_version", "objective", "software_version", "source_topic", "run_id",
    "kafka_topic",
)  # fmt: skip
STATISTICS: Final = (  # of each row group; a body has none, for nobody looks for one by its order
    "decision_id", "subject_ref", "recommendation_id", "status", "event_time", "model_id", "model_version", "revision",
    "product", "jurisdiction", "outcome", "decline_basis", "margin", "cutoff_margin", "margin_short", "probability",
    "threshold", "bundle_sha256", "engine_version", "source_partition", "source_offset", "source_timestamp", "replay",
    "run_id", "kafka_partition", "kafka_offset", "kafka_timestamp",
)  # fmt: skip


def columns_of(record: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Give the columns of an audit record's JSON shape that are not Kafka's, all but `body`, and the body's canonical JSON.

    Raises: KeyError, TypeError, ValueError, OverflowError for what does not have that shape.
    """
    body, envelope = record["body"], record["envelope"]
    decision, bundle, source = body["decision"], body["bundle"], envelope["source"] or {}
    toward = 1.0 if body["approve"] == "above" else -1.0
    columns = {
        "decision_id": record["decision_id"],
        **{name: decision[name] for name in OF_DECISION},
        "event_time": _ms(decision["event_time"]),
        "revision": bundle["revision"],
        **{name: bundle[name] for name in OF_BUNDLE},
        **{name: body[name] for name in OF_BODY},
        "margin_short": toward * (body["cutoff_margin"] - body["margin"]),
        "reasons": [_reason_of(one, body) for one in body["reasons"]],
        "tiers": [_tier_of(one, body) for one in body["tiers"]],
        **{f"source_{name}": source.get(name) for name in ("topic", "partition", "offset")},
        "source_timestamp": _ms(source.get("timestamp")),
        **{name: envelope[name] for name in OF_ENVELOPE},
        "envelope": canonical_json(envelope).decode(),
        "body_sha256": record["body_sha256"],
    }
    return columns, canonical_json(body)


OF_DECISION: Final = ("subject_ref", "model_id", "model_version", "product", "jurisdiction", "outcome", "decline_basis")
OF_BUNDLE: Final = ("bundle_sha256", "model_sha256", "pool_sha256", "features_sha256", "policy_sha256")
OF_BODY: Final = (
    "recommendation_id", "status", "margin", "cutoff_margin", "probability", "approve", "threshold", "threshold_scale",
    "engine_version", "library", "library_version", "objective", "trees_used",
)  # fmt: skip
OF_ENVELOPE: Final = ("software_version", "traceparent", "replay", "run_id", "seal")


def kafka_time(ms: int | None) -> int | None:
    """Give a broker's timestamp as the time column takes it; None for what is no time."""
    return ms if ms is not None and TIME_MS_MIN <= ms <= TIME_MS_MAX else None


def as_margin(contribution: str, unit_log2: int) -> float | None:
    """Give an exact integer of a ledger as a margin, rounded once; None where no double is near it."""
    if abs(unit_log2) > SHIFT_MAX:
        return None
    exact = int(contribution)
    try:
        return exact / (1 << -unit_log2) if unit_log2 < 0 else float(exact << unit_log2)
    except OverflowError:
        return None


def _ms(text: str | None) -> int | None:
    return None if text is None else time_ms(text)


def _reason_of(reason: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """A reason, with its share of the average over the band as a margin."""
    ledger = body["reasons_ledger"]
    whole = as_margin(reason["contribution"], body["unit_log2"])
    divisor = ledger["divisor"] if ledger else 0
    average = whole / divisor if whole is not None and divisor else None
    return {name: reason[name] for name in ("code", "text", "feature", "contribution")} | {"margin": average}


def _tier_of(tier: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    of_feature = {one["feature"]: one["contribution"] for one in tier["ledgers"]["target"]["features"]}
    columns = {
        name: tier[name] for name in ("tier", "rank", "from_tercile", "margin", "probability", "effort", "robust_share")
    }
    return columns | {
        "comparator_reference": tier["comparator"]["reference"],
        "comparator_key_id": tier["comparator"]["key_id"],
        "actions": [
            _action_of(feature, to, body, of_feature.get(feature, "0"))
            for feature, to in sorted(tier["target"].items())
        ],
    }


def _action_of(feature: str, to: object, body: Mapping[str, Any], contribution: str) -> dict[str, Any]:
    own = body["decision"]["features"].get(feature)
    return {
        "feature": feature,
        "from_number": None if isinstance(own, str) else own,
        "from_text": own if isinstance(own, str) else None,
        "to_number": None if isinstance(to, str) else to,
        "to_text": to if isinstance(to, str) else None,
        "contribution": contribution,
        "margin": as_margin(contribution, body["unit_log2"]),
    }
