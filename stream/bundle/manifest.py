"""manifest.json: what a bundle is, and the digest of everything else in it. Its own digest names the bundle.

A bundle is a folder:

    manifest.json
    model.json | model.ubj | model.txt   the model file, byte for byte
    features.toml, policy.toml           likewise; policy.toml is empty without one
    leaf_matrix/<array>.npy              the training pool as the method needs it, memory-mapped on opening
    probes/<array>.npy                   rows with the library's results, computed again on opening
    shadows/00.ubj, ...                  shadow models, where there are any, in the order of their ring
    train.json                           how the build trained them, byte for byte, if it did
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, cast

from stream.bundle.manifest_fields import OWN_PATH, wrong_field
from stream.errors import BundleUnavailable, ConfigurationError, CorruptionError, shown
from stream.events import PublishedFeature, ThresholdScale
from stream.forest.trees import Library, TreesUsed

FORMAT_VERSION: Final = 3  # raised when a bundle of the new format cannot be opened by older code
MANIFEST: Final = OWN_PATH
FEATURES: Final = "features.toml"
POLICY: Final = "policy.toml"
LEAF_MATRIX: Final = "leaf_matrix"
SHADOWS: Final = "shadows"
READ_BYTES: Final = 1 << 20


class FileEntry(TypedDict):
    """One file of the bundle."""

    sha256: str
    bytes: int


class PoolEntry(TypedDict):
    """The training pool. `accepted`: rows that the model accepts at the bundle's own threshold."""

    rows: int
    accepted: int
    sha256: str  # over feature names and values as the model takes them, so independent of the file's format


class ProbesEntry(TypedDict):
    """The probes of the bundle, and the library version of the builder's gate."""

    rows: int
    library_version: str


class ShadowsEntry(TypedDict):
    """The shadow models: whether the build trained them, and how many are searched and held out for an applicant."""

    trained: bool
    searched: int
    held_out: int
    forests_sha256: list[str]  # of each forest, its features in the model's order


class Manifest(TypedDict):
    """The content of manifest.json. A pure function of the inputs of the build."""

    format_version: int
    engine_version: str
    model_id: str
    model_version: str
    revision: int
    library: Library
    library_version: str  # that wrote the model file; "" where it does not say
    objective: str
    link: str
    approve: Literal["above", "below"]
    threshold: float
    threshold_scale: ThresholdScale
    cutoff_margin: float
    trees: TreesUsed | None  # the choice, where the file left one
    trees_used: int
    missing: float | None  # the number that the decider's XGBoost takes for missing, besides NaN
    forest_sha256: str
    features: list[PublishedFeature]
    pool: PoolEntry
    probes: ProbesEntry
    shadows: ShadowsEntry | None
    audit_trees: bool  # whether audit records carry per-tree detail
    audit_record_bytes_max: int  # no audit record of this bundle is larger
    files: dict[str, FileEntry]


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of manifest.json: sorted keys, so equal manifests have equal bytes."""
    return (json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()


def digest_of(content: bytes) -> str:
    """SHA-256 of bytes, as 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def digest_of_file(path: Path) -> FileEntry:
    """Digest and size of a file, read in pieces."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(READ_BYTES):
            digest.update(piece)
            size += len(piece)
    return {"sha256": digest.hexdigest(), "bytes": size}


def decode_manifest(content: bytes, where: str) -> Manifest:
    """Read and check a manifest. `where`: its place, for messages.

    Any `engine_version` passes: a bundle holds inputs, not answers, and records name the engine that answered.
    Raises: CorruptionError that names a bad field, ConfigurationError for another bundle format.
    """
    try:
        manifest: Any = json.loads(content)
        version = manifest["format_version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _not_a_manifest(where, "is not the manifest of a bundle") from error
    if type(version) is int and version != FORMAT_VERSION:
        remedy = "build it again with this coach, and publish it" if version < FORMAT_VERSION else "upgrade this coach"
        message = f"{where} has bundle format {shown(str(version))}, this coach reads {FORMAT_VERSION}; {remedy}"
        raise ConfigurationError(message)
    wrong = wrong_field(manifest)
    if wrong is not None:
        raise _not_a_manifest(where, wrong)
    return cast("Manifest", {name: manifest[name] for name in Manifest.__annotations__})


def _not_a_manifest(where: str, what: str) -> CorruptionError:
    return CorruptionError(f"{where}/{MANIFEST} {what}; build or fetch the bundle again")


def read_manifest(folder: Path) -> tuple[Manifest, str]:
    """The manifest of the bundle in `folder`, and the bundle's digest.

    Raises: BundleUnavailable where there is none, and as `decode_manifest` does.
    """
    try:
        content = (folder / MANIFEST).read_bytes()
    except OSError as error:
        message = f"no bundle at {folder}: {MANIFEST} cannot be read ({error.strerror or error})"
        raise BundleUnavailable(message) from error
    return decode_manifest(content, str(folder)), digest_of(content)


def check_files(folder: Path, manifest: Manifest) -> None:
    """Compare every file of the bundle in `folder` with its digest.

    Raises: CorruptionError that names the first file that is absent or differs.
    """
    for path, entry in sorted(manifest["files"].items()):
        try:
            found = digest_of_file(folder / path)
        except OSError as error:
            message = f"{folder / path} cannot be read ({error.strerror or error}); build or fetch the bundle again"
            raise CorruptionError(message) from error
        if found != entry:
            message = f"{folder / path} is not the file that the manifest names; build or fetch the bundle again"
            raise CorruptionError(message)
