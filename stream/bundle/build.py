"""Model, pool, features.toml and policy.toml -> a bundle on disk, if and only if the gate finds every bit equal."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stream.bundle.advice.claims import ClaimColumn, ClaimReport, check_claims
from stream.bundle.advice.pool_rank import PoolRank, rank_pool
from stream.bundle.advice.unsaid import Unsaid, unsaid
from stream.bundle.advice.untrue_ratios import UntrueRatio, untrue_ratios
from stream.bundle.atomic_folder import atomic_folder, refuse_occupied
from stream.bundle.build_inputs import BuildInputs, InputPaths, Progress, check_missing, read_inputs
from stream.bundle.gate.kept_probes import PROBES
from stream.bundle.gate.probe import ProbeReport, probe
from stream.bundle.manifest import (
    FORMAT_VERSION,
    LEAF_MATRIX,
    MANIFEST,
    FileEntry,
    Manifest,
    ShadowsEntry,
    digest_of,
    digest_of_file,
    encode_manifest,
)
from stream.bundle.pool import Pool, check_range
from stream.bundle.shadows.models import build_shadows, shadow_request
from stream.errors import ConfigurationError, InvalidDecision
from stream.events import ThresholdScale
from stream.forest.ledger import leaf_units
from stream.forest.link import Link, check_predictions, link_of
from stream.forest.trees import Forest, TreesUsed
from stream.forest.walk import margins_of
from stream.recourse.comparators.leaf_matrix import LeafMatrix, build_leaf_matrix
from stream.recourse.record.decision_record import ENGINE_VERSION
from stream.recourse.record.size import largest_record
from stream.recourse.rules.features import FeatureRules
from stream.recourse.rules.policy import Policy

MODEL_ID: Final = "model"
VERSION_DIGITS: Final = 12
RECORD_BYTES_MAX: Final = 4 << 20  # what the audit topic takes by default
RECORD_OVERHEAD_BYTES: Final = 4 << 10  # what Kafka counts beside the value: a key of 256 characters, and its framing
DECISION_BYTES_MAX: Final = 1 << 20  # what the decisions topic takes by default; the audit holds the decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A finished bundle, what the gate compared, and how the model ranks the pool's target column where one was named."""

    folder: Path
    manifest: Manifest
    bundle_sha256: str
    probe: ProbeReport
    ignored_columns: tuple[str, ...]
    unlabelled: tuple[str, ...]  # features that a letter would call by their column's name
    unproven_words: tuple[str, ...]  # features whose words features.toml alone gives, where no claims prove their order
    rank: PoolRank | None
    claims: ClaimReport | None
    trees_by_claims: bool  # whether it was the claims that told which trees were meant
    unsaid: Unsaid  # what the lender may have forgotten to say; nothing where claims are equal
    untrue_ratios: tuple[UntrueRatio, ...]  # of features.toml, where the pool has other values than their parts give


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
    progress: Progress = lambda _stage, _done, _total: None,
) -> Built:
    """Build a bundle at `out_dir`, which comes into being whole or not at all. Same inputs, same bytes.

    `model_version` is by default the first digits of the model file's SHA-256. Without a `reference_key`, the key
    behind the comparator references is made of the pool's rows: opaque to whoever does not have these.
    Where the file leaves a choice of trees and `trees` makes none, the pool's `claim_column` decides, if there is one.
    So many `shadows` are trained by `train_params_path` on bootstraps of the pool, or `shadow_model_paths` are taken.
    Raises: ConfigurationError (ModelRefused among it) for inputs that cannot make a bundle, ProbeMismatch where the
    owner library computes anything else than we do, ClaimsDiffer where the lender's own scores are others.
    """
    refuse_occupied(out_dir)
    check_missing(missing)
    names = _names(model_id, model_version, revision)
    asked = shadow_request(shadows, train_params_path, shadow_model_paths, target_column)
    claims = None if claim_column is None else ClaimColumn(name=claim_column, scale=claim_scale)
    paths = InputPaths(model=model_path, pool=pool_path, features=features_path, policy=policy_path)
    given = read_inputs(paths, target_column, claims, missing=missing, trees=trees, progress=progress)
    forest, pool, rules, policy = given.forest, given.pool, given.rules, given.policy
    link = link_of(forest)
    check_predictions(forest, link)
    check_range(forest, pool, paths.pool)
    turn = _Turn(threshold, threshold_scale, _cutoff(link, threshold, threshold_scale, policy))
    report = probe(
        forest,
        link,
        given.model,
        pool.rows,
        declared=[len(codes or ()) for codes in rules.codes],
        progress=lambda done, total: progress("comparing", done, total),
    )
    claimed = None if claims is None else check_claims(forest, given.model, pool, claims, given.other_trees)
    progress("building the leaf matrix", 0, 1)
    reference_key = reference_key or _own_reference_key(pool)
    matrix = build_leaf_matrix(forest, pool.rows, rules, policy.approve, reference_key, scale=policy.scale)
    accepted = _accepted(matrix, turn.cutoff, policy, pool)
    audit = _audit_size(forest, rules, policy, record_bytes_max, decision_bytes_max)
    shadowed = build_shadows(asked, given, turn.cutoff, progress)
    with _told_of_the_disk(out_dir), atomic_folder(out_dir) as draft:
        progress("writing", 0, 1)
        arrays = {LEAF_MATRIX: matrix.arrays(), PROBES: report.kept.arrays()}
        files = _write(draft, given.files | shadowed.files, arrays)
        manifest = _manifest(given, names, turn, report, accepted, audit, shadowed.entry, files)
        content = encode_manifest(manifest)
        (draft / MANIFEST).write_bytes(content)
    progress("writing", 1, 1)
    return Built(
        folder=out_dir,
        manifest=manifest,
        bundle_sha256=digest_of(content),
        probe=report,
        ignored_columns=pool.ignored,
        unlabelled=tuple(rule.name for rule in rules.rules if rule.label == rule.name),
        unproven_words=_words_of_features_toml(forest, rules) if claims is None else (),
        claims=claimed,
        trees_by_claims=given.trees_by_claims,
        unsaid=unsaid(forest, given.model, pool, rules) if claims is None else Unsaid(),
        untrue_ratios=untrue_ratios(pool.rows, rules),
        rank=None
        if target_column is None
        else rank_pool(target_column, pool.target, margins_of(forest, pool.rows), policy.approve),
    )


def _words_of_features_toml(forest: Forest, rules: FeatureRules) -> tuple[str, ...]:
    said = zip(rules.rules, forest.words, strict=True)
    return tuple(rule.name for rule, words in said if rule.categories is not None and words is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    """How decisions and the models topic name the model."""

    model: str
    version: str | None  # by default made of the model file
    revision: int


@dataclass(frozen=True, slots=True)
class _Turn:
    """Where the model's decision turns: as it was said, and as a margin."""

    threshold: float
    scale: ThresholdScale
    cutoff: float


@dataclass(frozen=True, slots=True)
class _Audit:
    """Whether audit records carry per-tree detail, and the size in bytes that none exceeds."""

    trees: bool
    record_bytes_max: int


def _manifest(
    given: BuildInputs,
    names: _Names,
    turn: _Turn,
    report: ProbeReport,
    accepted: int,
    audit: _Audit,
    shadows: ShadowsEntry | None,
    files: dict[str, FileEntry],
) -> Manifest:
    """Say what the bundle is."""
    forest, pool = given.forest, given.pool
    return {
        "format_version": FORMAT_VERSION,
        "engine_version": ENGINE_VERSION,
        "model_id": names.model,
        "model_version": names.version or digest_of(given.model)[:VERSION_DIGITS],
        "revision": names.revision,
        "library": forest.library,
        "library_version": forest.library_version,
        "objective": forest.objective,
        "link": link_of(forest).name,
        "approve": given.policy.approve,
        "threshold": turn.threshold,
        "threshold_scale": turn.scale,
        "cutoff_margin": turn.cutoff,
        "trees": given.trees,
        "trees_used": forest.trees,
        "missing": forest.missing,
        "forest_sha256": forest.digest,
        "features": [{"name": rule.name, "type": rule.type} for rule in given.rules.rules],
        "pool": {"rows": len(pool.rows), "accepted": accepted, "sha256": pool.sha256},
        "probes": {"rows": len(report.kept), "library_version": report.library_version},
        "shadows": shadows,
        "audit_trees": audit.trees,
        "audit_record_bytes_max": audit.record_bytes_max,
        "files": files,
    }


@contextmanager
def _told_of_the_disk(out_dir: Path) -> Iterator[None]:
    """Nothing but writing happens inside, so an OSError is the disk's: full, or not to be written."""
    try:
        yield
    except OSError as error:
        message = f"cannot write the bundle at {out_dir}: {error.strerror or error}"
        raise ConfigurationError(message) from error


def _names(model_id: str, model_version: str | None, revision: int) -> _Names:
    if revision < 1:
        message = f"--revision {revision} must be 1 or more"
        raise ConfigurationError(message)
    for flag, name in (("--model-id", model_id), ("--model-version", model_version)):
        if name is not None and (not name or "/" in name or not name.isprintable()):
            message = f"{flag} must be printable and without a slash, for it is part of a key on the models topic"
            raise ConfigurationError(message)
    return _Names(model=model_id, version=model_version, revision=revision)


def _own_reference_key(pool: Pool) -> bytes:
    """Derive a key that only holders of the pool can; not its published digest, which every audit record carries."""
    return hmac.digest(b"coach comparator reference", pool.rows.tobytes(), hashlib.sha256)


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


def _audit_size(
    forest: Forest, rules: FeatureRules, policy: Policy, record_bytes_max: int, decision_bytes_max: int
) -> _Audit:
    """The rule: with detail if the largest possible record still fits the topic, else without, else no bundle."""
    value_bytes_max = record_bytes_max - RECORD_OVERHEAD_BYTES
    largest = largest_record(
        forest, leaf_units(forest), rules, band_size=policy.band_size, decision_bytes=decision_bytes_max
    )
    if largest.with_trees <= value_bytes_max:
        return _Audit(trees=True, record_bytes_max=largest.with_trees)
    if largest.without_trees <= value_bytes_max:
        return _Audit(trees=False, record_bytes_max=largest.without_trees)
    message = (
        f"an audit record could take {largest.without_trees + RECORD_OVERHEAD_BYTES} bytes even without per-tree detail, more than the "
        f"{record_bytes_max} of --record-bytes-max; raise it together with the audit topic's max.message.bytes"
    )
    raise ConfigurationError(message)


def _write(
    draft: Path, files: dict[str, bytes], arrays: dict[str, dict[str, npt.NDArray[Any]]]
) -> dict[str, FileEntry]:
    """Write files by name and arrays by folder and name; give what the manifest says of them."""
    for name, content in files.items():
        (draft / name).parent.mkdir(exist_ok=True)
        (draft / name).write_bytes(content)
    paths = list(files)
    for folder, of_folder in arrays.items():
        (draft / folder).mkdir()
        for name, array in of_folder.items():
            np.save(draft / folder / f"{name}.npy", np.ascontiguousarray(array), allow_pickle=False)
            paths.append(f"{folder}/{name}.npy")
    return {path: digest_of_file(draft / path) for path in paths}
