"""A bundle on disk -> PublishedModel, checked by digest and memory-mapped: processes of a host share one copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stream.bundle.gate.kept_probes import PROBES, check_probes, kept_probes, mismatch
from stream.bundle.manifest import FEATURES, LEAF_MATRIX, MANIFEST, POLICY, Manifest, check_files, read_manifest
from stream.bundle.read_model import MODEL_FILES, read_model
from stream.bundle.shadows.models import stored_shadows
from stream.errors import CorruptionError, InvalidDecision
from stream.events import BundleIdentity
from stream.forest.cells import cells_of
from stream.forest.link import link_of
from stream.forest.trees import Forest
from stream.recourse.comparators.leaf_matrix import LeafMatrix
from stream.recourse.comparators.stored_matrix import stored_matrix
from stream.recourse.model import PublishedModel, published_model
from stream.recourse.rules.features import FeatureRules, rules_for
from stream.recourse.rules.policy import Policy, read_policy


def open_bundle(folder: Path, *, verify: bool = True) -> PublishedModel:
    """Open the bundle in `folder`. `verify` compares every file with its digest and recomputes the kept probes.

    Bundles of any `engine_version` open: they hold inputs, and each record names the engine that answered.
    Raises: BundleUnavailable where there is none, CorruptionError where it is not what was built, ConfigurationError
    for another bundle format, MachineMismatch where this machine computes something else than the builder's.
    """
    manifest, bundle_sha256 = read_manifest(folder)
    if verify:
        check_files(folder, manifest)
    built_with = manifest["probes"]["library_version"]
    forest, _ = read_model(folder / _model_file(manifest), trees=manifest["trees"], missing=manifest["missing"])
    if forest.digest != manifest["forest_sha256"]:  # from the very bytes that were built
        raise mismatch(forest, "reads another forest out of the model file than", str(folder), built_with)
    policy = read_policy(_text(folder, manifest, POLICY))
    rules = rules_for(forest, _text(folder, manifest, FEATURES))
    kept = kept_probes(_arrays(folder, manifest, PROBES), forest, str(folder))
    if verify:
        check_probes(forest, link_of(forest), kept, where=str(folder), built_with=built_with)
    arrays = _arrays(folder, manifest, LEAF_MATRIX)
    cells = cells_of(forest)
    matrix = stored_matrix(arrays, forest, cells, rules, sign=policy.sign, where=str(folder))
    _check_fields(
        folder, manifest, _derived_fields(manifest, forest, rules, policy, matrix) | {"probes.rows": len(kept)}
    )
    shadows = stored_shadows(folder, manifest, forest, rules)
    return published_model(
        identity=identity_of(manifest, bundle_sha256),
        forest=forest,
        cells=cells,
        rules=rules,
        policy=policy,
        matrix=matrix,
        threshold=manifest["threshold"],
        threshold_scale=manifest["threshold_scale"],
        audit_trees=manifest["audit_trees"],
        shadows=shadows,
    )


def _derived_fields(
    manifest: Manifest, forest: Forest, rules: FeatureRules, policy: Policy, matrix: LeafMatrix
) -> dict[str, Any]:
    """Fields of the manifest as derived from the bundle's other files; a dot leads into an object."""
    link = link_of(forest)
    try:
        cutoff = link.cutoff(manifest["threshold"], manifest["threshold_scale"], policy.approve)
    except InvalidDecision as error:  # also raised for thresholds of decisions
        message = f"{MANIFEST} of the bundle has a threshold that decides nothing: {error}; build the bundle again"
        raise CorruptionError(message) from error
    return {
        "library": forest.library,
        "library_version": forest.library_version,
        "objective": forest.objective,
        "link": link.name,
        "approve": policy.approve,
        "cutoff_margin": cutoff,
        "trees_used": forest.trees,
        "missing": forest.missing,
        "features": [{"name": rule.name, "type": rule.type} for rule in rules.rules],
        "pool.rows": len(matrix),
        "pool.accepted": len(matrix) - matrix.first_past(cutoff, policy.sign),
    }


def _check_fields(folder: Path, manifest: Manifest, derived: dict[str, Any]) -> None:
    """Raise CorruptionError for the first field that differs from the files."""
    for field, expected in derived.items():
        found: Any = manifest
        for key in field.split("."):
            found = found[key]
        if found != expected:
            message = f"{folder / MANIFEST}: {field} is not what follows from the other files; build or fetch the bundle again"
            raise CorruptionError(message)


def identity_of(manifest: Manifest, bundle_sha256: str) -> BundleIdentity:
    """The bundle's identity in audit records."""
    files = manifest["files"]
    return {
        "bundle_sha256": bundle_sha256,
        "model_sha256": files[_model_file(manifest)]["sha256"],
        "pool_sha256": manifest["pool"]["sha256"],
        "features_sha256": files[FEATURES]["sha256"],
        "policy_sha256": files[POLICY]["sha256"],
        "model_id": manifest["model_id"],
        "model_version": manifest["model_version"],
        "revision": manifest["revision"],
    }


def _model_file(manifest: Manifest) -> str:
    names = [name for name in MODEL_FILES.values() if name in manifest["files"]]
    if len(names) == 1:
        return names[0]
    message = f"the manifest names {'several model files' if names else 'no model file'}; build the bundle again"
    raise CorruptionError(message)


def _text(folder: Path, manifest: Manifest, name: str) -> str:
    if name not in manifest["files"]:
        message = f"the manifest of {folder} names no {name}; build the bundle again"
        raise CorruptionError(message)
    try:
        return (folder / name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"{folder / name} cannot be read as UTF-8 text; build or fetch the bundle again"
        raise CorruptionError(message) from error


def _arrays(folder: Path, manifest: Manifest, inner: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays that the manifest names in one of the bundle's folders, by name."""
    paths = [path for path in manifest["files"] if path.startswith(f"{inner}/")]
    return {Path(path).stem: _mapped(folder / path) for path in paths}


def _mapped(path: Path) -> npt.NDArray[Any]:
    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        message = f"{path} cannot be mapped ({error}); build or fetch the bundle again"
        raise CorruptionError(message) from error
    return np.asarray(mapped)  # a plain array over the same pages: numba takes no subclass
