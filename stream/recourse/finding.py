"""Decision -> finding: what the model says of a row, why, and what would change it. Both records are written from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream.errors import ClaimMismatch, NonFiniteFeature
from stream.events import AuditedReason, Decision, Status, ThresholdScale
from stream.forest.walk import leaf_slots, margins
from stream.recourse.comparators.leaf_matrix import without_no_record
from stream.recourse.comparators.ranking import ranking
from stream.recourse.explain.attribution import Amounts, FeatureShare, by_feature
from stream.recourse.explain.reasons import CutoffBand, principal_reasons, shortfalls
from stream.recourse.model import PublishedModel
from stream.recourse.search.tier_targets import TierTarget, targets_of
from stream.recourse.space.person_reach import PersonReach, person_reach


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scored:
    """A decision as the model sees it. row (features,) float64; slots (trees,) int32; margins are native."""

    row: NDArray[np.float64]
    slots: NDArray[np.int32]
    margin: float
    probability: float
    threshold: float
    threshold_scale: ThresholdScale
    cutoff: float
    accepted: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Explanation:
    """Why the model declined a row, and the target of each tier.

    shortfalls: per decisive node, against `band`; shares: the same per feature; proven: whether it is certain that the rules
    permit no target, where there is none.
    """

    band: CutoffBand
    shortfalls: Amounts
    shares: dict[int, FeatureShare]
    reasons: list[AuditedReason]
    reach: PersonReach
    targets: tuple[TierTarget, ...]
    proven: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Finding:
    """What was found of one decision. explanation: None where the model did not decline it."""

    scored: Scored
    explanation: Explanation | None

    @property
    def status(self) -> Status:
        """The status that both records carry."""
        if self.explanation is None:
            return "not_model_decline"
        return "ok" if self.explanation.targets else "no_feasible_recourse"


def find(decision: Decision, model: PublishedModel) -> Finding:
    """Find what there is to say of a declined decision. Raises: as `score`; OverrideRefused."""
    scored = score(decision, model)
    mutability = model.rules.mutabilities(decision.policy_overrides)
    is_model_decline = decision.decline_basis == "model" and not scored.accepted
    return Finding(scored=scored, explanation=_explanation(model, scored, mutability) if is_model_decline else None)


def score(decision: Decision, model: PublishedModel) -> Scored:
    """Score a decision's row as the owner library does, and hold its claims against that.

    Raises: InvalidDecision (and its kinds), ClaimMismatch.
    """
    forest = model.forest
    row = model.rules.encode(decision.features)
    with np.errstate(over="ignore"):
        too_large = np.isinf(row.astype(forest.dtype))
    if too_large.any():
        name = forest.features[int(np.flatnonzero(too_large)[0])]
        message = f"{name} is too large for the {forest.dtype.name} that the model computes in"
        raise NonFiniteFeature(message)
    slots = leaf_slots(forest, row[None])
    native = margins(forest, slots)
    probability = model.link.probabilities(native)
    for name, claim, own in (("margin", decision.margin, native), ("probability", decision.probability, probability)):
        if claim is not None and model.cells.read(claim) != own[0]:
            message = (
                f"the claimed {name} is not what {decision.model_id} {decision.model_version} gives for these features"
            )
            raise ClaimMismatch(message)
    threshold, scale, cutoff = model.threshold_for(decision)
    sign = model.policy.sign
    return Scored(
        row=row,
        slots=slots[0],
        margin=float(native[0]),
        probability=float(probability[0]),
        threshold=threshold,
        threshold_scale=scale,
        cutoff=cutoff,
        accepted=sign * float(native[0]) >= sign * cutoff,
    )


def _explanation(model: PublishedModel, scored: Scored, mutability: NDArray[np.int8]) -> Explanation:
    forest, sign = model.forest, model.policy.sign
    band = model.band(scored.cutoff)
    short = shortfalls(band, scored.slots)
    shares = by_feature(forest, short)
    reach = person_reach(
        model.rules,
        model.matrix,
        model.cell_targets,
        row=scored.row,
        cells=model.cells.of(scored.row[None])[0],
        mutability=mutability,
    )
    first = model.matrix.first_past(scored.cutoff + sign * model.policy.epsilon, sign)
    ranked = ranking(
        forest,
        model.matrix,
        model.rules,
        query_slots=scored.slots,
        query_row=without_no_record(scored.row[None], model.rules)[0],
        mutability=mutability,
        first=first,
        beta=model.policy.beta,
        magnitudes=model.magnitudes,
    )
    found = targets_of(model, reach, ranked, first=first, cutoff=scored.cutoff)
    return Explanation(
        band=band,
        shortfalls=short,
        shares=shares,
        reasons=principal_reasons(forest, model.rules, shares, scored.row, sign),
        reach=reach,
        targets=found.targets,
        proven=found.proven,
    )
