"""A bundle on disk -> PublishedModel, checked by digest and memory-mapped, so that processes of a host share one copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stream.bundle.kept_probes import PROBES, check_probes, kept_probes, mismatch
from stream.bundle.manifest import FEATURES, LEAF_MATRIX, MODEL_FILES, POLICY, Manifest, check_files, read_manifest
from stream.bundle.read_model import read_model
from stream.errors import CorruptionError
from stream.events import BundleIdentity
from stream.forest.link import link_of
from stream.recourse.features import rules_for
from stream.recourse.leaf_matrix import LeafMatrix, from_arrays
from stream.recourse.model import PublishedModel, published_model
from stream.recourse.policy import read_policy


def open_bundle(folder: Path, *, verify: bool = True) -> PublishedModel:
    """Open the bundle in `folder`. `verify` compares every file with its digest and computes the kept probes again.

    Raises: BundleUnavailable where there is none, CorruptionError where it is not what was built, ConfigurationError
    where its format is not ours, MachineMismatch where this machine computes something else than the builder's.
    """
    manifest, bundle_sha256 = read_manifest(folder)
    if verify:
        check_files(folder, manifest)
    built_with = manifest["probes"]["library_version"]
    forest, _ = read_model(folder / _model_file(manifest), trees=manifest["trees"], missing=manifest["missing"])
    if forest.digest != manifest["forest_sha256"]:  # though its bytes are the ones that were built
        raise mismatch(forest, "reads another forest out of the model file than", str(folder), built_with)
    policy = read_policy((folder / POLICY).read_text("utf-8"))
    rules = rules_for(forest, (folder / FEATURES).read_text("utf-8"))
    if verify:
        kept = kept_probes(_arrays(folder, manifest, PROBES), forest, str(folder))
        check_probes(forest, link_of(forest), kept, where=str(folder), built_with=built_with)
    return published_model(
        identity=identity_of(manifest, bundle_sha256),
        forest=forest,
        rules=rules,
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
    try:
        return from_arrays(_arrays(folder, manifest, LEAF_MATRIX))
    except KeyError as error:
        message = f"{folder} lacks the leaf matrix's array {error}; build the bundle again"
        raise CorruptionError(message) from error


def _arrays(folder: Path, manifest: Manifest, inner: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays that the manifest names in one of the bundle's folders, by name."""
    paths = [path for path in manifest["files"] if path.startswith(f"{inner}/")]
    return {Path(path).stem: _mapped(folder / path) for path in paths}


def _mapped(path: Path) -> npt.NDArray[Any]:
    """A read-only view of an array on disk."""
    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        message = f"{path} cannot be mapped ({error}); build or fetch the bundle again"
        raise CorruptionError(message) from error
    return np.asarray(mapped)  # a plain array over the same pages: numba takes no subclass
