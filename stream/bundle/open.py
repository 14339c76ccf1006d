"""A bundle on disk -> PublishedModel, checked by digest and memory-mapped, so that processes of a host share one copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stream.bundle.manifest import FEATURES, LEAF_MATRIX, MODEL_FILES, POLICY, Manifest, check_files, read_manifest
from stream.bundle.read_model import read_model
from stream.errors import CorruptionError
from stream.events import BundleIdentity
from stream.recourse.features import read_features
from stream.recourse.leaf_matrix import LeafMatrix, from_arrays
from stream.recourse.model import PublishedModel, published_model
from stream.recourse.policy import read_policy


def open_bundle(folder: Path, *, verify: bool = True) -> PublishedModel:
    """Open the bundle in `folder`. `verify` reads every file once to compare it with its digest.

    Raises: BundleUnavailable where there is none, CorruptionError where it is not what was built, ConfigurationError
    where its format is not ours.
    """
    manifest, bundle_sha256 = read_manifest(folder)
    if verify:
        check_files(folder, manifest)
    forest, _ = read_model(folder / _model_file(manifest), trees=manifest["trees"])
    if forest.digest != manifest["forest_sha256"]:
        message = f"{folder}: the model file reads as another forest than when the bundle was built; build it again"
        raise CorruptionError(message)
    policy = read_policy((folder / POLICY).read_text("utf-8"))
    return published_model(
        identity=identity_of(manifest, bundle_sha256),
        forest=forest,
        rules=read_features((folder / FEATURES).read_text("utf-8"), forest.features),
        policy=policy,
        matrix=_leaf_matrix(folder, manifest),
        threshold=manifest["threshold"],
        threshold_scale=manifest["threshold_scale"],
        audit_trees=manifest["audit_trees"],
    )


def identity_of(manifest: Manifest, bundle_sha256: str) -> BundleIdentity:
    """What an audit record calls the bundle."""
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
    for name in MODEL_FILES.values():
        if name in manifest["files"]:
            return name
    message = "the manifest names no model file; build the bundle again"
    raise CorruptionError(message)


def _leaf_matrix(folder: Path, manifest: Manifest) -> LeafMatrix:
    arrays = {}
    for path in manifest["files"]:
        if path.startswith(f"{LEAF_MATRIX}/"):
            arrays[Path(path).stem] = _mapped(folder / path)
    try:
        return from_arrays(arrays)
    except KeyError as error:
        message = f"{folder} lacks the leaf matrix's array {error}; build the bundle again"
        raise CorruptionError(message) from error


def _mapped(path: Path) -> npt.NDArray[Any]:
    """A read-only view of an array on disk."""
    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        message = f"{path} cannot be mapped ({error}); build or fetch the bundle again"
        raise CorruptionError(message) from error
    return np.asarray(mapped)  # a plain array over the same pages: numba takes no subclass
