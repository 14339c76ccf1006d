"""Model, pool, features.toml and policy.toml -> a bundle on disk, if and only if the gate finds every bit equal."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from stream.bundle.advice.claims import ClaimColumn, ClaimReport, check_claims
from stream.bundle.advice.pool_rank import PoolRank, rank_pool
from stream.bundle.advice.undeclared import Undeclared, find_undeclared
from stream.bundle.advice.untrue_ratios import UntrueRatio, untrue_ratios
from stream.bundle.atomic_folder import refuse_occupied
from stream.bundle.build_inputs import BuildInputs, BuildProgress, InputPaths, check_missing, read_inputs
from stream.bundle.gate.probe import ProbeReport, probe
from stream.bundle.manifest import Manifest
from stream.bundle.pool import Pool, check_range
from stream.bundle.shadows.models import build_shadows, shadow_request
from stream.bundle.write import BundleParts, write_bundle
from stream.errors import ConfigurationError, InvalidDecision
from stream.events import ThresholdScale
from stream.forest.cutoffs import Link
from stream.forest.ledger import leaf_units
from stream.forest.link import check_predictions, link_of
from stream.forest.trees import TreesUsed
from stream.forest.walk import margins_of
from stream.recourse.comparators.leaf_matrix import LeafMatrix, build_leaf_matrix
from stream.recourse.record.size import largest_record
from stream.recourse.rules.policy import Policy

MODEL_ID: Final = "model"
RECORD_BYTES_MAX: Final = 4 << 20  # what the audit topic takes by default
RECORD_OVERHEAD_BYTES: Final = 4 << 10  # what Kafka counts beside the value: a key of 256 characters, and its framing
DECISION_BYTES_MAX: Final = 1 << 20  # what the decisions topic takes by default; the audit holds the decision


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildAdvice:
    """Findings on the model and its pool: what was proven, looks forgotten or looks wrong. None refuses the bundle."""

    ignored_columns: tuple[str, ...]
    unlabelled: tuple[str, ...]  # features that a letter would call by their column's name
    unproven_words: tuple[str, ...]  # features whose words only features.toml gives; claims would prove their order
    rank: PoolRank | None  # of the pool's target column, where one was named
    claims: ClaimReport | None
    trees_by_claims: bool  # whether claims decided which trees were meant
    undeclared: Undeclared  # nothing where claims are equal
    untrue_ratios: tuple[UntrueRatio, ...]  # of features.toml, where the pool has other values than their parts give


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltBundle:
    """A finished bundle, what the gate compared, and what the build found besides."""

    folder: Path
    manifest: Manifest
    bundle_sha256: str
    probe: ProbeReport
    advice: BuildAdvice


def build_bundle(  # noqa: PLR0913 - one keyword per flag of `coach bundle build`
    *,
    model_path: Path,
    pool_path: Path,
    features_path: Path,
    threshold: float,
    out_dir: Path,
    threshold_scale: ThresholdScale = "probability",
    policy_path: Path | None = None,
    target_column: str | None = None,
    claim_column: str | None = None,
    claim_scale: ThresholdScale = "probability",
    missing: float | None = None,
    trees: TreesUsed | None = None,
    shadows: int | None = None,
    train_params_path: Path | None = None,
    shadow_model_paths: Sequence[Path] = (),
    model_id: str = MODEL_ID,
    model_version: str | None = None,
    revision: int = 1,
    reference_key: bytes | None = None,
    record_bytes_max: int = RECORD_BYTES_MAX,
    decision_bytes_max: int = DECISION_BYTES_MAX,
    progress: BuildProgress = lambda _stage, _done, _total: None,
) -> BuiltBundle:
    """Build a bundle at `out_dir`, whole or not at all. Same inputs, same bytes.

    `model_version` defaults to the first digits of the model file's SHA-256. Without a `reference_key`, the key behind
    the comparator references is derived from the pool's rows: opaque to anyone without them.
    Where the file leaves a choice of trees and `trees` makes none, the pool's `claim_column` decides, if there is one.
    `shadows` models are trained by `train_params_path` on bootstraps of the pool, or `shadow_model_paths` are taken.
    Raises: ConfigurationError (ModelRefused among it) for inputs that cannot make a bundle, ProbeMismatch where the
    owner library computes something else than we do, ClaimsDiffer where the lender's own scores differ.
    """
    refuse_occupied(out_dir)
    check_missing(missing)
    _check_names(model_id, model_version, revision)
    request = shadow_request(shadows, train_params_path, shadow_model_paths, target_column)
    claims = None if claim_column is None else ClaimColumn(name=claim_column, scale=claim_scale)
    paths = InputPaths(model=model_path, pool=pool_path, features=features_path, policy=policy_path)
    inputs = read_inputs(paths, target_column, claims, missing=missing, trees=trees, progress=progress)
    forest, pool, policy = inputs.forest, inputs.pool, inputs.policy
    link = link_of(forest)
    check_predictions(forest, link)
    check_range(forest, pool, paths.pool)
    cutoff = _cutoff(link, threshold, threshold_scale, policy)
    report = _gate(inputs, link, progress)
    claimed = None if claims is None else check_claims(forest, inputs.model, pool, claims, inputs.other_trees)
    progress("building the leaf matrix", 0, 1)
    # Not the pool's digest, which every audit record carries: only holders of the pool can derive this key.
    key = reference_key or hmac.digest(b"coach comparator reference", pool.rows.tobytes(), hashlib.sha256)
    matrix = build_leaf_matrix(forest, pool.rows, inputs.rules, policy.approve, key, scale=policy.scale)
    audit_trees, audit_record_bytes_max = _audit_size(inputs, record_bytes_max, decision_bytes_max)
    parts = BundleParts(
        model_id=model_id,
        model_version=model_version,
        revision=revision,
        threshold=threshold,
        threshold_scale=threshold_scale,
        cutoff=cutoff,
        probe=report,
        matrix=matrix,
        accepted=_accepted(matrix, cutoff, policy, pool),
        audit_trees=audit_trees,
        audit_record_bytes_max=audit_record_bytes_max,
        shadows=build_shadows(request, inputs, cutoff, progress),
    )
    manifest, bundle_sha256 = write_bundle(out_dir, inputs, parts, progress)
    advice = _advise(inputs, claimed, target_column, cutoff)
    return BuiltBundle(folder=out_dir, manifest=manifest, bundle_sha256=bundle_sha256, probe=report, advice=advice)


def _advise(inputs: BuildInputs, claims: ClaimReport | None, target_column: str | None, cutoff: float) -> BuildAdvice:
    """Look through the inputs. `claims`: those that were found equal."""
    forest, pool, rules = inputs.forest, inputs.pool, inputs.rules
    rank = None
    if target_column is not None:
        margins, sign = margins_of(forest, pool.rows).astype(np.float64), inputs.policy.sign
        rank = rank_pool(target_column, pool.target, margins, sign * margins >= sign * cutoff)
    words = zip(rules.rules, forest.words, strict=True)
    unproven = [rule.name for rule, in_file in words if rule.categories is not None and in_file is None]
    return BuildAdvice(
        ignored_columns=pool.ignored,
        unlabelled=tuple(rule.name for rule in rules.rules if rule.label == rule.name),
        unproven_words=tuple(unproven) if claims is None else (),
        rank=rank,
        claims=claims,
        trees_by_claims=inputs.trees_by_claims,
        undeclared=find_undeclared(forest, inputs.model, pool, rules) if claims is None else Undeclared(),
        untrue_ratios=untrue_ratios(pool.rows, rules),
    )


def _gate(inputs: BuildInputs, link: Link, progress: BuildProgress) -> ProbeReport:
    return probe(
        inputs.forest,
        link,
        inputs.model,
        inputs.pool.rows,
        declared=[len(codes or ()) for codes in inputs.rules.codes],
        progress=lambda done, total: progress("comparing", done, total),
    )


def _check_names(model_id: str, model_version: str | None, revision: int) -> None:
    if revision < 1:
        message = f"--revision {revision} must be 1 or more"
        raise ConfigurationError(message)
    for flag, name in (("--model-id", model_id), ("--model-version", model_version)):
        if name is not None and (not name or "/" in name or not name.isprintable()):
            message = f"{flag} must be printable and without a slash, for it is part of a key on the models topic"
            raise ConfigurationError(message)


def _cutoff(link: Link, threshold: float, scale: ThresholdScale, policy: Policy) -> float:
    try:
        return link.cutoff(threshold, scale, policy.approve)
    except InvalidDecision as error:
        message = f"--threshold {threshold:g}: {error}"
        raise ConfigurationError(message) from error


def _accepted(matrix: LeafMatrix, cutoff: float, policy: Policy, pool: Pool) -> int:
    """How many people of the pool the model accepts; with nobody, there is nobody to learn from."""
    accepted = len(matrix) - matrix.first_past(cutoff, policy.sign)
    if accepted == 0:
        message = (
            f"the model accepts none of the {len(pool.rows)} rows of the pool at this threshold; check --threshold, "
            f"--threshold-scale and `approve` of policy.toml (now {policy.approve!r})"
        )
        raise ConfigurationError(message)
    return accepted


def _audit_size(inputs: BuildInputs, record_bytes_max: int, decision_bytes_max: int) -> tuple[bool, int]:
    """Whether the largest record fits the topic with per-tree detail, and its bytes; raises if it fits in no way."""
    forest = inputs.forest
    value_bytes_max = record_bytes_max - RECORD_OVERHEAD_BYTES
    largest = largest_record(
        forest, leaf_units(forest), inputs.rules, band_size=inputs.policy.band_size, decision_bytes=decision_bytes_max
    )
    if largest.with_trees <= value_bytes_max:
        return True, largest.with_trees
    if largest.without_trees <= value_bytes_max:
        return False, largest.without_trees
    message = (
        f"an audit record could take {largest.without_trees + RECORD_OVERHEAD_BYTES} bytes even without per-tree detail, more than the "
        f"{record_bytes_max} of --record-bytes-max; raise it together with the audit topic's max.message.bytes"
    )
    raise ConfigurationError(message)
