"""The decision that comes in, and the shapes of the records that go out. No behaviour.

Records are JSON-shaped dictionaries; `schemas/` has them in Avro. An exact integer is a decimal string, a time RFC 3339.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NotRequired, TypeAlias, TypedDict, get_args

Value: TypeAlias = float | str | None  # a number as the model takes it, a word of `categories`, or known-missing
Category: TypeAlias = float | str  # a word, or the number of a category that has none
DecisionOutcome: TypeAlias = Literal["approved", "declined"]
DeclineBasis: TypeAlias = Literal["model", "policy", "manual", "fraud"]
ThresholdScale: TypeAlias = Literal["probability", "margin"]
TierName: TypeAlias = Literal["near", "mid", "far"]
TIERS: Final[tuple[TierName, ...]] = get_args(TierName)  # in the order of effort
Status: TypeAlias = Literal["ok", "no_feasible_recourse", "not_model_decline"]
REPLAY_MARK: Final = ".replay."  # in the names of a replay's topics, <topic>.replay.<run_id>, and in no other


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One application as it was decided. `event_time_ms` (Unix, UTC) is None only for offline rows that carry none."""

    decision_id: str
    event_time_ms: int | None
    model_id: str
    model_version: str
    features: Mapping[str, Value]
    outcome: DecisionOutcome
    decline_basis: DeclineBasis
    subject_ref: str | None
    margin: float | None
    probability: float | None
    threshold: float | None
    threshold_scale: ThresholdScale | None
    product: str | None
    jurisdiction: str | None
    policy_overrides: Mapping[str, str]
    disclosures: Mapping[str, str]
    traceparent: str | None


Action = TypedDict(  # functional form: `from` is a keyword
    "Action",
    {
        "feature": str,
        "label": str,  # what people call the feature
        "direction": str,  # increase | decrease | change | provide (from missing)
        "from": Value,
        "to": Value,
        "unit": str | None,
        "binding_threshold": float | None,  # the model's threshold that `to` just reaches; None for a category
        "contribution": str,  # of this feature in the target ledger, times 2^unit_log2
        "binding_categories": NotRequired[list[Category] | None],  # what the model does not tell from `to`
    },
)


class Withheld(TypedDict):
    """A row of the comparator ledger that the person is not asked to act on, and why."""

    feature: str
    why: str


class RecommendedTier(TypedDict):
    tier: TierName
    actions: list[Action]
    margin: float
    probability: float
    effort: float
    robust_share: float | None
    withheld: list[Withheld]


class Reason(TypedDict):
    code: str
    text: str
    feature: str


class Recommendation(TypedDict):
    recommendation_id: str
    decision_id: str
    subject_ref: str | None
    model_id: str
    model_version: str
    revision: int
    status: Status
    proven: bool | None
    tiers: list[RecommendedTier]
    reasons: list[Reason]
    disclosures: dict[str, str]
    expires_at: str | None
    notice_due_at: str | None
    replay: bool
    run_id: str | None


class CellInterval(TypedDict):
    """The values of one feature that no threshold of the model tells apart. None is unbounded."""

    low: float | None
    high: float | None
    closed: Literal["low", "high"]  # which end belongs to the cell: low for `<` models, high for `<=` models


class Other(TypedDict):
    """The other side of a ledger row; exactly one of the four is not None (missing: True)."""

    cell: CellInterval | None
    categories: list[Category] | None  # empty: the cell of all that no split lists, and nothing in it has a word
    value: Value
    missing: bool


class LedgerTrees(TypedDict):
    """Parallel lists, one entry per tree whose leaves differ. Leaf and node ids are the library's own."""

    tree: list[int]
    query_leaf: list[int]
    other_leaf: list[int]
    contribution: list[str]
    node: list[int]  # the decisive node: where the two paths part
    split: list[int]  # its row in body.splits


class LedgerFeature(TypedDict):
    feature: str
    query_value: Value
    other: Other
    binding_threshold: float | None
    trees: int
    contribution: str
    feasible: bool
    why_not: str | None
    solo_shift: str  # margin shift when this feature alone moves, times 2^unit_log2
    binding_categories: NotRequired[list[Category] | None]  # for a category: what the split that adds most lists


class Ledger(TypedDict):
    margin_gap: str
    trees: LedgerTrees | None  # None: dropped by the size rule that the bundle states
    features: list[LedgerFeature]


class ReasonTrees(TypedDict):
    """Parallel lists, one entry per node at which the query's path parts from that of a row of the band or more."""

    tree: list[int]
    query_leaf: list[int]
    contribution: list[str]  # summed over the rows of the band that part here
    node: list[int]
    split: list[int]  # its row in body.splits


class ReasonFeature(TypedDict):
    feature: str
    query_value: Value
    binding_threshold: float | None
    trees: int
    contribution: str
    code: str
    binding_categories: NotRequired[list[Category] | None]  # as in LedgerFeature


class ReasonsLedger(TypedDict):
    """The query against the cutoff band; every contribution is a sum over the band's `divisor` rows."""

    divisor: int
    margin_gap: str
    trees: ReasonTrees | None
    features: list[ReasonFeature]


class Splits(TypedDict):
    """Parallel lists: the decisive splits that the ledgers of this body refer to by row."""

    feature: list[str]
    operator: list[str]  # < | <= | in | not in: what sends a value to the left
    threshold: list[float | None]  # None for a category
    default_left: list[bool]
    categories: NotRequired[list[list[Category] | None]]  # None for a number; absent: all are
    zero_is_missing: NotRequired[list[bool]]  # zero goes where a missing value goes; absent: at no split


class ComparatorReference(TypedDict):
    reference: str  # opaque keyed hash, hex
    key_id: str


class Ledgers(TypedDict):
    comparator: Ledger
    target: Ledger


class AuditTier(TypedDict):
    tier: TierName
    rank: int  # candidates of the ranking passed over before this one
    from_tercile: bool  # False: the tier's own tercile had none, another comparator serves
    comparator: ComparatorReference
    target: dict[str, Value]  # the actions: feature -> value
    margin: float
    margin_rounding: str  # native margin minus (the query's exact sum + the target ledger's gap), times 2^unit_log2
    probability: float
    effort: float
    robust_share: float | None
    ledgers: Ledgers


class AuditedReason(Reason):
    contribution: str


class DecisionByValue(TypedDict):
    decision_id: str
    subject_ref: str | None
    event_time: str | None
    model_id: str
    model_version: str
    features: dict[str, Value]
    outcome: DecisionOutcome
    decline_basis: DeclineBasis
    margin: float | None
    probability: float | None
    threshold: float | None
    threshold_scale: ThresholdScale | None
    product: str | None
    jurisdiction: str | None
    policy_overrides: dict[str, str]
    disclosures: dict[str, str]


class BundleIdentity(TypedDict):
    bundle_sha256: str
    model_sha256: str
    pool_sha256: str
    features_sha256: str
    policy_sha256: str
    model_id: str
    model_version: str
    revision: int


class AuditBody(TypedDict):
    """A pure function of decision, bundle and engine version. NotRequired: absent at its default, so old hashes fit."""

    engine_version: str
    recommendation_id: str
    status: Status
    decision: DecisionByValue
    bundle: BundleIdentity
    library: str
    library_version: str
    objective: str
    trees_used: int
    missing: NotRequired[float | None]  # the number that stands for missing besides null; absent where there is none
    summation: str
    approve: Literal["above", "below"]
    threshold: float
    threshold_scale: ThresholdScale
    cutoff_margin: float
    epsilon: float
    beta: float
    scales: dict[str, float]
    unit_log2: int
    margin: float  # native: bit-equal to the library's
    probability: float
    margin_exact: str  # the exact sum of base margin and leaf values, times 2^unit_log2
    margin_rounding: str  # native margin minus the exact sum, times 2^unit_log2
    query_leaves: list[int] | None
    splits: Splits | None
    reasons_ledger: ReasonsLedger | None
    tiers: list[AuditTier]
    reasons: list[AuditedReason]
    reasons_mapping: str


class Source(TypedDict):
    topic: str
    partition: int
    offset: int
    timestamp: str | None


class Envelope(TypedDict):
    """What may differ between two deliveries of one body."""

    source: Source | None
    software_version: str
    traceparent: str | None
    replay: bool
    run_id: str | None
    seal: str | None


class AuditRecord(TypedDict):
    decision_id: str
    body: AuditBody
    body_sha256: str
    envelope: Envelope


class Header(TypedDict):
    key: str
    value: bytes | None


class DeadLetter(TypedDict):
    """Key, value and headers are the original's, byte for byte."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]
    topic: str
    partition: int
    offset: int
    timestamp: str | None
    stage: str
    error: str  # class name
    message: str  # without personal data
    attempts: int
    first_seen: str
    last_seen: str
    software_version: str
    retryable: bool
    redrive_id: str | None


class PublishedFeature(TypedDict):
    name: str
    type: str  # number | integer | category


class ModelPublished(TypedDict):
    model_id: str
    model_version: str
    revision: int
    bundle_uri: str
    bundle_sha256: str
    library: str
    library_version: str
    format_version: int
    objective: str
    link: str
    approve: Literal["above", "below"]
    threshold: float
    threshold_scale: ThresholdScale
    cutoff_margin: float
    trees_used: int
    features: list[PublishedFeature]
    effective_from: str
    published_at: str
    approved_by: str | None
    supersedes: NotRequired[str | None]
