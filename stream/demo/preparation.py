"""The lender's model and its bundle, made from past applications: the start of every demo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from stream.bundle.build import build_bundle
from stream.bundle.manifest import Manifest, read_manifest
from stream.demo.credit_data import CreditData, read_credit_data
from stream.demo.scoring_model import POOL_TARGET, Scores, scores_of, train
from stream.demo.script import Script

DECISION_BYTES_MAX: Final = 16 * 1024  # far above any decision of a demo; the size of an audit record includes it

MODEL: Final = "model.json"
POOL: Final = "pool.parquet"
FEATURES: Final = "features.toml"
BUNDLE: Final = "bundle"

Say: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Applications, what the model says of each, and the bundle's manifest."""

    data: CreditData
    scores: Scores
    manifest: Manifest


def prepare(script: Script, say: Say) -> Prepared:
    """Read the data, train, and build the bundle; a bundle that an earlier run left there is taken, with its model.

    Raises: ConfigurationError for data or files that cannot be used.
    """
    say(f"\n1. The data: {script.title}")
    data = read_credit_data(
        script.data,
        script.features_toml,
        target=script.target,
        favourable=script.favourable,
        leave_out=script.leave_out,
    )
    bundle = script.folder / BUNDLE
    if bundle.is_dir():
        manifest, _ = read_manifest(bundle)
        say(f"   its model {manifest['model_id']} {manifest['model_version']} is in {bundle} already")
        return Prepared(data=data, scores=scores_of(data, script.folder / MODEL), manifest=manifest)
    scores = _train(script, data, say)
    return Prepared(data=data, scores=scores, manifest=_build(script, say))


def _train(script: Script, data: CreditData, say: Say) -> Scores:
    rows, training = len(data.matrix), len(data.training_rows())
    say(
        f"   {rows:,} applications with {len(data.rules.names)} features; {int(data.favourable.sum()):,} turned out well"
    )
    say("\n2. The lender's model: XGBoost")
    scores = train(data, script.folder / MODEL, script.folder / POOL)
    (script.folder / FEATURES).write_text(script.features_toml, encoding="utf-8")
    say(
        f"   trained on {training:,} applications; on the other {rows - training:,} its AUC is {scores.held_out_auc:.3f}"
    )
    declined = int((scores.probabilities < script.threshold).sum())
    say(
        f"   it approves from a probability of {script.threshold:g} on: {rows - declined:,} approved, {declined:,} declined"
    )
    return scores


def _build(script: Script, say: Say) -> Manifest:
    say("\n3. The bundle: model, pool, features.toml and leaf matrix, checked against XGBoost itself")
    built = build_bundle(
        model_path=script.folder / MODEL,
        pool_path=script.folder / POOL,
        features_path=script.folder / FEATURES,
        threshold=script.threshold,
        target_column=POOL_TARGET,
        out_dir=script.folder / BUNDLE,
        model_id=script.model_id,
        decision_bytes_max=DECISION_BYTES_MAX,
    )
    manifest = built.manifest
    say(
        f"   {manifest['model_id']} {manifest['model_version']}: {manifest['trees_used']} trees, every bit of {built.probe.rows:,} probes equal"
    )
    say(f"   an audit record can have at most {manifest['audit_record_bytes_max']:,} bytes")
    return manifest
