"""The lender's model and its bundle, made from past applications: what every run of the demo begins with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from stream.bundle.build import build_bundle
from stream.bundle.manifest import Manifest, read_manifest
from stream.demo.credit_data import CreditData, read_credit_data
from stream.demo.scoring_model import POOL_TARGET, Scores, scores_of, train
from stream.demo.script import Script

DECISION_BYTES_MAX: Final = 16 * 1024  # far above any decision of a demo; the size of an audit record includes it

Say: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The files of one run, all in its folder; they stay when the user named one."""

    model: Path
    pool: Path
    features: Path
    bundle: Path
    answers: Path
    worker_bundles: Path
    worker_log: Path

    @classmethod
    def under(cls, folder: Path) -> Files:
        """Name them."""
        return cls(
            model=folder / "model.json",
            pool=folder / "pool.parquet",
            features=folder / "features.toml",
            bundle=folder / "bundle",
            answers=folder / "answers.jsonl",
            worker_bundles=folder / "worker-bundles",
            worker_log=folder / "worker.log",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Applications, what the model says of each, and the bundle's manifest."""

    data: CreditData
    scores: Scores
    manifest: Manifest


def prepare(script: Script, files: Files, say: Say) -> Prepared:
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
    if files.bundle.is_dir():
        manifest, _ = read_manifest(files.bundle)
        say(f"   its model {manifest['model_id']} {manifest['model_version']} is in {files.bundle} already")
        return Prepared(data=data, scores=scores_of(data, files.model), manifest=manifest)
    scores = _train(script, files, data, say)
    return Prepared(data=data, scores=scores, manifest=_build(script, files, say))


def _train(script: Script, files: Files, data: CreditData, say: Say) -> Scores:
    rows, training = len(data.matrix), len(data.training_rows())
    say(
        f"   {rows:,} applications with {len(data.rules.names)} features; {int(data.favourable.sum()):,} turned out well"
    )
    say("\n2. The lender's model: XGBoost")
    scores = train(data, files.model, files.pool)
    files.features.write_text(script.features_toml, encoding="utf-8")
    say(
        f"   trained on {training:,} applications; on the other {rows - training:,} its AUC is {scores.held_out_auc:.3f}"
    )
    declined = int((scores.probabilities < script.threshold).sum())
    say(
        f"   it approves from a probability of {script.threshold:g} on: {rows - declined:,} approved, {declined:,} declined"
    )
    return scores


def _build(script: Script, files: Files, say: Say) -> Manifest:
    say("\n3. The bundle: model, pool, features.toml and leaf matrix, checked against XGBoost itself")
    built = build_bundle(
        model_path=files.model,
        pool_path=files.pool,
        features_path=files.features,
        threshold=script.threshold,
        target_column=POOL_TARGET,
        out_dir=files.bundle,
        model_id=script.model_id,
        decision_bytes_max=DECISION_BYTES_MAX,
    )
    manifest = built.manifest
    say(
        f"   {manifest['model_id']} {manifest['model_version']}: {manifest['trees_used']} trees, every bit of {built.probe.rows:,} probes equal"
    )
    say(f"   an audit record can have at most {manifest['audit_record_bytes_max']:,} bytes")
    return manifest
