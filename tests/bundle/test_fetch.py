from __future__ import annotations

import json
from pathlib import Path

import fsspec
import pytest

from stream.bundle.build import BuiltBundle
from stream.bundle.fetch import fetch_bundle
from stream.bundle.manifest import MANIFEST
from stream.bundle.open import open_bundle
from stream.errors import BundleUnavailable, CorruptionError
from tests.bundle.inputs import content_of, inputs


@pytest.fixture
def built(tmp_path: Path) -> BuiltBundle:
    return inputs(tmp_path / "inputs").build()


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_bundle_is_copied_whole(tmp_path: Path, built: BuiltBundle, scheme: str) -> None:
    """Given a path or a file URI, the copy has every byte, and its digest is given back."""
    digest = fetch_bundle(f"{scheme}{built.folder}", tmp_path / "copy", bundle_sha256=built.bundle_sha256)
    assert digest == built.bundle_sha256
    assert content_of(tmp_path / "copy") == content_of(built.folder)


def test_an_object_store_works_like_a_folder(tmp_path: Path, built: BuiltBundle) -> None:
    """Given another file system that fsspec knows, the bundle arrives the same."""
    memory = fsspec.filesystem("memory")
    memory.put(str(built.folder), "/fetch-test", recursive=True)
    try:
        fetch_bundle("memory://fetch-test", tmp_path / "copy")
    finally:
        memory.rm("/fetch-test", recursive=True)
    assert open_bundle(tmp_path / "copy").identity["bundle_sha256"] == built.bundle_sha256


@pytest.mark.parametrize("uri", ["/nowhere/bundle", "file:///nowhere", "no-such-scheme://x/y"])
def test_a_bundle_that_cannot_be_read_is_unavailable(tmp_path: Path, uri: str) -> None:
    """Given a URI at which nothing can be read, the error names it and nothing is left behind."""
    with pytest.raises(BundleUnavailable, match=uri):
        fetch_bundle(uri, tmp_path / "copy")
    assert not list(tmp_path.iterdir())


def test_another_bundle_than_published_is_corrupt(tmp_path: Path, built: BuiltBundle) -> None:
    """Given a URI that holds another bundle than the one published, it is refused."""
    with pytest.raises(CorruptionError, match="as published"):
        fetch_bundle(str(built.folder), tmp_path / "copy", bundle_sha256="0" * 64)
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("damage", ["longer", "shorter", "other"])
def test_a_damaged_file_is_corrupt_and_leaves_nothing(tmp_path: Path, built: BuiltBundle, damage: str) -> None:
    """Given a file that is not what the manifest says, nothing arrives."""
    file = built.folder / "features.toml"
    content = file.read_bytes()
    file.write_bytes({"longer": content + b"\n", "shorter": content[:-1], "other": content[:-1] + b" "}[damage])
    with pytest.raises(CorruptionError, match=r"features\.toml"):
        fetch_bundle(str(built.folder), tmp_path / "copy")
    assert [p.name for p in tmp_path.iterdir()] == ["inputs"]


def test_a_missing_file_is_unavailable_and_leaves_nothing(tmp_path: Path, built: BuiltBundle) -> None:
    """Given a bundle of which a file has not arrived at its URI, the fetch can be tried again later."""
    (built.folder / "policy.toml").unlink()
    with pytest.raises(BundleUnavailable, match=r"policy\.toml"):
        fetch_bundle(str(built.folder), tmp_path / "copy")
    assert [p.name for p in tmp_path.iterdir()] == ["inputs"]


def test_a_manifest_that_reaches_out_writes_nothing(tmp_path: Path, built: BuiltBundle) -> None:
    """Given a manifest with a path out of the folder, nothing is written."""
    manifest = json.loads((built.folder / MANIFEST).read_text())
    manifest["files"]["../../escaped"] = {"sha256": "0" * 64, "bytes": 1}
    (built.folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(CorruptionError, match="outside"):
        fetch_bundle(str(built.folder), tmp_path / "copy")
    assert [p.name for p in tmp_path.iterdir()] == ["inputs"]
