"""The parts of a bundle, written as a folder with its manifest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stream.bundle.atomic_folder import atomic_folder
from stream.bundle.build_inputs import BuildInputs, BuildProgress
from stream.bundle.gate.kept_probes import PROBES
from stream.bundle.gate.probe import ProbeReport
from stream.bundle.manifest import (
    FORMAT_VERSION,
    LEAF_MATRIX,
    MANIFEST,
    FileEntry,
    Manifest,
    digest_of,
    digest_of_file,
    encode_manifest,
)
from stream.bundle.shadows.models import BuiltShadows
from stream.errors import ConfigurationError
from stream.events import ThresholdScale
from stream.forest.link import link_of
from stream.recourse.comparators.leaf_matrix import LeafMatrix
from stream.recourse.record.decision_record import ENGINE_VERSION

VERSION_DIGITS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleParts:
    """What the manifest says that no input file does, and what the build computed of the inputs."""

    model_id: str
    model_version: str | None  # default: derived from the model file
    revision: int
    threshold: float
    threshold_scale: ThresholdScale
    cutoff: float
    probe: ProbeReport
    matrix: LeafMatrix
    accepted: int  # rows of the pool that the model accepts
    audit_trees: bool
    audit_record_bytes_max: int
    shadows: BuiltShadows


def write_bundle(
    out_dir: Path, inputs: BuildInputs, parts: BundleParts, progress: BuildProgress
) -> tuple[Manifest, str]:
    """Write the bundle at `out_dir`; return its manifest and its digest. Raises: ConfigurationError."""
    arrays = {LEAF_MATRIX: parts.matrix.arrays(), PROBES: parts.probe.kept.arrays()}
    try:
        with atomic_folder(out_dir) as draft:
            progress("writing", 0, 1)
            manifest = _manifest(inputs, parts, _write(draft, inputs.files | parts.shadows.files, arrays))
            content = encode_manifest(manifest)
            (draft / MANIFEST).write_bytes(content)
    except OSError as error:  # the disk is full or not writable
        message = f"cannot write the bundle at {out_dir}: {error.strerror or error}"
        raise ConfigurationError(message) from error
    progress("writing", 1, 1)
    return manifest, digest_of(content)


def _manifest(inputs: BuildInputs, parts: BundleParts, files: dict[str, FileEntry]) -> Manifest:
    forest, pool = inputs.forest, inputs.pool
    return {
        "format_version": FORMAT_VERSION,
        "engine_version": ENGINE_VERSION,
        "model_id": parts.model_id,
        "model_version": parts.model_version or digest_of(inputs.model)[:VERSION_DIGITS],
        "revision": parts.revision,
        "library": forest.library,
        "library_version": forest.library_version,
        "objective": forest.objective,
        "link": link_of(forest).name,
        "approve": inputs.policy.approve,
        "threshold": parts.threshold,
        "threshold_scale": parts.threshold_scale,
        "cutoff_margin": parts.cutoff,
        "trees": inputs.trees,
        "trees_used": forest.trees,
        "missing": forest.missing,
        "forest_sha256": forest.digest,
        "features": [{"name": rule.name, "type": rule.type} for rule in inputs.rules.rules],
        "pool": {"rows": len(pool.rows), "accepted": parts.accepted, "sha256": pool.sha256},
        "probes": {"rows": len(parts.probe.kept), "library_version": parts.probe.library_version},
        "shadows": parts.shadows.entry,
        "audit_trees": parts.audit_trees,
        "audit_record_bytes_max": parts.audit_record_bytes_max,
        "files": files,
    }


def _write(
    draft: Path, files: dict[str, bytes], arrays: dict[str, dict[str, npt.NDArray[Any]]]
) -> dict[str, FileEntry]:
    """Write files by name and arrays by folder and name; return their entries in the manifest."""
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
