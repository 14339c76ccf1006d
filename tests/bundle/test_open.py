from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream.bundle.build import BuiltBundle
from stream.bundle.manifest import FORMAT_VERSION, MANIFEST, digest_of_file, encode_manifest
from stream.bundle.open import open_bundle
from stream.errors import BundleUnavailable, ConfigurationError, CorruptionError
from tests.bundle.inputs import inputs


@pytest.fixture
def built(tmp_path: Path) -> BuiltBundle:
    return inputs(tmp_path).build()


def rewrite(built: BuiltBundle, **changes: Any) -> None:
    """Replace fields of the manifest on disk."""
    manifest: Any = built.manifest | changes
    (built.folder / MANIFEST).write_bytes(encode_manifest(manifest))


def test_the_leaf_matrix_is_mapped_not_copied(built: BuiltBundle) -> None:
    """Given an opened bundle, its large arrays lie on the files' pages and cannot be written."""
    matrix = open_bundle(built.folder).matrix
    for array in (matrix.codes, matrix.rows, matrix.cells):
        assert isinstance(array.base, np.memmap)
        assert not array.flags.writeable


def test_one_changed_byte_in_any_file_is_found(built: BuiltBundle) -> None:
    """Given a bundle with one bit flipped in one of its files, opening it names that file."""
    for path in built.manifest["files"]:
        file = built.folder / path
        content = file.read_bytes()
        if not content:
            continue
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(CorruptionError, match=path):
            open_bundle(built.folder)
        file.write_bytes(content)
    open_bundle(built.folder)


def test_an_absent_file_is_found(built: BuiltBundle) -> None:
    """Given a bundle that lost a file, opening it names that file."""
    (built.folder / "features.toml").unlink()
    with pytest.raises(CorruptionError, match=r"features\.toml cannot be read"):
        open_bundle(built.folder)


def test_where_there_is_no_bundle_it_is_unavailable(tmp_path: Path) -> None:
    """Given a folder without a manifest, opening says where none was found."""
    with pytest.raises(BundleUnavailable, match=f"no bundle at {tmp_path}"):
        open_bundle(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", "{}", f'{{"format_version": {FORMAT_VERSION}}}'])
def test_a_manifest_that_is_none_is_corrupt(built: BuiltBundle, content: str) -> None:
    """Given something else under the manifest's name, opening refuses it."""
    (built.folder / MANIFEST).write_text(content)
    with pytest.raises(CorruptionError, match=MANIFEST):
        open_bundle(built.folder)


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", MANIFEST, ""])
def test_a_manifest_cannot_reach_out_of_its_folder(built: BuiltBundle, path: str) -> None:
    """Given a manifest that names a file outside the bundle, opening refuses it before it reads the file."""
    entry = {"sha256": "0" * 64, "bytes": 1}
    rewrite(built, files={**built.manifest["files"], path: entry})
    with pytest.raises(CorruptionError, match="outside the bundle"):
        open_bundle(built.folder)


def test_an_older_format_asks_for_another_build(built: BuiltBundle) -> None:
    """Given a bundle of a format before the probes, opening says to build it again."""
    rewrite(built, format_version=1)
    with pytest.raises(ConfigurationError, match=rf"format 1, this coach reads {FORMAT_VERSION}; build it again"):
        open_bundle(built.folder)


def test_a_newer_format_asks_for_an_upgrade(built: BuiltBundle) -> None:
    """Given a bundle of a format that this code does not know, opening says what to do."""
    rewrite(built, format_version=99)
    with pytest.raises(ConfigurationError, match=r"format 99.*upgrade"):
        open_bundle(built.folder)


def test_a_leaf_matrix_that_lacks_an_array_is_corrupt(built: BuiltBundle) -> None:
    """Given a manifest without one of the arrays, opening names it."""
    files = {path: entry for path, entry in built.manifest["files"].items() if "codes.npy" not in path}
    rewrite(built, files=files)
    with pytest.raises(CorruptionError, match="codes"):
        open_bundle(built.folder)


def test_an_array_that_is_none_is_corrupt_even_unverified(built: BuiltBundle) -> None:
    """Given garbage for an array and no verification, mapping it still refuses."""
    (built.folder / "leaf_matrix" / "rows.npy").write_bytes(b"garbage")
    with pytest.raises(CorruptionError, match=r"rows\.npy cannot be mapped"):
        open_bundle(built.folder, verify=False)


@pytest.mark.parametrize("path", ["probes/rows.npy", "leaf_matrix/codes.npy", "leaf_matrix/category_start.npy"])
@pytest.mark.parametrize("verify", [True, False])
def test_an_array_of_another_form_is_corrupt_though_its_digest_fits(
    built: BuiltBundle, path: str, *, verify: bool
) -> None:
    """Given an array without a dimension, digests mended, opening refuses it, verified or not."""
    np.save(built.folder / path, np.array(3))
    rewrite(built, files=built.manifest["files"] | {path: digest_of_file(built.folder / path)})
    with pytest.raises(CorruptionError, match=r"build (or fetch )?the bundle again"):
        open_bundle(built.folder, verify=verify)


def test_a_manifest_without_a_model_is_corrupt(built: BuiltBundle) -> None:
    """Given a manifest that names no model file, opening refuses it."""
    rewrite(built, files={p: e for p, e in built.manifest["files"].items() if p != "model.json"})
    with pytest.raises(CorruptionError, match="no model file"):
        open_bundle(built.folder)


def test_the_manifest_is_json_that_a_person_can_read(built: BuiltBundle) -> None:
    """Given a bundle, its manifest is indented JSON with sorted keys and says what the model decides by."""
    text = (built.folder / MANIFEST).read_text()
    manifest = json.loads(text)
    assert text.startswith('{\n  "approve": "above"')
    assert list(manifest) == sorted(manifest)
    assert manifest["features"][0] == {"name": "f0", "type": "number"}
