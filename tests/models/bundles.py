"""Bundles as the leaf cache sees them: a manifest, and files with digests. No model in them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

CONTENT: Mapping[str, bytes] = {
    "model.json": b'{"learner": 1}' * 300,
    "features.toml": b"[age]\ntype = 'number'\n",
    "leaf_matrix/codes.npy": bytes(range(256)) * 20,
    "leaf_matrix/rows.npy": b"\x00" * 4096,
    "leaf_matrix/empty.npy": b"",
}


def write_bundle(folder: Path, content: Mapping[str, bytes] = CONTENT) -> str:
    """Write a bundle and give its digest."""
    for path, data in content.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    files = {path: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for path, data in content.items()}
    manifest = json.dumps({"format_version": 1, "files": files}, sort_keys=True).encode()
    (folder / "manifest.json").write_bytes(manifest)
    return hashlib.sha256(manifest).hexdigest()


def files_in(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}
